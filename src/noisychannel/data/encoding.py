"""Rows as ids, for each sequence that a model reads or writes, with counts of what was left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from noisychannel.data.codec import Codec
from noisychannel.data.corpus import SequenceName
from noisychannel.data.rows import Row
from noisychannel.ids import UNK


@dataclass
class Counts:
    """How many lines of one split were read or made, dropped and truncated."""

    lines: int = 0
    dropped: int = 0
    truncated: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    foreign: int = 0
    """Skipped: unpaired lines of groups that are not in train."""
    repeat: int = 1
    """How often each line is in the training data."""
    wanted: int = 0
    """Of lines that are made: how many were asked for."""

    def summary(self) -> str:
        parts = [f"{self.lines - self.dropped:,} lines"]
        if self.repeat > 1:
            parts.append(f"each {self.repeat:,} times")
        if self.lines < self.wanted:
            parts.append(f"{self.wanted:,} were asked for")
        if self.dropped:
            parts.append(f"{self.dropped:,} dropped as too long")
        if self.truncated:
            parts.append(f"{self.truncated:,} truncated")
        if self.foreign:
            parts.append(f"{self.foreign:,} of groups without pairs skipped")
        if self.unknown:
            shown = ", ".join(f"{symbol!r} ×{n}" for symbol, n in self.unknown.most_common(5))
            parts.append(f"{self.unknown.total():,} unknown symbols ({shown}{', …' if len(self.unknown) > 5 else ''})")
        return ", ".join(parts)


class RowEncoder(NamedTuple):
    """From the rows of a group to ids."""

    input_codec: Codec
    output_codec: Codec
    too_long: Literal["drop", "truncate"]
    lm_reads_features: bool

    def encode(self, row: Row, counts: Counts) -> dict[SequenceName, list[int]] | None:
        """The ids of a row by sequence name; None if the row is dropped. It is counted."""
        counts.lines += 1
        sides: dict[str, list[str]] = {}
        truncated = False
        for side, codec in (("input", self.input_codec), ("output", self.output_codec)):
            symbols = codec.split(getattr(row, side))
            limit = codec.config.max_length
            if limit is not None and len(symbols) > limit:
                if self.too_long == "drop":
                    counts.dropped += 1
                    return None
                truncated = True
                symbols = symbols[:limit]
            sides[side] = symbols
        counts.truncated += truncated
        inputs, outputs = self.input_codec.ids(sides["input"]), self.output_codec.ids(sides["output"])
        input_tags = self.input_codec.ids((), row.features)[:-1]
        output_tags = self.output_codec.ids((), row.features)[:-1]
        # Only the language model can read the features of an unpaired output.
        seen_tags = input_tags if row.input else output_tags if self.lm_reads_features else []
        for names, ids in ((sides["input"], inputs), (sides["output"], outputs), (row.features, seen_tags)):
            if UNK in ids:
                counts.unknown.update(name for name, i in zip(names, ids, strict=False) if i == UNK)
        return {
            "outputs": outputs,
            "all_outputs": output_tags + outputs if self.lm_reads_features else outputs,
            "tagged_inputs": input_tags + inputs,
            "tagged_outputs": output_tags + outputs,
        }
