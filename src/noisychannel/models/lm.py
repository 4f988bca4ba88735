"""The source model p(y): an LSTM language model, trained on the outputs of the pairs and any unpaired outputs.

If the unpaired outputs have features too, these come before each output, and the model is one of both together: having
read the features, it knows what kind of output follows.

Shapes: B batch, J output positions, N sequences stepped together, V symbols.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from noisychannel.ids import after_bos, inside, require_eos
from noisychannel.models.lstm import ForwardLSTM, LSTMState, check_sizes
from noisychannel.models.products import Linear
from noisychannel.precision import at_least_float32


class LanguageModel(nn.Module):
    """log p(y) = Σ_j log softmax(W s_j + b)[y_j], s_j the LSTM's state of BOS y_1..y_{j-1}."""

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        num_layers: int = 2,
        dropout: float = 0.0,
        embedding_size: int | None = None,
        reads_features: bool = False,
    ) -> None:
        """``reads_features``: whether features come before the outputs; a search then feeds them first."""
        super().__init__()
        check_sizes(
            vocab_size=vocab_size, hidden_size=hidden_size, num_layers=num_layers, embedding_size=embedding_size
        )
        self.reads_features = reads_features
        self.decoder = ForwardLSTM(vocab_size, embedding_size or hidden_size, hidden_size, num_layers, dropout)
        self.word = Linear(hidden_size, vocab_size)

    def log_prob(self, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        """log p(outputs), EOS included: ids [B,J], [B] -> [B]."""
        require_eos("outputs", outputs, output_lengths)
        return self(outputs, output_lengths)

    def forward(self, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        """``log_prob`` without checking the ids."""
        return summed_log_probs(self.word(self.decoder(after_bos(outputs))), outputs, output_lengths)

    def start(self, n: int) -> LSTMState:
        """The state of ``n`` empty outputs, before BOS."""
        return self.decoder.start(n)

    def step(self, symbols_N: Tensor, state: LSTMState, parents_N: Tensor | None = None) -> tuple[Tensor, LSTMState]:
        """Append a symbol (BOS first) to each output: log p(next symbol) [N,V], and the new state.

        The outputs are those of ``state`` or, if ``parents`` are given, those of its rows ``parents``.
        """
        states_NH, state = self.decoder.step(symbols_N, state, parents_N)
        return at_least_float32(self.word(states_NH)).log_softmax(-1), state


def summed_log_probs(logits_BJV: Tensor, outputs_BJ: Tensor, output_lengths: Tensor) -> Tensor:
    """Σ_j log softmax(logits_j)[v_j] over each output's length: [B]."""
    loss = F.cross_entropy(at_least_float32(logits_BJV).flatten(0, 1), outputs_BJ.flatten().long(), reduction="none")
    inside_BJ = inside(output_lengths, outputs_BJ.shape[1], outputs_BJ.device)
    log_probs_BJ = -loss.view_as(outputs_BJ).masked_fill(~inside_BJ, 0.0)
    if torch.is_grad_enabled():
        return log_probs_BJ.sum(1)
    # In float32 the sum would depend, in its last digit, on the padding, and so on the batch.
    return log_probs_BJ.sum(1, dtype=torch.float64).to(log_probs_BJ.dtype)
