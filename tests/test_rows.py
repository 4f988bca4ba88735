"""Rows of paired, parallel, unpaired and Hugging Face data: which column is which, and what is refused."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from noisychannel.data.blank_lines import BlankLines
from noisychannel.data.rows import PRESETS, Columns, Row, read_pairs, read_parallel, read_unpaired
from noisychannel.errors import BadInputError

PAIRS = Columns(("input", "output"), ("", ""))
PLAIN = Columns(("output",), ("",))


def columns(text: str) -> Columns:
    return Columns.parse(text, "data.columns", ("input", "output"))


def write(file: Path, text: str) -> str:
    file.write_text(text, encoding="utf-8")
    return str(file)


def refusal(rows: object) -> str:
    with pytest.raises(BadInputError) as caught:
        list(rows)  # type: ignore[call-overload]
    return str(caught.value)


# --- columns


@pytest.mark.parametrize(
    ("preset", "line"),
    [
        ("pairs", "lemma\tform"),
        ("unimorph", "lemma\tform\tV;PST"),
        ("sigmorphon2016", "lemma\tV;PST\tform"),
        ("sigmorphon2017", "lemma\tform\tV;PST"),
        ("sigmorphon2018", "lemma\tform\tV;PST"),
        ("sigmorphon2019", "lemma\tform\tV;PST"),
        ("sigmorphon2020", "lemma\tform\tV;PST"),
        ("sigmorphon2021", "lemma\tform\tV;PST"),
        ("sigmorphon2022", "lemma\tform\tV;PST"),
        ("sigmorphon2023", "lemma\tV;PST\tform"),
    ],
)
def test_presets_know_the_order_of_the_shared_tasks(tmp_path: Path, preset: str, line: str) -> None:
    file = write(tmp_path / "train", line + "\n")
    features = () if preset == "pairs" else ("V", "PST")
    assert list(read_pairs([file], columns(preset), ";")) == [Row("lemma", "form", features, "", f"{file}:1")]


def test_every_preset_is_tested() -> None:
    tested = {"pairs", "unimorph", *(f"sigmorphon{year}" for year in range(2016, 2024))}
    assert set(PRESETS) == tested


def test_columns_may_stand_in_any_order(tmp_path: Path) -> None:
    value = {"input": "ein", "output": "aus", "features": "V;PL", "group": "deu", "-": "noise"}
    for order in itertools.permutations(value):
        file = write(tmp_path / "train", "\t".join(value[role] for role in order) + "\n")
        rows = list(read_pairs([file], columns(" , ".join(order)), ";"))
        assert rows == [Row("ein", "aus", ("V", "PL"), "deu", f"{file}:1")], order


def test_several_columns_may_be_ignored(tmp_path: Path) -> None:
    file = write(tmp_path / "train", "1\tab\t0.5\t\tcd\n")
    assert list(read_pairs([file], columns("-,input,-,-,output"), ";")) == [Row("ab", "cd", (), "", f"{file}:1")]


def test_an_ignored_column_may_have_a_name(tmp_path: Path) -> None:
    file = write(tmp_path / "train", "ab\tx\tcd\tnews\t7\n")
    (row,) = read_pairs([file], columns("input,-,output,-document,-sentence"), ";")
    assert row == Row("ab", "cd", (), "", f"{file}:1", (("document", "news"), ("sentence", "7")))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("input,output,-document,-document", "data.columns: '-document' must occur exactly once"),
        ("input,output,-group", "data.columns: '-group': this name is reserved; choose another"),
        ("input,output,-line", "data.columns: '-line': this name is reserved; choose another"),
        ("input,target", "data.columns: unknown column 'target'; use a list of input, output, features, group, -"),
        ("sigmorphon1999", "data.columns: unknown column 'sigmorphon1999'"),
        ("input,features", "data.columns: 'output' must occur exactly once in 'input,features'"),
        ("output", "data.columns: 'input' must occur exactly once"),
        ("input,input,output", "data.columns: 'input' must occur exactly once"),
        ("input,output,features,features", "data.columns: 'features' must occur exactly once"),
        ("input,output,", "data.columns: unknown column ''"),
        ("", "data.columns: unknown column ''"),
    ],
)
def test_columns_that_make_no_sense_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(BadInputError) as caught:
        columns(text)
    assert str(caught.value).startswith(complaint)


# --- pairs


@pytest.mark.parametrize(
    ("separator", "value", "expected"),
    [
        (";", "V;PST;3;SG", ("V", "PST", "3", "SG")),
        (",", "pos=V,tense=PST", ("pos=V", "tense=PST")),
        ("|", "V;1|PST", ("V;1", "PST")),
        (" ", "V  PST", ("V", "PST")),
        ("+-", "V+-PST+3", ("V", "PST+3")),
        (";", ";V;;", ("V",)),
        (";", "", ()),
    ],
)
def test_features_are_separated_as_configured(
    tmp_path: Path, separator: str, value: str, expected: tuple[str, ...]
) -> None:
    file = write(tmp_path / "train", f"ab\tcd\t{value}\n")
    (row,) = read_pairs([file], columns("unimorph"), separator)
    assert row.features == expected


def test_files_and_lines_keep_their_order(tmp_path: Path) -> None:
    b, a = write(tmp_path / "b.tsv", "1\tx\n2\ty\n"), write(tmp_path / "a.tsv", "3\tz\n")
    assert [row.input for row in read_pairs([b, a], PAIRS, ";")] == ["1", "2", "3"]
    assert [row.input for row in read_pairs([str(tmp_path)], PAIRS, ";")] == ["3", "1", "2"]
    assert [row.where for row in read_pairs([b, a], PAIRS, ";")] == [f"{b}:1", f"{b}:2", f"{a}:1"]


def test_compressed_and_plain_files_mix(tmp_path: Path) -> None:
    write(tmp_path / "1.tsv", "a\tb\r\n")
    (tmp_path / "2.tsv.gz").write_bytes(gzip.compress("\ufeffc\td\u2028e\n".encode()))
    rows = list(read_pairs([str(tmp_path)], PAIRS, ";"))
    assert [(row.input, row.output) for row in rows] == [("a", "b"), ("c", "d\u2028e")]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("ab", "1 tab-separated column, but 2 are expected (input, output)"),
        ("ab cd", "1 tab-separated column, but 2 are expected (input, output)"),
        ("ab\tcd\t", "3 tab-separated columns, but 2 are expected (input, output)"),
        ("\tcd", "the input is empty"),
        ("ab\t", "the output is empty"),
        ("ab\t \u3000", "the output is empty"),
    ],
)
def test_a_bad_line_of_pairs_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    file = write(tmp_path / "train", f"a\tb\n{line}\nc\td\n")
    assert refusal(read_pairs([file], PAIRS, ";")).startswith(f"{file}:2: {complaint}")


def test_rows_before_a_bad_line_are_still_read(tmp_path: Path) -> None:
    rows = read_pairs([write(tmp_path / "train", "a\tb\nbad\n")], PAIRS, ";")
    assert next(rows).input == "a"


def test_a_missing_file_is_named() -> None:
    assert refusal(read_pairs(["/nowhere/train.tsv"], PAIRS, ";")).startswith("/nowhere/train.tsv: no such file")


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty", "")
    assert list(read_pairs([empty], PAIRS, ";")) == []
    assert list(read_unpaired([empty], PLAIN, ";")) == []
    assert list(read_parallel([empty], [empty])) == []


# --- parallel files


def test_parallel_files_are_read_line_by_line(tmp_path: Path) -> None:
    x, y = write(tmp_path / "x", "a b\tc\nd\n"), write(tmp_path / "y", "A\nD E\n")
    assert list(read_parallel([x], [y])) == [Row("a b\tc", "A", (), "", f"{x}:1"), Row("d", "D E", (), "", f"{x}:2")]


def test_sets_of_parallel_files_are_paired_in_order(tmp_path: Path) -> None:
    for name, text in {"1.x": "a\n", "2.x": "b\n", "1.y": "A\n", "2.y": "B\n"}.items():
        write(tmp_path / name, text)
    rows = read_parallel([str(tmp_path / "*.x")], [str(tmp_path / "*.y")])
    assert [(row.input, row.output) for row in rows] == [("a", "A"), ("b", "B")]


@pytest.mark.parametrize(("inputs", "outputs", "ends"), [(3, 5, "x"), (5, 3, "y"), (3, 4, "x"), (4, 3, "y")])
def test_parallel_files_of_different_lengths_are_refused(tmp_path: Path, inputs: int, outputs: int, ends: str) -> None:
    files = {"x": write(tmp_path / "x", "a\n" * inputs), "y": write(tmp_path / "y", "b\n" * outputs)}
    goes_on = files["y" if ends == "x" else "x"]
    expected = f"{files[ends]}: ends after line 3, but {goes_on} is longer"
    assert refusal(read_parallel([files["x"]], [files["y"]])).startswith(expected)


@pytest.mark.parametrize("empty", ["x", "y"])
def test_an_empty_parallel_file_is_refused(tmp_path: Path, empty: str) -> None:
    files = {side: write(tmp_path / side, "" if side == empty else "a\n") for side in "xy"}
    assert refusal(read_parallel([files["x"]], [files["y"]])).startswith(f"{files[empty]}: ends after line 0")


@pytest.mark.parametrize(("x", "y", "where"), [("a\n\nc\n", "A\nB\nC\n", "x:2"), ("a\nb\nc\n", "A\nB\n \n", "y:3")])
def test_an_empty_line_of_parallel_files_is_named(tmp_path: Path, x: str, y: str, where: str) -> None:
    rows = read_parallel([write(tmp_path / "x", x)], [write(tmp_path / "y", y)])
    assert refusal(rows).startswith(f"{tmp_path / where}: the line is empty")


@pytest.mark.parametrize(("inputs", "outputs", "alone"), [(["1", "2"], ["1"], "2"), (["1"], ["1", "3"], "3")])
def test_a_file_without_its_parallel_is_named(
    tmp_path: Path, inputs: list[str], outputs: list[str], alone: str
) -> None:
    for name in "123":
        write(tmp_path / name, "a\n")
    rows = read_parallel([str(tmp_path / n) for n in inputs], [str(tmp_path / n) for n in outputs])
    assert refusal(rows).startswith(f"{tmp_path / alone}: its parallel file is missing")


# --- unpaired outputs


def test_a_plain_list_is_one_output_a_line(tmp_path: Path) -> None:
    file = write(tmp_path / "words", "ab\n\n  \nc d\n")
    assert list(read_unpaired([file], PLAIN, ";")) == [
        Row("", "ab", (), "", f"{file}:1"),
        Row("", "c d", (), "", f"{file}:4"),
    ]


def test_a_tab_in_a_plain_list_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "words", "ab\nc\td\n")
    assert refusal(read_unpaired([file], PLAIN, ";")).startswith(f"{file}:2: a tab in a plain list")


def test_unpaired_outputs_may_have_columns(tmp_path: Path) -> None:
    file = write(tmp_path / "words", "deu\tab\tV.PST\t17\nfra\tc\t\t3\n")
    parsed = Columns.parse("group,output,features,-", "data.unpaired_columns", ("output",))
    assert list(read_unpaired([file], parsed, ".")) == [
        Row("", "ab", ("V", "PST"), "deu", f"{file}:1"),
        Row("", "c", (), "fra", f"{file}:2"),
    ]


def test_unpaired_outputs_may_be_one_side_of_pairs(tmp_path: Path) -> None:
    file = write(tmp_path / "more.tsv", "lemma\tform\tV\n")
    parsed = Columns.parse("unimorph", "data.unpaired_columns", ("output",))
    assert list(read_unpaired([file], parsed, ";")) == [Row("lemma", "form", ("V",), "", f"{file}:1")]


def test_wrong_columns_of_unpaired_outputs_are_counted(tmp_path: Path) -> None:
    file = write(tmp_path / "words", "deu\tab\nc\n")
    rows = read_unpaired([file], Columns.parse("group,output", "data.unpaired_columns", ("output",)), ";")
    assert refusal(rows).startswith(f"{file}:2: 1 tab-separated column, but 2 are expected (group, output)")


# --- Hugging Face datasets, from a directory on this machine


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package ``datasets``, kept from the network; it reads these variables once, when it is first imported."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    pytest.importorskip("datasets")


@pytest.fixture
def hub(tmp_path: Path, offline: None) -> Path:
    """A directory with a dataset in JSON lines and one in CSV."""
    items = [
        {"document": "ab\ncd", "summary": "x", "translation": {"de": "eins", "en": "one"}},
        {"document": "ef", "summary": "y z", "translation": {"de": "zwei", "en": "two"}},
    ]
    (tmp_path / "json").mkdir()
    write(tmp_path / "json" / "train.jsonl", "".join(json.dumps(item) + "\n" for item in items))
    write(tmp_path / "json" / "test.jsonl", json.dumps(items[1]) + "\n")
    (tmp_path / "csv").mkdir()
    write(tmp_path / "csv" / "train.csv", "lemma,form,tags,language\ngo,went,V;PST,eng\nHaus,Häuser,N;PL,deu\n")
    return tmp_path


def test_fields_and_splits_of_a_dataset(hub: Path) -> None:
    parsed = columns("input=document,output=summary")
    train, test = f"hf:{hub}/json:train", f"hf:{hub}/json:test"
    assert list(read_pairs([train], parsed, ";")) == [
        Row("ab cd", "x", (), "", f"{train}[0]"),
        Row("ef", "y z", (), "", f"{train}[1]"),
    ]
    assert list(read_pairs([test], parsed, ";")) == [Row("ef", "y z", (), "", f"{test}[0]")]


def test_dots_reach_into_nested_fields(hub: Path) -> None:
    rows = read_pairs([f"hf:{hub}/json:train"], columns("input=translation.de, output=translation.en"), ";")
    assert [(row.input, row.output) for row in rows] == [("eins", "one"), ("zwei", "two")]


def test_a_dataset_with_features_and_groups(hub: Path) -> None:
    parsed = columns("group=language,output=form,input=lemma,features=tags")
    rows = list(read_pairs([f"hf:{hub}/csv:train"], parsed, ";"))
    assert [row[:4] for row in rows] == [("go", "went", ("V", "PST"), "eng"), ("Haus", "Häuser", ("N", "PL"), "deu")]


def test_unpaired_outputs_of_a_dataset(hub: Path) -> None:
    parsed = Columns.parse("output=form", "data.unpaired_columns", ("output",))
    assert [row.output for row in read_unpaired([f"hf:{hub}/csv:train"], parsed, ";")] == ["went", "Häuser"]


def test_datasets_and_files_mix(hub: Path) -> None:
    file = write(hub / "more.tsv", "a\tb\n")
    rows = read_pairs([file, f"hf:{hub}/json:test"], columns("input=document,output=summary"), ";")
    assert [row.input for row in rows] == ["a", "ef"]


def test_a_named_configuration_of_a_dataset(hub: Path) -> None:
    parsed = columns("input=document,output=summary")
    assert len(list(read_pairs([f"hf:{hub}/json@default:train"], parsed, ";"))) == 2
    assert "'other' not found" in refusal(read_pairs([f"hf:{hub}/json@other:train"], parsed, ";"))


@pytest.mark.parametrize(
    ("source", "fields", "complaint"),
    [
        ("json:dev", "input=document,output=summary", "hf:{hub}/json:dev: Bad split: dev"),
        ("nothing:train", "input=document,output=summary", "hf:{hub}/nothing:train: Couldn't find any data file"),
        ("json:train", "input=document,output=title", "hf:{hub}/json:train[0]: no field 'title'; the fields are doc"),
        ("json:train", "input=document,output=summary.x", "hf:{hub}/json:train[0]: no field 'summary.x'"),
        ("json:train", "pairs", "hf:{hub}/json:train: say which field is which"),
        ("json:train", "input,output=summary", "hf:{hub}/json:train: say which field is which"),
        ("bad:train", "input=document,output=summary", "hf:{hub}/bad:train: JSON parse error"),
    ],
)
def test_a_dataset_that_cannot_be_read_is_named(hub: Path, source: str, fields: str, complaint: str) -> None:
    (hub / "bad").mkdir()
    write(hub / "bad" / "train.jsonl", '{"document": "a", "summary": "b"}\n{"document": "a", "summ\n')
    rows = read_pairs([f"hf:{hub}/{source}"], columns(fields), ";")
    assert refusal(rows).startswith(complaint.format(hub=hub))


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("source", ["hf:gigaword", "hf:gigaword:", "hf::train", "hf:"])
def test_a_dataset_needs_a_name_and_a_split(source: str) -> None:
    rows = read_pairs([source], columns("input=document,output=summary"), ";")
    assert refusal(rows).startswith(f"{source}: give a dataset and a split")


def test_a_null_in_a_dataset_is_empty_not_a_word(hub: Path) -> None:
    (hub / "null").mkdir()
    items = [{"document": "a", "summary": "b"}, {"document": None, "summary": "c"}, {"document": "d", "summary": None}]
    write(hub / "null" / "train.jsonl", "".join(json.dumps(item) + "\n" for item in items))
    source = f"hf:{hub}/null:train"
    outputs = Columns.parse("output=summary", "data.unpaired_columns", ("output",))
    assert [row.output for row in read_unpaired([source], outputs, ";")] == ["b", "c"]
    complaint = refusal(read_pairs([source], columns("input=document,output=summary"), ";"))
    assert complaint.startswith(f"{source}[1]: the input is empty")


def test_datasets_without_the_package_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    complaint = refusal(read_pairs(["hf:gigaword:train"], columns("input=document,output=summary"), ";"))
    assert complaint == "hf:gigaword:train needs the package datasets: pip install 'noisychannel[hub]'"


def load_with_script(converted: bool) -> Callable[..., list[dict[str, str]]]:
    """What ``datasets.load_dataset`` does for a dataset that has a program of its own."""

    def load(name: str, config: str | None, *, revision: str | None = None, **other: object) -> list[dict[str, str]]:
        if revision is None:
            raise RuntimeError(f"Dataset scripts are no longer supported, but found {name}.py")
        assert (revision, config, other) == ("refs/convert/parquet", None, {"split": "train", "streaming": True})
        if not converted:
            raise FileNotFoundError(f"Revision '{revision}' doesn't exist for dataset '{name}' on the Hub.\nMore")
        return [{"document": "a b", "summary": "c"}]

    return load


@pytest.mark.usefixtures("offline")
def test_a_dataset_with_a_program_of_its_own_is_read_as_the_hub_has_converted_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed = columns("input=document,output=summary")
    monkeypatch.setattr("datasets.load_dataset", load_with_script(converted=True))
    assert [row[:2] for row in read_pairs(["hf:gigaword:train"], parsed, ";")] == [("a b", "c")]
    monkeypatch.setattr("datasets.load_dataset", load_with_script(converted=False))
    complaint = refusal(read_pairs(["hf:gigaword:train"], parsed, ";"))
    assert complaint.startswith("hf:gigaword:train: the dataset needs a program of its own")
    assert "download its files from https://huggingface.co/datasets/gigaword" in complaint
    assert len(complaint.splitlines()) == 1


@pytest.mark.parametrize("blank", ["", "  ", "\t", "\u3000"])
def test_blank_lines_are_skipped_and_counted(tmp_path: Path, blank: str) -> None:
    file = write(tmp_path / "train", f"{blank}\na\tb\n{blank}\n{blank}\nc\td\n")
    counted = BlankLines()
    rows = list(read_pairs([file], PAIRS, ";", counted))
    assert [(row.input, row.where) for row in rows] == [("a", f"{file}:2"), ("c", f"{file}:5")]
    assert str(counted) == f"3 blank lines skipped ({file})"
    words = write(tmp_path / "words", f"a\n{blank}\nb\n")
    assert [row.output for row in read_unpaired([words], PLAIN, ";", counted)] == ["a", "b"]
    assert str(counted) == f"4 blank lines skipped (3 in {file}, 1 in {words})"
    assert not str(BlankLines())
    # A bad line after them has its own number.
    file = write(tmp_path / "bad", f"a\tb\n{blank}\nbad\n")
    assert refusal(read_pairs([file], PAIRS, ";")).startswith(f"{file}:3: 1 tab-separated")


def test_lines_that_are_blank_on_both_sides_are_skipped(tmp_path: Path) -> None:
    x, y = write(tmp_path / "x", "a\n\nb\n"), write(tmp_path / "y", "A\n \nB\n")
    counted = BlankLines()
    assert [(row.output, row.where) for row in read_parallel([x], [y], counted)] == [("A", f"{x}:1"), ("B", f"{x}:3")]
    assert str(counted).startswith("1 blank line skipped")


def test_standard_input_is_a_dash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\tb\n\nbad\n")))
    rows = read_pairs(["-"], PAIRS, ";")
    assert next(rows) == Row("a", "b", (), "", "standard input:1")
    assert refusal(rows).startswith("standard input:3: 1 tab-separated")
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "-", "c\td\n")
    assert [row.input for row in read_pairs(["./-"], PAIRS, ";")] == ["c"], "a file with that name"


def test_blank_lines_between_the_paradigms_of_unimorph_are_passed_over(tmp_path: Path) -> None:
    file = write(tmp_path / "deu", "gehen\tging\tV;PST\n\nHaus\tHäuser\tN;PL\n")
    assert [row.input for row in read_pairs([file], columns("unimorph"), ";")] == ["gehen", "Haus"]
