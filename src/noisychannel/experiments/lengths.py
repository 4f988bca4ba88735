"""How long outputs are, by the length of their inputs: premature ends show in long sentences.

From the stored outputs alone, all seeds together. The length of a reference is the mean of an item's references. An
output *ends early* if it has less than half of the words of its reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from noisychannel.experiments.blocks import ItemKey
from noisychannel.experiments.items import Item
from noisychannel.experiments.merged import MergedRow

EARLY = 0.5
"""Of the words of a reference: half, as the report says."""


def length_record(longest: Sequence[int], items: Mapping[ItemKey, Item], rows: Sequence[MergedRow]) -> dict[str, Any]:
    """For each row the length ratio of each group of inputs, over the first part; None for a group without items."""
    part = next(iter(items))[0]
    groups = {key: _group(longest, item.input) for key, item in items.items() if key[0] == part}
    numbers = [sum(items[key].count for key, group in groups.items() if group == n) for n in range(len(longest) + 1)]
    return {
        "part": part,
        "longest": list(longest),
        "items": numbers,
        "rows": {
            row.label: _row(row, items, groups, len(numbers))
            for row in rows
            if row.searched and row.items[0][0] == part
        },
    }


def _group(longest: Sequence[int], text: str) -> int:
    words = len(text.split())
    return next((n for n, most in enumerate(longest) if words <= most), len(longest))


def _row(row: MergedRow, items: Mapping[ItemKey, Item], groups: Mapping[ItemKey, int], number: int) -> dict[str, Any]:
    written, expected, early, outputs = np.zeros(number), np.zeros(number), 0, 0
    for texts in row.outputs.values():
        for key, text in zip(row.items, texts, strict=True):
            if key in groups:
                item, words = items[key], len(text.split())
                reference = float(np.mean([len(reference.split()) for reference in item.references]))
                written[groups[key]] += item.count * words
                expected[groups[key]] += item.count * reference
                early += item.count * (words < EARLY * reference)
                outputs += item.count
    ratios = [float(one / other) if other else None for one, other in zip(written, expected, strict=True)]
    return {"ratios": ratios, "early": 100 * early / outputs}


def length_lines(results: Mapping[str, Any]) -> Iterator[str]:
    """A table; nothing if the design does not ask for it."""
    if "lengths" not in results:
        return
    lengths = results["lengths"]
    longest, first = lengths["longest"], [1, *(most + 1 for most in lengths["longest"])]
    names = [*(f"{low}–{high}" for low, high in zip(first, longest, strict=False)), f"{first[-1]} and more"]
    yield ""
    yield (
        f"Words of the outputs for each word of the references, by the words of the input ({lengths['part']}; items: "
        f"{', '.join(f'{name}: {n}' for name, n in zip(names, lengths['items'], strict=True))}). Ended early: the "
        "percentage of outputs with fewer than half as many words as their reference."
    )
    yield ""
    yield f"| system | {' | '.join(names)} | ended early |"
    yield f"| --- | {' | '.join(['---:'] * (len(names) + 1))} |"
    for label, row in lengths["rows"].items():
        ratios = ["" if ratio is None else f"{ratio:.2f}" for ratio in row["ratios"]]
        yield f"| {label} | {' | '.join(ratios)} | {row['early']:.1f} |"
