"""The results of commit a72c93bf99a7, which were one file for each experiment (format 1), as blocks (format 2).

    for f in json outputs.tsv.xz; do git show 93cd73d:experiments/inflection/results/inflection-nouns.$f \\
        > old/inflection-nouns.$f; done
    python experiments/inflection/convert_format1.py old experiments/inflection/results --data data

Every figure stays as it is: the script stops if a recorded interval or p-value differs from what the outputs give now.
The data is needed for the tags of the SIGMORPHON items, which format 1 did not keep.
"""

from __future__ import annotations

import argparse
import json
import lzma
from pathlib import Path
from typing import Any

from noisychannel.experiments.blocks import FORMAT, Block, NBest
from noisychannel.experiments.decoding import NBestEntry
from noisychannel.experiments.inflection.data import read_sigmorphon
from noisychannel.experiments.items import Item
from noisychannel.experiments.registry import EXPERIMENTS
from noisychannel.experiments.reproducing import write_results
from noisychannel.experiments.results import row_label

KEPT = ("experiment", "noisychannel", "commit", "torch", "date", "device", "data", "tuned")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    options = parser.parse_args()
    for file in sorted(options.old.glob("inflection-*.json")):
        convert(file, options.results, options.data / "morphology")


def convert(file: Path, results: Path, morphology: Path) -> None:
    old = json.loads(file.read_text(encoding="utf-8"))
    entry = EXPERIMENTS[old["experiment"]]
    with lzma.open(file.with_suffix(".outputs.tsv.xz"), "rt", encoding="utf-8") as stream:
        header, *lines = (line.rstrip("\n").split("\t") for line in stream)
    items: dict[tuple[str, int], Item] = {}
    for n, (type_, lemma, form) in enumerate(line[:3] for line in lines):
        number = sum(part == type_ for part, _ in items)
        items[type_, number] = Item(lemma, (form,), features(old["experiment"], morphology, type_, n))
    columns = {name: [line[n] for line in lines] for n, name in enumerate(header)}
    designed = {row.label: (name, row) for name, rows in entry.design.blocks.items() for row in rows}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in entry.design.blocks}
    n_best: dict[str, list[NBest]] = {name: [] for name in entry.design.blocks}
    for row in old["rows"]:
        block, design_row = designed.get(row_label(row), ("table", None))
        amounts = (design_row.base, design_row.pairs, design_row.unpaired) if design_row else (row["name"], None, None)
        rows[block].append(row_record(row, old["scale"]["search"], *amounts))
        texts = {seed: columns[f"{row_label(row)} [{seed_name(seed)}]"] for seed in map(int, row["seeds"])}
        n_best[block].append(
            {
                seed: {key: [NBestEntry(text, {})] for key, text in zip(items, of_seed, strict=True)}
                for seed, of_seed in texts.items()
            }
        )
    for name in filter(rows.get, rows):
        record = {"format": FORMAT, **{key: old[key] for key in KEPT}, "block": name, "settings": old["scale"]}
        record |= {"seconds": old["seconds"] if name == "table" else {}, "ended by their limit": None}
        if any(rows[other] for other in rows if other != name):
            record["note"] = "of one command for all blocks" if name == "table" else "in the time of the block table"
        record |= {"metrics": {"accuracy": "match:exact|case:mixed|version:0.1.0"}, "rows": rows[name]}
        Block(record, items, n_best[name]).write(results, old["experiment"])
    write_results(entry, results)
    check(old, json.loads((results / file.name).read_text(encoding="utf-8")))


def features(experiment: str, morphology: Path, type_: str, n: int) -> tuple[str, ...]:
    for year in (2017, 2023):
        if str(year) in experiment:
            return tuple(read_sigmorphon(morphology, year).test[n].tags.split(";"))
    return tuple(type_.split(":"))


def seed_name(seed: int) -> str:
    return f"seed {seed}" if seed else "all seeds"


def row_record(
    row: dict[str, Any], search: dict[str, Any], base: str, pairs: int | None, unpaired: int | None
) -> dict[str, Any]:
    rules = row["system"] == "rules"
    record = {"name": row["name"], "setting": row["setting"], "system": "" if rules else row["system"]}
    record |= {"baseline": "rules" if rules else "", "base": base, "pairs": pairs, "unpaired": unpaired}
    if not rules:
        record |= {"models": row["models"], "search": {**search, "search": row["search"]}, "weights": row["weights"]}
    if row["word list"]:
        record["notes"] = {"word list": "inside the language model, which a later version replaced by a term"}
    if "notes" in row:
        record["notes"] = row["notes"]
    if "dev" in row:
        dev = row["dev"]
        record["dev"] = {"metric": "accuracy", "score": dev["accuracy"], "decodings": dev["decodings"]}
    scores = {"score": row["accuracy"], "deviation": row["deviation"], "seeds": row["seeds"], "parts": row["types"]}
    return {**record, "scores": {"accuracy": scores}}


def check(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Every recorded figure is in the merged results, to the last digit."""
    assert old["examples"] == new["examples"]
    assert len(old["rows"]) == len(new["rows"])
    for before in old["rows"]:
        (after,) = (row for row in new["rows"] if row_label(row) == row_label(before))
        scores = after["scores"]["accuracy"]
        assert scores["interval"] == before["interval"], row_label(before)
        assert scores["p"] == {"direct (bi)": before["p"], "rules": before["p against rules"]}, row_label(before)
        assert scores["score"] == before["accuracy"]
        assert scores["deviation"] == before["deviation"]


if __name__ == "__main__":
    main()
