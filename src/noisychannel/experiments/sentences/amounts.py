"""How much data rows ask for, and how much there is: your own data may have less than a design names.

A row that asks for as much as there is, or for more, would be the row with all data once more, under another name and
with models that are trained again. Such rows are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from noisychannel.experiments.rows import SystemRow


@dataclass(frozen=True)
class Amounts:
    """What there is."""

    pairs: int
    unpaired: int
    """Outputs without inputs."""
    noun: str
    """What unpaired outputs are called."""
    share: float
    """What the numbers of rows are multiplied by."""

    def scaled(self, n: int | None) -> int | None:
        """A number of a row as an amount of this data."""
        return None if n is None else round(n * self.share)

    def lacking(self, row: SystemRow) -> str:
        """Why a row does not apply; empty if it does.

        With fewer pairs, as many unpaired outputs as there are still leave out the outputs of the other pairs.
        """
        pairs, unpaired = self.scaled(row.pairs), self.scaled(row.unpaired)
        if pairs is not None and pairs >= self.pairs:
            return f"there are {self.pairs:,} pairs"
        if unpaired is not None and (unpaired > self.unpaired or (unpaired == self.unpaired and pairs is None)):
            return f"there are {self.unpaired:,} unpaired {self.noun}"
        return ""

    def left_out(self, rows: Sequence[SystemRow]) -> str:
        """Which of these rows do not apply, and why, in one line."""
        lacking: dict[str, list[str]] = {}
        for row in rows:
            if reason := self.lacking(row):
                lacking.setdefault(reason, []).append(row.label)
        return "; ".join(f"{', '.join(labels)} ({reason})" for reason, labels in lacking.items())

    def unpaired_of(self, row: SystemRow) -> int:
        """The outputs that the language model of a row has beside those of its pairs."""
        pairs, unpaired = self.scaled(row.pairs), self.scaled(row.unpaired)
        if unpaired is not None:
            return unpaired
        return self.unpaired + (0 if pairs is None else self.pairs - pairs)

    def record(self, rows: Sequence[SystemRow]) -> dict[str, Any]:
        """For the results: all pairs, the unpaired outputs of each setting, and the rows that do not apply."""
        lacking = [row for row in rows if self.lacking(row)]
        whole = [row for row in rows if row not in lacking and not row.unrestricted]
        return {
            "pairs": {"train": self.pairs},
            "unpaired": {row.setting: {self.noun: self.unpaired_of(row)} for row in whole},
            **({"left out": [row.label for row in lacking]} if lacking else {}),
        }
