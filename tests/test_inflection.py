"""The inflection experiment on a made-up language: all of it, small; its rows, and its recorded results."""

from __future__ import annotations

import json
import lzma
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from noisychannel.cli.main import main
from noisychannel.decode.settings import SearchSettings
from noisychannel.evaluation.baselines import SuffixRules
from noisychannel.experiments import training
from noisychannel.experiments.back_translation import back_translate
from noisychannel.experiments.inflection.experiment import Inflection
from noisychannel.experiments.inflection.rows import DIRECT, FROM_THE_PAPER, FULL_BETTER, RULES, whole_design
from noisychannel.experiments.inflection.scale import Scale
from noisychannel.experiments.inflection.wiktionary import Wiktionary
from noisychannel.experiments.items import sample
from noisychannel.experiments.plots import curves
from noisychannel.experiments.registry import EXPERIMENTS, ExperimentEntry
from noisychannel.experiments.report import markdown
from noisychannel.experiments.reproducing import measure_blocks, write_results
from noisychannel.experiments.running import run_block
from noisychannel.experiments.settings import Setup
from noisychannel.experiments.tuning import TuningTask
from noisychannel.training.config import ModelConfig

RESULTS = Path(__file__).parent.parent / "experiments" / "inflection" / "results"
RECORDED = [name for name in EXPERIMENTS if (RESULTS / f"{name}.json").exists()]
FORMS: dict[str, Callable[[str], str]] = {
    "number=singular:case=first": lambda x: x,
    "number=plural:case=first": lambda x: x + ("n" if x[-1] in "ae" else "en"),
}
SEARCH = SearchSettings(k1=3, k2=2, max_growth=2)
TINY = Scale(
    seeds=(1, 2),
    hidden_size=24,
    updates=8,
    lm=ModelConfig(hidden_size=16, dropout=0.1, learning_rate=0.01, batch_size=32),
    lm_updates=8,
    better_lm_updates=8,
    search=SEARCH,
    tuning=SEARCH,
    iterations=1,
    n_best=2,
    back_translated=(10, 20),
)
TINY_DESIGN = whole_design("inflection-verbs", "verbs of a made-up language", unpaired=(0, 10), pairs=(40, 5000))
FULL = FULL_BETTER.name


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of the real data, with verbs of a language of six letters."""
    root = tmp_path_factory.mktemp("data")
    rng = random.Random(1)
    lemmas = sorted({"".join(rng.choices("abdeko", k=rng.randint(2, 4))) for _ in range(260)})
    rng.shuffle(lemmas)
    parts = {"train": lemmas[:120], "dev": lemmas[120:132], "test": lemmas[132:150]}
    for folder in ("durrett2013", "unpaired"):
        (root / "morphology" / folder).mkdir(parents=True)
    for split, words in parts.items():
        lines = [f"{x}\t{form(x)}\t{name}\n" for x in words for name, form in FORMS.items()]
        with lzma.open(root / "morphology" / "durrett2013" / f"de_verb.{split}.tsv.xz", "wt") as file:
            file.writelines(lines)
    lines = [f"{name}\t{form(x)}\tlist\n" for x in lemmas[120:] for name, form in FORMS.items()]
    with lzma.open(root / "morphology" / "unpaired" / "de_verb.tsv.xz", "wt") as file:
        file.writelines(lines)
    return root


@pytest.fixture(scope="module")
def setup(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Setup:
    return Setup(data, tmp_path_factory.mktemp("work"), "cpu", jobs=1, say=lambda line: None)


@pytest.fixture(scope="module")
def experiment(setup: Setup) -> Inflection:
    return Wiktionary("verb", setup, TINY, TINY_DESIGN)


@pytest.fixture(scope="module")
def entry(experiment: Inflection) -> ExperimentEntry:
    return ExperimentEntry(TINY_DESIGN, lambda setup, quick: experiment)


@pytest.fixture(scope="module")
def results(entry: ExperimentEntry, setup: Setup) -> dict:
    """Of the blocks run one by one, the last first: each trains and tunes what it needs."""
    for block in ("curves", "further", "terms", "list", "table"):
        measure_blocks(entry, setup, setup.work, [block])
    write_results(entry, setup.work)
    return json.loads((setup.work / "inflection-verbs.json").read_text(encoding="utf-8"))


def named(results: dict) -> dict[tuple[str, str], dict]:
    return {(row["setting"], row["name"]): row for row in results["rows"]}


def accuracy(row: dict) -> dict:
    return row["scores"]["accuracy"]


# --- the rows


def test_every_row_of_the_paper_and_more(results: dict) -> None:
    names = {(row["setting"], row["name"]) for row in results["rows"]}
    assert {row.key for row in FROM_THE_PAPER} <= names
    further = ("one direct model and channel for all types", "one model of each kind for all types", "density ratio")
    further = (*further, "ensemble of the seeds", "chosen from all searches", "back-translation")
    assert ("paper", f"{FULL}, and the word list") in names
    assert {("strict", f"{FULL}, {x}") for x in (*further, "0 unpaired", "10 unpaired", "40 pairs")} <= names
    assert len(names) == len(results["rows"])


def test_more_pairs_than_there_are_cannot_be_measured(experiment: Inflection, results: dict) -> None:
    assert all(row["pairs"] in (None, 40) for row in results["rows"])
    labels = [row.label for row in experiment.design.blocks["curves"] if row.pairs == 5000]
    assert results["not measured"] == {"curves": labels}


def test_figures_agree_with_each_other(results: dict) -> None:
    rows = named(results)
    for row in results["rows"]:
        scores = accuracy(row)
        assert scores["score"] == pytest.approx(np.mean(list(scores["seeds"].values())))
        assert scores["score"] == pytest.approx(np.mean(list(scores["parts"].values())))
        assert len(scores["seeds"]) == (2 if scores["deviation"] is not None else 1)
        assert scores["p"]["rules"] is None or 0 < scores["p"]["rules"] <= 1
    assert accuracy(rows["paper", DIRECT.name])["p"]["direct (bi)"] is None
    assert accuracy(rows["paper", RULES.name])["p"]["rules"] is None
    assert accuracy(rows["paper", RULES.name])["score"] == 100.0, "the made-up language has simple rules"
    tuned = {row["system"] for row in results["rows"] if "dev" in row}
    full = "direct+channel+lm"
    assert tuned == {
        "direct+lm",
        "channel+lm",
        full,
        *(f"{full}+{term}" for term in ("word_list", "density_ratio", "second_lm")),
    }
    for setting in ("paper", "strict"):
        smaller, larger = (rows[setting, f"direct + {x}LM + bias (bi)"]["dev"] for x in ("", "channel + "))
        assert larger["score"] >= smaller["score"]


def test_systems_with_a_further_term_start_from_those_without(results: dict) -> None:
    rows = named(results)
    for setting, row, term in (
        ("paper", "and the word list", "word_list"),
        ("strict", "density ratio", "density_ratio"),
        ("strict", "and a second LM", "second_lm"),
    ):
        with_term, without = rows[setting, f"{FULL}, {row}"], rows[setting, FULL]
        assert with_term["dev"]["score"] >= without["dev"]["score"]
        assert list(with_term["weights"]) == ["direct", "channel", "lm", "length", term]
    assert rows["paper", f"{FULL}, and the word list"]["weights"]["word_list"] >= 0
    assert rows["strict", f"{FULL}, density ratio"]["weights"]["density_ratio"] <= 0
    assert rows["strict", f"{FULL}, density ratio"]["models"]["density_ratio"] == "lm-0-strict"


def test_the_word_list_prefers_listed_outputs(experiment: Inflection, results: dict) -> None:
    """With a large weight, every output is on the list of its type if one of the k2 best is."""
    from noisychannel.decode.objective import Weights
    from noisychannel.experiments.decoding import DecodingTask

    (row,) = (row for row in experiment.rows("list"))
    models = tuple(experiment.models(row, 1, part) for part in experiment.parts)
    items = tuple(part.test for part in experiment.parts)
    weights = Weights(1.0, 0.5, 0.5, 0.1, {"word_list": 100.0})
    task = DecodingTask(models, items, weights, replace(SEARCH, k1=20, k2=8), 8, 64, "cpu")
    listed_first = 0
    for part, lists in zip(experiment.parts, task.decode().parts, strict=True):
        known = {*experiment.unpaired["paper"][part.name], *(x.form for x in experiment.tables[part.name].train)}
        for best in lists:
            values = [entry.terms["word_list"] for entry in best if entry.complete]
            assert values == [0.0 if entry.text in known else -1.0 for entry in best if entry.complete]
            assert values == sorted(values, reverse=True)
            listed_first += best[0].text in known
    assert listed_first > 0


def test_a_pool_of_searches_is_at_least_as_good_on_dev(results: dict) -> None:
    rows = named(results)
    pooled = rows["strict", f"{FULL}, chosen from all searches"]
    assert pooled["dev"]["score"] >= rows["strict", FULL]["dev"]["score"] - 1e-9


def test_rules_stand_in_every_learning_curve(experiment: Inflection, results: dict) -> None:
    rules = [SuffixRules(sample(pairs.train, 40, seed=1)) for pairs in experiment.tables.values()]
    right = [
        np.mean([of_type.inflect(pair.lemma, pair.tags) == pair.form for pair in pairs.test])
        for of_type, pairs in zip(rules, experiment.tables.values(), strict=True)
    ]
    row = named(results)["strict", f"{RULES.name}, 40 pairs"]
    assert accuracy(row)["score"] == pytest.approx(100 * np.mean(right))
    assert (row["base"], row["pairs"], row["baseline"]) == (RULES.name, 40, "rules")


def test_learning_curves(results: dict, experiment: Inflection) -> None:
    rows = {key: accuracy(row)["score"] for key, row in named(results).items()}
    unpaired, pairs = (curves(plot, results) for plot in experiment.design.plots)
    most = np.mean(list(results["data"]["unpaired"]["strict"].values()))
    assert unpaired["full"] == {
        0.0: rows["strict", f"{FULL}, 0 unpaired"],
        10.0: rows["strict", f"{FULL}, 10 unpaired"],
        most: rows["strict", FULL],
    }
    assert unpaired["direct"] == dict.fromkeys((0.0, 10.0, most), rows["paper", DIRECT.name])
    assert pairs["direct"] == {40.0: rows["strict", f"{DIRECT.name}, 40 pairs"], 120.0: rows["paper", DIRECT.name]}


def test_the_table_names_what_it_was_made_with(results: dict) -> None:
    table = "\n".join(markdown(results))
    for name, block in results["blocks"].items():
        assert f"| {name} | " in table
        assert f" | {block['noisychannel']} | {block['commit']} | {block['torch']} | " in table
    for row in results["rows"]:
        assert f"| {row['setting']} | {row['name']} | {accuracy(row)['score']:.2f}" in table
    for figure in ("97.15", "87.85", "84.42", "92.20"):
        assert figure in table, "the paper's own figure"


# --- the data and the runs


def test_strict_lists_have_no_held_out_form(experiment: Inflection) -> None:
    held_out = {pair.form for pairs in experiment.tables.values() for pair in pairs.dev + pairs.test}
    assert all(set(forms) & held_out for forms in experiment.unpaired["paper"].values())
    assert not any(set(forms) & held_out for forms in experiment.unpaired["strict"].values())


def test_the_results_say_how_many_answers_the_lists_have(results: dict) -> None:
    """In the made-up data the lists have every form of every test lemma."""
    covered = results["data"]["test forms among the unpaired, %"]
    assert set(covered["paper"].values()) == {100.0}
    assert set(covered["strict"].values()) == {0.0}


def test_a_repeated_block_trains_and_tunes_nothing(
    experiment: Inflection, results: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_train", lambda group: pytest.fail("nothing is left to train"))
    monkeypatch.setattr(TuningTask, "tune", lambda *arguments: pytest.fail("nothing is left to tune"))
    again = run_block(Wiktionary("verb", experiment.setup, TINY, TINY_DESIGN), "further")
    recorded = named(results)
    for row in again.rows:
        assert recorded[row["setting"], row["name"]]["scores"]["accuracy"]["seeds"] == accuracy(row)["seeds"]
        assert recorded[row["setting"], row["name"]].get("weights") == row.get("weights")


def test_seeds_and_amounts_of_pairs_are_trained_together(experiment: Inflection) -> None:
    runs = ["bi-1", "lm-paper", "bi-2", "bi-40-1", "lm-strict"]
    groups = [[Path(config.run_dir).name for config in group] for group in experiment.configs(runs)]
    assert groups == [["lm-paper"], ["lm-strict"], ["bi-1", "bi-2"], ["bi-40-1"]], "language models first"


def test_the_amount_of_back_translated_forms_is_chosen_on_dev(experiment: Inflection, results: dict) -> None:
    assert experiment.back_translated in TINY.back_translated
    row = named(results)["strict", f"{FULL}, back-translation"]
    assert row["models"]["direct"] == f"bt-{experiment.back_translated}-1"


def test_back_translations_are_inputs_of_their_forms(experiment: Inflection, results: dict) -> None:
    config = experiment.make_config("trained-1", ["channel"], experiment.write_pairs())
    config.channel.dropout = 0.0
    config.training.max_updates, config.training.learning_rate = 250, 0.01
    training.train_groups([[config]], experiment.setup)
    part = experiment.parts[1]
    forms = [item.references[0] for item in part.test]
    run = experiment.run("trained-1", part).path
    pairs = back_translate(run, forms, "cpu")
    assert pairs == back_translate(run, forms, "cpu")
    assert len(pairs) > 13
    assert {form for _, form in pairs} <= set(forms)
    assert all(set(lemma) <= set("abdeko") for lemma, _ in pairs)
    assert sum(FORMS[part.name](lemma) == form for lemma, form in pairs) > 5, "many of them are the very inputs"


# --- the command


def test_bad_usage_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def complaint(*words: str) -> str:
        assert main(["reproduce", *words]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    assert "unknown experiment 'inflection-adverbs'; did you mean inflection-verbs?" in complaint("inflection-adverbs")
    assert "name an experiment: inflection-nouns, " in complaint()
    assert "--jobs: must be at least 1, but is 0" in complaint("inflection-nouns", "--jobs", "0")
    several = complaint("inflection-sigmorphon", "--work", str(tmp_path))
    assert "--work: inflection-sigmorphon is several experiments" in several
    assert "wiktionary-morphology-1.1" in complaint("inflection-nouns", "--data", str(tmp_path))
    unknown = complaint("inflection-nouns", "--blocks", "table,figures")
    assert "inflection-nouns has no block 'figures'; its blocks are table, list, terms, further, curves" in unknown
    empty = complaint("inflection-nouns", "--merge", "--results", str(tmp_path))
    assert "no block has been measured; run: noisychannel reproduce inflection-nouns" in empty


def test_help_names_experiments_and_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--help"]) == 0
    text = capsys.readouterr().out
    for name, entry in EXPERIMENTS.items():
        assert f"  {name}\n      {entry.design.about}\n      blocks: {', '.join(entry.design.blocks)}\n" in text


def test_the_command_merges_what_a_directory_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learning curves alone: their rows are compared with each other, and drawn."""
    from noisychannel.experiments import scores

    monkeypatch.setattr(scores, "SAMPLES", 20)
    pytest.importorskip("matplotlib")
    for file in RESULTS.glob("inflection-nouns.curves.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    words = ["--merge", "--results", str(tmp_path), "--plots", str(tmp_path / "plots")]
    assert main(["reproduce", "inflection-nouns", *words]) == 0
    table = capsys.readouterr().out
    assert table == (tmp_path / "inflection-nouns.md").read_text(encoding="utf-8")
    assert "| strict | direct (bi), 100 pairs | 51.62 |" in table
    assert "Not measured, of the block table (`noisychannel reproduce inflection-nouns --blocks table`)" in table
    assert sorted(file.name for file in (tmp_path / "plots").iterdir()) == [
        "inflection-nouns-pairs.svg",
        "inflection-nouns-unpaired.svg",
    ]
