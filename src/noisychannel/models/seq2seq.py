"""The sequence-to-sequence baselines: an LSTM encoder-decoder, without and with additive attention.

The encoder states h_i of u_1..u_I are summarised in one vector: the state at the last position or, for a bidirectional
encoder, the forward state at the last position and the backward state at the first. Every layer of the decoder starts
from tanh of a linear function of it. Without attention that vector is all that the decoder knows about the input:

    s_j = LSTM(s_{j-1}, v_{j-1})                           p(v_j | v_<j, u) = softmax(W s_j + b)

With attention (Bahdanau, Cho and Bengio, 2015) the decoder looks at the input again before each step:

    energy(i, j) = m · tanh(A s_{j-1} + d + U h_i)         context_j = Σ_i softmax_i(energy(i, j)) h_i
    s_j = LSTM(s_{j-1}, [v_{j-1}; context_j])              p(v_j | v_<j, u) = softmax(W [s_j; context_j] + b)

Unlike those of an SSNT, these probabilities sum to one over all outputs (endless ones included).

Dropout is applied as in ``lstm``, once to every number: to the embeddings, between layers, and to the states that are
read (those of the encoder, hence the contexts, and those of the decoder before the softmax); never to the recurrence.

Shapes: B batch, I input positions, J output positions, N outputs stepped together, V output symbols, L layers,
H hidden size, S size of an encoder state (H, or 2H when bidirectional), E embedding size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from noisychannel.ids import after_bos, inside, require_eos
from noisychannel.models.lm import summed_log_probs
from noisychannel.models.lstm import BidirectionalLSTM, ForwardLSTM, LSTMState, check_sizes, initialise_lstm
from noisychannel.models.products import Linear, run_lstm
from noisychannel.precision import at_least_float32, exact_recurrence


class Attended(NamedTuple):
    """The inputs of N outputs, prepared for attention."""

    states: Tensor
    """h_i: [N,I,S]."""
    keys: Tensor
    """U h_i, the part of the energies that is independent of the output: [N,I,H]."""
    inside: Tensor
    """False in the padding: [N,I]."""

    def select(self, indices: Tensor) -> Attended:
        """The inputs of the outputs ``indices``, in that order, repeats allowed."""
        return Attended(*(x[indices] for x in self))


class Seq2SeqState(NamedTuple):
    """The explicit state of N outputs: everything that a step needs to know about their past and their inputs."""

    decoder: LSTMState
    attended: Attended | None
    """None without attention: the decoder then knows the input by its first state only."""

    def select(self, indices: Tensor) -> Seq2SeqState:
        """The states of the outputs ``indices``, in that order, repeats allowed."""
        attended = None if self.attended is None else self.attended.select(indices)
        return Seq2SeqState(self.decoder.select(indices), attended)


class AdditiveAttention(nn.Module):
    """Where a decoder state looks in the input, and what it sees there."""

    def __init__(self, state_size: int, hidden_size: int) -> None:
        super().__init__()
        self.query = Linear(hidden_size, hidden_size)
        self.key = Linear(state_size, hidden_size, bias=False)
        self.energy = Linear(hidden_size, 1, bias=False)

    def attend(self, states_BIS: Tensor, lengths: Tensor) -> Attended:
        """The part that is the same in every step."""
        return Attended(states_BIS, self.key(states_BIS), inside(lengths, states_BIS.shape[1], states_BIS.device))

    def energies(self, query_NH: Tensor, attended: Attended) -> Tensor:
        """How much each output looks at each input position, before the softmax: [N,H] -> [N,I]."""
        energy_NI = self.energy(torch.tanh(self.query(query_NH)[:, None] + attended.keys)).squeeze(-1)
        return energy_NI.masked_fill(~attended.inside, -torch.inf)

    def forward(self, query_NH: Tensor, attended: Attended) -> Tensor:
        """The context of each output: [N,H] -> [N,S]."""
        energy_NI = self.energies(query_NH, attended)
        if energy_NI.device.type == "cpu" and not torch.is_grad_enabled():
            # In float32 the sums over I would depend, in their last digits, on the padding, and so on the batch.
            context_N1S = energy_NI.double().softmax(-1)[:, None] @ attended.states.double()
            return context_N1S.squeeze(1).to(attended.states.dtype)
        context_N1S = energy_NI.softmax(-1)[:, None] @ attended.states
        return context_N1S.squeeze(1)


class Seq2Seq(nn.Module):
    """An encoder-decoder. ``bidirectional`` is about the encoder."""

    def __init__(
        self,
        input_vocab_size: int,
        output_vocab_size: int,
        hidden_size: int,
        attention: bool = True,
        bidirectional: bool = True,
        dropout: float = 0.0,
        num_layers: int = 1,
        embedding_size: int | None = None,
    ) -> None:
        super().__init__()
        check_sizes(
            input_vocab_size=input_vocab_size,
            output_vocab_size=output_vocab_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            embedding_size=embedding_size,
        )
        embedding_size = embedding_size or hidden_size
        encoder = BidirectionalLSTM if bidirectional else ForwardLSTM
        self.encoder = encoder(input_vocab_size, embedding_size, hidden_size, num_layers, dropout)
        state_size = self.encoder.output_size
        context_size = state_size if attention else 0
        self.bridge = Linear(state_size, 2 * num_layers * hidden_size)
        self.attention = AdditiveAttention(state_size, hidden_size) if attention else None
        self.embedding = nn.Embedding(output_vocab_size, embedding_size)
        self.dropout = nn.Dropout(dropout)
        self.decoder = nn.LSTM(
            embedding_size + context_size,
            hidden_size,
            num_layers,
            batch_first=True,
            dropout=dropout if num_layers > 1 else 0.0,
        )
        self.word = Linear(hidden_size + context_size, output_vocab_size)
        initialise_lstm(self.decoder)

    @property
    def bidirectional(self) -> bool:
        return isinstance(self.encoder, BidirectionalLSTM)

    def log_prob(self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        """log p(outputs | inputs): ids [B,I], [B], [B,J], [B] -> [B]. Both sides end in EOS."""
        require_eos("inputs", inputs, input_lengths)
        require_eos("outputs", outputs, output_lengths)
        return self.forward(inputs, input_lengths, outputs, output_lengths)

    def forward(self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        """``log_prob`` without checking the ids, which would wait for the GPU."""
        state = self.start(inputs, input_lengths)
        embedded_BJE = self.dropout(self.embedding(after_bos(outputs)))
        if state.attended is None:
            seen_BJX, _ = self._run_decoder(embedded_BJE, state.decoder)
        else:
            seen = []
            for embedded_BE in embedded_BJE.unbind(1):
                seen_BX, state = self._advance(embedded_BE, state)
                seen.append(seen_BX)
            seen_BJX = torch.stack(seen, dim=1)
        return summed_log_probs(self.word(seen_BJX), outputs, output_lengths)

    @property
    def attends(self) -> bool:
        """Whether it has attention, and so can say where an output symbol comes from (``attended``)."""
        return self.attention is not None

    def attended(self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        """The input position that the attention weighs most before each output symbol, -1 past the end.

        Ids [B,I], [B], [B,J], [B] -> [B,J]. An alignment of words, as ``viterbi`` of an SSNT, but not monotone.
        """
        if self.attention is None:
            raise ValueError("a model without attention has no alignment")
        state, positions = self.start(inputs, input_lengths), []
        for embedded_BE in self.dropout(self.embedding(after_bos(outputs))).unbind(1):
            assert state.attended is not None
            positions.append(self.attention.energies(state.decoder.hidden_LNH[-1], state.attended).argmax(1))
            _, state = self._advance(embedded_BE, state)
        return torch.stack(positions, dim=1).masked_fill(~inside(output_lengths, outputs.shape[1], outputs.device), -1)

    def start(self, inputs: Tensor, input_lengths: Tensor) -> Seq2SeqState:
        """The state of one empty output per input, before BOS: ids [B,I], [B]."""
        if isinstance(self.encoder, BidirectionalLSTM):
            states_BIS = self.encoder(inputs, input_lengths)
        else:
            states_BIS = self.encoder(inputs)
        first = torch.tanh(self.bridge(self._summary(states_BIS, input_lengths)))
        hidden_LBH, cell_LBH = first.view(len(first), 2, self.decoder.num_layers, -1).permute(1, 2, 0, 3)
        attended = None if self.attention is None else self.attention.attend(states_BIS, input_lengths)
        return Seq2SeqState(LSTMState(hidden_LBH, cell_LBH), attended)

    def step(self, symbols_N: Tensor, state: Seq2SeqState) -> tuple[Tensor, Seq2SeqState]:
        """Append a symbol (BOS first) to each output: log p(next symbol) [N,V], and the new state."""
        seen_NX, state = self._advance(self.dropout(self.embedding(symbols_N)), state)
        return at_least_float32(self.word(seen_NX)).log_softmax(-1), state

    def _summary(self, states_BIS: Tensor, lengths: Tensor) -> Tensor:
        """Each input in one vector, [B,S]: the states in which each direction of the encoder has read all of it."""
        last = lengths.to(states_BIS.device) - 1
        last_BS = states_BIS[torch.arange(len(last), device=last.device), last]
        if not self.bidirectional:
            return last_BS
        H = self.decoder.hidden_size
        return torch.cat([last_BS[:, :H], states_BIS[:, 0, H:]], dim=-1)

    def _advance(self, embedded_NE: Tensor, state: Seq2SeqState) -> tuple[Tensor, Seq2SeqState]:
        """One step: the input of the softmax, s_j or [s_j; context_j], and the new state."""
        decoder, attended = state
        if self.attention is None or attended is None:
            seen_N1H, decoder = self._run_decoder(embedded_NE[:, None], decoder)
            return seen_N1H[:, 0], Seq2SeqState(decoder, None)
        context_NS = self.attention(decoder.hidden_LNH[-1], attended)
        seen_N1H, decoder = self._run_decoder(torch.cat([embedded_NE, context_NS], dim=-1)[:, None], decoder)
        return torch.cat([seen_N1H[:, 0], context_NS], dim=-1), Seq2SeqState(decoder, attended)

    def _run_decoder(self, x_NTX: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        # cuDNN needs contiguous states; those of the bridge and of ``select`` may not be.
        with exact_recurrence(x_NTX):
            before = state.hidden_LNH.contiguous(), state.cell_LNH.contiguous()
            states_NTH, after = run_lstm(self.decoder, x_NTX, before)
        return self.dropout(states_NTH), LSTMState(*after)
