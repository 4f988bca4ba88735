"""Historical spelling on a made-up text: samples, strict word lists, counted tokens, and a whole small experiment."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError
from noisychannel.evaluation.baselines import memorised
from noisychannel.experiments.blocks import read_blocks
from noisychannel.experiments.decoding import load
from noisychannel.experiments.few_pairs.specs import RunSpec
from noisychannel.experiments.items import Item
from noisychannel.experiments.normalisation import cited
from noisychannel.experiments.normalisation.data import OPEN, STRICT, NormalisationData, Token, read_data
from noisychannel.experiments.normalisation.experiment import DESIGNS, Normalisation, make_normalisation, of_data
from noisychannel.experiments.normalisation.rows import (
    DIRECT,
    FULL,
    IDENTITY,
    MEMORISED,
    SIZES,
    STRICT_SIZES,
    with_tokens,
)
from noisychannel.experiments.normalisation.scale import QUICK, NormalisationScale
from noisychannel.experiments.plots import curves, write_plots
from noisychannel.experiments.registry import find_experiments
from noisychannel.experiments.report import markdown
from noisychannel.experiments.results import merge
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.running import needed_runs, run_blocks
from noisychannel.experiments.scores import RowScorer
from noisychannel.experiments.settings import Setup
from noisychannel.fitting.inputs import InputTask
from noisychannel.training.config import RunConfig

SIZE = 100
SEARCH = SearchSettings(k1=3, k2=2, max_growth=3)
TINY = NormalisationScale(
    sizes=(SIZE,),
    seeds=(1, 2),
    dev=30,
    tokens=80,
    planned={
        "updates": 6,
        "lm_updates": 4,
        "hidden_size": 16,
        "embedding_size": 8,
        "lm_hidden_size": 16,
        "made_up": 20,
        "words_given_inputs": 24,
        "repeat": 2,
    },
    search=SEARCH,
    tuning=SEARCH,
    iterations=1,
)
DESIGN = replace(
    DESIGNS["anselm"],
    blocks={
        "open": tuple(with_tokens(of, SIZE) for of in (IDENTITY, MEMORISED, FULL)),
        "strict": (with_tokens(replace(FULL, setting=STRICT, seeds=1), SIZE),),
    },
    resamples=50,
    examples=(),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Modern words and tokens that write v for u and sometimes y for i; frequent words come first."""
    rng = random.Random(1)
    words = list(dict.fromkeys("".join(rng.choices("abeiut", k=rng.randint(2, 5))) for _ in range(1_500)))
    root = tmp_path_factory.mktemp("data")
    (root / "normalisation").mkdir()

    def write(name: str, lines: list[str]) -> None:
        (root / "normalisation" / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    for split, number in (("train", 250), ("dev", 150), ("test", 160)):
        drawn = [words[int(len(words) * rng.random() ** 6)] for _ in range(number)]
        old = [word.replace("u", "v").replace("i", rng.choice("iy")) for word in drawn]
        write(f"de-anselm.{split}.tsv", [f"{x}\t{y}" for x, y in zip(old, drawn, strict=True)])
    write("de.words.txt", sorted(words))
    return root


@pytest.fixture(scope="module")
def data(folder: Path) -> NormalisationData:
    return read_data(folder, "anselm", tokens=TINY.tokens)


@pytest.fixture(scope="module")
def experiment(data: NormalisationData, tmp_path_factory: pytest.TempPathFactory) -> Normalisation:
    setup = Setup(Path(), tmp_path_factory.mktemp("work"), "cpu", jobs=1, say=lambda line: None)
    made = of_data("anselm", data, setup, TINY)
    made.design = DESIGN
    return made


@pytest.fixture(scope="module")
def results(experiment: Normalisation) -> dict:
    """Of both blocks. Tiny reverse models have no answer to most words, so others answer in their place."""

    def work(task: InputTask) -> None:
        Path(task.file).write_text("".join(f"{word.output[:4]}\n" for word in task.words), encoding="utf-8")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InputTask, "work", work)
        run_blocks(experiment, list(DESIGN.blocks), experiment.setup.work, DESIGN.name)
    return merge(DESIGN, read_blocks(experiment.setup.work, DESIGN.name))


def sampled(data: NormalisationData, k: int) -> list[Token]:
    return data.train[(k - 1) * SIZE : k * SIZE]


def config_of(experiment: Normalisation, row: SystemRow, role: str, k: int) -> RunConfig:
    return experiment.config(RunSpec.parse(experiment.run_name(row, role, k)), "de-anselm")


# --- samples and items


def test_sample_k_is_the_kth_run_of_neighbouring_lines(experiment: Normalisation, data: NormalisationData) -> None:
    for part in experiment.parts:
        for k in (1, 2):
            pairs = list(experiment.training_pairs(part, SIZE, k))
            assert [(text, output) for text, output, _ in pairs] == sampled(data, k)
    with pytest.raises(BadInputError, match="no sample 3 of 100"):
        experiment.training_pairs(experiment.parts[0], SIZE, 3)
    files = [config_of(experiment, with_tokens(DIRECT, SIZE), "direct", k).data.train for k in (1, 2)]
    lines = [Path(file).read_text(encoding="utf-8").splitlines() for (file,) in files]
    assert lines == [["\t".join(token) for token in sampled(data, k)] for k in (1, 2)]


def test_items_count_every_token_and_know_where_their_inputs_were_seen(
    experiment: Normalisation, data: NormalisationData
) -> None:
    for part, tokens in zip(experiment.parts, (data.test, data.dev), strict=True):
        assert sum(item.count for item in part.test) == len(tokens) == TINY.tokens
        assert len({(item.input, item.references) for item in part.test}) == len(part.test) < len(tokens)
        for item in part.test:
            assert item.count == tokens.count(Token(item.input, item.references[0]))
            seen = [k for k in (1, 2) if item.input in {token.text for token in sampled(data, k)}]
            assert item.seen_in == tuple(f"{SIZE}-{k}" for k in seen)
    tuned_on = experiment.parts[0].dev
    places = [n * len(data.dev) // TINY.dev for n in range(TINY.dev)]
    assert [(item.input, *item.references) for item in tuned_on] == [tuple(data.dev[place]) for place in places]
    assert places[-1] > len(data.dev) * 9 // 10  # not the beginning alone
    assert not experiment.parts[1].dev  # dev is decoded, too, but takes no second share in tuning


def test_the_record_says_how_hard_the_samples_are(experiment: Normalisation, data: NormalisationData) -> None:
    recorded = experiment.data_record()["memorised outputs, test, samples of the publication"]
    accuracies = []
    for k in (1, 2):
        known = memorised((token.text, token.modern, ()) for token in sampled(data, k))
        right = [known(token.text, ()) == token.modern for token in data.test]
        accuracies.append(100 * sum(right) / len(right))
    assert recorded == {f"{SIZE} tokens": {"samples": 2, "mean": round(sum(accuracies) / 2, 2)}}


def test_no_answer_of_an_unseen_token_is_in_the_strict_words(
    experiment: Normalisation, data: NormalisationData
) -> None:
    words = experiment.tasks["de-anselm"].words
    listed, strict = ({word.output for word in words[setting]} for setting in (OPEN, STRICT))
    answers: set[str] = set()
    for k in (1, 2):
        known = {token.text for token in sampled(data, k)}
        answers |= {token.modern for token in (*data.dev, *data.test) if token.text not in known}
    assert answers & listed
    assert not answers & strict
    assert listed - strict == answers & listed  # and nothing else is missing
    row = with_tokens(replace(FULL, setting=STRICT), SIZE)
    for role in row.models:
        for file in config_of(experiment, row, role, 2).data.unpaired:
            assert not answers & set(Path(file).read_text(encoding="utf-8").splitlines())


def test_samples_share_the_language_model_and_strict_has_its_own(experiment: Normalisation) -> None:
    runs = set(needed_runs(experiment, experiment.rows("open")))
    assert runs == {"lm.rule.open-1/de-anselm"} | {
        f"{role}.rule.p{SIZE}.open-{k}/de-anselm" for role in ("direct", "channel") for k in (1, 2)
    }
    strict = set(needed_runs(experiment, experiment.rows("strict")))
    assert "lm.rule.strict-1/de-anselm" in strict
    assert not strict & runs


# --- scores


def test_counted_items_score_as_their_tokens_do() -> None:
    tokens = [("a", "x"), ("b", "y"), ("a", "x"), ("a", "z"), ("c", "c"), ("b", "y"), ("a", "x")]
    seen = {"a": (f"{SIZE}-1",), "b": (f"{SIZE}-1", f"{SIZE}-2")}
    single = [Item(x, (y,), seen_in=seen.get(x, ())) for x, y in tokens]
    counted = [Item(x, (y,), count=tokens.count((x, y)), seen_in=seen.get(x, ())) for x, y in dict.fromkeys(tokens)]
    answers = {1: {"a": "x", "b": "b", "c": "c"}, 2: {"a": "x", "b": "y", "c": "d"}}
    scores, intervals, chances = [], [], []
    for items in (single, counted):
        scorer = RowScorer(DESIGN, [("test", items), ("dev", items[:2])])
        inputs = [item.input for item in (*items, *items[:2])]
        outputs = {k: [of[text] for text in inputs] for k, of in answers.items()}
        scores.append(scorer.scores(outputs, SIZE)["accuracy"]["parts"]["test"])
        intervals.append(scorer.interval("accuracy", outputs, "test"))
        chances.append(scorer.p_value("accuracy", outputs, {1: inputs}, "test"))
    assert scores[0] == scores[1]
    assert intervals[0] == pytest.approx(intervals[1])  # all tokens of an input are drawn together
    assert intervals[0][0] < intervals[0][1]
    assert chances[0] == pytest.approx(chances[1])
    test = scores[1]
    assert test["seeds"] == pytest.approx({"1": 100 * 4 / 7, "2": 100 * 5 / 7})
    assert test["seen"]["seeds"] == pytest.approx({"1": 50.0, "2": 100.0})  # a and b; in the second sample b alone
    assert test["unseen"]["seeds"] == pytest.approx({"1": 100.0, "2": 60.0})
    assert (test["seen"]["items"], test["unseen"]["items"]) == ({"1": 6, "2": 2}, {"1": 1, "2": 5})


def test_nothing_seen_has_no_score_of_seen_items() -> None:
    scores = RowScorer(DESIGN, [("test", [Item("a", ("a",), count=3)])]).scores({1: ["a"]}, SIZE)["accuracy"]
    assert scores["seen"] is None
    assert scores["unseen"]["items"] == {"1": 3}


# --- the whole experiment


def row_of(results: dict, base: str, setting: str) -> dict:
    (row,) = (row for row in results["rows"] if (row["base"], row["setting"]) == (base, setting))
    return row


def test_memorising_is_measured_for_each_sample_on_dev_and_test(results: dict, data: NormalisationData) -> None:
    row = row_of(results, MEMORISED.name, "")
    for name, tokens in (("test", data.test), ("dev", data.dev)):
        scores = row["scores"]["accuracy"]["parts"][name]
        for k in (1, 2):
            answer = memorised([(*token, ()) for token in sampled(data, k)])
            right = np.array([answer(token.text, ()) == token.modern for token in tokens])
            known = {token.text for token in sampled(data, k)}
            seen = np.array([token.text in known for token in tokens])
            assert scores["seeds"][str(k)] == pytest.approx(100 * right.mean())
            assert scores["seen"]["seeds"][str(k)] == pytest.approx(100 * right[seen].mean())
            assert scores["unseen"]["seeds"][str(k)] == pytest.approx(100 * right[~seen].mean())
            assert scores["seen"]["items"][str(k)] == seen.sum()


def test_systems_have_the_term_of_seen_inputs_and_every_sample(results: dict) -> None:
    for setting, samples in ((OPEN, {"1", "2"}), (STRICT, {"1"})):
        row = row_of(results, FULL.name, setting)
        assert {"seen", "word_list"} <= row["weights"].keys()
        assert set(row["scores"]["accuracy"]["seeds"]) == samples
        assert row["models"]["seen"] == row["models"]["direct"]
    assert results["parts"] == {"test": TINY.tokens, "dev": TINY.tokens}
    assert "30 tokens spread evenly over dev" in results["tuned"]


def test_decoding_distinct_inputs_of_dev_and_test_is_decoding_every_token(
    experiment: Normalisation, results: dict
) -> None:
    (block,) = (block for block in read_blocks(experiment.setup.work, DESIGN.name) if block.name == "open")
    place = next(n for n, row in enumerate(block.rows) if row["base"] == FULL.name)
    row, weights = experiment.rows("open")[place], Weights.of(block.rows[place]["weights"])
    kept = dict(zip(block.items, block.outputs(place)[2], strict=True))
    for part in experiment.parts:
        run = experiment.models(row, 2, part)
        model = load(run, weights, SEARCH, "cpu")
        texts = [item.input for item in part.test for _ in range(item.count)]
        assert len(texts) == TINY.tokens
        decoded = [best[0].text for best in model.batch(texts, 1, batch_size=32)]
        expected = [kept[part.name, n] for n, item in enumerate(part.test) for _ in range(item.count)]
        assert decoded == expected


def test_outputs_are_kept_without_their_terms(experiment: Normalisation, results: dict) -> None:
    for block in read_blocks(experiment.setup.work, DESIGN.name):
        assert all(not best[0].terms for of_row in block.n_best for lists in of_row.values() for best in lists.values())


def test_the_report_has_columns_for_seen_and_unseen_and_the_published_rows(results: dict) -> None:
    lines = list(markdown(results))
    titles = [line.split(" | ") for line in lines if "95 % interval" in line and line.startswith("|")]
    assert len(titles) == 2
    assert all(title[2:5] == ["accuracy", "seen", "unseen"] for title in titles)
    assert any("deviation over samples" in line for line in lines)
    assert sum(line.startswith("| cited | Norma, 100 tokens | 56.25 |") for line in lines) == 2


# --- the designs


@pytest.mark.parametrize("text", ["anselm", "bohoric"])
def test_every_size_has_every_row_and_the_published_figures(text: cited.Text) -> None:
    design = DESIGNS[text]
    assert sorted({row.pairs for row in design.blocks["open"]}) == list(SIZES)
    assert len(design.blocks["open"]) == len(SIZES) * 7
    assert {row.pairs for row in design.blocks["strict"]} == set(STRICT_SIZES)
    assert len(design.cited) == len(SIZES) * len(cited.SYSTEMS)
    best = {size: max(figures) for size, figures in cited.ACCURACIES[text].items()}
    goals = {"anselm": {100: 56.25, 1_000: 61.27, 10_000: 72.81}, "bohoric": {100: 71.59, 1_000: 82.90, 10_000: 89.59}}
    assert goals[text].items() <= best.items()
    assert design.plots[0].cited["NMT-2"][250] == cited.ACCURACIES[text][250][3]
    assert [entry.design.name for entry in find_experiments("normalisation")] == [
        "normalisation-anselm",
        "normalisation-bohoric",
    ]


def test_curves_go_over_the_numbers_of_tokens(results: dict, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    more = [
        {**row, "pairs": 250, "name": f"{row['base']}, 250 tokens"} for row in results["rows"] if row["setting"] == OPEN
    ]
    longer = {**results, "rows": [*results["rows"], *more]}
    drawn = curves(DESIGN.plots[0], longer)
    assert list(drawn[FULL.name]) == [100.0, 250.0]
    (file,) = write_plots(DESIGN, longer, tmp_path)
    assert file.name == "normalisation-anselm-tokens.svg"


def test_files_that_are_missing_or_damaged_are_named(folder: Path, tmp_path: Path) -> None:
    setup = Setup(folder, tmp_path)
    with pytest.raises(BadInputError, match=r"sl-bohoric\.train\.tsv: no such file.*--data"):
        make_normalisation("bohoric", setup, True)
    (tmp_path / "normalisation").mkdir()
    (tmp_path / "normalisation" / "de-anselm.train.tsv").write_text("a\n", encoding="utf-8")
    with pytest.raises(BadInputError, match=r"1: 1 tab-separated columns"):
        read_data(tmp_path, "anselm")


def test_a_quick_try_has_fewer_words_tokens_and_sizes(folder: Path, tmp_path: Path) -> None:
    setup = Setup(folder, tmp_path, "cpu", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("noisychannel.experiments.normalisation.experiment.QUICK", replace(QUICK, sizes=(100,), words=40))
        made = make_normalisation("anselm", setup, True)
    assert len(made.tasks["de-anselm"].words[OPEN]) == 40
    assert {row.pairs for block in made.design.blocks for row in made.rows(block)} == {100}
