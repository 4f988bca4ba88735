"""``noisychannel bench`` on sizes that take no time: every suite prints its table and writes it down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from noisychannel.bench import decode, loss, train
from noisychannel.bench.timing import median_seconds
from noisychannel.cli.main import main


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "SHAPES", (loss.Shape(2, 4, 3, 4, 9),))
    monkeypatch.setattr(train, "SHAPES", (train.Shape(2, 4, 3, 4, 9),))
    small = {"k1": 3, "k2": 2, "shortest": 3, "longest": 4, "max_length": 3, "V": 9, "hidden": 4, "lm_hidden": 4}
    monkeypatch.setattr(decode, "CHARACTERS", replace(decode.CHARACTERS, **small))
    monkeypatch.setattr(decode, "WORDS", replace(decode.WORDS, **small))
    monkeypatch.setattr(decode, "LITERAL_WORDS", replace(decode.LITERAL_WORDS, **{**small, "max_length": 2}))


def test_all_suites_print_and_write_their_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bench.md"
    assert main(["bench", "--device", "cpu", "--output", str(file)]) == 0
    shown = capsys.readouterr().out
    assert shown == file.read_text(encoding="utf-8")
    for suite in ("loss", "train", "decode"):
        assert f"{suite}: noisychannel " in shown
    assert f"torch {torch.__version__}" in shown
    rows = [line for line in shown.splitlines() if line.startswith("| ")]
    assert sum(row.startswith("| 2, 4, 3, 4, 9 | noisychannel |") for row in rows) == 1
    assert sum("| K1 and K2 |" in row for row in rows) == 2


def test_the_reference_is_compared_at_the_same_longest_output() -> None:
    bench = decode.DecodeBench(device="cpu", parts=["reference"], rounds=1)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in bench.report() if line.startswith("| ")]
    assert [row[:2] for row in rows[-2:]] == [["characters", "3"], ["words", "2"]], "words get two symbols only"
    assert all(float(cell) >= 0 for row in rows[-2:] for cell in row[2:])


def test_arithmetic_is_counted_from_the_models_themselves() -> None:
    """The projections to the vocabulary dominate: (I+J)·H·V against J·2H·V."""
    shape = train.Shape(1, 30, 10, 8, 10**7)
    assert train.ssnt_arithmetic(shape) / train.attention_arithmetic(shape) == pytest.approx((40 * 8 + 300) / 160, 1e-3)


def test_medians_do_not_count_the_first_round() -> None:
    calls: list[str] = []
    seconds = median_seconds({"one": lambda: calls.append("one"), "two": lambda: calls.append("two")}, rounds=2)
    assert calls == ["one", "two"] * 3
    assert set(seconds) == {"one", "two"}


def test_an_unknown_suite_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--suites", "[lost]"]) == 2
    assert "--suites: unknown suite 'lost'; the suites are loss, train, decode" in capsys.readouterr().err
