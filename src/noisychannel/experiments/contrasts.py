"""What the channel adds, in the recorded results of any experiment: rows that differ in the channel alone.

Found by rule, not by taste: a row with a channel and a proposing model, and the row of the same setting, amounts of
data, seeds, models, search and terms but for the channel. Both were tuned by themselves, and had the same chance.
Rows that borrow weights, or choose among the outputs of others, are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from noisychannel.experiments.blocks import read_blocks
from noisychannel.experiments.claims import difference
from noisychannel.experiments.design import Design
from noisychannel.experiments.merged import row_label
from noisychannel.experiments.results import merged_rows
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.scores import RowScorer
from noisychannel.schemas import Record
from noisychannel.systems import PROPOSERS

SAME = ("setting", "pairs", "unpaired", "search", "bias", "seeds")


@dataclass(frozen=True)
class Contrast(Record):
    """Two rows, and the difference of their scores."""

    experiment: str
    metric: str
    with_channel: str
    """Labels of the rows."""
    without: str
    system: str
    """Of the second, such as ``direct+lm``."""
    pairs: int | None
    """Training pairs; None if the results do not say how many "all" are."""
    score: float
    """With the channel."""
    other: float
    """Without."""
    interval: tuple[float, float]
    """95 %, of the gain."""

    @property
    def gain(self) -> float:
        return self.score - self.other

    @property
    def verdict(self) -> str:
        """Whether the interval is above zero, below it, or contains it."""
        low, high = self.interval
        return "helps" if low > 0 else "hurts" if high < 0 else "no difference"

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def find_contrasts(rows: Sequence[SystemRow]) -> list[tuple[SystemRow, SystemRow]]:
    """Pairs of rows of a design: with the channel, and without."""
    plain = [row for row in rows if row.system and not (row.choose or row.weights_of or row.raised)]
    found = []
    for row in plain:
        parts = row.system.split("+")
        if "channel" in parts and parts[0] in PROPOSERS:
            rest = "+".join(part for part in parts if part != "channel")
            found += [(row, other) for other in plain if other.system == rest and _same(row, other)][:1]
    return found


def _same(row: SystemRow, other: SystemRow) -> bool:
    models = {name: run for name, run in row.used_models().items() if name != "channel"}
    return other.used_models() == models and all(getattr(row, name) == getattr(other, name) for name in SAME)


def measure_contrasts(design: Design, results: Mapping[str, Any], directory: Path) -> list[Contrast]:
    """The contrasts of an experiment that have results, with intervals from the block files of a directory."""
    recorded = {row_label(row): row for row in results["rows"]}
    pairs = [pair for pair in find_contrasts(design.rows) if all(_is_recorded(row, recorded) for row in pair)]
    if not pairs:
        return []
    blocks = read_blocks(directory, design.name)
    scorer = RowScorer(design, max(blocks, key=lambda block: len(block.items)).parts())
    known = {row.label: row for row in merged_rows(design, blocks)}
    metric, contrasts = design.metrics[0], []
    for row, without in pairs:
        labels = row.label, without.label
        found = difference(design, scorer, known, labels[:1], labels[1:])
        if found is not None:
            score, other = (recorded[label]["scores"][metric]["score"] for label in labels)
            amount = _amount(recorded[labels[0]], results)
            contrasts.append(Contrast(design.name, metric, *labels, without.system, amount, score, other, found[1]))
    return contrasts


def _is_recorded(row: SystemRow, recorded: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether there are results of this row; an earlier version may have had another system of that name."""
    return row.label in recorded and recorded[row.label]["system"] == row.system


def _amount(row: Mapping[str, Any], results: Mapping[str, Any]) -> int | None:
    """Training pairs of a row: for each model, so the mean over parts."""
    if row["pairs"] is not None:
        return int(row.get("amounts", row)["pairs"])
    of_parts = list(results["data"].get("pairs", {}).values())
    return round(sum(of_parts) / len(of_parts)) if of_parts else None
