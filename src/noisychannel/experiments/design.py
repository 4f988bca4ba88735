"""The design of an experiment: what is fixed before any data is read.

A design is enough to merge results and to draw tables and plots; an ``Experiment`` adds the data, and measures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from noisychannel.evaluation.metrics import Metric, make_metric
from noisychannel.experiments.rows import SystemRow
from noisychannel.text import TextConfig

Average = Literal["parts", "items", "separate"]
"""The mean of the parts' scores; one score over the items of all parts; or each part reported by itself."""
Figures = Mapping[str, str]
"""Published figures by metric, as they are printed."""


@dataclass(frozen=True)
class Plot:
    """Scores against the amount of training data, a line for each system."""

    name: str
    """The file is EXPERIMENT-NAME.svg."""
    amount: Literal["pairs", "unpaired"]
    label: str
    """Of the horizontal axis."""
    lines: Mapping[str, str]
    """Label to the name of a row with all data; rows with less have it as their base."""
    setting: str = ""
    """The setting whose rows are drawn; a row that it does not have is taken from another."""
    scale: Literal["log", "symlog"] = "log"
    cited: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Published curves: label to scores by amount."""
    pairs: int | None = None
    """Of ``unpaired``: the rows with so many pairs; all if None."""


@dataclass(frozen=True)
class SearchPlot:
    """Scores, and seconds of decoding for each item, against a setting of the search."""

    name: str
    """The file is EXPERIMENT-NAME.svg."""
    setting: str
    """Of the search, such as ``k1``."""
    label: str
    """Of the horizontal axis."""
    rows: tuple[str, ...]
    """Labels of rows that differ in that setting."""


@dataclass(frozen=True)
class SearchErrors:
    """A count of items for which something better-scoring than the output of a row exists."""

    name: str
    """What may score better, such as ``references``."""
    row: str
    """The label of the row."""
    other: str
    """The label of a row with the same models and weights, whose outputs are compared with those of the first."""


@dataclass(frozen=True)
class Claim:
    """A statement about scores that the results confirm or not: about the sum of some less that of others.

    Two rows are a difference; four, a difference of differences. It is about the first metric of the first part.
    """

    text: str
    plus: tuple[str, ...]
    """Labels of rows."""
    minus: tuple[str, ...]
    least: float | None = None
    """It holds only if the sum is at least this. If this is not negative, the interval must also be above zero."""
    most: float | None = None
    """It holds only if the sum is at most this. If this is not positive, the interval must also be below zero."""

    def holds(self, value: float, interval: tuple[float, float]) -> bool:
        low, high = interval
        enough = self.least is None or (value >= self.least and (self.least < 0 or low > 0))
        return enough and (self.most is None or (value <= self.most and (self.most > 0 or high < 0)))


@dataclass(frozen=True, kw_only=True)
class Design:
    """The rows of an experiment in blocks, how they are scored, and what they are compared with."""

    name: str
    about: str
    """One line for ``noisychannel reproduce --help``."""
    blocks: Mapping[str, tuple[SystemRow, ...]]
    """Rows that are trained, tuned, decoded and stored together, in the order of the table. A row may be in several
    blocks; what is measured last counts."""
    quick_blocks: tuple[str, ...] = ()
    """What ``--quick`` runs unless told otherwise; all blocks if empty."""
    metrics: tuple[str, ...] = ("accuracy",)
    """By name, see ``evaluation.metrics``; weights are tuned on the first."""
    tokenize: str | None = None
    """The tokenizer of bleu; sacrebleu's default if None."""
    text: TextConfig = field(default_factory=TextConfig)
    """How outputs and references are normalised, for the metrics' signatures."""
    average: Average = "items"
    part_table: bool = False
    """Whether the report has a second table, with the first metric of each part."""
    part_noun: str = "part"
    """What a part is called in tables, such as ``type``."""
    unit_noun: str = "input"
    """What the units of resampling are called, such as ``lemma``."""
    seed_noun: str = "seed"
    """What a seed stands for, such as a ``sample`` of the training pairs."""
    seen_apart: bool = False
    """Whether items whose inputs were seen in training are also scored apart from the others."""
    speeds: bool = False
    """Whether tables say how many items were decoded in a second."""
    resamples: int | None = None
    """Of the bootstrap, if there are so many items that the usual number takes too long."""
    function_words: int | None = None
    """If given, the results count dropped content and copying (``evaluation.content``). So many of the most frequent
    types of the test inputs are function words. Dropped content needs ``MeasuringSettings.keep_alignments``."""
    baselines: Mapping[str, str] = field(default_factory=dict)
    """Rows that the others are compared with: column title to the row's name. A row with fewer pairs is compared with
    the baseline of as few."""
    published: Mapping[str, Figures] = field(default_factory=dict)
    """The paper's own figures, by the label of the row (``setting: name``)."""
    cited_of: str = ""
    """The part that the cited figures are about, if they are not about all."""
    cited: Mapping[str, Figures] = field(default_factory=dict)
    """Figures of other systems, which become rows of their own."""
    examples: tuple[str, ...] = ()
    """The label of a row, and of one to compare it with, or of several: the first that is measured. Items on which the
    two differ are shown."""
    examples_of_each: int = 12
    """How many are shown on which the second row is better, and as many on which it is worse."""
    shown_parts: tuple[str, ...] = ()
    """Parts of a few items whose outputs are shown side by side, by both rows of the examples, instead of scored."""
    plots: tuple[Plot, ...] = ()
    search_plots: tuple[SearchPlot, ...] = ()
    claims: tuple[Claim, ...] = ()
    lengths: tuple[int, ...] = ()
    """If given, the results have the lengths of outputs by the length of their inputs: the longest input of each group,
    in words; a last group has longer ones."""
    search_errors: tuple[SearchErrors, ...] = ()
    """They need ``MeasuringSettings.keep_terms``, and two rows of one block."""

    def __post_init__(self) -> None:
        labels = {row.label: row for row in self.rows}
        for rows in self.blocks.values():
            names = [row.label for row in rows]
            for row in rows:
                if names.count(row.label) > 1 or labels[row.label] != row:
                    raise ValueError(f"{self.name}: two rows are called {row.label!r}")
        for row in self.rows:
            if row.weights_of and (row.setting, row.weights_of) not in {other.key for other in self.rows}:
                raise ValueError(f"{self.name}: {row.label} uses the weights of {row.weights_of!r}, which is no row")
        for errors in self.search_errors:
            if unknown := {errors.row, errors.other} - set(labels):
                raise ValueError(f"{self.name}: search errors of {min(unknown)!r}, which is no row")
        for claim in self.claims:
            if unknown := {*claim.plus, *claim.minus} - set(labels):
                raise ValueError(f"{self.name}: the claim {claim.text!r} is about {min(unknown)!r}, which is no row")

    @property
    def rows(self) -> list[SystemRow]:
        """Of all blocks; a row of several blocks once."""
        return list({row.label: row for rows in self.blocks.values() for row in rows}.values())

    def make_metrics(self) -> dict[str, Metric]:
        """The metrics by name, in their order."""
        tokenize = {"bleu": self.tokenize}
        return {name: make_metric(name, tokenize.get(name), self.text) for name in self.metrics}
