"""Dropped content and copying in the results of an experiment, from the stored outputs alone; see
``evaluation.content``.

Outputs of all seeds count together, and so do all references of an item. An item that occurs several times counts as
often.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from noisychannel.evaluation.content import ContentCounts, function_words
from noisychannel.experiments.blocks import ItemKey
from noisychannel.experiments.items import Item
from noisychannel.text import TextConfig, normalise

TITLES = {
    "copied words": "words copied",
    "copied bigrams": "bigrams copied",
    "extracts": "extracts",
    "missing content": "content words missing",
    "dropped content": "content words dropped",
}


class ContentTable:
    """Counts by part for rows of an experiment."""

    def __init__(self, items: Mapping[ItemKey, Item], number: int, text: TextConfig) -> None:
        """``number``: of frequent types that are function words. ``text``: how outputs are normalised; inputs are
        compared with them in the same form."""
        self.items = items
        self.inputs = {key: normalise(item.input, text) for key, item in items.items()}
        self.function = function_words(self.inputs.values(), number)

    def row(
        self,
        keys: Sequence[ItemKey],
        outputs: Mapping[int, Sequence[str]],
        alignments: Mapping[int, Sequence[tuple[int, ...] | None]],
    ) -> dict[str, Any]:
        """Of the outputs of these items, by seed."""
        counts: dict[str, ContentCounts] = {}
        for seed, texts in outputs.items():
            for key, text, aligned in zip(keys, texts, alignments[seed], strict=True):
                self._add(counts, key, text, aligned)
        return _records(counts)

    def references(self) -> dict[str, Any]:
        counts: dict[str, ContentCounts] = {}
        for key, item in self.items.items():
            for text in item.references:
                self._add(counts, key, text, None)
        return _records(counts)

    def _add(self, counts: dict[str, ContentCounts], key: ItemKey, text: str, aligned: tuple[int, ...] | None) -> None:
        found = ContentCounts.of(self.inputs[key], text, self.function, aligned).times(self.items[key].count)
        counts[key[0]] = counts.get(key[0], ContentCounts()) + found


def _records(counts: Mapping[str, ContentCounts]) -> dict[str, Any]:
    """By part: shares in percent, and the counts that they are of."""
    return {part: {**of_part.shares(), "counts": asdict(of_part)} for part, of_part in counts.items()}


def content_lines(results: Mapping[str, Any]) -> Iterator[str]:
    """A table for each part; nothing if the design does not ask for it."""
    if "content" not in results:
        return
    content = results["content"]
    yield ""
    yield (
        "What outputs keep of their inputs, in percent. Copied: words and bigrams of the outputs that the input has. "
        "Extracts: outputs that are one piece of the input. Content words are those of the inputs but for punctuation "
        f"and the {content['function words']} most frequent types. Missing: the output does not contain them. "
        "Dropped: no word of the output is aligned to them by the best alignment of the direct model; empty if there "
        "is no such alignment."
    )
    for part in results["parts"]:
        yield ""
        yield f"**{part}**"
        yield ""
        yield _line(["system", *TITLES.values()])
        yield _line(["---", *["---:"] * len(TITLES)])
        for label, of_parts in {"references": content["references"], **content["rows"]}.items():
            if part in of_parts:
                shares = [of_parts[part][name] for name in TITLES]
                yield _line([label, *("" if share is None else f"{share:.1f}" for share in shares)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
