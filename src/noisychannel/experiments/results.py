"""Merging blocks into the results of an experiment, and what needs rows of several blocks: comparisons and examples.

The results are a function of the block files and the design: intervals and p-values are computed from the outputs, and
a score that does not follow from them is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from noisychannel.errors import BadInputError
from noisychannel.experiments.blocks import FORMAT, Block
from noisychannel.experiments.claims import check_claims
from noisychannel.experiments.content import ContentTable
from noisychannel.experiments.design import Design
from noisychannel.experiments.lengths import length_record
from noisychannel.experiments.merged import MergedRow as MergedRow
from noisychannel.experiments.merged import row_label as row_label
from noisychannel.experiments.rows import THREE_SEEDS
from noisychannel.experiments.scores import RowScorer, check_same_scores
from noisychannel.experiments.search_errors import search_errors

FROM_BLOCK = ("noisychannel", "commit", "date")
"""What each row says about its block."""


def merge(design: Design, blocks: Sequence[Block]) -> dict[str, Any]:
    """The results of an experiment from its blocks. Of two rows of one setting and name the later one counts."""
    if not blocks:
        raise BadInputError(f"{design.name}: no block has been measured; run: noisychannel reproduce {design.name}")
    blocks = in_order(design, blocks)
    whole = max(blocks, key=lambda block: len(block.items))
    for block in blocks:
        parts = {part for part, _ in block.items}
        if list(block.items.items()) != [(key, item) for key, item in whole.items.items() if key[0] in parts]:
            raise BadInputError(
                f"{design.name}: the blocks {whole.name} and {block.name} have different test items; "
                "measure one of them again, with the data of the other"
            )
        check_same_pairs(design, whole, block)
    scorers = {tuple(block.items): RowScorer(design, block.parts()) for block in blocks}
    scorer = scorers[tuple(whole.items)]
    rows = merged_rows(design, blocks)
    for row in rows:
        computed, recorded = scorers[tuple(row.items)].scores(row.outputs, row.record["pairs"]), row.record["scores"]
        check_same_scores(row.label, recorded, computed)
        # A metric that the design had not yet when the block was measured follows from the outputs, too.
        row.record["scores"] = {metric: recorded.get(metric, scores) for metric, scores in computed.items()}
    for row in rows:
        _compare(design, scorers[tuple(row.items)], row, rows)
    return {
        "format": FORMAT,
        "experiment": design.name,
        "metrics": {name: metric.signature for name, metric in scorer.metrics.items()},
        "average": design.average,
        "nouns": _nouns(design),
        "parts": {
            name: sum(item.count for item in items) for name, items in whole.parts() if name not in design.shown_parts
        },
        **_references(design, whole),
        **({"cited of": design.cited_of} if design.cited_of else {}),
        **({"part table": True} if design.part_table else {}),
        **({"seen apart": True} if design.seen_apart else {}),
        **({"speeds": True} if design.speeds else {}),
        "data": whole.record["data"],
        "tuned": whole.record["tuned"],
        "blocks": {block.name: {k: v for k, v in block.record.items() if k != "rows"} for block in blocks},
        "rows": [row.record for row in rows],
        "cited": {name: dict(figures) for name, figures in design.cited.items()},
        **_content(design, whole, rows),
        "not measured": _not_measured(design, {row.label for row in rows} | set(_left_out(whole))),
        "example systems": [row.label for row in _example_rows(design, scorer, rows)],
        "examples": _examples(design, scorer, rows),
        **({"lengths": length_record(design.lengths, whole.items, rows)} if design.lengths else {}),
        **({"search errors": search_errors(design, rows)} if design.search_errors else {}),
        **({"claims": check_claims(design, scorer, rows)} if design.claims else {}),
        **({"shown": _shown(design, scorer, rows)} if design.shown_parts else {}),
    }


def _references(design: Design, whole: Block) -> dict[str, Any]:
    """How many references the items of each part have at most, if some have several: BLEU counts all of them."""
    most = {
        name: max(len(item.references) for item in items)
        for name, items in whole.parts()
        if name not in design.shown_parts
    }
    return {"references": most} if design.average == "separate" and max(most.values()) > 1 else {}


def check_same_pairs(design: Design, whole: Block, block: Block) -> None:
    """Refuse blocks that were trained on different data of one part."""
    counts, others = (one.record["data"].get("pairs", {}) for one in (whole, block))
    if differing := [part for part, count in others.items() if counts.get(part, count) != count]:
        part = differing[0]
        raise BadInputError(
            f"{design.name}: the blocks {whole.name} and {block.name} have {counts[part]:,} and {others[part]:,} pairs "
            f"of {part}; measure one of them again, with the data of the other"
        )


def in_order(design: Design, blocks: Sequence[Block]) -> list[Block]:
    """In the order of the design; others last."""
    order = list(design.blocks)
    return sorted(blocks, key=lambda block: order.index(block.block) if block.block in order else len(order))


def _nouns(design: Design) -> dict[str, str]:
    nouns = {"part": design.part_noun, "unit": design.unit_noun}
    return nouns | ({"seed": design.seed_noun} if design.seed_noun != "seed" else {})


def merged_rows(design: Design, blocks: Sequence[Block]) -> list[MergedRow]:
    """In the order of the blocks; a row that is measured again stays in its place, and the later one counts."""
    rows: dict[str, MergedRow] = {}
    for block in in_order(design, blocks):
        about = {"block": block.name} | {key: block.record[key] for key in FROM_BLOCK}
        for n, record in enumerate(block.rows):
            outputs, alignments = block.outputs(n), block.alignments(n)
            row = MergedRow({**deepcopy(record), **about}, outputs, list(block.items), alignments, block.objectives(n))
            before = rows.get(row.label)
            if before is None or before.record["date"] < row.record["date"]:
                rows[row.label] = row
    return list(rows.values())


def _compare(design: Design, scorer: RowScorer, row: MergedRow, rows: Sequence[MergedRow]) -> None:
    """Add the published figures, and for each metric and part that is reported, an interval and p-values."""
    row.record["published"] = dict(design.published.get(row.label, {}))
    baselines = {title: _baseline(name, row.record, rows) for title, name in design.baselines.items()}
    compared = {
        title: other.outputs_of(row.items) if other is not None and other is not row else None
        for title, other in baselines.items()
    }
    for metric, scores in row.record["scores"].items():
        for part in scorer.views():
            own = scores if part is None else scores["parts"][part]
            own["interval"] = scorer.interval(metric, row.outputs, part)
            own["p"] = {
                title: scorer.p_value(metric, row.outputs, other, part) if other is not None else None
                for title, other in compared.items()
            }
        if design.average == "separate":
            first = scores["parts"][scorer.parts[0]]
            scores |= {"interval": first["interval"], "p": first["p"]}


def _baseline(name: str, record: Mapping[str, Any], rows: Sequence[MergedRow]) -> MergedRow | None:
    """The row of that name with as many pairs; in the same setting if there is one, and of as many seeds."""
    suffix = f", {THREE_SEEDS}"
    names = [f"{name}{suffix}", name] if record["name"].endswith(suffix) else [name]
    same = [row for row in rows if row.record["base"] in names and row.record["pairs"] == record["pairs"]]
    same = [row for row in same if row.record["unpaired"] is None]

    def key(row: MergedRow) -> tuple[bool, int]:
        return row.record["setting"] != record["setting"], names.index(row.record["base"])

    return min(same, key=key, default=None)


def _content(design: Design, whole: Block, rows: Sequence[MergedRow]) -> dict[str, Any]:
    """What outputs keep of their inputs, if the design asks for it."""
    if design.function_words is None:
        return {}
    counting = ContentTable(whole.items, design.function_words, design.text)
    return {
        "content": {
            "function words": design.function_words,
            "references": counting.references(),
            "rows": {row.label: counting.row(row.items, row.outputs, row.alignments) for row in rows if row.searched},
        }
    }


def _left_out(whole: Block) -> list[str]:
    """The labels of rows that do not apply to the data."""
    labels: list[str] = whole.record["data"].get("left out", [])
    return labels


def _not_measured(design: Design, measured: set[str]) -> dict[str, list[str]]:
    """For each block, the labels of rows that no block file has. ``measured``: and those that do not apply."""
    missing = {name: [row.label for row in rows if row.label not in measured] for name, rows in design.blocks.items()}
    return {name: labels for name, labels in missing.items() if labels}


def _example_rows(design: Design, scorer: RowScorer, rows: Sequence[MergedRow]) -> list[MergedRow]:
    """The two rows of the examples; none if they are not measured."""
    by_label = {row.label: row for row in rows if len(row.items) == len(scorer.items)}
    found = [by_label[label] for label in design.examples if label in by_label]
    return found[:2] if len(found) > 1 and found[0].label == design.examples[0] else []


def _examples(design: Design, scorer: RowScorer, rows: Sequence[MergedRow]) -> dict[str, list[list[str]]]:
    """Items on which two rows differ, with the models of the first seed, spread evenly over all such items."""
    if not (pair := _example_rows(design, scorer, rows)):
        return {}
    before, after = (next(iter(row.outputs.values())) for row in pair)
    metric = design.metrics[0]
    scores = [scorer.item_scores(metric, texts) for texts in (before, after)]
    sign = 1 if scorer.metrics[metric].higher_is_better else -1
    found: dict[str, list[list[str]]] = {"helps": [], "hurts": []}
    for n, (item, one, other, old, new) in enumerate(zip(scorer.items, before, after, *scores, strict=True)):
        if old != new and scorer.part_of(n) not in design.shown_parts:
            kind = "helps" if sign * (new - old) > 0 else "hurts"
            part = scorer.part_of(n) if len(scorer.parts) > 1 else ";".join(item.features)
            found[kind].append([part, item.input, item.references[0], one, other])
    most = design.examples_of_each
    return {kind: items[:: max(1, len(items) // most)][:most] for kind, items in found.items()}


def _shown(design: Design, scorer: RowScorer, rows: Sequence[MergedRow]) -> list[list[str]]:
    """The items of parts that are shown: part, input, reference, and what both rows of the examples put out."""
    if not (pair := _example_rows(design, scorer, rows)):
        return []
    before, after = (next(iter(row.outputs.values())) for row in pair)
    return [
        [scorer.part_of(n), item.input, item.references[0], one, other]
        for n, (item, one, other) in enumerate(zip(scorer.items, before, after, strict=True))
        if scorer.part_of(n) in design.shown_parts
    ]
