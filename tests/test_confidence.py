"""Confidences: calibrated in a world whose probabilities are known, monotone, and kept with a tuned system."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import run_here
from noisychannel import NoisyChannel, Weights
from noisychannel.arguments import dump_config
from noisychannel.cli.main import main
from noisychannel.confidence import UNKNOWN, UNSEEN, Confidence, Feature, Lists
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.evaluation.calibration import brier, calibration_error, error_by_chance, reliability
from noisychannel.runs import RunDirectory
from noisychannel.tuning.confidence import JudgedList, fit_confidence, logistic
from noisychannel.weights import TermSource, TunedSystem, read_system, read_systems, write_systems
from toys import toy_config

WEIGHTS = Weights(1.0, lm=1.0)


def hypothesis_of(score: float, lm: float = -2.0, tokens: tuple[int, ...] = (5,), complete: bool = True) -> Hypothesis:
    return Hypothesis.of(tokens, score, {"direct": score - lm, "lm": lm}, 2, complete)


def world(items: int, seed: int, temperature: float = 2.0, outside: float = 0.0, size: int = 4) -> list[JudgedList]:
    """Lists whose right text is drawn from the softmax of their scores, or is none of them."""
    rng = np.random.default_rng(seed)
    lists = []
    for n in range(items):
        scores = np.sort(rng.normal(-10, 3, size))[::-1]
        share = np.exp((scores - scores[0]) / temperature)
        right = "none" if rng.random() < outside else f"t{rng.choice(size, p=share / share.sum())}"
        texts = [f"t{m}" for m in range(size)]
        found = [hypothesis_of(float(score), tokens=(m,)) for m, score in enumerate(scores)]
        lists.append(JudgedList(f"input {n}", texts, found, [right]))
    return lists


def judge(model: Confidence, lists: list[JudgedList]) -> tuple[np.ndarray, np.ndarray]:
    values = model.of_lists(
        [one.texts for one in lists], [one.hypotheses for one in lists], [one.unknown for one in lists]
    )
    right = [one.texts[0] in one.references for one in lists]
    return np.array([of_list[0] for of_list in values]), np.array(right, float)


# --- the fit


@pytest.mark.parametrize(("items", "draws", "distance"), [(2000, 1, 0.035), (50, 12, 0.1)])
@pytest.mark.parametrize("outside", [0.0, 0.3])
def test_confidences_are_near_the_true_probabilities(items: int, draws: int, distance: float, outside: float) -> None:
    """Fifty items can mislead: one draw in three is worse than the share of right outputs, but not their mean."""
    others = world(2000, 100, outside=outside)
    arrays = Lists.of([one.texts for one in others], [one.hypotheses for one in others], [0] * len(others))
    truth = (1 - outside) * arrays.shares(2.0)[:, 0]
    distances, squares = [], []
    for seed in range(1, draws + 1):
        model = fit_confidence(world(items, seed, outside=outside), WEIGHTS, 4)
        assert model is not None
        confidence, right = judge(model, others)
        distances.append(np.abs(confidence - truth).mean())
        squares.append(brier(confidence, right))
    share = right.mean()
    assert np.mean(distances) < distance
    assert np.mean(squares) < share * (1 - share)


def test_the_calibration_error_of_perfect_confidences_is_what_chance_explains() -> None:
    rng = np.random.default_rng(7)  # not the seed of error_by_chance, whose numbers would be these
    true = rng.random(400)
    errors = [calibration_error(true, (rng.random(400) < true).astype(float)) for _ in range(100)]
    assert np.mean(errors) == pytest.approx(error_by_chance(true), rel=0.1)
    assert calibration_error(np.clip(true + 0.3, 0, 1), (rng.random(400) < true).astype(float)) > 0.15


def test_what_cross_validation_promises_is_what_other_inputs_show() -> None:
    model = fit_confidence(world(1500, 3, outside=0.2), WEIGHTS, 4)
    assert model is not None
    assert model.calibration is not None
    confidence, right = judge(model, world(4000, 4, outside=0.2))
    assert model.calibration.brier == pytest.approx(brier(confidence, right), abs=0.015)
    assert model.calibration.ece < model.calibration.ece_by_chance + 0.02
    assert model.calibration.items == 1500
    assert model.temperature == pytest.approx(2.0, rel=0.2)


def test_a_feature_that_tells_is_used_and_one_that_does_not_is_left_alone() -> None:
    rng, lists = np.random.default_rng(5), []
    for n in range(600):
        good = bool(rng.random() < 0.5)
        best = hypothesis_of(-10.0, lm=-2.0 if good else -8.0, tokens=(1,))
        lists.append(JudgedList(f"{n}", ["a", "b"], [best, hypothesis_of(-11.0, tokens=(2,))], ["a" if good else "c"]))
    model = fit_confidence(lists, WEIGHTS, 2)
    assert model is not None
    assert model.features["lm"].coefficient > 1
    assert "margin" not in model.features  # the same everywhere
    confidence, right = judge(model, lists)
    assert confidence[right == 1].min() > 0.8 > 0.2 > confidence[right == 0].max()


def test_lists_of_one_output_have_the_share_of_right_ones() -> None:
    lists = [JudgedList(f"{n}", ["a"], [hypothesis_of(-3.0)], ["a" if n % 4 else "b"]) for n in range(200)]
    model = fit_confidence(lists, WEIGHTS, 1)
    assert model is not None
    confidence, _ = judge(model, lists)
    assert confidence == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize("right", ["a", "b"])
def test_dev_that_is_all_right_or_all_wrong_gives_no_certainty(right: str) -> None:
    lists = [JudgedList(f"{n}", ["a"], [hypothesis_of(-3.0)], [right]) for n in range(30)]
    model = fit_confidence(lists, WEIGHTS, 1)
    assert model is not None
    (value, *_), _ = judge(model, lists)
    assert (0.85 < value < 1) if right == "a" else (0 < value < 0.15)


def test_few_inputs_have_no_confidence_and_the_fit_is_repeatable() -> None:
    assert fit_confidence(world(9, 1), WEIGHTS, 4) is None
    assert fit_confidence([world(1, 1)[0]] * 50, WEIGHTS, 4) is None  # one input, fifty times
    assert fit_confidence(world(60, 1), WEIGHTS, 4) == fit_confidence(world(60, 1), WEIGHTS, 4)


def test_the_slope_is_never_negative() -> None:
    """A world in which clear winners are wrong."""
    lists = []
    for n in range(400):
        gap = 0.1 + (n % 8)
        found = [hypothesis_of(-5.0, tokens=(1,)), hypothesis_of(-5.0 - gap, tokens=(2,))]
        lists.append(JudgedList(f"{n}", ["a", "b"], found, ["b" if n % 8 > 3 else "a"]))
    model = fit_confidence(lists, WEIGHTS, 2)
    assert model is not None
    assert model.slope >= 0
    assert model.features["margin"].coefficient >= 0


def test_the_logistic_model_is_where_its_gradient_vanishes() -> None:
    rng = np.random.default_rng(1)
    x, right = rng.normal(size=(80, 3)), (rng.random(80) < 0.3).astype(float)
    centre, spread = np.array([0.0, 1.0, 0.0]), np.array([1.5, 0.5, 0.3])
    found = logistic(x, right, centre, spread)
    gradient = x.T @ (right - 1 / (1 + np.exp(-x @ found))) - (found - centre) / spread**2
    assert gradient == pytest.approx(0, abs=1e-5)


# --- what it gives


MODEL = Confidence(
    n_best=5,
    temperature=1.5,
    most_odds=6.0,
    intercept=-0.3,
    slope=0.8,
    features={"margin": Feature(1.0, 0.5, 0.2), "lm": Feature(-2.0, 0.7, 0.4), "word_list": Feature(-0.1, 0.3, 0.5)},
)
SCORES = st.lists(st.floats(-1e6, 1e6) | st.just(-math.inf), min_size=1, max_size=6)


@given(SCORES, st.lists(st.sampled_from("abc"), min_size=6, max_size=6), st.floats(-1e9, 1e9) | st.just(-math.inf))
@settings(max_examples=200, deadline=None)
def test_confidences_are_probabilities_that_fall_with_the_rank(scores: list[float], names: str, lm: float) -> None:
    found = [hypothesis_of(score, lm, (n,)) for n, score in enumerate(sorted(scores, reverse=True))]
    texts = list(names[: len(found)])
    (values,) = MODEL.of_lists([texts], [found], [0])
    assert all(0 <= value <= 1 for value in values)
    distinct = dict(zip(reversed(texts), reversed(values), strict=True))
    assert values == [distinct[text] for text in texts], "a text has one confidence, however it is segmented"
    by_rank = [distinct[text] for text in dict.fromkeys(texts)]
    assert by_rank == sorted(by_rank, reverse=True)
    assert sum(by_rank) <= 1 + 1e-9


@given(SCORES, st.lists(st.sampled_from("abc"), min_size=6, max_size=6), st.integers(1, 6), st.integers(0, 63))
@settings(max_examples=200, deadline=None)
def test_what_is_asked_for_beyond_the_fitted_lists_changes_nothing_before(
    scores: list[float], names: str, most: int, without_end: int
) -> None:
    model = replace(MODEL, n_best=most)
    found = [
        hypothesis_of(score, tokens=(n,), complete=n == 0 or not without_end >> n & 1)
        for n, score in enumerate(sorted(scores, reverse=True))
    ]
    texts = list(names[: len(found)])
    (values,), (first,) = model.of_lists([texts], [found], [0]), model.of_lists([texts[:most]], [found[:most]], [0])
    assert values[:most] == first
    assert all(value == 0 for value, one in zip(values, found, strict=True) if not one.complete)
    distinct = {text: value for text, value, one in zip(texts, values, found, strict=True) if one.complete}
    assert sum(distinct.values()) <= 1 + 1e-9
    assert list(distinct.values()) == sorted(distinct.values(), reverse=True)


def test_segmentations_of_one_text_count_together() -> None:
    """Also of texts that are not the best: they are the answer that one output with their share would be."""
    scores = (-1.0, -3.0, -3.0, -5.0)
    found = [hypothesis_of(score, tokens=(n,)) for n, score in enumerate(scores)]
    together = [found[0], hypothesis_of(-3.0 + MODEL.temperature * math.log(2), tokens=(1,)), found[3]]
    plain = replace(MODEL, features={})  # the margin is that to the second output, whatever its share
    (values,) = plain.of_lists([["a", "b", "b", "c"]], [found], [0])
    (expected,) = plain.of_lists([["a", "b", "c"]], [together], [0])
    assert values == pytest.approx([expected[0], expected[1], expected[1], expected[2]])
    (alone,) = replace(plain, n_best=1).of_lists([["a", "a", "b", "b"]], [found], [0])
    assert alone[0] == alone[1] == replace(plain, n_best=1).of_lists([["a"]], [found[:1]], [0])[0][0]
    assert 0 < alone[2] == alone[3] <= 1 - alone[0], "what the first has left"


@given(st.lists(st.floats(0, 40), min_size=2, max_size=8, unique=True))
@settings(deadline=None)
def test_a_larger_margin_is_never_a_lower_confidence(gaps: list[float]) -> None:
    found = [[hypothesis_of(-5.0), hypothesis_of(-5.0 - gap, tokens=(6,))] for gap in sorted(gaps)]
    values = [best for best, _ in MODEL.of_lists([["a", "b"]] * len(found), found, [0] * len(found))]
    assert values == sorted(values)


def test_an_output_without_an_end_is_not_right_and_equal_texts_are_no_rivals() -> None:
    assert MODEL.of_lists([["a"]], [[hypothesis_of(-1.0, complete=False)]], [0]) == [[0.0]]
    assert MODEL.of_lists([[]], [[]], [0]) == [[]]
    twice = Lists.of(
        [["a", "a", "b"]], [[hypothesis_of(x, tokens=(n,)) for n, x in enumerate((-1.0, -1.1, -4.0))]], [0]
    )
    once = Lists.of([["a", "b"]], [[hypothesis_of(x, tokens=(n,)) for n, x in enumerate((-1.0, -4.0))]], [0])
    assert twice.odds(1.0)[0] > once.odds(1.0)[0]


# --- symbols of the input that the models have never seen


def test_an_input_with_symbols_that_nobody_knows_has_a_low_confidence() -> None:
    """Also with a model of an earlier version, which knows nothing of this feature: dev had no such input."""
    found = [hypothesis_of(-1.0), hypothesis_of(-9.0, tokens=(6,))]
    values = MODEL.of_lists([["a", "b"]] * 6, [found] * 6, range(6))
    best = [one for one, _ in values]
    assert best[0] > 0.9
    odds = [value / (1 - value) for value in best]
    assert odds[1:5] == pytest.approx([odds[0] * math.exp(-5 * n) for n in range(1, 5)])
    assert best[4] == best[5], "dev knows nothing that far out"
    assert all(second <= one for one, second in values), "no other output gains what the best loses"


def test_unknown_symbols_count_less_if_dev_shows_that_outputs_are_right_without_them() -> None:
    plain = fit_confidence(world(400, 1), WEIGHTS, 4)
    assert plain is not None
    assert plain.features[UNKNOWN] == UNSEEN, "dev has no such input"
    mixed = [replace(one, unknown=n % 2) for n, one in enumerate(world(400, 1))]
    harmless = fit_confidence(mixed, WEIGHTS, 4)
    assert harmless is not None
    assert 0 <= harmless.features[UNKNOWN].coefficient < 0.5
    wrong = [replace(one, references=["none"] if one.unknown else one.references) for one in mixed]
    harmful = fit_confidence(wrong, WEIGHTS, 4)
    assert harmful is not None
    assert harmful.features[UNKNOWN].coefficient > 4
    confidence, right = judge(harmful, wrong)
    unknown = np.array([one.unknown for one in wrong], bool)
    assert confidence[unknown].max() < 0.1 < right.mean()


def test_the_demo_is_not_sure_of_what_it_cannot_read() -> None:
    result = run_here(["decode", "demo", "--confidence", "--unsure", "0.5"], "中文\nCafé\nBaum\n".encode())
    rows = [line.split("\t") for line in result.stdout.decode().splitlines()]
    assert float(rows[0][1]) < 0.001
    assert float(rows[1][1]) < 0.01
    assert float(rows[2][1]) > 0.8
    assert [row[2] for row in rows] == ["?", "?", ""]
    assert "unknown symbols" in result.stderr.decode()
    (first,) = run_here(["decode", "demo", "--json"], "中文\n".encode()).stdout.decode().splitlines()
    record = json.loads(first)
    assert record["hypotheses"][0]["confidence"] < 0.001
    assert record["unknown_symbols"] == ["中", "文"]


# --- figures


def test_the_curve_by_hand() -> None:
    found = reliability([0.9, 0.8, 0.8, 0.1], [True, True, False, False])
    by_coverage = {point.coverage: point for point in found.curve}
    assert by_coverage[100].accuracy == pytest.approx(50)
    assert by_coverage[50].accuracy == pytest.approx(75)  # one of the two equal ones: right by half
    assert (by_coverage[30].items, by_coverage[30].accuracy, by_coverage[30].confidence) == (1, 100, 0.9)
    assert found.brier == pytest.approx((0.01 + 0.04 + 0.64 + 0.01) / 4)
    assert found.ece == pytest.approx(abs(2.6 - 2) / 4)  # one bin
    assert found.area == pytest.approx((100 + 75 + 200 / 3 + 50) / 4)


# --- with a run


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tuned")
    config = toy_config(directory, models=("direct", "lm"), rows=300, longest=4, max_epochs=3)
    (directory / "config.yaml").write_text(dump_config(config))
    assert main(["train", str(directory / "config.yaml")]) == 0
    words = ["tune", config.run_dir, "--systems", "direct+length", "--iterations", "1", "--k1", "6", "--k2", "3"]
    assert main([*words, "--device", "cpu"]) == 0
    return Path(config.run_dir)


def test_tune_fits_and_a_later_tune_of_another_system_keeps_it(tuned: Path, tmp_path: Path, capsys) -> None:
    run = Path(shutil.copytree(tuned, tmp_path / "run"))
    fitted = read_system(RunDirectory(run), "direct+length").confidence
    assert fitted is not None
    assert fitted.calibration is not None
    assert fitted.n_best == 10
    words = ["tune", str(run), "--systems", "direct+lm", "--iterations", "0", "--k1", "6", "--k2", "3"]
    assert main([*words, "--device", "cpu"]) == 0
    assert "confidence of direct+lm, by cross-validation: off by" in capsys.readouterr().out
    systems = read_systems(RunDirectory(run))
    assert systems["direct+length"].confidence == fitted
    assert systems["direct+lm"].confidence is not None
    assert systems["direct"].confidence is None


def test_a_file_of_an_earlier_version_loads_without_confidence(tuned: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(tuned, tmp_path / "run"))
    record = json.loads((run / "weights.json").read_text())
    del record["systems"]["direct+length"]["confidence"]
    (run / "weights.json").write_text(json.dumps(record))
    model = NoisyChannel.load(run, device="cpu")
    assert model.confidence is None
    assert model("ab")[0].confidence is None
    result = run_here(["decode", str(run), "--device", "cpu", "--unsure", "0.5"], b"ab\n")
    assert result.returncode == 2
    assert b"only a tuned system has a confidence" in result.stderr
    write_systems(RunDirectory(run), [TunedSystem("direct+lm", WEIGHTS, model.settings)])
    assert read_system(RunDirectory(run), "direct+length").confidence is None


def test_a_damaged_confidence_is_one_line(tuned: Path, tmp_path: Path, capsys) -> None:
    run = Path(shutil.copytree(tuned, tmp_path / "run"))
    record = json.loads((run / "weights.json").read_text())
    record["systems"]["direct+length"]["confidence"]["temperature"] = 0.0
    (run / "weights.json").write_text(json.dumps(record))
    assert main(["decode", str(run), str(run / "config.yaml")]) == 1
    assert "temperature: must be greater than 0" in capsys.readouterr().err


def test_confidences_do_not_change_outputs_or_alignments(tuned: Path) -> None:
    model = NoisyChannel.load(tuned, device="cpu")
    texts = ["abe", "o", "luke", "midab"]
    sure, plain = model.batch(texts, 2), model.batch(texts, 2, confident=False)
    assert [[(o.text, o.hypothesis.alignment) for o in best] for best in sure] == [
        [(o.text, o.hypothesis.alignment) for o in best] for best in plain
    ]
    assert all(o.confidence is None for best in plain for o in best)
    for best in sure:
        first, second = (o.confidence or 0.0 for o in best)
        assert 1 >= first >= second >= 0
        assert first + second <= 1 + 1e-9
    assert model.rerank("abe", ["abe"])[0].confidence is None
    assert model.reweighted(model.weights).confidence is None
    assert NoisyChannel.load(tuned, weights=Weights(direct=1.0), device="cpu").confidence is None


def test_the_confidence_of_an_output_does_not_depend_on_how_many_are_asked_for(tuned: Path) -> None:
    model = NoisyChannel.load(tuned, device="cpu")
    one, many = model.batch(["abe", "luke"], 1), model.batch(["abe", "luke"], 25)
    assert any(len(best) > 10 for best in many), "more than the lists of dev have"
    assert [best[0].confidence for best in one] == pytest.approx([best[0].confidence for best in many])


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({"k1": 9, "k2": 4}, True),
        ({"allow_unk": False}, True),  # what an output of characters has
        ({"k1": 5}, False),
        ({"k2": 2}, False),
        ({"max_length": 30}, False),
        ({"max_growth": 3}, False),
        ({"allow_unk": True}, False),
        ({"search": "marginal"}, False),
    ],
)
def test_a_confidence_stays_with_the_search_that_it_was_fitted_for(tuned: Path, changed: dict, kept: bool) -> None:
    fitted = read_system(RunDirectory(tuned))
    search = fitted.settings.changed(**changed)
    assert (NoisyChannel.load(tuned, settings=search, device="cpu").confidence is not None) == kept
    if "allow_unk" not in changed:
        assert (fitted.searching(search).confidence is not None) == kept


def test_commands_say_that_another_search_has_no_confidence(tuned: Path, tmp_path: Path) -> None:
    command = ["decode", str(tuned), "--device", "cpu", "--k2", "1"]
    result = run_here([*command, "--json"], b"abe\n")
    assert json.loads(result.stdout)["hypotheses"][0]["confidence"] is None
    assert result.stderr.count(b"no confidence") == 1
    assert b"no confidence" not in run_here(command, b"abe\n").stderr
    result = run_here([*command, "--confidence"], b"abe\n")
    assert (result.returncode, result.stdout) == (2, b"")
    test = tmp_path / "test.tsv"
    test.write_text("abe\taabee\nluke\tluukee\n")
    for width, lost in (("1", True), ("5", False)):
        record = tmp_path / f"{width}.json"
        words = ["evaluate", str(tuned), str(test), "--device", "cpu", "--k2", width, "--json", str(record)]
        result = run_here(words, b"")
        assert result.returncode == 0, result.stderr
        (row,) = (row for row in json.loads(record.read_text())["systems"] if row["system"] == "direct+length")
        assert (row["confidence"] is None) == lost
        assert result.stderr.count(b"no confidence for direct+length") == lost


def test_models_and_terms_of_other_runs_have_no_confidence(tuned: Path, tmp_path: Path) -> None:
    other, run = (Path(shutil.copytree(tuned, tmp_path / name)) for name in ("other", "run"))
    assert NoisyChannel.load(run, roles=["direct"], device="cpu").confidence is not None
    assert NoisyChannel.load(run, roles={"direct": run}, device="cpu").confidence is not None
    assert NoisyChannel.load(run, roles={"direct": other}, device="cpu").confidence is None
    source = TermSource("lm", run)
    weights = Weights(direct=1.0, extra={"second": 0.5})
    settings = NoisyChannel.load(run, device="cpu").settings
    with_term = TunedSystem("direct+second", weights, settings, terms={"second": source}, confidence=MODEL)
    write_systems(RunDirectory(run), [with_term])
    assert NoisyChannel.load(run, "direct+second", device="cpu").confidence == MODEL
    for run_of_term, kept in ((run, True), (other, False)):
        terms = {"second": TermSource("lm", run_of_term)}
        assert (NoisyChannel.load(run, "direct+second", terms=terms, device="cpu").confidence == MODEL) == kept


def test_a_system_without_confidence_is_told_of_those_with_one(tuned: Path) -> None:
    sure = [name for name, one in read_systems(RunDirectory.open(tuned)).items() if one.confidence is not None]
    assert sure
    words = ["decode", str(tuned), "--device", "cpu", "--confidence"]
    result = run_here([*words, "--system", "direct"], b"abe\n")
    assert result.returncode == 2
    assert result.stderr.decode() == (
        f"noisychannel: {tuned}: direct has no confidence, because nothing of it was tuned; choose with --system from "
        f"{', '.join(sure)}\n"
    )
    result = run_here([*words, "--weights", "1,0,0,0.5"], b"abe\n")
    assert result.stderr.decode().rstrip().endswith("; leave out --weights and settings of the search")


def test_a_line_without_outputs_is_neither_sure_nor_unsure(tuned: Path) -> None:
    result = run_here(["decode", str(tuned), "--device", "cpu", "--json", "--unsure", "1"], b"abe\n\na\tb\n")
    assert result.returncode == 1
    assert [json.loads(line)["unsure"] for line in result.stdout.splitlines()] == [True, None, None]


def test_decode_shows_confidences_and_marks_what_is_unsure(tuned: Path, tmp_path: Path) -> None:
    def decode(*words: str) -> list[str]:
        result = run_here(["decode", str(tuned), "--device", "cpu", *words], b"abe\nluke\n")
        assert result.returncode == 0, result.stderr
        return result.stdout.decode().splitlines()

    plain = decode()
    assert [line.split("\t")[0] for line in decode("--confidence")] == plain
    values = [float(line.split("\t")[1]) for line in decode("--confidence")]
    assert all(0 <= value <= 1 for value in values)
    middle = sum(values) / 2
    marks = [line.split("\t")[-1] for line in decode("--confidence", "--unsure", str(middle))]
    assert marks == ["?" if value < middle else "" for value in values]
    assert [line.split("\t") for line in decode("--unsure", "0")] == [[text, ""] for text in plain]
    records = [json.loads(line) for line in decode("--json", "--unsure", str(middle))]
    assert [record["hypotheses"][0]["confidence"] for record in records] == pytest.approx(values, abs=1e-4)
    assert [record["unsure"] for record in records] == [value < middle for value in values]
    assert "unsure" not in json.loads(decode("--json")[0])
    assert "confidence" in decode("--explain")[2]
    given = tmp_path / "given.tsv"
    given.write_text("abe\tab\n")
    for words in (["--explain"], ["--rerank", str(given)]):
        assert run_here(["decode", str(tuned), *words, "--confidence"], b"a\n").returncode == 2
    assert run_here(["decode", str(tuned), "--unsure", "1.5"], b"a\n").returncode == 2
