"""The short ways of a search step on a CPU, against the general code."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from decoder_oracles import random_input, random_models, random_weights
from noisychannel import SSNT, LanguageModel, NoisyChannelDecoder, Weights
from noisychannel.decode import extensions, selection
from noisychannel.decode.answers import Answers
from noisychannel.models import lstm
from noisychannel.models.lstm import LSTMState
from noisychannel.models.protocols import Side

SYMBOLS = torch.tensor([4, 5, 4, 7, 8, 6, 4])
PARENTS = torch.tensor([0, 0, 1, 2, 2, 1, 0])


def without_table(state: LSTMState) -> LSTMState:
    return state._replace(read=None)


def assert_states(found: LSTMState, expected: LSTMState) -> None:
    torch.testing.assert_close(found.hidden_LNH, expected.hidden_LNH)
    torch.testing.assert_close(found.cell_LNH, expected.cell_LNH)


def assert_sides(found: Side, expected: Side) -> None:
    torch.testing.assert_close(found.scores, expected.scores)
    torch.testing.assert_close(found.gate, expected.gate)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_a_step_by_the_table_is_a_step(num_layers: int, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    model = LanguageModel(9, 6, num_layers=num_layers, embedding_size=5).to(dtype).eval()
    by_table, plain = model.start(3), without_table(model.start(3))
    assert by_table.read is not None
    for symbols, parents in ((SYMBOLS[:3], None), (SYMBOLS, PARENTS)):
        scores, by_table = model.step(symbols, by_table, parents)
        expected, plain = model.step(symbols, plain, parents)
        torch.testing.assert_close(scores, expected)
        assert_states(by_table, plain)


@torch.no_grad()
@pytest.mark.parametrize("copies", [None, [-1, -1, 2, -1, 4, 5, -1, 7, 8]])
def test_the_joined_products_of_a_transducer_are_its_products(copies: list[int] | None) -> None:
    torch.manual_seed(2)
    model = SSNT(9, 9, 6, copies=copies, copy_start=1.5).eval()
    for start, step in ((model.start_inputs, model.step_inputs), (model.start_outputs, model.step_outputs)):
        joined, plain = start(3), without_table(start(3))
        assert joined.read is not None
        for symbols, parents in ((SYMBOLS[:3], None), (SYMBOLS, PARENTS)):
            found, joined = step(symbols, joined, parents)
            expected, plain = step(symbols, plain, parents)
            assert_sides(found, expected)
            assert_states(joined, plain)


def test_a_large_vocabulary_and_training_have_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    model = SSNT(9, 9, 6)
    assert model.start_inputs(1).read is None  # gradients
    with torch.no_grad():
        assert model.start_inputs(1).read is None  # dropout
        model.eval()
        state = model.start_inputs(1)
        assert state.read is not None
        monkeypatch.setattr(lstm, "SYMBOLS_READ_AHEAD", 8)
        assert model.start_inputs(1).read is None
        assert model.start_outputs(1).read is None
    # A state that was started without gradients does not hide those of a step.
    side, _ = model.step_inputs(torch.tensor([5]), state)
    side.scores.sum().backward()
    assert model.input_word.weight.grad is not None
    assert model.encoder.embedding.weight.grad is not None


@pytest.mark.parametrize("seed", range(12))
def test_selection_is_the_same_in_numpy_and_in_pytorch(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    models = random_models(seed, bidirectional=bool(seed % 2))
    weights = Weights(0.0, 1.0, 0.5, 0.4) if seed == 0 else random_weights(rng)
    decoder = NoisyChannelDecoder(models.direct, models.channel, models.lm, weights, k1=5, k2=3, max_length=6)
    xs = [random_input(rng) for _ in range(4)]
    in_numpy = decoder.decode(xs, n_best=4)
    monkeypatch.setattr(selection, "in_numpy", lambda x: False)
    in_pytorch = decoder.decode(xs, n_best=4)
    assert [[h.tokens for h in best] for best in in_numpy] == [[h.tokens for h in best] for best in in_pytorch]
    for mine, theirs in zip(in_numpy, in_pytorch, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert one.score == pytest.approx(other.score, rel=1e-12)
            computed = {name: term for name, term in one.terms().items() if term is not None}
            assert {name: other.terms()[name] for name in computed} == pytest.approx(computed, rel=1e-12)


def test_extensions_of_one_sentence_are_those_of_a_batch() -> None:
    generator = torch.Generator().manual_seed(3)
    score: Tensor = torch.randn(2, 4, 5, generator=generator, dtype=torch.float64)
    score[torch.rand(score.shape, generator=generator) < 0.3] = -torch.inf
    prefix, symbol = (torch.randint(0, 3, score.shape, generator=generator) for _ in range(2))
    both = extensions.Extensions.of(extensions.Proposals(score, prefix, symbol), 3, 3)
    assert both is not None
    for n in range(2):
        one = extensions.Extensions.of(extensions.Proposals(score[n, None], prefix[n, None], symbol[n, None]), 3, 3)
        assert one is not None
        filled = both.packing.filled[n]
        assert torch.equal(one.slot[0], both.slot[n][filled])
        assert torch.equal(one.symbol[0], both.symbol[n][filled])
        assert torch.equal(one.place[0], both.place[n])
        assert torch.equal(one.prefix_R[one.family_N], one.slot[0])
    nothing = extensions.Proposals(torch.full_like(score[:1], -torch.inf), prefix[:1], symbol[:1])
    assert extensions.Extensions.of(nothing, 3, 3) is None


def test_the_best_of_two_lists_of_answers() -> None:
    device = torch.device("cpu")
    first = torch.tensor([[3.0, 1.0]], dtype=torch.float64)
    mine = Answers.of(first, {"direct": -first}, 4, torch.tensor([[7, 8]]))
    other = Answers.of(first - 1, {"direct": 1 - first}, 5, torch.tensor([[9, 10]]))
    merged = mine.merge(other)
    assert merged.score.tolist() == [[3.0, 2.0]]
    assert merged.length.tolist() == [[4, 5]]
    assert merged.slot.tolist() == [[7, 9]]
    assert merged.terms["direct"].tolist() == [[-3.0, -2.0]]
    assert mine.merge(Answers.none(("direct",), 1, 3, device)) is mine
