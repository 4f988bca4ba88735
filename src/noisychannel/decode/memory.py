"""How much memory a search needs, so that the setting ``memory`` is a promise.

The tensors of a search are counted from their shapes before they are allocated. A batch is searched in parts that
usually fit. While a part is searched, every step knows how many prefixes it extends and how many candidates it is going
to score, and counts again. If that does not fit, the part is halved; if it is one sentence, it is refused
(``SearchTooLargeError``), and others are not affected.

Shapes: B sentences, I input positions, P prefixes of the table, M of them that are scored, Q candidates, K proposals of
a cell, V output symbols, X input symbols, J output positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import ceil
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn

from noisychannel.decode.lateness import needs_no_scores, scores_late
from noisychannel.decode.settings import SearchSettings
from noisychannel.decode.sources import started
from noisychannel.errors import BadInputError
from noisychannel.ids import BOS, EOS

if TYPE_CHECKING:
    from noisychannel.decode.plan import Models

GIB = 2**30
DEFAULT_GIB = 4.0
"""The memory of a search that is not on a GPU."""
PAIRS_AT_ONCE = 128
"""Pairs that a model is asked about together, at most."""
DOUBLE = 8
"""Bytes of a score, and of an id."""
PARTS = 1 << 26
"""Bytes of sums that ``kernels.states`` computes in parts, at most."""
USUAL_WIDTH = 0.6
"""Of the widest search that is possible: prefixes survive in several cells, and extensions are proposed in several. In
the benchmarks it is 0.4."""
USUALLY_SCORED = 0.2
"""Of the prefixes, if only those that may be extended are scored. In the benchmarks it is 0.1."""


class SearchTooLargeError(BadInputError):
    """An input that cannot be searched within the memory that the settings allow."""

    def __init__(self, what: str, needed: int, memory: int, remedy: str = "", most: int = 0) -> None:
        """All sizes are in bytes.

        Args:
            what: What is too large.
            needed: What it needs now.
            memory: What there is.
            remedy: What to change, beside the setting ``memory``.
            most: What it may need later; not given if it never needs more than now.
        """
        self.needed, self.memory, self.most = needed, memory, max(needed, most)
        more = f"set memory to {gib(self.most * 1.1)}"
        about = gib(needed) if gib(needed) == gib(self.most) else f"{gib(needed)} to {gib(self.most)}"
        super().__init__(
            f"{what} needs about {about} GiB, more than memory {gib(memory)} GiB; "
            + (f"{remedy}, or {more}" if remedy else more)
        )


Refuse: TypeAlias = Callable[[int, SearchTooLargeError], None]
"""Called with the place of an input and the reason why it is not decoded."""


def gib(size: float) -> str:
    """Bytes in GiB, with two significant digits."""
    return f"{size / GIB:.2g}" if size < 100 * GIB else f"{size / GIB:.0f}"


def room_of(settings: SearchSettings, device: torch.device) -> int:
    """The bytes that a search may use."""
    if settings.memory is None and device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return (torch.cuda.mem_get_info(device)[0] + held) // 2
    return int((DEFAULT_GIB if settings.memory is None else settings.memory) * GIB)


@dataclass(frozen=True)
class ModelSizes:
    """What the models of a search keep for each position of an input and for each prefix, in bytes."""

    symbols: int
    """V."""
    position: int
    """For each position of the input, after it has been read."""
    prefix: int
    """For each prefix that the direct model and the source models have been run on."""
    scored: int
    """For each prefix whose next symbols are scored."""
    candidate: int
    """For each candidate that the channel has read."""
    channel: bool
    late: bool
    """Whether only prefixes that may be extended are scored."""
    fixed: int = 0
    """For a search, whatever its width."""

    @staticmethod
    @torch.no_grad()
    def of(models: Models, settings: SearchSettings, device: torch.device) -> ModelSizes:
        """Found by one step of each model. Refuses terms of another output vocabulary."""
        bos = torch.full((1,), BOS, device=device)
        side, state = models.direct.step_outputs(bos, models.direct.start_outputs(1))
        V = side.scores.shape[1]
        words, gate = nbytes(side.scores), nbytes(side.gate)
        # Reading: scores, their exponentials, the proposable ones, temporary copies; encoder states are like the gate.
        # One block of extensions has all cells and symbols, in float64.
        position = 6 * words + 12 * gate + 3 * V * DOUBLE
        # Scores before and after the step, those not yet in their slots, exponentials; gates of the LSTM.
        prefix, scored = 8 * gate + 6 * nbytes(state), 4 * words
        ended = torch.full((1, 1), EOS, device=device)
        for name, model in models.sources.items():
            log_prob, after = model.step(bos, started(model, ended, torch.ones_like(bos)))
            if log_prob is not None and log_prob.shape[1] != V:
                raise ValueError(
                    f"the term {name} has {log_prob.shape[1]} output symbols, but the direct model has {V}; "
                    "all models of a search must be trained with the same output vocabulary"
                )
            prefix, scored = prefix + 6 * nbytes(after), scored + 3 * nbytes(log_prob)
        candidate = fixed = 0
        if models.channel is not None:
            read, state = models.channel.step_inputs(bos, models.channel.start_inputs(1))
            position += 6 * nbytes(read.scores) + 12 * nbytes(read.gate)
            candidate = 6 * nbytes(read.gate) + 6 * nbytes(state)
            if needs_no_scores(models.channel, settings, read.scores):
                # The rows of all symbols, in float32 and float16, and the parts of sums.
                fixed = read.scores.shape[1] * nbytes(models.channel.input_words(bos)) * 3 // 2 + PARTS
            else:
                candidate += 4 * nbytes(read.scores)
        late = scores_late(models.direct, settings, V)
        return ModelSizes(V, position, prefix, scored, candidate, models.channel is not None, late, fixed)


@dataclass(frozen=True)
class Width:
    """How wide the search of one sentence is, at most, or at one step."""

    inputs: int
    """I."""
    prefixes: int
    """P."""
    proposals: int
    """K, for each cell."""
    candidates: int
    """Q."""
    scored: int | None = None
    """M; all prefixes if None."""

    @staticmethod
    def most(settings: SearchSettings, symbols: int, inputs: int) -> Width:
        """No step is wider: K2 prefixes survive in each cell, and there are V^j of length j."""
        prefixes = min(inputs * settings.k2, _power(symbols, settings.longest_output(inputs) - 1))
        return Width.of_step(settings, symbols, inputs, prefixes)

    @staticmethod
    def of_step(settings: SearchSettings, symbols: int, inputs: int, prefixes: int) -> Width:
        """No step that extends so many prefixes is wider."""
        extensions = prefixes * symbols
        proposals = min(settings.k1, extensions) + min(settings.lm_proposals, extensions)
        return Width(inputs, prefixes, proposals, min(inputs * proposals, extensions))

    def usual(self, late: bool) -> Width:
        """What a search that may be as wide as this usually has."""
        prefixes, candidates = (ceil(USUAL_WIDTH * n) for n in (self.prefixes, self.candidates))
        scored = ceil(USUALLY_SCORED * self.prefixes) if late else None
        return replace(self, prefixes=prefixes, candidates=candidates, scored=scored)

    def bytes(self, sizes: ModelSizes) -> int:
        """The peak of a step."""
        columns = 14 if sizes.channel else 9
        scored = self.prefixes if self.scored is None else self.scored
        return (
            self.inputs * sizes.position
            + self.prefixes * (sizes.prefix + 14 * self.inputs * DOUBLE)
            + scored * sizes.scored
            + self.candidates * (sizes.candidate + columns * self.inputs * DOUBLE)
            + 14 * self.inputs * self.proposals * DOUBLE
        )


@dataclass(frozen=True)
class Budget:
    """The memory of one search, and who asks for it."""

    settings: SearchSettings
    sizes: ModelSizes
    memory: int
    """In bytes. A fifth is for blocks of extensions that are scored together."""
    n_best: int
    _needed: dict[int, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def room(self) -> int:
        """For everything else."""
        return max(0, self.memory * 4 // 5 - self.sizes.fixed)

    @property
    def logits_at_once(self) -> int:
        """Elements of a block of extensions."""
        return self.memory // (5 * 3 * DOUBLE)

    def needed(self, inputs: int) -> int:
        """The most that the search of one input can need."""
        if inputs not in self._needed:
            self._needed[inputs] = sentence_bytes(self.settings, self.sizes, inputs, self.n_best)
        return self._needed[inputs]

    def share(self, inputs: int) -> int:
        """What to count for an input of a batch: what its search usually needs. If it may not fit alone, it is to be
        alone."""
        if (most := self.needed(inputs)) > self.room:
            return most
        usual = Width.most(self.settings, self.sizes.symbols, inputs).usual(self.sizes.late)
        longest = self.settings.longest_output(inputs)
        return (
            usual.bytes(self.sizes) + traces_bytes(usual.prefixes, longest) + answers_bytes(self.kept(inputs), longest)
        )

    def always_fits(self, inputs: int, sentences: int = 1) -> bool:
        """Whether no step of so many inputs can need too much."""
        return sentences * self.needed(inputs) <= self.room

    def kept(self, inputs: int) -> int:
        """How many answers to keep: no more than there can be."""
        return min(self.n_best, possible_answers(self.settings, self.sizes.symbols, inputs))

    def require_reading(self, inputs: int) -> None:
        """Refuse an input that cannot be read, or whose answers cannot be kept."""
        longest = self.settings.longest_output(inputs)
        answers = answers_bytes(self.kept(inputs), longest)
        if answers > self.room:
            remedy = largest_that_fits("n_best", self.room // answers_bytes(1, longest), self.settings)
            raise self._too_large(inputs, answers, remedy)
        if (reading := inputs * self.sizes.position) > self.room:
            raise self._too_large(inputs, reading, "")

    def require_step(self, width: Width, length: int, sentences: int = 1) -> None:
        """Refuse the step of so many sentences to outputs of this length if its tensors do not fit."""
        inputs = width.inputs
        needed = sentences * (width.bytes(self.sizes) + traces_bytes(width.prefixes, length))
        if needed > self.room:
            k2 = largest_k2(self.settings, self.sizes, inputs, self.n_best, self.room)
            raise self._too_large(inputs, needed, largest_that_fits("k2", k2, self.settings))

    def _too_large(self, inputs: int, needed: int, remedy: str) -> SearchTooLargeError:
        what = f"an input of {inputs - 1} symbols with k1 {self.settings.k1}, k2 {self.settings.k2}"
        return SearchTooLargeError(what, needed * 5 // 4, self.memory, remedy, self.needed(inputs) * 5 // 4)


def answers_bytes(n_best: int, longest: int) -> int:
    """Of the answers of a sentence as hypotheses, each with two alignments."""
    return n_best * (1000 + 100 * longest)


def largest_that_fits(name: str, number: int, settings: SearchSettings) -> str:
    """What to change: the named setting or, if not even 1 of it fits, what makes outputs long."""
    if number:
        return f"the largest {name} that fits is {number}"
    limits = [name for name in ("max_length", "max_growth") if getattr(settings, name) is not None]
    return f"lower {' or '.join(limits)}" if limits else ""


def traces_bytes(prefixes: int, longest: int) -> int:
    """Of the back-pointers from every prefix of every length."""
    return 2 * DOUBLE * prefixes * longest


def possible_answers(settings: SearchSettings, symbols: int, inputs: int) -> int:
    """No search finds more complete outputs: at each length, each of the K proposals of the last cell may be one."""
    widest = Width.most(settings, symbols, inputs)
    return max(1, settings.longest_output(inputs) * min(widest.proposals, widest.prefixes))


def largest_k2(settings: SearchSettings, sizes: ModelSizes, inputs: int, n_best: int, room: int) -> int:
    """The largest k2 with which every step of an input fits; 0 if there is none."""
    low, high = 0, settings.k2
    while low < high:
        middle = (low + high + 1) // 2
        if sentence_bytes(replace(settings, k2=middle), sizes, inputs, n_best) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def sentence_bytes(settings: SearchSettings, sizes: ModelSizes, inputs: int, n_best: int) -> int:
    """The most that the search of one input can need."""
    longest = settings.longest_output(inputs)
    widest = Width.most(settings, sizes.symbols, inputs)
    kept = min(n_best, possible_answers(settings, sizes.symbols, inputs))
    return widest.bytes(sizes) + traces_bytes(widest.prefixes, longest) + answers_bytes(kept, longest)


def parts(sizes: Sequence[int], room: int) -> Iterator[slice]:
    """Consecutive parts whose padded sizes fit: each has as many items as fit if all are like its largest."""
    start = largest = 0
    for n, size in enumerate(sizes):
        if n > start and (n - start + 1) * max(largest, size) > room:
            yield slice(start, n)
            start, largest = n, 0
        largest = max(largest, size)
    if start < len(sizes):
        yield slice(start, len(sizes))


def parts_of_pairs(
    model: object, sides: Sequence[Sequence[Sequence[int]]], settings: SearchSettings, device: torch.device
) -> Iterator[slice]:
    """Parts of pairs (or of outputs alone) that a model can be asked about together."""
    room = room_of(settings, device)
    lengths = [(len(ids[0]), len(ids[-1])) for ids in zip(*sides, strict=True)]
    layer = widest_layer(model)
    sizes = [pair_bytes(layer, *both) for both in lengths]
    for (inputs, outputs), size in zip(lengths, sizes, strict=True):
        if size > room:
            raise SearchTooLargeError(f"scoring {outputs} symbols given {inputs}", size, room)
    for part in parts(sizes, room):
        for start in range(part.start, part.stop, PAIRS_AT_ONCE):
            yield slice(start, min(start + PAIRS_AT_ONCE, part.stop))


def widest_layer(model: object) -> int:
    """What the widest layer of a model gives for each position, in bytes."""
    if not isinstance(model, nn.Module):
        return 0
    tensors = chain(model.parameters(), model.buffers())
    return max((len(x) * x.element_size() for x in tensors if x.dim() > 1), default=0)


def pair_bytes(layer: int, inputs: int, outputs: int) -> int:
    """What a model needs to score one pair, by its ``widest_layer`` and the shapes of a lattice."""
    lattice = 24 * (inputs + outputs) * min(inputs, outputs) * DOUBLE // 2
    return 6 * (inputs + outputs) * layer + lattice


def nbytes(x: Any) -> int:
    """Of a tensor, or of all tensors of a state made of tuples; a state of another kind is not counted."""
    if isinstance(x, Tensor):
        return x.numel() * x.element_size()
    return sum(map(nbytes, x)) if isinstance(x, tuple) else 0


def _power(base: int, exponent: int) -> int:
    """base^exponent, or a number that is larger than any width."""
    return base**exponent if exponent * max(base, 2).bit_length() < 128 else 1 << 100
