"""What the name of a run says, and what a kind of model is.

direct.bi.all.1          direct models by kind, number of pairs and seed; channels and others likewise
lm.paper.all             the language model of all outputs, paired or not
lm.paper.100000+0        … of the outputs of 100,000 pairs, and no others
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from noisychannel.models.registry import Role

EVERYTHING = "all"
"""In names: all pairs, or all outputs."""
WORDS, SUBWORDS = "words", "subwords"
"""Names of vocabularies; an experiment may have others."""
VOCABULARIES = "vocabularies"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How models of a kind differ from those of the paper."""

    vocabulary: str = WORDS
    bidirectional: bool = True
    """The encoder of a model that proposes."""
    large_batch: bool = False
    better_rate: bool = False
    """Another learning rate than the paper's; of a language model ``better_lm`` of the scale, and a rate that falls."""
    better_lm_rate: bool = False
    """Of a language model: that rate, and all else as in the paper."""
    most_passes: bool = False
    """As many passes over the pairs as the scale allows, also if its updates are fewer."""
    copy: bool = False
    """Copying through the alignment."""
    back_translated: bool = False
    """With unpaired outputs whose inputs the channel has drawn, as further pairs."""


class RunSpec(NamedTuple):
    """What the name of a run says."""

    role: Role
    kind: str
    pairs: int | None
    """All if None."""
    unpaired: int | None
    """Unpaired outputs of a language model; all if None."""
    seed: int

    @property
    def name(self) -> str:
        if self.role != "lm":
            return f"{self.role}.{self.kind}.{amount(self.pairs)}.{self.seed}"
        if self.unpaired is None:
            return f"lm.{self.kind}.{EVERYTHING}"
        return f"lm.{self.kind}.{amount(self.pairs)}+{self.unpaired}"

    @staticmethod
    def parse(name: str) -> RunSpec:
        role, kind, amount, *seed = name.split(".")
        pairs, _, unpaired = amount.partition("+")
        return RunSpec(role, kind, _number(pairs), _number(unpaired), int(seed[0]) if seed else 1)  # type: ignore[arg-type]


def vocabulary_run(vocabulary: str) -> str:
    """The name of the run that has a vocabulary."""
    return VOCABULARIES if vocabulary == WORDS else f"{VOCABULARIES}.{vocabulary}"


def amount(n: int | None) -> str:
    """A number in the name of a run or file."""
    return EVERYTHING if n is None else str(n)


def _number(text: str) -> int | None:
    return None if text in (EVERYTHING, "") else int(text)
