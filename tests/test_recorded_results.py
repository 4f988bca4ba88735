"""The results that are kept in the repository: their figures follow from the outputs beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noisychannel.experiments.blocks import read_blocks
from noisychannel.experiments.merged import row_label
from noisychannel.experiments.registry import EXPERIMENTS
from noisychannel.experiments.report import markdown
from noisychannel.experiments.results import merge
from noisychannel.experiments.scores import RowScorer

FOLDERS = sorted((Path(__file__).parents[1] / "experiments").glob("*/results"))
SMALL, MIDDLE = 1_000_000, 2_000_000
"""Bytes of outputs. Larger results are checked by the long tests only; those above the second are not merged again."""


def recorded(long_above: int = 0, most: int | None = None) -> list:
    """The folder and name of each experiment with results."""
    cases = []
    for folder in FOLDERS:
        for name in sorted(EXPERIMENTS):
            size = sum(file.stat().st_size for file in folder.glob(f"{name}.*.outputs.jsonl.xz"))
            if size and (most is None or size <= most):
                marks = [pytest.mark.long] if size > long_above else []
                cases.append(pytest.param(folder, name, id=name, marks=marks))
    return cases


def read(folder: Path, name: str) -> dict:
    results: dict = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return results


@pytest.mark.parametrize(("folder", "name"), recorded(SMALL))
def test_figures_follow_from_the_outputs(folder: Path, name: str) -> None:
    design, blocks = EXPERIMENTS[name].design, read_blocks(folder, name)
    rows = {row_label(row): row for row in read(folder, name)["rows"]}
    assert set(rows) == {row_label(row) for block in blocks for row in block.rows}
    for block in blocks:
        scorer = RowScorer(design, block.parts())
        for n, row in enumerate(block.rows):
            if rows[row_label(row)]["block"] != block.name:
                continue  # measured again; the table has the later one
            scores = scorer.scores(block.outputs(n), row["pairs"])
            for metric, found in rows[row_label(row)]["scores"].items():
                assert found["score"] == pytest.approx(scores[metric]["score"], abs=1e-9), row_label(row)
                assert found["seeds"] == pytest.approx(scores[metric]["seeds"], abs=1e-9)
                assert list(found["parts"]) == list(scores[metric]["parts"])


@pytest.mark.parametrize(("folder", "name"), recorded(long_above=10**9))
def test_tables_are_those_of_the_results(folder: Path, name: str) -> None:
    table = (folder / f"{name}.md").read_text(encoding="utf-8")
    assert table == "\n".join(markdown(read(folder, name))) + "\n"


@pytest.mark.parametrize(("folder", "name"), recorded(most=MIDDLE))
def test_the_results_are_what_the_blocks_merge_to(folder: Path, name: str) -> None:
    """To the last digit, intervals and p-values too."""
    merged = json.loads(json.dumps(merge(EXPERIMENTS[name].design, read_blocks(folder, name))))
    results = read(folder, name)
    for figures in (merged, results):
        del figures["metrics"]  # their signatures name the version that merged
    assert merged == results
