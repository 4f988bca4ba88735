"""The data of the inflection experiments: what is read, what is refused, and that strict lists are strict."""

from __future__ import annotations

import lzma
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisychannel.data import german_nouns
from noisychannel.errors import BadInputError
from noisychannel.experiments.inflection.data import (
    Pair,
    TaggedPair,
    TrainDevTest,
    read_sigmorphon,
    read_unpaired,
    read_wiktionary,
)
from noisychannel.experiments.inflection.sigmorphon import Year, tags_of
from noisychannel.experiments.inflection.strict import german_noun_paradigms, held_out_paradigms, without_lemmas
from noisychannel.experiments.items import at_most, sample

PLURAL, DATIVE = "case=nominative:number=plural", "case=dative:number=plural"
TABLES = {
    "train": f"Hund\tHunde\t{PLURAL}\nHund\tHunden\t{DATIVE}\nMaß\tMaße\t{PLURAL}\nMaß\tMaßen\t{DATIVE}\n",
    "dev": f"Tag\tTage\t{PLURAL}\nTag\tTagen\t{DATIVE}\n",
    "test": f"Bär\tBären\t{DATIVE}\nBär\tBären\t{PLURAL}\n",
}
WORDS = st.text("abAB", min_size=1, max_size=2)


def write(file: Path, text: str) -> Path:
    """A file of that name, compressed if it ends in .xz."""
    file.parent.mkdir(parents=True, exist_ok=True)
    raw = text.encode()
    file.write_bytes(lzma.compress(raw) if file.suffix == ".xz" else raw)
    return file


def write_tables(directory: Path, ending: str = "", part: str = "noun", **changed: str) -> Path:
    for split, text in {**TABLES, **changed}.items():
        write(directory / "durrett2013" / f"de_{part}.{split}.tsv{ending}", text)
    return directory


def refusal(read: Callable[[], object]) -> str:
    with pytest.raises(BadInputError) as caught:
        read()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- tables


@pytest.mark.parametrize("ending", ["", ".xz"])
@pytest.mark.parametrize("part", ["noun", "verb"])
def test_wiktionary_tables_are_split_by_type(tmp_path: Path, part: str, ending: str) -> None:
    tables = read_wiktionary(write_tables(tmp_path, ending, part), part)  # type: ignore[arg-type]
    assert list(tables) == [PLURAL, DATIVE], "in the order of the training file"
    assert tables[PLURAL] == ([("Hund", "Hunde"), ("Maß", "Maße")], [("Tag", "Tage")], [("Bär", "Bären")])
    assert tables[DATIVE].train == [Pair("Hund", "Hunden"), Pair("Maß", "Maßen")]
    assert tables[DATIVE].dev == [Pair("Tag", "Tagen")]
    assert tables[DATIVE].test == [Pair("Bär", "Bären")]


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_a_missing_table_says_where_to_get_it(tmp_path: Path, split: str) -> None:
    write_tables(tmp_path)
    file = tmp_path / "durrett2013" / f"de_noun.{split}.tsv"
    file.unlink()
    assert refusal(lambda: read_wiktionary(tmp_path, "noun")) == (
        f"{file}: no such file, also not with .xz; make it from the public release wiktionary-morphology-1.1 "
        "(columns lemma, form, attributes), or name the folder of the data with --data"
    )


@pytest.mark.parametrize(
    ("changed", "one", "other", "lemma"),
    [
        ({"dev": f"Hund\tHunde\t{PLURAL}\n"}, "train", "dev", "Hund"),
        ({"test": f"Tag\tTage\t{PLURAL}\nMaß\tMaße\t{PLURAL}\n"}, "train", "test", "Maß"),
        ({"test": f"Tag\tTagen\t{DATIVE}\n"}, "dev", "test", "Tag"),
    ],
)
def test_a_lemma_in_two_splits_is_refused(
    tmp_path: Path, changed: dict[str, str], one: str, other: str, lemma: str
) -> None:
    write_tables(tmp_path, **changed)
    first, second = (tmp_path / "durrett2013" / f"de_noun.{split}.tsv" for split in (one, other))
    assert refusal(lambda: read_wiktionary(tmp_path, "noun")) == (
        f"{second}: the lemma {lemma!r} is also in {first}; remove it from one of them, "
        "because no lemma may be in two splits"
    )


def test_a_type_must_be_in_all_splits(tmp_path: Path) -> None:
    write_tables(tmp_path, test=f"Bär\tBären\t{PLURAL}\n")
    complaint = refusal(lambda: read_wiktionary(tmp_path, "noun"))
    assert complaint.endswith(f"de_noun.test.tsv: no row of type {DATIVE!r}; every type needs rows in all splits")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("Tag\tTage", "2 tab-separated columns, but 3 are expected (lemma, form, attributes)"),
        ("Tag\tTage\tx\ty", "4 tab-separated columns, but 3 are expected"),
        ("", "1 tab-separated columns, but 3 are expected"),
        ("Tag\t \tx", "the column form is empty; fill it or remove the line"),
        ("\tTage\tx", "the column lemma is empty"),
        ("Tag\tTage\t", "the column attributes is empty"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    write_tables(tmp_path, dev=TABLES["dev"] + line + "\n")
    assert f"de_noun.dev.tsv:3: {complaint}" in refusal(lambda: read_wiktionary(tmp_path, "noun"))


@pytest.mark.parametrize("ending", ["", ".xz"])
def test_shared_tasks_differ_in_their_columns(tmp_path: Path, ending: str) -> None:
    for n, name in enumerate(("german-train-medium", "german-dev", "german-uncovered-test")):
        write(tmp_path / "sigmorphon2017" / f"{name}{ending}", f"ab{n}setzen\tsetzt ab{n}\tV;IMP;2;PL\n")
    for n, name in enumerate(("deu.trn", "deu.dev", "deu.tst")):
        write(tmp_path / "sigmorphon2023" / f"{name}{ending}", f"ab{n}setzen\tV;IMP;NOM(2,PL)\tsetzt ab{n}\n")
    assert read_sigmorphon(tmp_path, 2017) == TrainDevTest(
        *([TaggedPair(f"ab{n}setzen", f"setzt ab{n}", "V;IMP;2;PL")] for n in range(3))
    )
    assert read_sigmorphon(tmp_path, 2023) == TrainDevTest(
        *([TaggedPair(f"ab{n}setzen", f"setzt ab{n}", "V;IMP;NOM(2,PL)")] for n in range(3))
    )


def test_a_missing_shared_task_is_named(tmp_path: Path) -> None:
    assert refusal(lambda: read_sigmorphon(tmp_path, 2023)) == (
        f"{tmp_path / 'sigmorphon2023' / 'deu.trn'}: no such file, also not with .xz; "
        "get it from the public data of the SIGMORPHON 2023 shared task, or name the folder of the data with --data"
    )


# --- samples


@given(st.lists(st.integers(), unique=True), st.integers(0, 9), st.data())
def test_smaller_samples_begin_larger_ones(rows: list[int], seed: int, data: st.DataObject) -> None:
    assert sample(rows, None, seed) == rows
    if not rows:
        return
    large = data.draw(st.integers(1, len(rows)))
    small = data.draw(st.integers(1, large))
    drawn = sample(rows, large, seed)
    assert len(set(drawn)) == large
    assert set(drawn) <= set(rows)
    assert sample(rows, small, seed) == drawn[:small]
    assert at_most(rows, large, seed) == (rows if large == len(rows) else drawn)
    names = [str(row) for row in rows]
    assert sample(names, large, seed) == [str(row) for row in drawn], "the same places in a list of the same length"


def test_samples_depend_on_the_seed_and_leave_the_rows_alone() -> None:
    rows = list(range(100))
    samples = {tuple(sample(rows, 10, seed)) for seed in range(20)}
    assert len(samples) == 20
    assert len(set().union(*samples)) > 70, "from everywhere, not from the beginning"
    assert rows == list(range(100))


@pytest.mark.parametrize("n", [0, -1, 4])
def test_a_sample_that_cannot_be_drawn_is_refused(n: int) -> None:
    assert refusal(lambda: sample("abc", n, 1)) == f"cannot sample {n} of 3 rows; ask for 1 to 3"


# --- unpaired lists

UNPAIRED = f"{PLURAL}\tTage\ta\n{PLURAL}\tHunde\ta,b\n{DATIVE}\tTagen\tc,b\n{PLURAL}\tTage\tb\n{DATIVE}\tHunden\tc\n"


@pytest.mark.parametrize(("written", "asked"), [("", ""), (".xz", ".xz"), ("", ".xz"), (".xz", "")])
def test_unpaired_forms_are_listed_by_type(tmp_path: Path, written: str, asked: str) -> None:
    write(tmp_path / f"de_noun.tsv{written}", UNPAIRED)
    assert read_unpaired(tmp_path / f"de_noun.tsv{asked}") == {PLURAL: ["Tage", "Hunde"], DATIVE: ["Tagen", "Hunden"]}


@pytest.mark.parametrize(
    ("sources", "plural", "dative"),
    [
        ({"a"}, ["Tage", "Hunde"], []),
        (["b"], ["Hunde", "Tage"], ["Tagen"]),
        (("c",), [], ["Tagen", "Hunden"]),
        ({"a", "c"}, ["Tage", "Hunde"], ["Tagen", "Hunden"]),
    ],
)
def test_forms_of_some_sources(tmp_path: Path, sources: set[str], plural: list[str], dative: list[str]) -> None:
    file = write(tmp_path / "de_noun.tsv", UNPAIRED)
    assert read_unpaired(file, sources) == {PLURAL: plural, DATIVE: dative}


def test_a_source_that_does_not_occur_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "de_noun.tsv", UNPAIRED)
    complaint = refusal(lambda: read_unpaired(file, ("a", "ab")))
    assert complaint == f"{file}: no form of the source 'ab'; its sources are a, b, c"


def test_a_missing_list_and_a_bad_line_are_named(tmp_path: Path) -> None:
    file = tmp_path / "de_noun.tsv"
    assert refusal(lambda: read_unpaired(tmp_path / "de_noun.tsv.xz")) == (
        f"{file}: no such file, also not with .xz; the language model needs a list of forms; "
        "name the folder of the data with --data"
    )
    write(file, f"{PLURAL}\tTage\n")
    assert refusal(lambda: read_unpaired(file)).startswith(f"{file}:1: 2 tab-separated columns")


# --- the strict setting


@pytest.fixture
def nouns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package german-nouns of four entries."""
    header = "lemma,pos,genus,genus 1,nominativ singular,genitiv singular,genitiv singular*,dativ plural 1,"
    header += "dativ plural 2,akkusativ plural stark"
    rows = (
        "Bär,Substantiv,m,,Bär,Bären,Bärs,,,",
        "Tag,Substantiv,,m,Tag,Tages,Tags,Tagen,Tägen, ",
        "Tag,Eigenname,m,,Tag,,,,,Tagse",
        "Beamter,Substantiv,m,,,,,,,Beamte",
    )
    write(tmp_path / "german_nouns" / "nouns.csv", "\n".join((header, *rows)) + "\n")
    monkeypatch.setattr(german_nouns, "files", lambda package: tmp_path / package)


@pytest.mark.usefixtures("nouns")
def test_a_noun_has_the_forms_of_all_its_columns_and_entries() -> None:
    assert german_noun_paradigms() == {
        "Bär": {"Bär", "Bären", "Bärs"},
        "Tag": {"Tag", "Tages", "Tags", "Tagen", "Tägen", "Tagse"},
        "Beamter": {"Beamte"},
    }


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "german_nouns", None)
    assert refusal(german_noun_paradigms) == (
        "the strict setting needs the word list of german-nouns: pip install --no-deps german-nouns"
    )


@pytest.mark.usefixtures("nouns")
def test_a_damaged_package_is_named(tmp_path: Path) -> None:
    for content in (b"", b"word,pos\nB\xe4r,Substantiv\n", b"lemma,pos\nB\xe4r,Substantiv\n"):
        (tmp_path / "german_nouns" / "nouns.csv").write_bytes(content)
        assert "nouns.csv: damaged (" in refusal(german_noun_paradigms)


@pytest.mark.usefixtures("nouns")
def test_strict_lists_have_no_form_of_a_held_out_lemma(tmp_path: Path) -> None:
    gold = held_out_paradigms(read_wiktionary(write_tables(tmp_path), "noun"))
    assert gold == {"Tag": {"Tage", "Tagen"}, "Bär": {"Bären"}}, "training lemmas are not held out"
    unpaired = {
        # of all types, from gold tables, regular and variant columns, and the lemma itself
        PLURAL: ["Hunde", "Tage", "Tagen", "Bären", "Tag", "Bär", "Tägen", "Beamte", "Feiertage"],
        DATIVE: ["Tags", "Bärs", "Tages", "Eisbären", "Hunden", "Maßen", "Tagse", "Tagung", "bären", "TAGE"],
    }
    before = {attributes: list(forms) for attributes, forms in unpaired.items()}
    assert without_lemmas(unpaired, gold, gold, german_noun_paradigms()) == {
        PLURAL: ["Hunde", "Beamte", "Feiertage"],
        DATIVE: ["Eisbären", "Hunden", "Maßen", "Tagung", "TAGE"],
    }
    assert unpaired == before


def test_gold_tables_alone_serve_for_verbs() -> None:
    gold = {"gelingen": {"gelang", "gelangen"}}  # to succeed; gelangen is also a verb of its own: to arrive
    unpaired = {"type=infinitive": ["Gelangen", "gelangen", "gelingen", "misslingen"], "past": ["gelangte", "Gelang"]}
    assert without_lemmas(unpaired, gold, gold) == {"type=infinitive": ["misslingen"], "past": ["gelangte"]}
    assert without_lemmas(unpaired, ["gelangen"], gold)["past"] == ["gelangte", "Gelang"], "of the given lemmas only"


@given(st.dictionaries(WORDS, st.sets(WORDS)), st.lists(WORDS), st.dictionaries(WORDS, st.lists(WORDS), max_size=3))
def test_strict_means_strict(paradigms: dict[str, set[str]], lemmas: list[str], unpaired: dict[str, list[str]]) -> None:
    hidden = set(lemmas).union(*(paradigms.get(lemma, set()) for lemma in lemmas))
    hidden |= {form[0].swapcase() + form[1:] for form in hidden}
    kept = without_lemmas(unpaired, lemmas, paradigms)
    assert kept == {name: [form for form in forms if form not in hidden] for name, forms in unpaired.items()}


# --- the real data

DATA = Path(os.environ.get("NOISYCHANNEL_DATA", Path(__file__).parents[2] / "shared" / "data")) / "morphology"


@pytest.mark.skipif(not DATA.is_dir(), reason="the data is not here: set NOISYCHANNEL_DATA")
@pytest.mark.parametrize(
    ("part", "types", "rows"),
    [
        pytest.param("noun", 8, (2364, 200, 200), marks=pytest.mark.long, id="nouns"),
        pytest.param("verb", 27, (1627, 200, 200), id="verbs"),
    ],
)
def test_the_real_tables_and_lists(part: str, types: int, rows: tuple[int, int, int]) -> None:
    tables = read_wiktionary(DATA, part)  # type: ignore[arg-type]
    assert len(tables) == types
    lemmas = {tuple(lemma for pairs in splits for lemma, _ in pairs) for splits in tables.values()}
    assert len(lemmas) == 1, "all types have the same lemmas in the same order"
    unpaired = read_unpaired(DATA / "unpaired" / f"de_{part}.tsv")
    assert set(unpaired) == set(tables)
    gold = held_out_paradigms(tables)
    if part == "noun":
        pytest.importorskip("german_nouns")
        strict = without_lemmas(unpaired, gold, gold, german_noun_paradigms())
    else:
        strict = without_lemmas(unpaired, gold, gold)
    answers = {form for splits in tables.values() for _, form in splits.dev + splits.test}
    for attributes, splits in tables.items():
        assert tuple(map(len, splits)) == rows
        forms = set(unpaired[attributes])
        assert len(forms) == len(unpaired[attributes])
        assert 0.7 <= sum(form in forms for _, form in splits.test) / len(splits.test) <= 0.95
        assert answers.isdisjoint(strict[attributes])
        assert len(strict[attributes]) > 0.9 * len(forms)


@pytest.mark.skipif(not DATA.is_dir(), reason="the data is not here: set NOISYCHANNEL_DATA")
def test_the_real_shared_tasks() -> None:
    assert tuple(map(len, read_sigmorphon(DATA, 2017))) == (1000, 1000, 1000)
    modern = read_sigmorphon(DATA, 2023)
    assert tuple(map(len, modern)) == (10000, 1000, 1000)
    train, dev, test = ({row.lemma for row in rows} for rows in modern)
    assert not train & dev
    assert not (train | dev) & test
    assert {row.tags for rows in modern for row in rows} == {row.tags for row in modern.train}


@pytest.mark.skipif(not DATA.is_dir(), reason="the data is not here: set NOISYCHANNEL_DATA")
@pytest.mark.parametrize("year", [2017, 2023])
def test_the_real_lists_have_the_tags_of_the_shared_task(year: Year) -> None:
    """All of them but the imperatives. The lists have the types of the tables: see above."""
    tags = {pair.tags for pair in read_sigmorphon(DATA, year).train}
    attributes = [*read_wiktionary(DATA, "noun"), *read_wiktionary(DATA, "verb")]
    listed = [tags_of(type_, year) for type_ in attributes]
    assert len(set(listed)) == len(attributes)
    assert tags - set(listed) == {x for x in tags if ";IMP;" in x}
    assert set(listed) <= tags
