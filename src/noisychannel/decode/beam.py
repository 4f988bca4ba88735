"""Beam search for the baselines: any model that can be stepped, a whole list of inputs at a time.

All live hypotheses of a sentence are equally long. A step draws their 2K best extensions, so at least K of them do not
end. EOS competes like any symbol. An extension that ends leaves the beam for the answers and takes none of the K
places. Answers are ranked by

    score(y) = log p(y | x) + w · |y|                      |y| counts EOS

A log-probability can only fall. So a live hypothesis never scores more than log p + w · (|y| + 1) or, if w > 0,
log p + w · (the longest output allowed). A sentence is closed when this bound no longer beats the last of its n best
answers, so stopping early never changes them. A closed sentence leaves the batch.

Shapes: B open sentences, K live hypotheses of each (one at first), A answers kept, C candidates, J symbols (BOS
included), V symbols, N = B·K hypotheses stepped together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.memory import (
    DOUBLE,
    Refuse,
    SearchTooLargeError,
    answers_bytes,
    largest_that_fits,
    nbytes,
    parts,
    room_of,
)
from noisychannel.decode.sentences import check_inputs, check_n_best, padded
from noisychannel.decode.settings import SearchSettings
from noisychannel.ids import BOS, EOS, PAD, UNK


class StepState(Protocol):
    """A model's state of N hypotheses."""

    def select(self, indices: Tensor) -> Self:
        """The states of the hypotheses ``indices``, in that order; one may be repeated."""
        ...


StateT = TypeVar("StateT", bound=StepState)


class StepModel(Protocol[StateT]):
    """A model p(y | x) that writes y one symbol at a time."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """The search runs on the device of the first parameter."""
        ...

    def start(self, inputs: Tensor, input_lengths: Tensor) -> StateT:
        """The state of one output for each input that has read nothing, not even BOS: ids [B,I], [B]."""
        ...

    def step(self, symbols_N: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """Append a symbol (BOS first) to each output: log p(next symbol) [N,V], and the new state."""
        ...


class Beam(NamedTuple):
    """Hypotheses of B sentences, best first; a log-probability of -inf marks an empty place."""

    tokens: Tensor
    """The ids, BOS first, PAD after the end: [B,K,J]."""
    log_prob: Tensor
    """log p of those ids, in float64: [B,K]."""
    length: Tensor
    """|y|, BOS not counted, EOS counted: [B,K]."""

    def score(self, length_weight: float) -> Tensor:
        """log p + w·|y|: [B,K]."""
        return torch.add(self.log_prob, self.length, alpha=length_weight)

    def where(self, keep_BK: Tensor) -> Beam:
        """The other places emptied."""
        return self._replace(log_prob=self.log_prob.masked_fill(~keep_BK, -torch.inf))

    def take(self, places_BC: Tensor) -> Beam:
        """The hypotheses at the given places of each sentence."""
        tokens_BCJ = self.tokens.take_along_dim(places_BC[:, :, None], dim=1)
        return Beam(tokens_BCJ, self.log_prob.gather(1, places_BC), self.length.gather(1, places_BC))

    def select(self, sentences: Tensor) -> Beam:
        """The hypotheses of the given sentences."""
        return Beam(*(x[sentences] for x in self))


class BeamStep(NamedTuple):
    """The search after one more symbol."""

    live: Beam
    """At most K hypotheses that have not ended."""
    parent: Tensor
    """The place, in the beam before the step, of the hypothesis each live one extends: [B,K]."""
    answers: Beam
    """The best that have ended so far, by score."""


@torch.no_grad()
def beam_search(
    model: StepModel[StateT],
    inputs: Sequence[Sequence[int]],
    settings: SearchSettings = SearchSettings(),  # noqa: B008 (frozen)
    n_best: int = 1,
    length_weight: float = 0.0,
    barred: Collection[int] = (),
    refuse: Refuse | None = None,
) -> list[list[Hypothesis]]:
    """The ``n_best`` outputs found for each input (ids that end in EOS), best first; fewer if fewer ended.

    Args:
        model: Used as it is: call its ``eval()`` first.
        inputs: Decoded as one batch; the answers do not depend on which others are in it.
        settings: ``k2`` is the beam size K; ``max_length``, ``max_growth`` and ``allow_unk`` count too. If no output
            ends within the longest length, the best partial one is returned with ``complete=False``.
        n_best: How many outputs of each input.
        length_weight: w in log p(y | x) + w·|y|.
        barred: Symbols that are never proposed, beside PAD, BOS and UNK (such as features).
        refuse: Called for an input that needs more memory than the settings allow; it then has no hypotheses. If not
            given, such an input raises ``SearchTooLargeError``.
    """
    check_n_best(n_best)
    check_inputs(inputs)
    if not inputs:
        return []
    device = next(model.parameters()).device
    memory = BeamMemory.of(model, settings, n_best, device)
    found: list[list[Hypothesis]] = []
    for part in parts([memory.needed(len(ids)) for ids in inputs], memory.room):
        longest = max(map(len, inputs[part]))
        try:
            memory.require(longest)
        except SearchTooLargeError as error:
            if refuse is None:
                raise
            refuse(part.start, error)
            found.append([])
            continue
        found += _search_part(model, inputs[part], settings, memory.kept(longest), length_weight, barred)
    return found


def _search_part(
    model: StepModel[StateT],
    inputs: Sequence[Sequence[int]],
    settings: SearchSettings,
    n_best: int,
    length_weight: float,
    barred: Collection[int],
) -> list[list[Hypothesis]]:
    """``beam_search`` of inputs that fit into memory together."""
    device = next(model.parameters()).device
    limit_B = torch.tensor([settings.longest_output(len(ids)) for ids in inputs], device=device)
    never = {PAD, BOS, *barred} | (set() if settings.allow_unk else {UNK})
    barred_C = torch.tensor(sorted(never), device=device)
    sentence_B = torch.arange(len(inputs), device=device)
    found: list[list[Hypothesis]] = [[] for _ in inputs]

    live, answers = _start(len(inputs), n_best, device)
    ids_BI, lengths_B = padded(inputs, device)
    state = model.start(ids_BI, lengths_B.to(device))
    length = 0
    while len(sentence_B):
        next_NV, state = model.step(live.tokens[:, :, -1].flatten(), state)
        B, K = live.log_prob.shape
        next_BKV = next_NV.index_fill(1, barred_C, -torch.inf).view(B, K, -1)
        live, parent_BK, answers = extend(live, answers, next_BKV, settings.k2, length_weight)
        length += 1

        longest_B = limit_B if length_weight > 0 else torch.full_like(limit_B, length + 1)
        bound_B = torch.add(live.log_prob[:, 0], longest_B, alpha=length_weight)
        open_B = (length < limit_B) & (bound_B > answers.score(length_weight)[:, -1])
        closed, still = (~open_B).nonzero().squeeze(1), open_B.nonzero().squeeze(1)
        if len(closed):
            hypotheses = _hypotheses(live.select(closed), answers.select(closed), length_weight)
            for sentence, best in zip(sentence_B[closed].tolist(), hypotheses, strict=True):
                found[sentence] = best
        state = state.select((still[:, None] * K + parent_BK[still]).flatten())
        live, answers = live.select(still), answers.select(still)
        sentence_B, limit_B = sentence_B[still], limit_B[still]
    return found


@dataclass(frozen=True)
class BeamMemory:
    """What the beam search of one input needs, in bytes."""

    settings: SearchSettings
    n_best: int
    symbols: int
    """V."""
    state: int
    """A hypothesis's state, without what it has for each position of the input."""
    position: int
    """That, for one position."""
    written: int
    """What it has more for each symbol of its output."""
    room: int

    @staticmethod
    @torch.no_grad()
    def of(model: StepModel[Any], settings: SearchSettings, n_best: int, device: torch.device) -> BeamMemory:
        """Found by the first step of two short inputs."""
        sizes = []
        for ids in ([EOS], [UNK, EOS]):
            ids_BI, lengths = padded([ids], device)
            start = model.start(ids_BI, lengths.to(device))
            scores_NV, state = model.step(torch.full((1,), BOS, device=device), start)
            sizes.append(nbytes(state) + nbytes(scores_NV))
        position, written = sizes[1] - sizes[0], nbytes(state) - nbytes(start)
        room = room_of(settings, device)
        return BeamMemory(settings, n_best, scores_NV.shape[1], sizes[0] - position, position, written, room)

    def kept(self, inputs: int) -> int:
        """How many answers to keep: a step completes at most one of each live hypothesis."""
        return min(self.n_best, self.settings.k2 * self.settings.longest_output(inputs))

    def needed(self, inputs: int) -> int:
        longest = self.settings.longest_output(inputs)
        answers = self.kept(inputs) * (4 * DOUBLE * longest) + answers_bytes(self.kept(inputs), longest)
        return self.settings.k2 * self._hypothesis(inputs) + answers

    def require(self, inputs: int) -> None:
        """Refuse an input that does not fit."""
        if (needed := self.needed(inputs)) > self.room:
            what = f"an input of {inputs - 1} symbols with k2 {self.settings.k2}, n_best {self.n_best}"
            fits = self.room // 2 // self._hypothesis(inputs)
            remedy = largest_that_fits("k2", fits, self.settings)
            if fits >= self.settings.k2:
                most = self.room // 2 // (answers_bytes(1, self.settings.longest_output(inputs)) + 4 * DOUBLE)
                remedy = largest_that_fits("n_best", most, self.settings)
            raise SearchTooLargeError(what, needed, self.room, remedy)

    def _hypothesis(self, inputs: int) -> int:
        """Its state before and after a step, its extensions, and the ids of two candidates."""
        longest = self.settings.longest_output(inputs)
        state = self.state + self.position * inputs + self.written * longest
        return 4 * state + 24 * self.symbols + 8 * DOUBLE * longest


def extend(live: Beam, answers: Beam, next_BKV: Tensor, beam_size: int, length_weight: float) -> BeamStep:
    """One step of the search, given log p(next symbol) of every live hypothesis."""
    K, V = next_BKV.shape[1:]
    log_prob_BKV = live.log_prob[:, :, None] + next_BKV
    log_prob_BC, index_BC = log_prob_BKV.flatten(1).topk(min(2 * beam_size, K * V))
    parent_BC, symbol_BC = index_BC // V, index_BC % V
    parents = live.take(parent_BC)
    tokens_BCJ = torch.cat([parents.tokens, symbol_BC[:, :, None]], dim=-1)
    candidates = Beam(tokens_BCJ, log_prob_BC, parents.length + 1)

    ended_BC = symbol_BC == EOS
    going_on = candidates.where(~ended_BC)
    place_BK = going_on.log_prob.topk(min(beam_size, going_on.log_prob.shape[1])).indices

    before = answers._replace(tokens=F.pad(answers.tokens, (0, 1), value=PAD))
    pool = Beam(*(torch.cat(pair, dim=1) for pair in zip(before, candidates.where(ended_BC), strict=True)))
    best_BA = pool.score(length_weight).topk(answers.log_prob.shape[1]).indices
    return BeamStep(going_on.take(place_BK), parent_BC.gather(1, place_BK), pool.take(best_BA))


def _start(B: int, n_best: int, device: torch.device) -> tuple[Beam, Beam]:
    """One live hypothesis of each sentence, BOS only, and no answers."""

    def beam(places: int, log_prob: float) -> Beam:
        tokens = torch.full((B, places, 1), BOS, device=device)
        log_probs = torch.full((B, places), log_prob, dtype=torch.float64, device=device)
        return Beam(tokens, log_probs, torch.zeros_like(tokens[:, :, 0]))

    return beam(1, 0.0), beam(n_best, -torch.inf)


def _hypotheses(live: Beam, answers: Beam, length_weight: float) -> list[list[Hypothesis]]:
    """The answers of each sentence, or its best live hypothesis if it has none."""
    partial = live.take(torch.zeros_like(live.length[:, :1]))
    return [
        [hypothesis for hypothesis in ended if hypothesis.direct != -torch.inf] or unended
        for ended, unended in zip(
            _as_hypotheses(answers, length_weight, complete=True),
            _as_hypotheses(partial, length_weight, complete=False),
            strict=True,
        )
    ]


def _as_hypotheses(beam: Beam, length_weight: float, complete: bool) -> list[list[Hypothesis]]:
    columns = (beam.tokens, beam.log_prob, beam.length, beam.score(length_weight))
    return [
        [
            # Without BOS, and without the EOS of a complete one.
            Hypothesis.of(tokens[1 : length if complete else length + 1], score, {"direct": log_prob}, length, complete)
            for tokens, log_prob, length, score in zip(*rows, strict=True)
        ]
        for rows in zip(*(column.tolist() for column in columns), strict=True)
    ]
