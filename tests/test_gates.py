"""Gates computed by NumPy on a CPU: the same numbers as PyTorch's own modules."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from noisychannel import SSNT
from noisychannel.models import gates
from noisychannel.models.lstm import lstm_cell
from noisychannel.models.protocols import Side


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("in_cache", [1, 200, 1 << 17])
def test_emissions_of_many_prefixes(dtype: torch.dtype, in_cache: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "GATES_IN_CACHE", in_cache)
    torch.manual_seed(1)
    model, G = SSNT(9, 9, 12).to(dtype), 12
    known_BIG = 3 * torch.randn(4, 5, G, dtype=dtype)
    sentence_N = torch.tensor([0, 0, 0, 1, 3, 3, 3, 3, 3, 3])  # none of the third
    built_NG = 3 * torch.randn(len(sentence_N), G, dtype=dtype)
    with torch.no_grad():
        logits_NI = model.gathered_emit_logits(known_BIG, sentence_N, built_NG)
        for n, sentence in enumerate(sentence_N.tolist()):
            inputs, outputs = known_BIG[sentence], built_NG[n : n + 1]
            expected_I1 = model.emit_logits(Side(inputs, inputs), Side(outputs, outputs))
            torch.testing.assert_close(logits_NI[n], expected_I1.squeeze(1))
        whole = model.gathered_emit_logits(known_BIG[3:], torch.zeros(6, dtype=torch.long), built_NG[4:])
    assert torch.equal(whole, logits_NI[4:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lstm_cell_is_that_of_pytorch(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    reference = nn.LSTMCell(7, 5).to(dtype)
    x, hidden, cell = (4 * torch.randn(11, size, dtype=dtype) for size in (7, 5, 5))
    expected = reference(x, (hidden, cell))

    def computed() -> tuple[torch.Tensor, torch.Tensor]:
        read = nn.functional.linear(x, reference.weight_ih, reference.bias_ih)
        return lstm_cell(read + nn.functional.linear(hidden, reference.weight_hh, reference.bias_hh), cell.clone())

    for ours in (computed(), torch.no_grad()(computed)()):  # with gradients by PyTorch, without by NumPy
        for mine, theirs in zip(ours, expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
