"""The systems of the paper, and systems with further terms: which weights are fixed, and which the tuner may move.

    O(x, y) = w_direct·log q(y|x) + w_channel·log p(x|y) + w_lm·log p(y) + w_length·|y| + Σ_n w_n·term_n(x, y)

A system is named by its terms, such as ``direct+channel+lm`` or ``direct+lm+word_list``. The length bias is free in all
of them but the proposing model alone. Only the ratios of the weights matter, so one weight of every system is 1: that
of the direct model, or of the channel if the direct model only proposes (``channel+lm``). ``attention``, ``seq2seq``
and ``transformer`` propose in place of the direct model (by beam search, and the other terms rerank what it finds);
their log-probability is then the term ``direct``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from noisychannel.arguments import option_name
from noisychannel.decode.objective import TERMS, Weights
from noisychannel.errors import BadInputError, did_you_mean

FloatArray = npt.NDArray[np.float64]

PROPOSERS = ("direct", "attention", "seq2seq", "transformer")
"""The models that can propose outputs; the first searches the chart, the others by beam search."""


NO_COUNTS = (
    ": the run has no counts of its training pairs; repeat the command that trained it (train), which adds them and "
    "trains nothing"
)
"""Why the term ``seen`` is missing: the run was trained by an earlier version, or has no model of pairs."""

SMALL = 0.1
"""What is added to a weight before its logarithm is taken: weights below it hardly differ from zero."""


@dataclass(frozen=True)
class FreeWeight:
    """A weight that the tuner may move."""

    name: str
    start: float
    """Where tuning begins, and what the weight stays near if the dev items cannot tell."""
    spread: float
    """One step away from the start: in nats of the weight, or in the weight itself if it can have either sign."""
    floor: float = 0.0
    """What no search goes below: a negative weight would reward what a model finds improbable."""
    ceiling: float = math.inf
    """What no search goes above."""

    def steps(self, value: FloatArray) -> FloatArray:
        """Weights on the scale on which the tuner measures distances and takes its steps."""
        if self._two_sided:
            return value / self.spread
        return np.log(np.abs(value) + SMALL) / self.spread

    def value(self, steps: FloatArray) -> FloatArray:
        """The weights at places of that scale, within the bounds."""
        if self._two_sided:
            return np.clip(steps * self.spread, self.floor, self.ceiling)
        size = np.maximum(np.exp(np.minimum(steps * self.spread, LARGEST)) - SMALL, 0.0)
        return np.clip(size if self.ceiling > 0 else -size, self.floor, self.ceiling)

    @property
    def _two_sided(self) -> bool:
        return self.floor < 0 < self.ceiling


LARGEST = math.log(1e6)
"""No weight goes further from zero than e to this: there one term alone decides."""

SMALLER, LARGER = 0.3, 2.5
"""The factors of the start weights in the neighbours of a system."""

CHANNEL = FreeWeight("channel", start=0.8, spread=0.8)
LM = FreeWeight("lm", start=1.25, spread=0.8)
LENGTH = FreeWeight("length", start=0.3, spread=1.0, floor=-math.inf)


@dataclass(frozen=True)
class System:
    """A set of terms that decode together."""

    name: str
    fixed: Weights
    """The weights that stay; those that are free are zero here."""
    free: tuple[FreeWeight, ...]
    proposer: str = "direct"
    """One of ``PROPOSERS``."""

    @property
    def terms(self) -> tuple[str, ...]:
        """The four terms and the further ones of this system: the order of its weight vectors."""
        return tuple(dict.fromkeys([*TERMS, *(weight.name for weight in self.free), *self.fixed.extra]))

    @property
    def extra(self) -> tuple[str, ...]:
        """The further terms."""
        return self.terms[len(TERMS) :]

    @property
    def used(self) -> tuple[bool, ...]:
        """For each term, whether it can weigh anything."""
        free, fixed = {weight.name for weight in self.free}, self.fixed.by_name()
        return tuple(name in free or fixed.get(name, 0.0) != 0 for name in self.terms)

    @property
    def roles(self) -> tuple[str, ...]:
        """The models of equation (3) that the system runs; the proposing one always."""
        _, channel, lm, _ = self.used[: len(TERMS)]
        return (self.proposer, *(["channel"] if channel else []), *(["lm"] if lm else []))

    @property
    def start(self) -> Weights:
        """Weights under which every model of the system is run."""
        return self.weights({weight.name: weight.start for weight in self.free})

    @property
    def corners(self) -> list[Weights]:
        """Plain weights from which to search: nothing beside the fixed ones, each free model alone, all of them."""
        plain = {weight.name: min(1.0, weight.ceiling) for weight in self.free if weight.name != "length"}
        sets = [{}, *({name: value} for name, value in plain.items()), plain]
        return list(dict.fromkeys(self.weights(chosen) for chosen in sets))

    @property
    def neighbours(self) -> list[Weights]:
        """Further weights to search under before tuning, if several models have free weights.

        They find what the start weights would not: outputs that the proposing model prefers, and probable outputs.
        """
        start = {weight.name: weight.start for weight in self.free}
        if len(start.keys() - {"length"}) < 2:
            return []
        sets = [{name: SMALLER * value for name, value in start.items()}]
        if "lm" in start:
            sets.append({**start, "lm": LARGER * start["lm"]})
        return [self.weights(chosen) for chosen in sets]

    def weights(self, free: Mapping[str, float]) -> Weights:
        """The fixed weights with these free ones; free weights that are not named are zero."""
        zero = dict.fromkeys(self.extra, 0.0)
        return Weights.of({**zero, **self.fixed.by_name(), **free})

    def fixing(self, values: Mapping[str, float]) -> System:
        """The same system, with these weights of further terms fixed."""
        fixed = Weights.of({**self.fixed.by_name(), **values})
        return replace(self, fixed=fixed, free=tuple(weight for weight in self.free if weight.name not in values))

    def vector(self, weights: Weights) -> FloatArray:
        """Weights as an array [T] in the order of ``terms``, in float64 whatever the numbers were given as."""
        by_name = weights.by_name()
        return np.array([by_name.get(name, 0.0) for name in self.terms], np.float64)

    def from_vector(self, values_T: FloatArray) -> Weights:
        """The weights of an array [T]."""
        return Weights.of(dict(zip(self.terms, map(float, values_T), strict=True)))

    def contains(self, other: System) -> bool:
        """Whether any weights of the other are weights that this one can have."""
        return (self.proposer, self.fixed) == (other.proposer, other.fixed) and set(other.free) <= set(self.free)

    def check(self, weights: Weights) -> None:
        """Refuse weights that this system cannot have."""
        free, fixed = {weight.name: weight for weight in self.free}, self.fixed.by_name()
        for name, value in weights.by_name().items():
            if name not in free and value != fixed.get(name, 0.0):
                raise ValueError(f"the weight {name} of the system {self.name} is {fixed.get(name, 0.0)}, not {value}")
            if name in free and not free[name].floor <= value <= free[name].ceiling:
                raise ValueError(
                    f"the weight {name} of the system {self.name} lies between {free[name].floor} and "
                    f"{free[name].ceiling}, but is {value}"
                )


def make_system(name: str, extra: Mapping[str, FreeWeight] = {}) -> System:
    """The system of a name such as ``direct+channel+lm``; ``extra``: the further terms there are.

    The order of the terms does not matter: ``lm+direct`` is ``direct+lm``.
    """
    parts = name.split("+")
    known = (*PROPOSERS, "channel", "lm", "length", *sorted(extra, key=lambda term: (term != "word_list", term)))
    for part in parts:
        if part not in known:
            why = NO_COUNTS if part == "seen" else did_you_mean(part, known)
            raise BadInputError(f"unknown system {name!r}: there is no term {part!r}{why}")
    if len(set(parts)) != len(parts):
        raise BadInputError(f"unknown system {name!r}: a term is repeated")
    parts.sort(key=known.index)
    proposers = [part for part in parts if part in PROPOSERS]
    if len(proposers) > 1 or (not proposers and "channel" not in parts):
        raise BadInputError(
            f"unknown system {name!r}: a system needs exactly one of {', '.join(PROPOSERS)}, or else the channel"
        )
    proposer = proposers[0] if proposers else "direct"
    fixed = Weights(direct=1.0) if proposers else Weights(direct=0.0, channel=1.0)
    free = [weight for weight in (CHANNEL, LM) if weight.name in parts and (proposers or weight is LM)]
    free += [extra[part] for part in parts if part in extra]
    return System("+".join(parts), fixed, (*free, *([LENGTH] if len(parts) > 1 else [])), proposer)


def should_look_ahead(input_units: str) -> bool:
    """Whether a search looks ahead if nobody says so. Among characters it makes no difference that shows."""
    return input_units != "characters"


def unused_settings(
    proposers: Iterable[str], with_channel: bool, reranks: bool = False, per_symbol: bool = False
) -> dict[str, str]:
    """The settings of a search that systems with these proposing models do not use, each with the reason."""
    unused: dict[str, str] = {}
    if per_symbol:
        unused |= dict.fromkeys(
            ("look_ahead", "lm_proposals", "channel_words"), "with per_symbol the proposing model alone searches"
        )
    if "direct" not in proposers:
        unused |= dict.fromkeys(
            ("k1", "search", "look_ahead", "lm_proposals", "products", "channel_words"),
            f"the beam search of {' and '.join(proposers)} has no use for it",
        )
    if not with_channel:
        unused |= dict.fromkeys(("channel_alignment", "look_ahead", "channel_words"), "the channel has no weight")
    if reranks:
        searched = ("k1", "k2", "max_length", "max_growth", "look_ahead", "lm_proposals", "allow_unk", "products")
        unused |= dict.fromkeys((*searched, "channel_words"), "nothing is searched with --rerank")
    return unused


def check_used(given: Iterable[str], unused: Mapping[str, str]) -> None:
    """Refuse settings that were given but would be ignored."""
    for name in given:
        if name in unused:
            raise BadInputError(f"{option_name(name)} would be ignored: {unused[name]}; leave it out")


def systems_of_paper() -> dict[str, System]:
    """The direct model alone, with a length bias, and the systems of the paper, smallest first."""
    names = ("direct", "direct+length", "direct+lm", "channel+lm", "direct+channel+lm")
    return {name: make_system(name) for name in names}


SYSTEMS = systems_of_paper()
"""By name; those with a language model or a channel have the length bias too, as in the paper."""
