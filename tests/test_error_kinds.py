"""Errors in words, grouped and counted; outputs by item; two runs on the same items."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import run_here
from noisychannel import Weights
from noisychannel.arguments import dump_config
from noisychannel.cli.main import main
from noisychannel.decode.settings import SearchSettings
from noisychannel.evaluation.against import Against, Pairing
from noisychannel.evaluation.error_kinds import CASE, EMPTY, INCOMPLETE, Judged, group_errors, kinds_of
from noisychannel.evaluation.held_out import HeldOut
from noisychannel.evaluation.metrics import make_metric
from noisychannel.evaluation.report import ReportOptions, report_run
from noisychannel.evaluation.seen import seen_items
from noisychannel.evaluation.significance import difference_interval, paired_bootstrap
from noisychannel.evaluation.table import Bootstrap, EvaluationTable, SystemResult
from noisychannel.runs import RunDirectory
from noisychannel.weights import TunedSystem, write_systems
from toys import double_vowels, tag, toy_config, write_pairs

NARROW = SearchSettings(k1=4, k2=2)


@pytest.mark.parametrize(
    ("output", "reference", "kinds"),
    [
        ("Hauser", "Häuser", ["a instead of ä"]),
        ("Haus", "Hause", ["missing e at the end"]),
        ("Hauses", "Hause", ["extra s at the end"]),
        ("sucht", "gesucht", ["missing ge at the beginning"]),
        ("Hus", "Haus", ["missing a"]),
        ("Baume", "Bäumen", ["a instead of ä", "missing n at the end"]),
        ("a b", "ab", ["extra ␣"]),
        ("haus", "Haus", [CASE]),
        ("", "Haus", [EMPTY]),
        ("Haus", "Hausordnung", ["more than 4 characters missing at the end"]),
        ("axbxcxdx", "aybyczdz", ["more than 3 differences"]),
        ("anna", "enne", ["a instead of e"]),  # twice, counted once
    ],
)
def test_differences_in_words(output: str, reference: str, kinds: list[str]) -> None:
    assert kinds_of(Judged("x", output, [reference])) == kinds


def test_words_incomplete_outputs_and_several_references() -> None:
    assert kinds_of(Judged("x", "B AH T", ["B AE T"], characters=False)) == ["AH instead of AE"]
    assert kinds_of(Judged("x", "B AH", ["B AH T"], complete=False)) == [INCOMPLETE]
    assert kinds_of(Judged("x", "Haus", ["Garten", "Hause"])) == ["missing e at the end"]


def test_groups_are_counted_and_shares_are_of_wrong_outputs() -> None:
    judged = [
        Judged("a", "Baume", ["Bäume"], seen=True, direct_right=True),
        Judged("b", "Hauser", ["Häuser"], seen=False, direct_right=False),
        Judged("c", "Haus", ["Hause"], seen=False, direct_right=True),
        Judged("d", "Tag", ["Tag"], seen=True, direct_right=True),
    ]
    errors = group_errors("full", judged)
    assert (errors.items, errors.wrong, errors.direct_right) == (4, 3, 2)
    assert (errors.seen_items, errors.seen_right) == (2, 1)
    first, second = errors.kinds
    assert (first.kind, first.items, first.seen, first.direct_right) == ("a instead of ä", [0, 1], 1, 1)
    assert first.share == pytest.approx(200 / 3)
    assert [example.reference for example in first.examples] == ["Bäume", "Häuser"]
    assert second.items == [2]
    assert group_errors("direct", [Judged("a", "x", ["y"])]).seen_items is None


# --- with runs


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("trained")
    config = toy_config(directory, models=("direct", "lm"), rows=300, longest=4, max_epochs=2)
    (directory / "config.yaml").write_text(dump_config(config))
    assert main(["train", str(directory / "config.yaml")]) == 0
    run = RunDirectory(Path(config.run_dir))
    systems = [TunedSystem("direct+length", Weights(1.0, length=0.5), NARROW)]
    write_systems(run, [*systems, TunedSystem("direct+lm", Weights(1.0, lm=0.4), NARROW)], default="direct+lm")
    return run.path


@pytest.fixture
def items_file(tmp_path: Path) -> Path:
    """Some of its outputs are not what the models learn."""
    lines = write_pairs(tmp_path / "test.tsv", double_vowels, 40, 9, 4).read_text().splitlines()
    rows = [line.split("\t") for line in lines]
    text = "".join(f"{x}\t{x + 'x' if n % 4 == 0 else y}\n" for n, (x, y) in enumerate(rows))
    (tmp_path / "test.tsv").write_text(text)
    return tmp_path / "test.tsv"


def evaluate(run: Path, test: Path, *words: str) -> tuple[str, dict[str, Any]]:
    result = run_here(
        ["evaluate", str(run), str(test), "--json", str(test) + ".json", "--samples", "100", "--device", "cpu", *words],
        b"",
    )
    assert result.returncode == 0, result.stderr.decode()
    record: dict[str, Any] = json.loads(Path(str(test) + ".json").read_text())
    return result.stdout.decode(), record


def test_the_report_ends_with_the_errors_of_the_best_system(trained: Path, items_file: Path) -> None:
    text, record = evaluate(trained, items_file)
    errors = record["errors"]
    rows = {row["system"]: row for row in record["systems"]}
    references = record["items"]["references"]
    right = {name: [y in r for y, r in zip(row["outputs"], references, strict=True)] for name, row in rows.items()}
    assert sum(right[errors["system"]]) == max(map(sum, right.values()))
    assert errors["wrong"] == len(references) - sum(right[errors["system"]])
    assert {n for kind in errors["kinds"] for n in kind["items"]} == {
        n for n, ok in enumerate(right[errors["system"]]) if not ok
    }
    assert [kind["count"] for kind in errors["kinds"]] == [len(kind["items"]) for kind in errors["kinds"]]
    assert f"Errors of {errors['system']}: {errors['wrong']} of 40 outputs are wrong" in text
    assert text.rindex("Errors of") > text.rindex("Resampled by")
    trained_on = {line.split("\t")[0] for line in (trained.parent / "train.tsv").read_text().splitlines()}
    assert errors["seen_items"] == sum(x in trained_on for x in record["items"]["inputs"])


def test_errors_by_kind_are_for_outputs_that_are_right_or_wrong(trained: Path, items_file: Path) -> None:
    report = report_run(RunDirectory.open(trained), ReportOptions(file=str(items_file), metrics=["chrf"]))
    assert "Errors of" not in report.text()
    assert "errors by kind are for outputs that are right or wrong" in report.text()
    assert report.record()["errors"]["kinds"], "a program gets them"


def test_seen_inputs_are_not_known_if_the_pairs_have_changed(trained: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(trained.parent, tmp_path / "home"))
    config = (home / "run" / "config.yaml").read_text().replace(str(trained.parent), str(home))
    (home / "run" / "config.yaml").write_text(config)
    first = (home / "train.tsv").read_text().split("\t")[0]
    held_out = HeldOut("test", [first, "zzz"], [(), ()], [["a"], ["a"]], ["", ""])
    assert seen_items(RunDirectory(home / "run"), held_out) == [True, False]
    (home / "train.tsv").write_text("zzz\ta\n")
    assert seen_items(RunDirectory(home / "run"), held_out) is None
    (home / "train.tsv").unlink()
    assert seen_items(RunDirectory(home / "run"), held_out) is None


def test_outputs_of_every_item(trained: Path, items_file: Path, tmp_path: Path) -> None:
    tsv, lines = tmp_path / "out.tsv", tmp_path / "out.jsonl"
    _, record = evaluate(trained, items_file, "--outputs", str(tsv))
    head, *rows = [line.split("\t") for line in tsv.read_text().splitlines()]
    systems = [row["system"] for row in record["systems"]]
    assert head == ["input", "references", *(name for s in systems for name in (s, f"{s}: right"))]
    assert [row[0] for row in rows] == record["items"]["inputs"]
    for n, row in enumerate(rows):
        for k, system in enumerate(record["systems"]):
            assert row[2 + 2 * k] == system["outputs"][n]
            assert row[3 + 2 * k] == str(int(system["outputs"][n] == row[1]))
    before = tsv.read_bytes()
    result = run_here(["evaluate", str(trained), str(items_file), "--outputs", str(tsv), "--device", "cpu"], b"")
    assert result.returncode == 2  # its own file is not replaced either, and nothing is decoded
    assert result.stderr.startswith(f"noisychannel: --outputs: {tsv} exists; remove it, or name another file".encode())
    assert tsv.read_bytes() == before
    evaluate(trained, items_file, "--outputs", str(lines))
    items = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [item["systems"]["direct"]["output"] for item in items] == record["systems"][0]["outputs"]
    result = run_here(["evaluate", str(trained), str(items_file), "--outputs", "-", "--device", "cpu"], b"")
    assert result.stdout == tsv.read_bytes()
    assert b"Errors of" in result.stderr


def test_references_are_not_replaced_by_outputs(trained: Path, items_file: Path, tmp_path: Path, capsys) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("precious\n")
    assert main(["evaluate", str(trained), str(items_file), "--outputs", str(mine)]) == 2
    assert "--references" in capsys.readouterr().err
    assert mine.read_text() == "precious\n"
    for name in (str(items_file), str(trained / "weights.json"), str(tmp_path / "no" / "where")):
        assert main(["evaluate", str(trained), str(items_file), "--outputs", name]) == 2
    for option, text in (
        ("outputs", "input\toutput\nmine\tprecious\n"),
        ("outputs", "input\treferences\tdirect\tdirect: right\tnotes\na\tb\tc\t0\tprecious\n"),
        ("outputs", "input\treferences\tdirect\tdirect: right"),
        ("outputs", '{"input": "a", "output": "precious"}\n'),
        ("json", '{"input": "a", "output": "precious"}\n'),
        ("json", "precious\n"),
        ("json", "[" * 100_000),
    ):
        mine.write_text(text)
        capsys.readouterr()
        assert main(["evaluate", str(trained), str(items_file), f"--{option}", str(mine)]) == 2
        told = "exists; remove it" if option == "outputs" else "evaluate --json did not write it"
        assert told in capsys.readouterr().err
        assert mine.read_text() == text
    mine.write_bytes(b"\xff\xfe")
    assert main(["evaluate", str(trained), str(items_file), "--json", str(mine)]) == 2
    same = str(tmp_path / "same")
    assert main(["evaluate", str(trained), str(items_file), "--outputs", same, "--json", same]) == 2


def test_two_runs_on_the_same_items(trained: Path, items_file: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(trained, tmp_path / "other"))
    short = TunedSystem("direct+length", Weights(1.0, length=-3.0), NARROW)
    write_systems(RunDirectory(other), [short], default="direct+length")
    text, record = evaluate(trained, items_file, "--against", str(other), "--systems", "[direct+length]")
    default, named = record["against"]["pairings"]
    assert (default["system"], default["other"]) == ("direct+lm", "direct+length")
    assert (named["system"], named["other"]) == ("direct+length", "direct+length")
    items = record["items"]
    ours = next(row for row in record["systems"] if row["system"] == "direct+lm")["outputs"]
    metric = make_metric("accuracy")
    a, b = (
        np.stack([metric.statistics(y, r) for y, r in zip(outputs, items["references"], strict=True)])
        for outputs in (ours, default["other_outputs"])
    )
    measured = default["measured"]["accuracy"]
    assert measured["score"] == pytest.approx(100 * a.mean())
    assert measured["difference"] == pytest.approx(100 * (a.mean() - b.mean()))
    units = items["inputs"]
    assert (measured["low"], measured["high"]) == pytest.approx(difference_interval(metric, a, b, 100, groups=units))
    assert measured["p_value"] == pytest.approx(paired_bootstrap(metric, a, b, 100, groups=units))
    assert measured["low"] <= measured["difference"] <= measured["high"]
    assert default["only_run"] == np.flatnonzero((a > b)[:, 0]).tolist()
    assert default["only_other"] == np.flatnonzero((a < b)[:, 0]).tolist()
    assert f"Against {other}, 40 items" in text
    assert f"{len(default['only_run'])} items that only this run gets right" in text


def test_a_run_against_itself_differs_in_nothing(trained: Path, items_file: Path) -> None:
    _, record = evaluate(trained, items_file, "--against", str(trained), "--systems", "[direct+lm]")
    (same,) = record["against"]["pairings"]
    assert same["only_run"] == same["only_other"] == []
    assert same["measured"]["accuracy"]["p_value"] == 1
    assert same["measured"]["accuracy"]["low"] == same["measured"]["accuracy"]["high"] == 0


def test_the_record_has_what_the_other_run_did_with_every_item() -> None:
    """The other decodes the items of one group alone."""
    row = SystemResult(
        system="direct",
        baseline=False,
        weights={"direct": 1.0},
        search={"k1": 4},
        compared_with=None,
        measured={},
        length_ratio=1.0,
        outputs=["y", "z"],
        complete=[True, False],
        confidence=[0.5, 0.0],
    )
    held_out = HeldOut("test", ["b", "c"], [(), ()], [["y"], ["zz"]], ["", ""], {}, ["f:2", "f:3"])
    table = EvaluationTable("other", held_out, [], Bootstrap(1, 1, "line", 2), [row])
    record = Against(table, {1: 0, 2: 1}, 5, [Pairing("direct", "direct", {}, [], [])]).record()
    assert record["references"] == [None, ["y"], ["zz"], None, None]
    (pairing,) = record["pairings"]
    assert pairing["other_outputs"] == [None, "y", "z", None, None]
    assert pairing["other_complete"] == [None, True, False, None, None]
    assert pairing["other_confidence"] == [None, 0.5, 0.0, None, None]
    assert (pairing["other_weights"], pairing["other_search"]) == ({"direct": 1.0}, {"k1": 4})


def test_runs_that_read_the_file_differently_are_compared(trained: Path, items_file: Path, tmp_path: Path) -> None:
    """One run knows features, the other ignores that column."""
    config = toy_config(tmp_path / "tagged", rows=40, longest=4, max_epochs=1)
    tag(config, "V;PST")
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert main(["train", str(tmp_path / "config.yaml")]) == 0
    tagged = Path(config.run_dir)
    items_file.write_text("".join(f"{line}\tV;PST\n" for line in items_file.read_text().splitlines()))
    for run, other in ((trained, tagged), (tagged, trained)):
        drawn = [] if run == trained else ["--resample-by", "features"]
        _, record = evaluate(run, items_file, "--against", str(other), *drawn)
        measured = record["against"]["pairings"][0]["measured"]["accuracy"]
        scores = {row["system"]: row["measured"]["accuracy"]["score"] for row in record["systems"]}
        assert measured["score"] == scores[record["against"]["pairings"][0]["system"]]
        assert len(record["against"]["pairings"][0]["other_outputs"]) == 40
    command = ["evaluate", str(trained), "-", "--against", str(tagged)]
    result = run_here(command, b"")
    assert result.returncode == 2
    assert b"--against reads FILE twice" in result.stderr
