"""The block of few pairs of the experiments with one set of models for each type, on a made-up language."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from noisychannel.decode.settings import SearchSettings
from noisychannel.experiments.inflection.few import few_rows, plan_of, reverse_name
from noisychannel.experiments.inflection.rows import DIRECT, FULL_BETTER, PAPER, STRICT, whole_design
from noisychannel.experiments.inflection.scale import Scale
from noisychannel.experiments.inflection.wiktionary import DESIGNS, Wiktionary
from noisychannel.experiments.running import run_block
from noisychannel.experiments.settings import Setup
from noisychannel.fitting.inputs import InputTask
from noisychannel.runs import RunDirectory
from noisychannel.training.config import ModelConfig, parse_config

TYPES = {"number=plural:case=first": "{}n", "number=plural:case=second": "ge{}"}
LETTERS = "abdeko"
SEARCH = SearchSettings(k1=3, k2=2, max_growth=4)
TINY = Scale(
    seeds=(1,),
    hidden_size=16,
    updates=8,
    lm=ModelConfig(hidden_size=16, dropout=0.1, learning_rate=0.01, batch_size=32),
    lm_updates=8,
    better_lm_updates=8,
    search=SEARCH,
    tuning=SEARCH,
    iterations=1,
    n_best=1,
    planned={"updates": 8, "hidden_size": 16, "embedding_size": 8, "made_up": 20, "words_given_inputs": 30},
)
CHOSEN = "as fit chooses"


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Wiktionary:
    """With those rows that need each kind of run."""
    root = tmp_path_factory.mktemp("data")
    rng = random.Random(1)
    lemmas = sorted({"".join(rng.choices(LETTERS, k=rng.randint(3, 5))) for _ in range(500)})
    rng.shuffle(lemmas)
    for folder in ("durrett2013", "unpaired"):
        (root / "morphology" / folder).mkdir(parents=True)
    for split, words in {"train": lemmas[:60], "dev": lemmas[60:70], "test": lemmas[70:80]}.items():
        lines = [f"{x}\t{form.format(x)}\t{name}\n" for x in words for name, form in TYPES.items()]
        (root / "morphology" / "durrett2013" / f"de_verb.{split}.tsv").write_text("".join(lines), encoding="utf-8")
    lines = [f"{name}\t{form.format(x)}\tlist\n" for x in lemmas[50:] for name, form in TYPES.items()]
    (root / "morphology" / "unpaired" / "de_verb.tsv").write_text("".join(lines), encoding="utf-8")
    wanted = (f"{DIRECT.name}, copying", f"{FULL_BETTER.name}, {CHOSEN}, 40 pairs")
    rows = [row for row in few_rows((40,)) if row.name in wanted and (row.setting, row.pairs) != (PAPER, 40)]
    design = replace(whole_design("inflection-verbs", "verbs"), blocks={"few": tuple(rows)}, examples=())
    setup = Setup(root, tmp_path_factory.mktemp("work"), "cpu", jobs=1, say=lambda line: None)
    return Wiktionary("verb", setup, TINY, design)


def test_words_given_inputs_are_trained_on_in_their_groups(
    experiment: Wiktionary, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(task: InputTask) -> None:
        """Tiny reverse models have no answer to most words."""
        run = RunDirectory(Path(task.run))
        assert run.finished("direct")
        assert all(not word.features for word in task.words)
        known = ["".join(x for x in word.output if x in LETTERS) for word in task.words]
        Path(task.file).write_text("".join(f"{text}\n" for text in known), encoding="utf-8")

    monkeypatch.setattr(InputTask, "work", work)
    block = run_block(experiment, "few")
    assert [row["name"] for row in block.rows] == [
        f"{DIRECT.name}, copying",
        f"{FULL_BETTER.name}, {CHOSEN}, 40 pairs",
    ]
    run = f"fit-40-{STRICT}-1"
    config = parse_config(experiment.runs / run / "config.yaml")
    (further,) = config.data.further
    given = [line.split("\t") for line in Path(further).read_text(encoding="utf-8").splitlines()]
    assert {group for _, _, group in given} == set(TYPES)
    pairs = {(x.form, type_) for type_, table in experiment.tables.items() for x in (*table.dev, *table.test)}
    assert not {(form, group) for _, form, group in given} & pairs  # the setting is strict
    assert config.data.columns == "input,output,group"
    assert (config.direct.copy, config.channel.copy, config.data.augment.made_up) == (True, True, 20)
    reverse = parse_config(experiment.runs / reverse_name(run) / "config.yaml")
    assert (reverse.data.columns, reverse.models, reverse.data.further) == ("output,input,group", ["direct"], [])
    copying = parse_config(experiment.runs / "copy-1" / "config.yaml")
    assert (copying.direct.copy, copying.channel.copy, copying.data.augment.made_up) == (True, True, 0)
    codec = RunDirectory(experiment.runs / run).group(next(iter(TYPES))).codecs()[0]
    assert codec.fingerprint == experiment.input_codec().fingerprint


def test_plans_see_the_pairs_of_one_type(experiment: Wiktionary) -> None:
    assert plan_of(experiment, f"fit-40-{STRICT}-1").dev_pairs == 40 // 3
    assert plan_of(experiment, f"fit-all-{STRICT}-1").dev_pairs == 60 // 3


def test_nouns_have_the_block_and_verbs_do_not() -> None:
    assert "few" in DESIGNS["noun"].blocks
    assert "few" not in DESIGNS["verb"].blocks
    names = {row.label for row in DESIGNS["noun"].blocks["few"]}
    assert f"{PAPER}: {DIRECT.name}, copying" in names
    assert f"{PAPER}: {FULL_BETTER.name}, {CHOSEN}, and the word list, 100 pairs" in names
    assert not any("word list" in name for name in names if name.startswith(STRICT))
    (ensemble,) = DESIGNS["noun"].blocks["ensemble"]
    assert f"{PAPER}: {ensemble.weights_of}" in names  # a row with the weights that the ensemble takes
