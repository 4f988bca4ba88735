"""The inflection experiment on a made-up language: all of it, small; and its parts against what they must be."""

from __future__ import annotations

import json
import lzma
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from noisychannel.experiments.inflection_data import some
from noisychannel.experiments.inflection_experiment import run_experiment
from noisychannel.experiments.inflection_report import markdown
from noisychannel.experiments.inflection_systems import BASELINE, FULL_BETTER, ROWS, RULES
from noisychannel.experiments.measured import Measured, Row
from noisychannel.experiments.outputs import Outputs, judge, row_name
from noisychannel.experiments.reranking import choose_from_pool, density_ratio, ensemble, word_list
from noisychannel.experiments.tasks import Task, back_translate
from noisychannel.experiments.wiktionary import Wiktionary

from noisychannel.cli.main import main
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.evaluation.baselines import SuffixRules
from noisychannel.experiments import inflection, inflection_experiment, reranking
from noisychannel.experiments.inflection import Inflection, Scale, Setup
from noisychannel.experiments.measuring import measure
from noisychannel.noisy_channel import Output
from noisychannel.training.config import ModelConfig
from noisychannel.tuning import SYSTEMS

RESULTS = Path(__file__).parent.parent / "experiments" / "inflection" / "results"
FORMS: dict[str, Callable[[str], str]] = {
    "number=singular:case=first": lambda x: x,
    "number=plural:case=first": lambda x: x + ("n" if x[-1] in "ae" else "en"),
}
SEARCH = SearchSettings(k1=4, k2=2, max_growth=4)
TINY = Scale(
    seeds=(1, 2),
    hidden_size=24,
    updates=20,
    lm=ModelConfig(hidden_size=16, dropout=0.1, learning_rate=0.01, batch_size=32),
    lm_updates=20,
    better_lm_updates=20,
    search=SEARCH,
    tuning=SEARCH,
    iterations=1,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of the real data, with verbs of a language of six letters."""
    root = tmp_path_factory.mktemp("data")
    rng = random.Random(1)
    lemmas = sorted({"".join(rng.choices("abdeko", k=rng.randint(2, 5))) for _ in range(260)})
    rng.shuffle(lemmas)
    parts = {"train": lemmas[:120], "dev": lemmas[120:140], "test": lemmas[140:160]}
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
def experiment(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Inflection:
    return Wiktionary("verb", Setup(data, tmp_path_factory.mktemp("work"), TINY, "cpu", jobs=1, say=lambda line: None))


@pytest.fixture(scope="module")
def results(experiment: Inflection) -> dict:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inflection_experiment, "UNPAIRED", (0, 10))
        patch.setattr(inflection_experiment, "PAIRS", (40,))
        patch.setattr(inflection_experiment, "BACK_TRANSLATED", (10, 20))
        return run_experiment(experiment).figures


def test_every_row_of_the_paper_and_more(results: dict) -> None:
    names = {(row["setting"], row["name"]) for row in results["rows"]}
    assert {("paper", row.name) for row in ROWS} <= names
    full = FULL_BETTER.name
    further = ("one direct model and channel for all types", "one model of each kind for all types", "density ratio")
    further = (*further, "ensemble of the seeds", "chosen from all searches", "back-translation")
    assert {("paper", f"{full}, and the word list"), ("paper", f"{full} with its word list")} <= names
    assert {("strict", f"{full}, {x}") for x in (*further, "0 unpaired", "10 unpaired", "40 pairs")} <= names
    assert len(names) == len(results["rows"])


def test_figures_agree_with_each_other(results: dict) -> None:
    for row in results["rows"]:
        assert row["accuracy"] == pytest.approx(np.mean(list(row["seeds"].values())))
        assert row["accuracy"] == pytest.approx(np.mean(list(row["types"].values())))
        assert len(row["seeds"]) == (2 if row["deviation"] is not None else 1)
        assert row["p"] is None or 0 < row["p"] <= 1
    named = {(row["setting"], row["name"]): row for row in results["rows"]}
    assert named["paper", "direct (bi)"]["p"] is None
    assert named["paper", RULES]["p against rules"] is None
    assert named["paper", RULES]["accuracy"] == 100.0, "the made-up language has simple rules"
    tuned = [row for row in results["rows"] if "dev" in row]
    assert {row["system"] for row in tuned} == {"direct+lm", "channel+lm", "direct+channel+lm"}
    for setting in ("paper", "strict"):
        smaller, larger = (named[setting, f"direct + {x}LM + bias (bi)"]["dev"] for x in ("", "channel + "))
        assert larger["accuracy"] >= smaller["accuracy"]


def test_strict_lists_hold_no_held_out_form(experiment: Inflection) -> None:
    lists = experiment.unpaired()
    held_out = {pair.form for splits in experiment.tables.values() for pair in splits.dev + splits.test}
    assert all(set(forms) & held_out for forms in lists["paper"].values())
    assert not any(set(forms) & held_out for forms in lists["strict"].values())


def test_the_results_say_how_many_answers_the_lists_hold(results: dict) -> None:
    """In the made-up data the lists hold every form of every test lemma."""
    covered = results["data"]["test forms among the unpaired, %"]
    assert set(covered["paper"].values()) == {100.0}
    assert set(covered["strict"].values()) == {0.0}


def test_a_repeated_experiment_trains_nothing_anew(
    experiment: Inflection, results: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflection, "_train", lambda configs: pytest.fail("nothing is left to train"))
    with monkeypatch.context() as patch:
        patch.setattr(Task, "do", lambda self, device: pytest.fail("nothing is left to decode"))
        again = run_experiment(experiment, parts=["table"]).figures
    named = {(row["setting"], row["name"]): row for row in results["rows"]}
    assert all(named[row["setting"], row["name"]] == row for row in again["rows"])


def test_what_was_measured_with_other_models_is_measured_anew(experiment: Inflection, results: dict) -> None:
    row = Row("direct (bi)", "direct", seeds=1)
    (before,) = measure(experiment, [(row, "paper")])
    measured = set((experiment.work / "measured").iterdir())
    assert measure(experiment, [(row, "paper")])[0].outputs == before.outputs
    assert set((experiment.work / "measured").iterdir()) == measured
    model = experiment.run("bi-1", experiment.types[0]).model_file("direct")
    times = model.stat().st_atime_ns, model.stat().st_mtime_ns
    os.utime(model, ns=(0, 0))
    try:
        assert measure(experiment, [(row, "paper")])[0].outputs == before.outputs
    finally:
        os.utime(model, ns=times)
    assert len(set((experiment.work / "measured").iterdir()) - measured) == 1


def test_the_table_names_what_it_was_made_with(results: dict) -> None:
    table = "\n".join(markdown(json.loads(json.dumps(results))))
    assert f"noisychannel {results['noisychannel']} (commit {results['commit']}), torch {results['torch']}" in table
    for row in results["rows"]:
        assert f"| {row['setting']} | {row['name']} | {row['accuracy']:.2f}" in table
    for figure in ("97.15", "87.85", "84.42", "92.20"):
        assert figure in table, "the paper's own figure"


def task(experiment: Inflection, seed: int, weights: Weights, n_best: int = 3) -> Task:
    name = experiment.types[1]
    models = tuple(
        (role, experiment.run(run, name).path)
        for role, run in (("direct", f"bi-{seed}"), ("channel", f"bi-{seed}"), ("lm", "lm-strict"))
    )
    inputs = tuple(pair.lemma for pair in experiment.tables[name].test[:6])
    return Task(models, inputs, weights, SEARCH, n_best, all_terms=True)


def test_an_ensemble_of_one_is_that_one(experiment: Inflection, results: dict) -> None:
    alone = task(experiment, 1, Weights(1.0, 0.5, 0.5, 0.1))
    assert ensemble([alone], "cpu") == [best[0].text for best in alone.do("cpu")]
    assert ensemble([alone, alone], "cpu") == [best[0].text for best in alone.do("cpu")]


def test_an_ensemble_chooses_by_the_sum(experiment: Inflection, results: dict) -> None:
    members = [task(experiment, seed, Weights(1.0, 0.5, 0.5, 0.1)) for seed in (1, 2)]
    found = [member.do("cpu") for member in members]
    for n, chosen in enumerate(ensemble(members, "cpu")):
        texts = {x.text: x.hypothesis.tokens for lists in found for x in lists[n]}
        sums = {
            text: sum(member.score([[tokens]] * 6, "cpu")[n][tokens].score for member in members)
            for text, tokens in texts.items()
        }
        assert sums[chosen] == pytest.approx(max(sums.values()))


def test_a_density_ratio_prefers_what_the_paired_outputs_did_not_teach(
    experiment: Inflection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two outputs, alike but for the second language model: the right one is the one it finds improbable."""

    def output(text: str, score: float) -> Output:
        tokens = tuple(map(ord, text))
        return Output(text, Hypothesis(tokens, score, -1.0, -1.0, -2.0, len(text) + 1, None, None, True))

    monkeypatch.setattr(Task, "do", lambda self, device: [[output("ab", -4.0), output("cd", -4.0)]] * 2)

    def by_paired(self: Task, outputs: object, device: str) -> list[dict[tuple[int, ...], Hypothesis]]:
        both = {x.hypothesis.tokens: x.hypothesis for x in (output("ab", 0.0), output("cd", 0.0))}
        return [
            {tokens: replace(h, lm=-1.0 if tokens == (97, 98) else -5.0) for tokens, h in both.items()}
            for _ in range(2)
        ]

    monkeypatch.setattr(Task, "score", by_paired)
    some = task(experiment, 1, Weights(1.0, 1.0, 1.0, 0.0))
    arguments = [some], [some], [Path("lm")], [["cd", "cd"]], SYSTEMS["direct+channel+lm"], "cpu"
    outputs, notes = density_ratio(*arguments)
    assert outputs == [["cd", "cd"]]
    assert notes["ratio"] == reranking.RATIOS[1]
    assert notes["dev accuracy on the lists"] == 100.0


def test_a_word_list_decides_between_equals(experiment: Inflection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first input's list has the worse output, the second's has none, and the third cannot be mended by it."""
    worse, better = -3.0, -2.0

    def output(text: str, lm: float) -> Output:
        tokens = tuple(map(ord, text))
        return Output(text, Hypothesis(tokens, 0.0, -1.0, -1.0, lm, len(text) + 1, None, None, True))

    both = [output("ab", better), output("cd", worse)]
    monkeypatch.setattr(Task, "do", lambda self, device: [both] * 3)
    some = task(experiment, 1, Weights(1.0, 1.0, 1.0, 0.0))
    lists = [[{"cd"}, (), {"cd"}]]
    dev_forms = [["cd", "ab", "xy"]]
    outputs, notes = word_list([some], [some], [lists, lists], dev_forms, SYSTEMS["direct+channel+lm"], "cpu")
    assert outputs == [["cd", "ab", "cd"]]
    assert notes["bonus"] > better - worse
    assert notes["dev accuracy on the lists"] == pytest.approx(200 / 3)


def test_what_all_searches_found_is_at_least_as_good_on_dev(experiment: Inflection, results: dict) -> None:
    named = {(row["setting"], row["name"]): row for row in results["rows"]}
    plain = named["strict", FULL_BETTER.name]
    pooled = named["strict", f"{FULL_BETTER.name}, chosen from all searches"]
    assert pooled["notes"]["dev accuracy on the lists"] >= plain["dev"]["accuracy"] - 1e-9


def test_the_choice_from_a_pool_is_the_best_of_all_that_was_found(experiment: Inflection, results: dict) -> None:
    searches = [[task(experiment, 1, weights)] for weights in (Weights(1.0), Weights(1.0, 0.5, 0.5, 0.1))]
    forms = [[pair.form for pair in experiment.tables[experiment.types[1]].test[:6]]]
    (chosen,), notes = choose_from_pool(searches, searches, forms, SYSTEMS["direct+channel+lm"], "cpu")
    weights = Weights(1.0, notes["channel"], notes["lm"], notes["length"])
    found = [search[0].do("cpu") for search in searches]
    for n, text in enumerate(chosen):
        outputs = {x.text: x.hypothesis for lists in found for x in lists[n] if x.hypothesis.complete}
        scores = {
            y: weights.direct * h.direct + weights.channel * h.channel + weights.lm * h.lm + weights.length * h.length
            for y, h in outputs.items()
        }
        assert scores[text] == pytest.approx(max(scores.values()))
    assert notes["dev accuracy on the lists"] == pytest.approx(
        100 * np.mean([text == form for text, form in zip(chosen, forms[0], strict=True)])
    )


def test_back_translations_are_inputs_of_their_forms(experiment: Inflection, results: dict) -> None:
    config = experiment.config("trained-1", ["channel"], experiment.write_pairs())
    config.channel.dropout = 0.0
    config.training.max_updates, config.training.learning_rate = 400, 0.01
    experiment.train([[config]])
    name = experiment.types[1]
    forms = [pair.form for pair in experiment.tables[name].test]
    pairs = back_translate(experiment.run("trained-1", name).path, forms, "cpu")
    assert pairs == back_translate(experiment.run("trained-1", name).path, forms, "cpu")
    assert len(pairs) > 15
    assert {form for _, form in pairs} <= set(forms)
    assert all(set(lemma) <= set("abdeko") for lemma, _ in pairs)
    assert sum(FORMS[name](lemma) == form for lemma, form in pairs) > 5, "many of them are the very inputs"


def made_up(lemmas: Sequence[str], **right: np.ndarray) -> Outputs:
    """Outputs that are right or wrong; the types are of eight items each, in turn."""
    lines = ["\t".join(("type", "lemma", "form", *(f"{name} [seed 1]" for name in right)))]
    for n, (lemma, *of_rows) in enumerate(zip(lemmas, *right.values(), strict=True)):
        lines.append("\t".join((str(n // 8), lemma, "yes", *("yes" if x else "no" for x in of_rows))))
    return Outputs(lines)


def test_intervals_and_significance_draw_lemmas_not_items() -> None:
    """All eight types of a lemma are one draw: the same gain is less certain than of as many lemmas."""
    gain = np.repeat((np.random.default_rng(1).random(40) < 0.15).astype(float), 8)
    by_lemma = made_up([str(n // 8) for n in range(320)], base=np.zeros(320), better=gain)
    by_item = made_up([str(n) for n in range(320)], base=np.zeros(320), better=gain)
    assert by_lemma.p_value("better", "base") > by_item.p_value("better", "base")
    assert by_item.p_value("better", "base") < 0.01
    wide, narrow = (np.diff(outputs.interval("better")) for outputs in (by_lemma, by_item))
    assert wide > 2 * narrow


def test_a_row_is_compared_with_baselines_of_the_same_pairs() -> None:
    lemmas = [str(n) for n in range(64)]
    good, bad = np.ones(64), np.zeros(64)
    names = {
        f"{BASELINE}": good,
        f"{RULES}": good,
        f"{BASELINE}, 9 pairs": bad,
        f"{RULES}, 9 pairs": bad,
        "x, 9 pairs": bad,
    }
    rows = [{"setting": "strict", "name": name} for name in names]
    judge(rows, made_up(lemmas, **{f"strict: {name}": right for name, right in names.items()}))
    assert [row["p"] for row in rows] == [None, 1.0, None, 1.0, 1.0]
    assert [row["p against rules"] for row in rows] == [1.0, None, 1.0, None, 1.0]
    assert rows[0]["interval"] == [100.0, 100.0]


@pytest.mark.parametrize("file", sorted(RESULTS.glob("inflection-*.json")), ids=lambda file: file.stem)
def test_recorded_figures_follow_from_the_recorded_outputs(file: Path) -> None:
    figures = json.loads(file.read_text(encoding="utf-8"))
    with lzma.open(file.with_suffix(".outputs.tsv.xz"), "rt", encoding="utf-8") as stream:
        outputs = Outputs(stream)
    assert set(outputs.right) == {row_name(row) for row in figures["rows"]}
    for row in figures["rows"]:
        assert row["accuracy"] == pytest.approx(outputs.accuracy(row_name(row))), row_name(row)
        assert len(outputs.right[row_name(row)]) == len(row["seeds"])
    full = next(row for row in figures["rows"] if (row["setting"], row["name"]) == ("strict", FULL_BETTER.name))
    assert full["p against rules"] == outputs.p_value(row_name(full), f"paper: {RULES}")
    assert full["interval"] == list(outputs.interval(row_name(full)))
    assert file.with_suffix(".md").read_text(encoding="utf-8") == "\n".join(markdown(figures)) + "\n"


def test_the_mean_is_over_types_not_items() -> None:
    """A type of two items counts as much as one of ten."""
    outputs = [["right"] * 2, ["wrong"] * 9 + ["right"]]
    measured = Measured(Row("x", "direct"), "paper", None, {}, {1: outputs}, [["right"] * 2, ["right"] * 10])
    assert measured.accuracies == {1: pytest.approx(55.0)}
    assert measured.mean == pytest.approx(55.0)
    assert [measured.of_type(n) for n in (0, 1)] == [100.0, pytest.approx(10.0)]


def test_every_figure_can_be_computed_from_the_outputs(experiment: Inflection, results: dict) -> None:
    kept = run_experiment(experiment, parts=["table"])
    header, *lines = (line.split("\t") for line in kept.outputs)
    assert header[:3] == ["type", "lemma", "form"]
    assert len(lines) == sum(results["data"]["test"].values())
    for row in kept.figures["rows"]:
        own = [n for n, name in enumerate(header) if name.startswith(f"{row['setting']}: {row['name']} [")]
        assert len(own) == len(row["seeds"])
        right = {type_: [line[n] == line[2] for line in lines if line[0] == type_ for n in own] for type_ in FORMS}
        assert row["accuracy"] == pytest.approx(100 * np.mean([np.mean(x) for x in right.values()]))


def test_rules_stand_in_every_learning_curve(experiment: Inflection, results: dict) -> None:
    named = {row["name"]: row for row in results["rows"]}
    rules = [SuffixRules(some(splits.train, 40, seed=1)) for splits in experiment.tables.values()]
    right = [
        np.mean([of_type.inflect(pair.lemma, pair.tags) == pair.form for pair in splits.test])
        for of_type, splits in zip(rules, experiment.tables.values(), strict=True)
    ]
    assert named[f"{RULES}, 40 pairs"]["accuracy"] == pytest.approx(100 * np.mean(right))
    assert f"{FULL_BETTER.name}, 40 pairs" in named


def test_bad_usage_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["reproduce", "inflection-adverbs"]) == 2
    assert "unknown experiment 'inflection-adverbs'; there are inflection-nouns" in capsys.readouterr().err
    assert main(["reproduce", "inflection-nouns", "--jobs", "0"]) == 2
    assert "--jobs: must be at least 1, but is 0" in capsys.readouterr().err
    assert main(["reproduce", "inflection-sigmorphon", "--work", str(tmp_path)]) == 2
    assert "--work: inflection-sigmorphon is several experiments" in capsys.readouterr().err
    assert main(["reproduce", "inflection-nouns", "--data", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "wiktionary-morphology-1.1" in error
