"""The experiments with few pairs on two made-up languages: plans, runs, words given inputs, blocks of some parts."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError
from noisychannel.experiments.blocks import read_blocks
from noisychannel.experiments.few_pairs import answers, rows, sigmorphon
from noisychannel.experiments.few_pairs.experiment import FewPairs
from noisychannel.experiments.few_pairs.scale import FewPairsScale
from noisychannel.experiments.few_pairs.specs import RunSpec, plan_of
from noisychannel.experiments.few_pairs.transformer import TransformerSettings
from noisychannel.experiments.report import markdown
from noisychannel.experiments.results import merge
from noisychannel.experiments.running import needed_runs, run_blocks
from noisychannel.experiments.settings import Setup
from noisychannel.fitting.facts import Facts
from noisychannel.fitting.inputs import InputTask
from noisychannel.runs import RunDirectory
from noisychannel.training.config import parse_config

LANGUAGES = {"english": "abdeko", "german": "lmnuvi"}
"""Two names of languages, and their letters."""
SEARCH = SearchSettings(k1=3, k2=2, max_growth=3)
TINY = FewPairsScale(
    dev=8,
    test=10,
    seeds=(1, 2),
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
    opponent=TransformerSettings(size=16, feed_forward=16, layers=1, heads=2, updates=4, batch_size=8, warmup=2),
    search=SEARCH,
    tuning=SEARCH,
    iterations=1,
    n_best=2,
)
DESIGN = replace(
    sigmorphon.DESIGNS["low"],
    blocks={
        "table": (rows.RULES, rows.PLAIN, replace(rows.DIRECT, seeds=1), replace(rows.FULL_LIST, seeds=1)),
        "lists": tuple(rows.list_rows((0,))),
        "opponent": rows.OPPONENTS,
    },
    examples=(),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the shared task; plurals end in n, participles begin with ge."""
    root = tmp_path_factory.mktemp("data")
    folder = root / "morphology" / "sigmorphon2017"
    folder.mkdir(parents=True)
    forms = {"N;SG": "{}", "N;PL": "{}n", "V;PTCP": "ge{}"}
    for name, letters in LANGUAGES.items():
        rng = random.Random(name)
        lemmas = sorted({"".join(rng.choices(letters, k=rng.randint(3, 5))) for _ in range(140)})
        rng.shuffle(lemmas)
        some = {"train-low": lemmas[:30], "dev": lemmas[30:45], "uncovered-test": lemmas[45:60]}
        for split, words in some.items():
            lines = [f"{x}\t{form.format(x)}\t{tags}\n" for x in words for tags, form in forms.items()]
            (folder / f"{name}-{split}").write_text("".join(lines), encoding="utf-8")
        lines = [f"{tags}\t{form.format(x)}\n" for x in lemmas[20:] for tags, form in forms.items()]
        (folder / f"{name}-forms").write_text("".join(lines), encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def experiment(data: Path, tmp_path_factory: pytest.TempPathFactory) -> FewPairs:
    setup = Setup(data, tmp_path_factory.mktemp("work"), "cpu", jobs=1, say=lambda line: None)
    tasks = [sigmorphon.read_task(setup, name, "low") for name in LANGUAGES]
    return FewPairs(DESIGN, tasks, setup, TINY, {"opponent": ("german",), "lists": ("german",)})


@pytest.fixture(scope="module")
def results(experiment: FewPairs) -> dict:
    """Of all blocks. Tiny reverse models have no answer to most words, so others answer in their place."""

    def work(task: InputTask) -> None:
        assert RunDirectory(Path(task.run)).finished("direct")
        Path(task.file).write_text("".join(f"{word.output[:4]}\n" for word in task.words), encoding="utf-8")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InputTask, "work", work)
        run_blocks(experiment, list(DESIGN.blocks), experiment.setup.work, DESIGN.name)
    return merge(DESIGN, read_blocks(experiment.setup.work, DESIGN.name))


def row_of(results: dict, name: str) -> dict:
    (row,) = (row for row in results["rows"] if row["name"] == name)
    return row


# --- names and plans


@pytest.mark.parametrize(
    ("role", "models", "setting", "name"),
    [
        ("direct", "rule", "", "direct.rule-1"),
        ("direct", "rule.p50.w100", "strict", "direct.rule.p50.w100.strict-1"),
        ("channel", "copy.p50.w100", "strict", "channel.copy.p50-1"),  # copying needs no words
        ("lm", "inputs.p50", "strict", "lm.rule.strict-1"),  # trained on words alone
        ("lm", "plain.p50.w0", "", "lm.rule.p50.w0-1"),
    ],
)
def test_runs_that_are_the_same_have_one_name(role: str, models: str, setting: str, name: str) -> None:
    spec = RunSpec.of(role, models, setting, 1)
    assert spec.name == name
    assert RunSpec.parse(name) == spec


def test_kinds_are_what_fit_chooses_without_some_ingredients() -> None:
    facts = Facts(
        pairs=100, inputs=100, words=10_000, tags=True, tagged_words=True, tag_sets=10, copied=0.8, listed=0.0,
        listed_words=0, private_symbols=False, input_units="characters", output_units="characters", input_symbols=30,
        output_symbols=30, input_length=8.0,
        output_length=9.0,
    )  # fmt: skip
    plans = {kind: plan_of(kind, facts) for kind in ("plain", "copy", "made", "copymade", "inputs", "all", "rule")}
    used = {kind: (p.copy, p.made_up > 0, p.words_given_inputs > 0) for kind, p in plans.items()}
    assert used["plain"] == (False, False, False)
    assert used["copy"] == (True, False, False)
    assert used["made"] == (False, True, False)
    assert used["copymade"] == (True, True, False)
    assert used["inputs"] == (True, False, True)
    assert used["all"] == (True, True, True)
    assert plans["plain"].repeat == 1
    assert all((p.updates, p.hidden_size) == (plans["rule"].updates, 128) for p in plans.values())
    assert plan_of("all", replace(facts, pairs=1_000)).made_up > 0
    with pytest.raises(ValueError, match="no kind"):
        plan_of("other", facts)


# --- runs


def test_words_with_inputs_reach_direct_and_channel_alone(experiment: FewPairs, results: dict) -> None:
    task = experiment.tasks["german"]
    file = experiment.setup.work / "data" / "german" / "inputs.reverse.rule-1.tsv"
    given = [tuple(line.split("\t")) for line in file.read_text(encoding="utf-8").splitlines()]
    assert given
    trained = {(pair.output, pair.tags) for pair in task.train}
    words = {(word.output, word.tags) for word in task.words[""]}
    assert all((form, tuple(tags.split(";"))) in words - trained for _, form, tags in given)
    configs = {
        role: parse_config(experiment.runs / f"{role}.rule-1" / "german" / "config.yaml")
        for role in ("direct", "channel", "lm", "reverse")
    }
    for role in ("direct", "channel"):
        assert configs[role].data.further == [str(file)]
        assert configs[role].data.augment.made_up == 20
        assert configs[role].model(role).copy
    assert configs["lm"].data.further == []
    assert configs["lm"].data.lm_data == "all"  # fewer than 1,000 words
    assert configs["reverse"].data.columns == "output,input,features"
    plain = parse_config(experiment.runs / "direct.plain-1" / "german" / "config.yaml")
    assert (plain.data.further, plain.data.augment.made_up, plain.direct.copy) == ([], 0, False)


def test_each_language_has_its_own_vocabulary_for_all_its_models(experiment: FewPairs, results: dict) -> None:
    def fingerprints(run: str, language: str) -> list[str]:
        return [codec.fingerprint for codec in RunDirectory(experiment.runs / run / language).codecs()]

    for language in LANGUAGES:
        own = fingerprints("vocabularies", language)
        assert fingerprints("direct.plain-2", language) == fingerprints("lm.rule-1", language) == own
    assert fingerprints("vocabularies", "english") != fingerprints("vocabularies", "german")
    codec = RunDirectory(experiment.runs / "vocabularies" / "german").codecs()[0]
    assert not codec.unknown("lmnuvi").symbols


def test_finished_work_is_not_repeated(experiment: FewPairs, results: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr("noisychannel.experiments.training._train", refuse)
    monkeypatch.setattr(answers, "train_transformer", refuse)
    before = (experiment.setup.work / f"{DESIGN.name}.lists.json").read_text(encoding="utf-8")
    run_blocks(experiment, ["lists", "opponent"], experiment.setup.work, DESIGN.name)
    after = (experiment.setup.work / f"{DESIGN.name}.lists.json").read_text(encoding="utf-8")
    assert json.loads(before)["rows"] == json.loads(after)["rows"]


def test_a_run_for_each_part_and_seed(experiment: FewPairs) -> None:
    runs = needed_runs(experiment, [rows.PLAIN])
    assert set(runs) == {f"direct.plain-{seed}/{name}" for seed in (1, 2) for name in LANGUAGES}
    fewer = experiment.for_block("opponent")
    assert set(needed_runs(fewer, [rows.PLAIN])) == {"direct.plain-1/german", "direct.plain-2/german"}


# --- results of blocks with fewer parts


def test_a_block_of_some_parts_is_scored_and_compared_on_these(experiment: FewPairs, results: dict) -> None:
    blocks = {block.name: block for block in read_blocks(experiment.setup.work, DESIGN.name)}
    opponent = row_of(results, rows.OPPONENTS[0].name)["scores"]["accuracy"]
    assert list(opponent["parts"]) == ["german"]
    texts = blocks["opponent"].outputs(0)[1]
    assert len(texts) == TINY.test
    right = [text in item.references for text, item in zip(texts, blocks["opponent"].items.values(), strict=True)]
    assert opponent["score"] == pytest.approx(100 * np.mean(right))
    low, high = opponent["interval"]
    assert low <= opponent["score"] <= high
    assert 0 < opponent["p"]["rules"] <= 1  # of the ten German items, which the row of rules has among others
    rules = row_of(results, rows.RULES.name)["scores"]["accuracy"]
    assert rules["score"] == pytest.approx(np.mean([rules["parts"][name] for name in LANGUAGES]))
    assert results["parts"] == {"english": 10, "german": 10}


def test_the_report_has_a_table_of_languages(results: dict) -> None:
    lines = list(markdown(results))
    title = lines.index("| system | english | german | mean |")
    (opponent,) = (line for line in lines[title:] if line.startswith(f"| {rows.OPPONENTS[0].name} |"))
    assert opponent.split("|")[2].strip() == ""
    (rules,) = (line for line in lines[title:] if line.startswith(f"| {rows.RULES.name} |"))
    assert all(cell.strip() for cell in rules.split("|")[2:5])


def test_other_test_items_are_refused(experiment: FewPairs, results: dict) -> None:
    blocks = {block.name: block for block in read_blocks(experiment.setup.work, DESIGN.name)}
    items = dict(list(blocks["opponent"].items.items())[:-1])
    with pytest.raises(BadInputError, match="different test items"):
        merge(DESIGN, [blocks["table"], replace(blocks["opponent"], items=items)])


def test_few_words_make_other_models(experiment: FewPairs, results: dict) -> None:
    none = parse_config(experiment.runs / "lm.rule.w0-1" / "german" / "config.yaml")
    some = experiment.config(RunSpec.of("lm", "rule.w15", "", 1), "german")
    assert none.data.unpaired == []
    assert not none.lm.word_list
    assert len(Path(some.data.unpaired[0]).read_text(encoding="utf-8").splitlines()) == 15
    row = row_of(results, f"{rows.FULL_LIST.name}, 0 unpaired")
    assert row["system"] == "direct+channel+lm"
    assert row["base"] == rows.FULL_LIST.name


# --- fit as a row


def test_fit_sees_the_training_pairs_and_the_words_alone(
    experiment: FewPairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fit(options: object, reporter: object) -> object:
        asked.append(options)
        return SimpleNamespace(done=SimpleNamespace(default="direct", estimates=(), seconds=1.0))

    class Model:
        def batch(self, texts: list[str], *more: object) -> list[list[SimpleNamespace]]:
            return [[SimpleNamespace(text=text.upper())] for text in texts]

    monkeypatch.setattr(answers, "fit", fit)
    monkeypatch.setattr(answers.NoisyChannel, "load", lambda *args, **options: Model())
    task = experiment.tasks["german"]
    file = tmp_path / "fit" / "german.json"
    answers.write_answers(answers.AnswerTask("fit", task, file, TINY, 0, "cpu"))
    (options,) = asked
    pairs = [line.split("\t")[:2] for line in Path(options.pairs).read_text(encoding="utf-8").splitlines()]
    assert pairs == [[pair.input, pair.output] for pair in task.train]
    assert (options.test, options.made_up, options.inputs) == (None, 20, 24)
    item = task.test[0]
    assert answers.read_answers(file)(item.input, item.features) == item.input.upper()


def test_a_missing_language_is_one_line(tmp_path: Path) -> None:
    setup = Setup(tmp_path, tmp_path / "work")
    with pytest.raises(BadInputError, match="arabic-train-low: no such file"):
        sigmorphon.make_few_pairs("low", setup, quick=False)


def test_designs_are_complete() -> None:
    low, medium = sigmorphon.DESIGNS["low"], sigmorphon.DESIGNS["medium"]
    assert low.cited["longest-suffix rules of the shared task"] == {"accuracy": "44.1"}
    assert medium.cited["longest-suffix rules of the shared task"] == {"accuracy": "72.9"}
    points = [row.pairs for row in medium.blocks["curves"] if row.baseline]
    assert points == [50, 100, 200, 500, 1_000]
