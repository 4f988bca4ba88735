"""The demo from end to end, on a toy language: what it trains, tunes, evaluates and shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from noisychannel.cli.main import main
from noisychannel.data.german_nouns import NounFiles
from noisychannel.experiments import demo
from test_fit import shrink
from toys import double_vowels, write_pairs


@pytest.fixture
def toy_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo's steps with vowel doubling instead of German: seconds instead of minutes."""

    def toy_nouns(directory: Path, pairs: int, seed: int) -> NounFiles:
        directory.mkdir(exist_ok=True)
        files = [
            write_pairs(directory / f"{name}.tsv", double_vowels, rows, seed=seed + n, longest=4)
            for n, (name, rows) in enumerate({"train": pairs, "dev": 20, "test": 20}.items())
        ]
        unpaired = directory / "unpaired.txt"
        forms = [line.split("\t")[1] for line in files[0].read_text(encoding="utf-8").splitlines()]
        unpaired.write_text("".join(f"{form}\n" for form in forms), encoding="utf-8")
        return NounFiles(*files, unpaired)

    monkeypatch.setattr(demo, "write_dative_plurals", toy_nouns)
    monkeypatch.setattr(demo, "PAIRS_SHOWN", (("bad", "baad"),))
    shrink(monkeypatch)
    return tmp_path / "run"


def table_of(shown: str) -> dict[str, str]:
    """The accuracy of each system."""
    return {line.split("|")[1].strip(): line.split("|")[2] for line in shown.splitlines() if line.startswith("| ")}


def test_the_demo_fits_evaluates_and_explains(toy_demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--run_dir", str(toy_demo), "--pairs", "40", "--jobs", "1"]) == 0
    shown = capsys.readouterr().out
    for part in ("decode uses this", "dev perplexity per symbol: direct", "bad → baad", "●", "| direct+lm"):
        assert part in shown
    rows = table_of(shown)
    assert {"identity", "rules"} < rows.keys(), "simple baselines stand beside the models"
    test = (toy_demo.with_name("run-data") / "test.tsv").read_text(encoding="utf-8").splitlines()
    same = sum(x == y for x, y in (line.split("\t") for line in test))
    assert float(rows["identity"].split()[0]) == pytest.approx(100 * same / len(test), abs=0.01)
    assert (toy_demo / "weights.json").exists()

    assert main(["demo", "--run_dir", str(toy_demo), "--pairs", "40", "--jobs", "1"]) == 0
    again = capsys.readouterr()
    assert "finished before" in again.err, "what is finished is shown, not done again"
    assert "stage" not in again.err
    assert table_of(again.out)["direct"] == rows["direct"]


def test_a_directory_without_a_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--run_dir", "/"]) == 2
    assert "--run-dir: / has no name" in capsys.readouterr().err


def content(place: Path) -> dict[str, bytes]:
    return {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()}


def refused(capsys: pytest.CaptureFixture[str], run: Path, *words: str) -> str:
    """The one line with which the demo refuses to begin; nothing has been written."""
    before = content(run.parent)
    assert main(["demo", "--run_dir", str(run), *words]) == 2
    assert content(run.parent) == before
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_nothing_but_a_demo_is_written_over(toy_demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = toy_demo.with_name("run-data")
    data.mkdir()
    (data / "train.tsv").write_text("mine\tmine\n")
    assert f"--run-dir: the data would go to {data}, but train.tsv there is not" in refused(capsys, toy_demo)
    assert "train.tsv there is not" in refused(capsys, toy_demo, "--overwrite")
    (data / "train.tsv").rename(data / "thesis.txt")
    assert "thesis.txt there is not" in refused(capsys, toy_demo)
    (data / "thesis.txt").unlink()
    toy_demo.write_text("mine")
    assert f"--run-dir: {toy_demo} is a file" in refused(capsys, toy_demo)
    toy_demo.unlink()
    toy_demo.mkdir()
    (toy_demo / "thesis.txt").write_text("mine")
    assert f"--run-dir: {toy_demo} is not empty, and not a run of fit" in refused(capsys, toy_demo)


def test_another_demo_in_its_place(toy_demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = ["demo", "--run_dir", str(toy_demo), "--jobs", "1", "--pairs"]
    assert main([*train, "24"]) == 0
    capsys.readouterr()
    assert "the files are not those that" in refused(capsys, toy_demo, "--pairs", "30")
    data = toy_demo.with_name("run-data")
    data.rename(toy_demo.with_name("moved"))
    assert "the files are not those that" in refused(capsys, toy_demo, "--pairs", "30")
    assert main([*train, "24"]) == 0
    assert content(data) == content(toy_demo.with_name("moved"))
    capsys.readouterr()
    assert "train.tsv there is not of this demo" in refused(capsys, toy_demo, "--pairs", "30", "--overwrite")


def test_more_pairs_than_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, tmp_path / "run", "--pairs", "1000000")
    assert line.startswith("noisychannel: --pairs: must be at most ")
    assert list(tmp_path.iterdir()) == []
