"""What the channel adds, in the recorded results of any experiment: rows that differ in the channel alone.

Found by rule, not by taste: a row with a channel and a proposing model, and the row of the same setting, amounts of
data, models, search and terms but for the channel. Both were tuned by themselves, so that they had the same chance.
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
from noisychannel.experiments.scores import RowScorer
from noisychannel.schemas import Record

SAME = ("setting", "pairs", "unpaired", "search")


@dataclass(frozen=True)
class Contrast(Record):
    """Two rows, and the difference of their scores."""

    experiment: str
    metric: str
    with_channel: str
    """Labels of the rows."""
    without: str
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


def find_contrasts(rows: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Pairs of rows of merged results: with the channel, and without."""
    plain = [row for row in rows if row["system"] and not {"choose", "weights of", "raised"} & row.keys()]
    found = []
    for row in plain:
        parts = row["system"].split("+")
        if "channel" not in parts or parts[0] == "channel":
            continue
        rest = "+".join(part for part in parts if part != "channel")
        found += [(row, other) for other in plain if other["system"] == rest and _same(row, other, rest)][:1]
    return found


def _same(row: Mapping[str, Any], other: Mapping[str, Any], system: str) -> bool:
    """Whether two rows have the same data, search, and models of a system; records may name further models."""
    alike = all(row.get(key) == other.get(key) for key in SAME) and row.get("bias", True) == other.get("bias", True)
    models = [[each["models"].get(name) for name in system.split("+")] for each in (row, other)]
    return alike and models[0] == models[1]


def measure_contrasts(design: Design, results: Mapping[str, Any], directory: Path) -> list[Contrast]:
    """The contrasts of an experiment, with intervals from the outputs in the block files of a directory."""
    pairs = find_contrasts(results["rows"])
    if not pairs:
        return []
    blocks = read_blocks(directory, design.name)
    whole = max(blocks, key=lambda block: len(block.items))
    scorer = RowScorer(design, whole.parts())
    known = {row.label: row for row in merged_rows(design, blocks)}
    metric, contrasts = design.metrics[0], []
    for with_channel, without in pairs:
        labels = row_label(with_channel), row_label(without)
        found = difference(design, scorer, known, (labels[0],), (labels[1],))
        if found is not None:
            score, other = (row["scores"][metric]["score"] for row in (with_channel, without))
            amount = _amount(with_channel, results)
            contrasts.append(Contrast(design.name, metric, *labels, amount, score, other, found[1]))
    return contrasts


def _amount(row: Mapping[str, Any], results: Mapping[str, Any]) -> int | None:
    """Training pairs of a row: for each model, so the mean over parts."""
    if row["pairs"] is not None:
        return int(row["pairs"])
    of_parts = list(results["data"].get("pairs", {}).values())
    return round(sum(of_parts) / len(of_parts)) if of_parts else None
