"""The run that is part of the package."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest

from noisychannel import NoisyChannel
from noisychannel.cli.main import main
from noisychannel.packaged import PLACE
from noisychannel.runs import RunDirectory
from noisychannel.weights import own_terms

NOUNS = {"Baum": "Bäumen", "Lehrerin": "Lehrerinnen", "Frage": "Fragen", "Hund": "Hunden"}


def test_it_answers_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = "".join(f"{noun}\n" for noun in NOUNS)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    assert main(["decode", "demo"]) == 0
    assert capsys.readouterr().out.split() == list(NOUNS.values())
    (best, *_) = NoisyChannel.load("demo", device="cpu")("Baum")
    assert best.text == "Bäumen"


def test_it_is_small_and_tells_no_tales() -> None:
    files = [file for file in PLACE.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 1_000_000
    for file in files:
        if file.suffix in (".json", ".yaml"):
            assert ": /" not in file.read_text(encoding="utf-8"), f"{file} has an absolute path"


def test_it_has_what_it_records() -> None:
    files = RunDirectory(PLACE).header().files
    assert files
    assert [name for name in files if not (PLACE / name).exists()] == []
    assert "seen" not in own_terms(RunDirectory(PLACE))


def test_it_cannot_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["tune", "demo"]) == 2
    assert "demo: is part of the package, and cannot be tuned" in capsys.readouterr().err
    shutil.copy(PLACE / "config.yaml", tmp_path / "config.yaml")
    for words in ([str(PLACE / "config.yaml")], ["config.yaml", "--run_dir", str(PLACE)]):
        assert main(["train", *words]) == 2
        assert "demo: is part of the package, and cannot be trained" in capsys.readouterr().err


def test_a_directory_of_that_name_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    assert main(["decode", "demo"]) == 2
    assert "demo" in capsys.readouterr().err
