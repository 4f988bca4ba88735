"""A row of the merged results, with its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from noisychannel.experiments.blocks import ItemKey
from noisychannel.experiments.scores import Outputs


class MergedRow(NamedTuple):
    """A row with its outputs."""

    record: dict[str, Any]
    outputs: Outputs
    items: Sequence[ItemKey]
    """What the outputs are of, in their order: the items of all parts, or of those that its block has."""
    alignments: Mapping[int, Sequence[tuple[int, ...] | None]]
    """By seed, of the outputs; None if not kept."""
    objectives: Mapping[int, Sequence[float | None]]
    """By seed, of the outputs; None if their terms were not kept."""

    def outputs_of(self, items: Sequence[ItemKey]) -> Outputs | None:
        """The outputs of these items, if the row has them all."""
        places = {key: n for n, key in enumerate(self.items)}
        if items == self.items:
            return self.outputs
        if not all(key in places for key in items):
            return None
        return {seed: [texts[places[key]] for key in items] for seed, texts in self.outputs.items()}

    @property
    def searched(self) -> bool:
        """Whether its outputs are those of a search, and not the references."""
        return self.record.get("choose") != "references"

    @property
    def label(self) -> str:
        return row_label(self.record)


def row_label(record: Mapping[str, Any]) -> str:
    """``setting: name``, as ``SystemRow.label``."""
    return f"{record['setting']}: {record['name']}" if record["setting"] else str(record["name"])
