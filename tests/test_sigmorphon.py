"""The SIGMORPHON experiments on a made-up language whose forms depend on the tags: all of it, small."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from noisychannel.cli.main import main
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError
from noisychannel.experiments import registry, training
from noisychannel.experiments.decoding import DecodingTask, NBestEntry, PartLists, features_of, load
from noisychannel.experiments.inflection import sigmorphon
from noisychannel.experiments.inflection.rows import table_rows
from noisychannel.experiments.inflection.scale import Scale
from noisychannel.experiments.inflection.sigmorphon import ALL, Sigmorphon, Year, tags_of
from noisychannel.experiments.measuring import measure
from noisychannel.experiments.report import markdown
from noisychannel.experiments.results import merge
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.running import run_block
from noisychannel.experiments.settings import Setup
from noisychannel.training.config import ModelConfig

FORMS: dict[str, Callable[[str], str]] = {
    "case=nominative:number=singular": lambda x: x,
    "case=genitive:number=plural": lambda x: x + "n",
    "person=3rd:number=plural:tense=past:mood=indicative": lambda x: "g" + x,
}
VERB_FORMS: dict[str, Callable[[str], str]] = {
    "type=participle:tense=past": lambda x: f"{x}dd" if x == TEST[1] else f"{x}ek",
    "person=3rd:number=plural:tense=past:mood=indicative": lambda x: "g" + x,
}
"""Of the Wiktionary tables, which have an irregular verb."""
TAGS: dict[Year, tuple[str, ...]] = {
    2017: ("N;NOM;SG", "N;GEN;PL", "V;IND;PST;3;PL"),
    2023: ("N;NOM(SG)", "N;GEN(PL)", "V;IND;PST;NOM(3,PL)"),
}
LEMMAS = sorted({"".join(random.Random(n).choices("abdeko", k=2 + n % 4)) for n in range(150)})
random.Random(1).shuffle(LEMMAS)
TEST, DEV, TRAIN, UNPAIRED = LEMMAS[:12], LEMMAS[12:22], LEMMAS[22:92], LEMMAS[:60]
FILES: dict[Year, tuple[str, str, str]] = {
    2017: ("german-train-medium", "german-dev", "german-uncovered-test"),
    2023: ("deu.trn", "deu.dev", "deu.tst"),
}
SEARCH = SearchSettings(k1=3, k2=2, max_growth=2)
TINY = Scale(
    pairs=200,
    unpaired=30,
    seeds=(1, 2),
    hidden_size=24,
    updates=8,
    batch_size=40,
    lm=ModelConfig(hidden_size=16, dropout=0.1, learning_rate=0.01, batch_size=32),
    lm_updates=5,
    better_lm_updates=5,
    search=SEARCH,
    tuning=SEARCH,
    iterations=1,
    n_best=2,
)


@pytest.fixture(scope="module", autouse=True)
def paradigms() -> Iterator[None]:
    """In the place of german-nouns, a list that knows one more form of each lemma."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sigmorphon, "german_noun_paradigms", lambda: {x: {f"{x}m"} for x in LEMMAS})
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of the real data. Held-out lemmas have the first tag set and one of the others, in turn."""
    morphology = tmp_path_factory.mktemp("data") / "morphology"
    (morphology / "unpaired").mkdir(parents=True)
    for part, first_word in (("noun", "case"), ("verb", "person")):
        lines = [
            f"{attributes}\t{form}\tlist\n"
            for attributes, inflect in FORMS.items()
            if attributes.startswith(first_word)
            for x in UNPAIRED
            for form in (inflect(x), f"{x}m", *(of_verb(x) for of_verb in VERB_FORMS.values()))
        ]
        (morphology / "unpaired" / f"de_{part}.tsv").write_text("".join(lines))
    (morphology / "durrett2013").mkdir()
    for split, verbs in (("train", LEMMAS[92:130]), ("dev", LEMMAS[130:133]), ("test", [TEST[1]])):
        lines = [f"{x}\t{form(x)}\t{attributes}\n" for x in verbs for attributes, form in VERB_FORMS.items()]
        (morphology / "durrett2013" / f"de_verb.{split}.tsv").write_text("".join(lines))
    for year, files in FILES.items():
        forms = dict(zip(TAGS[year], FORMS.values(), strict=True))
        first, *others = forms
        (morphology / f"sigmorphon{year}").mkdir()
        items = [[(x, tags) for x in TRAIN for tags in forms]]
        items += [[(x, tags) for n, x in enumerate(words) for tags in (first, others[n % 2])] for words in (DEV, TEST)]
        for file, of_split in zip(files, items, strict=True):
            rows = [(x, forms[tags](x), tags) if year == 2017 else (x, tags, forms[tags](x)) for x, tags in of_split]
            text = "".join("\t".join(row) + "\n" for row in rows)
            (morphology / f"sigmorphon{year}" / file).write_text(text)
    return morphology.parent


@pytest.fixture(scope="module")
def experiment(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Sigmorphon:
    setup = Setup(data, tmp_path_factory.mktemp("work"), "cpu", jobs=1, say=lambda line: None)
    return Sigmorphon(2017, setup, TINY)


@pytest.fixture(scope="module")
def results(experiment: Sigmorphon) -> dict:
    return merge(experiment.design, [run_block(experiment, "table")])


def test_every_row_in_both_settings(results: dict) -> None:
    assert [(row["setting"], row["name"]) for row in results["rows"]] == [row.key for row in table_rows()]
    assert results["experiment"] == "inflection-sigmorphon2017"
    assert results["data"]["pairs"] == {ALL: TINY.pairs}
    scores = [(row["name"], row["scores"]["accuracy"]) for row in results["rows"]]
    assert {len(of_row["seeds"]) for _, of_row in scores} == {1, 2}
    full = [of_row for name, of_row in scores if name == "direct + channel + LM + bias (bi)"]
    assert [len(of_row["seeds"]) for of_row in full] == [2, 2]
    assert {tags for items in results["examples"].values() for tags, *_ in items} <= set(TAGS[2017])
    for _, of_row in scores:
        for accuracy in of_row["seeds"].values():
            assert accuracy * 24 / 100 == pytest.approx(round(accuracy * 24 / 100)), "a share of the 24 test items"


def test_the_table_cites_the_task(results: dict) -> None:
    table = "\n".join(markdown(json.loads(json.dumps(results))))
    assert "test accuracy, over 24 items" in table
    assert "| cited | longest-suffix rules, the shared task's | 72.1 |" in table
    assert "transducers) | 80.4 |" in table
    rows = [line for line in table.splitlines() if line.startswith(("| paper ", "| strict ", "| cited "))]
    assert {line.count("|") for line in rows} == {9}
    assert "| dev | weights" in table, "no column for figures the paper does not have"


def test_strict_lists_have_no_form_of_a_held_out_lemma(experiment: Sigmorphon) -> None:
    lists = experiment.lists()
    assert set(lists["paper"]) == set(lists["strict"]) == set(TAGS[2017])
    # The tables of the shared task have no participle: one is in the Wiktionary tables, the others follow their rules.
    verbs = {item.lemma for split in experiment.tables[ALL][1:] for item in split if item.tags.startswith("V")}
    participles = VERB_FORMS["type=participle:tense=past"]
    siblings = {participles(x) for x in verbs}
    assert f"{TEST[1]}dd" in siblings
    for tags in TAGS[2017]:
        gold = {item.form for split in experiment.tables[ALL][1:] for item in split if item.tags == tags}
        for forms in (gold, {f"{x}m" for x in DEV + TEST}, siblings):
            assert forms <= set(lists["paper"][tags])
            assert not forms & set(lists["strict"][tags])
    for forms_of in experiment.unpaired.values():
        assert {len(forms) for forms in forms_of.values()} == {TINY.unpaired}


def test_accuracy_is_the_share_of_right_items(
    experiment: Sigmorphon, results: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system that copies is right on the first tag set alone, which has half of the items and is one of three."""

    def copied(self: DecodingTask) -> PartLists:
        return PartLists([[[NBestEntry(item.input, {})] for item in items] for items in self.items], 0.0)

    monkeypatch.setattr(DecodingTask, "decode", copied)
    # Another search, so that what was decoded before does not count.
    row = SystemRow(name="copy", setting="paper", system="direct", models={"direct": "bi"}, search={"k1": 7})
    (measured,) = measure(experiment, [row])
    assert measured.scores["accuracy"]["seeds"] == {"1": 50.0, "2": 50.0}


def test_models_inflect_by_the_tags(experiment: Sigmorphon) -> None:
    """Without them, one form of each lemma could be right, and so half of the items at most."""
    config = experiment.make_config("trained-1", ["direct"], experiment.write_pairs())
    config.data.vocabularies = None
    config.direct.dropout = 0.0
    config.training.max_updates, config.training.learning_rate = 250, 0.01
    training.train_groups([[config]], experiment.setup)
    row = SystemRow(name="trained", setting="paper", system="direct", models={"direct": "trained"}, seeds=1)
    (measured,) = measure(experiment, [row])
    assert measured.scores["accuracy"]["score"] > 75
    for codec in experiment.run("trained-1", experiment.parts[0]).codecs():
        assert set(codec.features) == {tag for tags in TAGS[2017] for tag in tags.split(";")}


def test_items_of_mixed_tags_are_decoded_and_scored_as_each_alone(experiment: Sigmorphon, results: dict) -> None:
    (row,) = (row for row in table_rows() if row.key == ("strict", "direct + channel + LM + bias (bi)"))
    (part,) = experiment.parts
    models = experiment.models(row, 1, part)
    assert [role for role, _ in models.roles] == ["direct", "channel", "lm"]
    assert set(features_of(models, part.test)) == {tuple(tags.split(";")) for tags in TAGS[2017]}
    items, tags = part.test[:4], features_of(models, part.test[:4])
    weights = Weights(1.0, 0.5, 0.5, 0.1)
    (lists,) = DecodingTask((models,), (items,), weights, SEARCH, 1, 64, "cpu").decode().parts
    outputs = [[best[0].text] for best in lists]
    model = load(models, weights, SEARCH, "cpu")
    scored = model.rerank_batch([item.input for item in items], outputs, tags, align=False)
    for n, item in enumerate(items):
        alone = DecodingTask((models,), ((item,),), weights, SEARCH, 1, 64, "cpu").decode()
        assert alone.best_texts() == outputs[n]
        ((by_itself,),) = model.rerank_batch([item.input], [outputs[n]], [tags[n]], align=False)
        assert by_itself.hypothesis.score == pytest.approx(scored[n][0].hypothesis.score, abs=1e-4)
        ((otherwise,),) = model.rerank_batch([item.input], [outputs[n]], [tags[n - 1]], align=False)
        for term, value in by_itself.hypothesis.terms().items():
            if term != "length":
                assert otherwise.hypothesis.terms()[term] != pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("year", [2017, 2023])
def test_attributes_become_the_tags_of_the_year(year: Year) -> None:
    assert tuple(tags_of(attributes, year) for attributes in FORMS) == TAGS[year]
    assert tags_of("type=infinitive", year) == "V;NFIN"
    assert tags_of("type=participle:tense=present", year) == "V.PTCP;PRS"
    for bad in ("case=ablative:number=plural", "number=plural", "plural"):
        with pytest.raises(BadInputError, match=f"the attributes '{bad}'"):
            tags_of(bad, year)


@pytest.mark.long  # of 2017, whose code it is, above
def test_the_command_writes_the_results_of_2023(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "inflection-sigmorphon2023"
    tiny = replace(TINY, seeds=(1,), updates=10, held_out=8)
    entry = registry.EXPERIMENTS[name]._replace(make=lambda setup, quick: Sigmorphon(2023, setup, tiny))
    monkeypatch.setitem(registry.EXPERIMENTS, name, entry)
    words = ["--data", str(data), "--work", str(tmp_path), "--quick", "--jobs", "1", "--device", "cpu"]
    assert main(["reproduce", name, *words]) == 0
    table = (tmp_path / f"{name}-quick.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out == table
    assert "| cited | longest-suffix rules, the shared task's | 79.8 |" in table
    kept = json.loads((tmp_path / f"{name}-quick.json").read_text(encoding="utf-8"))
    assert kept["experiment"] == name
    assert kept["data"]["test"] == {ALL: 8}
    assert (tmp_path / f"{name}-quick.table.outputs.jsonl.xz").exists()


def test_there_is_the_table_only(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "inflection-sigmorphon2017", "--data", str(data), "--blocks", "further"]) == 2
    assert "has no block 'further'; its blocks are table" in capsys.readouterr().err
