"""The page of comparisons: it follows from the recorded results, and its contrasts differ in the channel alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from noisychannel.cli.main import main
from noisychannel.experiments.blocks import read_blocks
from noisychannel.experiments.comparison import comparison_lines, read_contrasts, read_results, write_comparison
from noisychannel.experiments.contrasts import Contrast, find_contrasts, measure_contrasts
from noisychannel.experiments.registry import EXPERIMENTS
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.translation.rows import BETTER_LM, BUT_CHANNEL, DIRECT, EVERYTHING, FULL, WITH_LM

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "experiments"


def scores_of(experiment: str) -> dict[str, float]:
    (file,) = RECORDED.glob(f"*/results/{experiment}.json")
    results = json.loads(file.read_text(encoding="utf-8"))
    metric = next(iter(results["metrics"]))
    return {
        f"{row['setting']}: {row['name']}" if row["setting"] else row["name"]: row["scores"][metric]["score"]
        for row in results["rows"]
    }


def test_the_page_is_what_the_command_makes_from_the_recorded_results() -> None:
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    assert page == "\n".join(comparison_lines(read_results(RECORDED), read_contrasts(RECORDED))) + "\n"


def test_differences_are_from_the_direct_model_with_as_many_pairs() -> None:
    lines = list(comparison_lines(read_results(RECORDED), read_contrasts(RECORDED)))
    scores = scores_of("inflection-nouns")
    full, direct = (scores[f"paper: {name} (bi)"] for name in ("direct + channel + LM + bias", "direct"))
    nouns = next(line for line in lines if line.startswith("| paper: direct + channel + LM + bias (bi) | 90.94 |"))
    assert nouns.endswith(f"| +3.26 | {full - direct:+.2f} |")
    few = next(line for line in lines if line.startswith("| 100k pairs, paired headlines: channel + LM + bias (bi) |"))
    assert "| +0.71 |" in few, "31.96 against 31.25"


def translation_lines(*measured: tuple[SystemRow, str]) -> list[str]:
    """The page if these rows of translation have results, each of a block."""
    version = {"noisychannel": "0.1.0", "commit": "0123456789abcdef+"}
    rows = [
        {**row.record(), **version, "block": block, "scores": {"bleu": {"score": 20.0 + n, "deviation": None}}}
        for n, (row, block) in enumerate(measured)
    ]
    return list(comparison_lines({"translation": (Path(), {"rows": rows, "parts": {"tvsub.htest": 1}})}, []))


def test_a_measured_row_stands_with_the_block_and_version_that_measured_it() -> None:
    """The direct model is in the block table, too, which the design has first."""
    lines = translation_lines((DIRECT, "better-lm"), (WITH_LM, "table"))
    assert (
        "Ours: `noisychannel reproduce translation --blocks table,better-lm`, version 0.1.0 at commit 0123456789ab+. "
        "What is not measured: `noisychannel reproduce translation --blocks table,attention,seq2seq`."
    ) in lines
    assert "| direct + LM + bias | 23.33 | 21.00 | +0.00 | +1.00 |" in lines


def test_a_row_with_another_language_model_stands_below_that_of_the_paper() -> None:
    lines = translation_lines((DIRECT, "better-lm"), (BETTER_LM[-1], "better-lm"), (EVERYTHING, "models"))
    place = lines.index("| direct + channel + LM + bias | 26.44 | not measured | +3.11 |  |")
    assert lines[place + 1] == "| direct + channel + LM + bias, LM learning rate 0.001 |  | 21.00 |  | +1.00 |"
    assert lines[place + 2] == "", "neither rows that are not measured nor those of another system"
    (commands,) = (text for text in lines if text.startswith("Ours: "))
    assert "--blocks better-lm`, version" in commands


def test_online_rows_are_marked() -> None:
    lines = list(comparison_lines(read_results(RECORDED), read_contrasts(RECORDED)))
    marked = {text.split("*")[0].removeprefix("| ") for text in lines if text.startswith("| ") and "* | " in text}
    designs = [entry.design for entry in EXPERIMENTS.values()]
    published = (row for design in designs for row in design.rows if row.label in design.published)
    assert marked == {row.label for row in published if row.online} != set()


def test_recorded_contrasts_have_the_scores_of_the_results() -> None:
    contrasts = read_contrasts(RECORDED)
    assert contrasts
    for name in {contrast.experiment for contrast in contrasts}:
        scores = scores_of(name)
        for contrast in contrasts:
            if contrast.experiment == name:
                assert (contrast.score, contrast.other) == (scores[contrast.with_channel], scores[contrast.without])
                low, high = contrast.interval
                assert low <= contrast.gain <= high


def test_every_measured_experiment_has_its_contrasts() -> None:
    """Of every pair of rows of its design that has results."""
    listed = {(x.experiment, x.with_channel, x.without) for x in read_contrasts(RECORDED)}
    for name in read_results(RECORDED):
        known = scores_of(name)
        pairs = [(a.label, b.label) for a, b in find_contrasts(EXPERIMENTS[name].design.rows)]
        assert {(name, *pair) for pair in pairs if all(label in known for label in pair)} == {
            found for found in listed if found[0] == name
        }


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("inflection-nouns", marks=pytest.mark.long),
        "inflection-sigmorphon2023",
        pytest.param("inflection-verbs", marks=pytest.mark.long),
    ],
)
def test_intervals_follow_from_the_outputs(name: str) -> None:
    folder, results = read_results(RECORDED)[name]
    recorded = [contrast for contrast in read_contrasts(RECORDED) if contrast.experiment == name]
    assert measure_contrasts(EXPERIMENTS[name].design, results, folder) == recorded


def test_an_interval_is_that_of_a_bootstrap_written_out() -> None:
    """Accuracies of 1,000 items in units: drawn by hand, with another random generator."""
    name = "inflection-sigmorphon2023"
    contrast = next(x for x in read_contrasts(RECORDED) if x.experiment == name)
    folder, _ = read_results(RECORDED)[name]
    (block,) = (b for b in read_blocks(folder, name) if b.name == "table")
    labels = [f"{row['setting']}: {row['name']}" for row in block.rows]
    right = []
    for label in (contrast.with_channel, contrast.without):
        seeds = block.outputs(labels.index(label)).values()
        items = block.items.values()
        hits = [[text in x.references for text, x in zip(texts, items, strict=True)] for texts in seeds]
        right.append(np.mean(hits, axis=0))
    units = np.unique([x.resampling_unit for x in block.items.values()], return_inverse=True)[1]
    gain, size = np.bincount(units, right[0] - right[1]), np.bincount(units)
    rng = np.random.default_rng(7)
    drawn = rng.integers(len(size), size=(4000, len(size)))
    gains = 100 * gain[drawn].sum(axis=1) / size[drawn].sum(axis=1)
    assert contrast.interval == pytest.approx(np.quantile(gains, [0.025, 0.975]), abs=0.35)


def test_contrasts_differ_in_the_channel_alone() -> None:
    assert find_contrasts([FULL, WITH_LM, EVERYTHING, BUT_CHANNEL]) == [(FULL, WITH_LM), (EVERYTHING, BUT_CHANNEL)]
    other_lm = SystemRow(name="x", system="direct+lm", models={**WITH_LM.models, "lm": "better"}, seeds=1)
    fewer = WITH_LM.restricted(unpaired=0)
    assert find_contrasts([FULL, other_lm, fewer]) == []
    borrowed = SystemRow(name="y", system=FULL.system, models=FULL.models, seeds=1, weights_of=FULL.name)
    assert find_contrasts([borrowed, WITH_LM]) == []


def test_verdicts() -> None:
    def verdict(low: float, high: float) -> str:
        return Contrast("e", "bleu", "a", "b", "direct", None, 2.0, 1.0, (low, high)).verdict

    assert [verdict(0.1, 2), verdict(-2, -0.1), verdict(-1, 1), verdict(0, 0)] == [
        *("helps", "hurts"),
        *("no difference", "no difference"),
    ]


def test_the_command_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "comparison", "--results", str(tmp_path)]) == 2
    assert "has no */results/EXPERIMENT.json" in capsys.readouterr().err
    assert main(["reproduce", "comparison", "--results", str(tmp_path / "nowhere")]) == 2
    assert "no such directory" in capsys.readouterr().err
    assert main(["reproduce", "comparison", "--quick"]) == 2
    assert "--quick would be ignored" in capsys.readouterr().err
    assert main(["reproduce", "inflection-nouns", "--page", "x.md", "--merge"]) == 2
    assert "--page would be ignored" in capsys.readouterr().err


def test_one_experiment_makes_a_page(tmp_path: Path) -> None:
    folder = tmp_path / "inflection" / "results"
    folder.mkdir(parents=True)
    for file in (RECORDED / "inflection" / "results").glob("inflection-sigmorphon2023.*"):
        (folder / file.name).write_bytes(file.read_bytes())
    text = write_comparison(tmp_path, tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == text
    assert "| direct + channel + LM + bias | 26.44 | not measured | +3.11 |  |" in text
    assert "`noisychannel reproduce translation --blocks table,attention,seq2seq`" in text
    assert "**inflection-sigmorphon2023**, accuracy" in text
    assert "inflection-nouns" in next(line for line in text.splitlines() if line.startswith("Not measured: "))
