"""``noisychannel bench`` on sizes that take no time: every suite prints its table and writes it down."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from threading import BrokenBarrierError
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from noisychannel.bench import decode, loss, profile, train
from noisychannel.bench.timing import median_seconds
from noisychannel.cli.main import main
from noisychannel.decode import chart


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "SHAPES", (loss.Shape(2, 4, 3, 4, 9),))
    monkeypatch.setattr(train, "SHAPES", (train.Shape(2, 4, 3, 4, 9),))
    monkeypatch.setattr(train, "LM_SHAPES", (train.Shape(2, 0, 3, 4, 9),))
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


def test_precision_and_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary that is large enough for late scores; bfloat16 changes scores, and what is reported says so."""
    large = replace(decode.WORDS, V=2100, hidden=16, k1=6, k2=3, max_length=4)
    monkeypatch.setattr(decode, "WORDS", large)
    bench = decode.DecodeBench(
        device="cpu", parts=["precision", "profile"], settings=["words"], batches=[3], rounds=1, products="bf16"
    )
    lines = list(bench.report())
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| words |")]
    assert [row[2:4] for row in rows] == [[s, p] for s in ("direct", "full") for p in ("ieee", "bf16")]
    errors = {(row[2], row[3]): float(row[6]) for row in rows}
    assert all(row[5].endswith(" of 3") for row in rows), "all outputs end"
    for system in ("direct", "full"):
        assert errors[system, "ieee"] < 1e-4 < errors[system, "bf16"] < 1.0
    parts = [line.split("|")[1].strip() for line in lines if line.startswith("| ")]
    on_any_device = [part for part in profile.PARTS if part != "channel, from its states"]
    assert all(parts.count(part) == 2 for part in on_any_device), "each of two precisions names all parts"


def test_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes of a real search: fewer prefixes are scored than there are, and more are scored than extended."""
    monkeypatch.setattr(decode, "WORDS", replace(decode.WORDS, V=2100, hidden=16, k1=6, k2=3, max_length=4))
    bench = decode.DecodeBench(device="cpu", parts=["counts"], settings=["words"], batches=[3])
    (said,) = (line for line in bench.report() if "prefixes" in line)
    prefixes, scored, extended, candidates = (float(x) for x in re.findall(r"([\d.]+) (?:pre|of|ext|cand)", said))
    assert 0 < extended <= scored < prefixes < candidates


def test_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process decodes everything; the rate is that of all together."""
    small = replace(decode.WORDS, V=2100, hidden=16, k1=6, k2=3, max_length=4)
    monkeypatch.setattr(decode, "WORDS", small)
    bench = decode.DecodeBench(
        device="cpu", parts=["processes"], settings=["words"], batches=[3], rounds=2, processes=[1, 2]
    )
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in bench.report() if line.startswith("| words |")]
    assert [row[:4] for row in rows] == [["words", "3", "tf32", "1"], ["words", "3", "tf32", "2"]]
    (_, _, _, _, one, alone), (_, _, _, _, both, times) = rows
    assert float(alone) == 1.0
    assert float(times) == pytest.approx(float(both) / float(one), abs=0.02)


def test_a_process_that_fails_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "WORDS", replace(decode.WORDS, hidden=-1))
    bench = decode.DecodeBench(device="cpu", parts=["processes"], settings=["words"], batches=[3], processes=[2])
    with pytest.raises(BrokenBarrierError):
        list(bench.report())


def test_a_profile_puts_everything_back() -> None:
    before = chart.propose
    with profile.timed_parts():
        assert chart.propose is not before
    assert chart.propose is before


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


def random_problem(scale: float) -> loss.Problem:
    """Small, with word scores of about ``scale``."""
    p = loss.Problem.draw(loss.Shape(2, 5, 4, 8, 30), "cpu")
    words = [x.detach().mul(scale).requires_grad_() for x in (p.input_word_HV, p.output_word_HV)]
    return p._replace(input_word_HV=words[0], output_word_HV=words[1])


@pytest.mark.parametrize("name", ["product", "materialised"])
def test_opponents_compute_the_same_loss_and_gradients(name: str) -> None:
    p = random_problem(3.0)
    actual, expected = loss.run_once(loss.VARIANTS[name], p), loss.run_once(loss.noisychannel_loss, p)
    for x, y in zip(actual, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-5 * max(1.0, y.abs().max().item()))


def test_the_formula_with_tiny_is_wrong_when_the_product_underflows() -> None:
    """The difference between our normaliser and fast_rnnt's that the documentation names."""
    p = random_problem(150.0)
    right = loss.materialised_loss(p)
    torch.testing.assert_close(loss.noisychannel_loss(p), right, rtol=1e-5, atol=0)
    assert (loss.product_loss(p) - right).abs() > 0.01 * right.abs()


def test_a_library_is_measured_if_it_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def rnnt_loss_simple(lm: Tensor, am: Tensor, symbols: Tensor, termination_symbol: int, reduction: str) -> Tensor:
        assert (am.shape, lm.shape, symbols.shape) == ((2, 4, 9), (2, 3, 9), (2, 2))
        assert (termination_symbol, reduction) == (0, "sum")
        return am.sum() + lm.sum()

    monkeypatch.setitem(sys.modules, "torchaudio", None)  # importing it fails
    monkeypatch.setitem(sys.modules, "fast_rnnt", SimpleNamespace(rnnt_loss_simple=rnnt_loss_simple))
    monkeypatch.setattr(loss, "version", lambda library: "1.3")
    monkeypatch.setattr(loss, "peak_memory", lambda *arguments: 0.0)
    lines = list(loss.report("cpu", rounds=1))
    names = [line.split(" | ")[1] for line in lines if line.startswith("| 2, 4, 3, 4, 9")]
    assert names == [
        "noisychannel",
        "product (fast_rnnt's formula, our code)",
        "fast_rnnt 1.3 (blank, no gate)",
        "materialised",
        "softmax I+J",
        "softmax J",
    ]
    assert lines[-1].endswith("not installed: torchaudio.")
