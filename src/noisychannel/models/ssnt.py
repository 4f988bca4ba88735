"""SSNT, the segment-to-segment neural transducer: p(v | u) with a latent monotone alignment.

Equation (1) of the paper factorises the joint probability of output and alignment,

    p(v, z | u) = Π_j p(z_j | z_{j-1}, v_<j, u) · p(v_j | v_<j, z_j, u)

Both factors are functions of the encoder state h_i of u_1..u_i and the decoder state s_j of v_1..v_{j-1}:

    word:  p(v_j | i, j) = softmax(W_h h_i + W_s s_j + b)          logits are a sum a_i + c_j   (``joint``)
    emit:  e(i, j) = sigmoid(m · tanh(U_h h_i + U_s s_j + d))      else shift to i + 1          (``lattice``)

**Copying** (optional): the symbol of the output vocabulary that is the input symbol u_i itself gets a score more,
a_i[u_i] += κ(h_i), so that a model need not learn letter by letter that most of them stay as they are. It is a part of
a_i, so the logits are still a sum, and nothing else changes.

**Pace** (optional, only while a model is trained): in the first updates e(i, j) is not learnt; shifts and emissions
keep an even pace. If e is learnt from the start, it may soon put all outputs at one position, such as the end of the
input, where the encoder knows all of it: then the alignment is certain, and nothing is gained by moving a word to where
its translation stands. Such a model is a sequence-to-sequence model without attention, and stays one.

p(z_j = i | z_{j-1} = k) is the product of the shifts from k to i - 1 and the emission at i. log p(v, z_J = I | u) is
the log-sum of (1) over the lattice. Nothing forces an emission at i = I, so the probabilities of all v sum to less than
one: the perplexity of an SSNT is not comparable with that of a sequence-to-sequence model.

A direct model reads x and writes y. A channel model reads y and writes x. The decoder builds y from left to right, so
the encoder of a channel must be unidirectional.

Shapes: B batch, I input positions, J output positions, N sequences stepped together, V output symbols, G gate size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from noisychannel import lattice
from noisychannel.ids import BOS, EOS, PAD, after_bos, require_eos
from noisychannel.joint import word_log_probs
from noisychannel.models import gates
from noisychannel.models.lstm import BidirectionalLSTM, ForwardLSTM, LSTMState, check_sizes
from noisychannel.models.products import Linear, one_column
from noisychannel.models.protocols import Side
from noisychannel.precision import at_least_float32

GATES_IN_CACHE = 1 << 22
"""Elements of the [..., I, J, G] block behind the emission logits on a CPU, unless gradients are needed."""
GATES_AT_ONCE = 1 << 28
"""The same on a GPU, which bounds memory."""


class Emission(nn.Linear):
    """m · tanh(x) + b, given 2x, which is overwritten: [..., G] -> [...].

    tanh(x) = 2σ(2x) - 1, which is several times faster on a CPU; the 2 and the -1 become part of the product.
    """

    def forward(self, twice: Tensor) -> Tensor:
        return one_column(twice.sigmoid_(), 2 * self.weight, self.bias - self.weight.sum())


class Copying(nn.Module):
    """a_i[u_i] += κ(h_i), with κ(h) = k·h + b. At first k is zero, so κ is ``start`` everywhere."""

    def __init__(self, size: int, targets: Sequence[int], start: float) -> None:
        super().__init__()
        self.amount = Linear(size, 1)
        nn.init.zeros_(self.amount.weight)
        nn.init.constant_(self.amount.bias, start)
        self.target = CopyTarget(targets)

    def forward(self, scores: Tensor, states: Tensor, symbols: Tensor) -> Tensor:
        """Scores [..., V], states [..., H] and input symbols [...] -> scores [..., V]."""
        target = self.target(symbols)[..., None]
        amount = self.amount(states).masked_fill(target < 0, 0.0).to(scores.dtype)
        return scores.scatter_add(-1, target.clamp(min=0), amount)

    def add(self, scores_NV: Tensor, amount_N: Tensor, symbols_N: Tensor) -> None:
        """The same on a CPU, given κ, into the scores."""
        target_N, scores = self.target.ids.numpy().take(symbols_N.numpy()), scores_NV.numpy()
        rows = np.flatnonzero(target_N >= 0)
        scores[rows, target_N.take(rows)] += amount_N.numpy().take(rows)


class CopyTarget(nn.Module):
    """The output symbol that is the same as an input symbol; -1 if there is none: ids [...] -> ids [...]."""

    ids: Tensor

    def __init__(self, targets: Sequence[int]) -> None:
        super().__init__()
        # Not among the weights, because it follows from the vocabularies; so it is real even in a model that is built
        # without memory for its weights.
        self.register_buffer("ids", torch.tensor(targets, dtype=torch.long, device="cpu"), persistent=False)

    def forward(self, symbols: Tensor) -> Tensor:
        return self.ids[symbols]


class Pace(nn.Module):
    """Takes the place of the emission logits of models that keep an even pace: J emissions for I symbols of input.

    The batch is that of N models, one after the other, as in ``models.stacked``.
    """

    held_N: Tensor

    def __init__(self, models: int = 1) -> None:
        super().__init__()
        self.register_buffer("held_N", torch.zeros(models, dtype=torch.bool, device="cpu"), persistent=False)
        self._held = [False] * models

    def hold(self, held: Sequence[bool]) -> None:
        """Which models keep the pace in the next update."""
        if self._held != list(held):
            self._held = list(held)
            self.held_N.copy_(torch.tensor(self._held))

    def forward(self, emit_BIJ: Tensor, input_lengths: Tensor, output_lengths: Tensor) -> Tensor:
        held_B = self.held_N[:, None].expand(-1, len(emit_BIJ) // len(self.held_N)).reshape(-1)
        even_B = (output_lengths / input_lengths).log().to(emit_BIJ)
        return torch.where(held_B[:, None, None], even_B[:, None, None], emit_BIJ)


class SSNT(nn.Module):
    """An SSNT. ``bidirectional`` is about the encoder and for the direct model only.

    ``copies``: for each input symbol the id of the output symbol that is the same, -1 if there is none. If given, the
    model has a score for copying, which is ``copy_start`` before training.
    """

    def __init__(
        self,
        input_vocab_size: int,
        output_vocab_size: int,
        hidden_size: int,
        bidirectional: bool = False,
        dropout: float = 0.0,
        num_layers: int = 1,
        embedding_size: int | None = None,
        copies: Sequence[int] | None = None,
        copy_start: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(
            input_vocab_size=input_vocab_size,
            output_vocab_size=output_vocab_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            embedding_size=embedding_size,
        )
        if copies is not None and len(copies) != input_vocab_size:
            raise ValueError(f"copies has {len(copies)} entries, but there are {input_vocab_size} input symbols")
        if copies is not None and not all(-1 <= target < output_vocab_size for target in copies):
            raise ValueError(f"copies: an entry is neither -1 nor one of the {output_vocab_size} output symbols")
        embedding_size = embedding_size or hidden_size
        encoder = BidirectionalLSTM if bidirectional else ForwardLSTM
        self.encoder = encoder(input_vocab_size, embedding_size, hidden_size, num_layers, dropout)
        self.decoder = ForwardLSTM(output_vocab_size, embedding_size, hidden_size, num_layers, dropout)
        self.input_word = Linear(self.encoder.output_size, output_vocab_size, bias=False)
        self.output_word = Linear(hidden_size, output_vocab_size)
        self.input_gate = Linear(self.encoder.output_size, hidden_size, bias=False)
        self.output_gate = Linear(hidden_size, hidden_size)
        self.emit = Emission(hidden_size, 1)
        self.copying = None if copies is None else Copying(self.encoder.output_size, copies, copy_start)
        self.pace: Pace | None = None
        """Set by a training that begins at an even pace."""

    @property
    def bidirectional(self) -> bool:
        return isinstance(self.encoder, BidirectionalLSTM)

    def log_prob(self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        """log p(outputs, z_J = I | inputs): ids [B,I], [B], [B,J], [B] -> [B]. Both sides end in EOS."""
        require_eos("inputs", inputs, input_lengths)
        require_eos("outputs", outputs, output_lengths)
        return self(inputs, input_lengths, outputs, output_lengths)

    def forward(self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        """``log_prob`` without checking the ids, which would wait for the GPU."""
        word_logp_BIJ, emit_BIJ = self._lattice(inputs, input_lengths, outputs)
        if self.pace is not None and self.training:
            emit_BIJ = self.pace(emit_BIJ, input_lengths, output_lengths)
        return lattice.log_marginal(word_logp_BIJ, emit_BIJ, input_lengths, output_lengths)

    def viterbi(
        self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """log p(outputs, z | inputs) of the best alignment [B], and its input positions [B,J] (-1 past the end)."""
        require_eos("inputs", inputs, input_lengths)
        require_eos("outputs", outputs, output_lengths)
        return lattice.viterbi(*self._lattice(inputs, input_lengths, outputs), input_lengths, output_lengths)

    def alignments(self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        """The posterior p(z_j = i | inputs, outputs) of every alignment point, [B,I,J]."""
        require_eos("inputs", inputs, input_lengths)
        require_eos("outputs", outputs, output_lengths)
        return lattice.posteriors(*self._lattice(inputs, input_lengths, outputs), input_lengths, output_lengths)

    @torch.no_grad()
    def sample(self, inputs: Tensor, input_lengths: Tensor, max_length: int) -> tuple[Tensor, Tensor]:
        """Draw an output for each input from p(v, z | inputs): ids [B,I], [B] -> [B,max_length], lengths [B].

        A length of 0 marks a failed draw: the output did not end within ``max_length``, ended before the whole input
        was read, or stopped emitting. The other outputs have the distribution p(v, z_J = I | inputs).
        """
        B, I = inputs.shape
        input_side, state = self.read_inputs(inputs, input_lengths), self.start_outputs(B)
        rows, ahead_I = torch.arange(B, device=inputs.device), torch.arange(I, device=inputs.device)
        last_B = input_lengths.to(inputs.device) - 1
        symbols, position_B = torch.full_like(rows, BOS), torch.zeros_like(rows)
        alive_B, lengths_B = torch.ones_like(rows, dtype=torch.bool), torch.zeros_like(rows)
        outputs = inputs.new_full((B, max_length), PAD)
        for j in range(max_length):
            side, state = self.step_outputs(symbols, state)
            emit_BI = self.emit_logits(input_side, Side(side.scores[:, None], side.gate[:, None])).squeeze(-1).sigmoid()
            # Shift until a draw says emit: the first success of independent draws from the current position on.
            open_BI = (ahead_I >= position_B[:, None]) & (ahead_I <= last_B[:, None])
            drawn_BI = (torch.rand_like(emit_BI) < emit_BI) & open_BI
            alive_B &= drawn_BI.any(1)
            position_B = drawn_BI.int().argmax(1)
            logits_BV = at_least_float32(input_side.scores[rows, position_B] + side.scores)
            symbols = logits_BV.softmax(1).multinomial(1).squeeze(1)
            outputs[:, j] = torch.where(alive_B, symbols, PAD)
            ended_B = alive_B & (symbols == EOS)
            lengths_B = torch.where(ended_B & (position_B == last_B), j + 1, lengths_B)
            alive_B &= ~ended_B
        return outputs, lengths_B

    def _lattice(self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
        input_side, output_side = self.read_inputs(inputs, input_lengths), self.read_outputs(outputs)
        word_logp_BIJ = word_log_probs(input_side.scores, output_side.scores, outputs)
        return word_logp_BIJ, self.emit_logits(input_side, output_side)

    # The parts that a decoder uses. Known sequences are read whole. Those that are being built are read step by step:
    # the outputs of a direct model, and the inputs of a channel model, which are the hypotheses.

    def read_inputs(self, inputs: Tensor, input_lengths: Tensor) -> Side:
        """All input positions at once: ids [B,I] -> Side of [B,I,...]."""
        if isinstance(self.encoder, BidirectionalLSTM):
            return self._input_side(self.encoder(inputs, input_lengths), inputs)
        return self._input_side(self.encoder(inputs), inputs)

    def read_outputs(self, outputs: Tensor) -> Side:
        """All output positions at once; position j has seen v_1..v_{j-1}: ids [B,J] -> Side of [B,J,...]."""
        return self._output_side(self.decoder(after_bos(outputs)))

    def start_inputs(self, n: int) -> LSTMState:
        """The state of ``n`` empty inputs. A bidirectional encoder raises ValueError."""
        copied = [] if self.copying is None else [self.copying.amount]
        return self._stepping_encoder().start(n).with_above(self.input_word, self.input_gate, *copied)

    def step_inputs(
        self, symbols_N: Tensor, state: LSTMState, parents_N: Tensor | None = None
    ) -> tuple[Side, LSTMState]:
        """Append a symbol to each input (of the rows ``parents``, if given): Side of [N,...] at the new position."""
        if (shared := state.shared) is None:
            states_NH, gate_NG, state = self.advance_inputs(symbols_N, state, parents_N)
            return Side(self.input_scores(states_NH, symbols_N), gate_NG), state
        states_NH, state = self._stepping_encoder().step(symbols_N, state, parents_N)
        scores_NV, gate_NG, *amount = shared.of_states(states_NH)
        if self.copying is not None:
            self.copying.add(scores_NV, amount[0][:, 0], symbols_N)
        return Side(scores_NV, gate_NG), state

    def advance_inputs(
        self, symbols_N: Tensor, state: LSTMState, parents_N: Tensor | None = None
    ) -> tuple[Tensor, Tensor, LSTMState]:
        """``step_inputs`` without the scores: the states [N,H] for ``input_scores``, the gate, and the new state."""
        states_NH, state = self._stepping_encoder().step(symbols_N, state, parents_N)
        return states_NH, self.input_gate(states_NH), state

    def input_scores(self, states: Tensor, symbols: Tensor) -> Tensor:
        """a_i = W_h h_i, and the score for copying: states [...,H], the symbols read there [...] -> [...,V]."""
        scores: Tensor = self.input_word(states)
        return scores if self.copying is None else self.copying(scores, states, symbols)

    def input_words(self, symbols: Tensor) -> Tensor:
        """The rows of W_h for these output symbols: [...] -> [...,H]."""
        return self.input_word.weight[symbols]

    def copied_inputs(self, states_NH: Tensor, symbols_N: Tensor) -> tuple[Tensor, Tensor] | None:
        """What ``input_scores`` adds, and for which symbol: ids [N] (-1 for none) and κ [N]; None without copying."""
        if self.copying is None:
            return None
        return self.copying.target(symbols_N), self.copying.amount(states_NH).squeeze(-1)

    def start_outputs(self, n: int) -> LSTMState:
        """The state of ``n`` empty outputs, before BOS."""
        return self.decoder.start(n).with_above(self.output_word, self.output_gate)

    def step_outputs(
        self, symbols_N: Tensor, state: LSTMState, parents_N: Tensor | None = None
    ) -> tuple[Side, LSTMState]:
        """Append a symbol (BOS first) to each output (of the rows ``parents``): Side of [N,...] for the next symbol."""
        if (shared := state.shared) is None:
            states_NH, gate_NG, state = self.advance_outputs(symbols_N, state, parents_N)
            return Side(self.output_scores(states_NH), gate_NG), state
        states_NH, state = self.decoder.step(symbols_N, state, parents_N)
        return Side(*shared.of_states(states_NH)), state

    def advance_outputs(
        self, symbols_N: Tensor, state: LSTMState, parents_N: Tensor | None = None
    ) -> tuple[Tensor, Tensor, LSTMState]:
        """``step_outputs`` without the scores: the states [N,H] for ``output_scores``, the gate, and the new state."""
        states_NH, state = self.decoder.step(symbols_N, state, parents_N)
        return states_NH, self.output_gate(states_NH), state

    def output_scores(self, states: Tensor) -> Tensor:
        """c_j = W_s s_j + b: [...,H] -> [...,V]."""
        scores: Tensor = self.output_word(states)
        return scores

    def emit_logits(self, input_side: Side, output_side: Side) -> Tensor:
        """logit of e(i, j): Sides of [..., I, G] and [..., J, G] -> [..., I, J], in float32 or better."""
        inputs, outputs = 2 * input_side.gate, 2 * output_side.gate
        *_, I, G = inputs.shape
        at_once = I
        if not torch.is_grad_enabled():
            room = GATES_IN_CACHE if inputs.device.type == "cpu" else GATES_AT_ONCE
            at_once = max(1, room // max(1, inputs.shape[:-2].numel() * outputs.shape[-2] * G))
        if at_once >= I:
            return at_least_float32(self.emit(inputs[..., :, None, :] + outputs[..., None, :, :]))
        pieces = [self.emit(some[..., :, None, :] + outputs[..., None, :, :]) for some in inputs.split(at_once, dim=-2)]
        return at_least_float32(torch.cat(pieces, dim=-2))

    def gathered_emit_logits(self, known_BIG: Tensor, sentence_N: Tensor, built_NG: Tensor) -> Tensor:
        """``emit_logits`` of N prefixes, each with the input (or output) ``sentence[n]``: [N,I].

        One kernel on a GPU; blocks that fit the cache on a CPU.
        """
        if known_BIG.device.type == "cpu":
            return gates.emit_logits(known_BIG, sentence_N, built_NG, self.emit.weight, self.emit.bias)
        from noisychannel.kernels import search

        return search.emit_logits(known_BIG, sentence_N, built_NG, self.emit.weight[0], self.emit.bias)

    def _input_side(self, states: Tensor, symbols: Tensor) -> Side:
        return Side(self.input_scores(states, symbols), self.input_gate(states))

    def _output_side(self, states: Tensor) -> Side:
        return Side(self.output_scores(states), self.output_gate(states))

    def _stepping_encoder(self) -> ForwardLSTM:
        if isinstance(self.encoder, BidirectionalLSTM):
            raise ValueError(
                "a bidirectional encoder needs the whole input before its first state, so it has no steps; "
                "a channel model must have bidirectional=False"
            )
        return self.encoder


def set_pace(model: nn.Module, held: Sequence[bool]) -> None:
    """Which of the models of a stack keep an even pace in the next update; a model alone is a stack of one."""
    if isinstance(model, SSNT) and model.pace is not None:
        model.pace.hold(held)
