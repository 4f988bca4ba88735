"""The front end: words and YAML into dataclasses, and one clear line for every mistake."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisychannel.arguments import (
    Bounds,
    Count,
    Positive,
    all_keys,
    check_bounds,
    describe_keys,
    dump_config,
    expected,
    given_values,
    load_yaml,
    parse_options,
    read_config,
    section_of,
)
from noisychannel.arguments.bounds import LARGEST
from noisychannel.errors import BadInputError
from noisychannel.training.config import RunConfig


@dataclass(kw_only=True)
class Inner:
    """A section.

    Args:
        size: How large it is.
        name: What it is called, which takes more than one line to explain because this sentence goes on and on until
            the line is full.
        used: Whether it counts.
    """

    size: int = 3
    name: str | None = None
    used: bool = True


@dataclass(kw_only=True)
class Base:
    """What several commands share.

    Args:
        device: Where to compute.
    """

    device: str = "auto"


@dataclass(kw_only=True)
class Options(Base):
    """Options of a test.

    Args:
        run: The run.
        files: The files.
        rate: A rate.
        most: A limit.
        quick: Be quick.
        search: How to search.
        kinds: Which kinds.
        inner: A part.
        other: Another part.
    """

    run: str = ""
    files: list[str] = field(default_factory=list)
    rate: float = 0.5
    most: int | None = None
    quick: bool = False
    search: Literal["viterbi", "marginal"] | None = None
    kinds: list[Literal["a", "b"]] = field(default_factory=lambda: ["a"])
    inner: Inner = field(default_factory=Inner)
    other: Inner = field(default_factory=lambda: Inner(size=9, used=False))


def parse(*words: str) -> Options:
    return parse_options(Options, words, ("run", "files*"))


def read(tmp_path: Path, text: str, *words: str) -> Options:
    (tmp_path / "config.yaml").write_text(text)
    return read_config(Options, tmp_path / "config.yaml", words)


def test_nothing_given_is_every_default() -> None:
    assert parse() == Options()


@pytest.mark.parametrize(
    ("words", "expected_value"),
    [
        ("--rate 0.25", {"rate": 0.25}),
        ("--rate=0.25", {"rate": 0.25}),
        ("--rate 1", {"rate": 1.0}),
        ("--rate 1e-3", {"rate": 0.001}),
        ("--rate -3", {"rate": -3.0}),
        ("--rate=-3", {"rate": -3.0}),
        ("--rate 2 --rate=2", {"rate": 2.0}),
        ("--most 7", {"most": 7}),
        ("--most null", {"most": None}),
        ("--quick", {"quick": True}),
        ("--quick true", {"quick": True}),
        ("--quick=false", {"quick": False}),
        ("--quick false", {"quick": False}),
        ("--quick here", {"quick": True, "run": "here"}),
        ("here --quick", {"quick": True, "run": "here"}),
        ("--quick --rate 2", {"quick": True, "rate": 2.0}),
        ("here one two", {"run": "here", "files": ["one", "two"]}),
        ("here one --rate 2 two", {"run": "here", "files": ["one", "two"], "rate": 2.0}),
        ("here [one", {"run": "here", "files": ["[one"]}),
        ("-", {"run": "-"}),
        ("--files one", {"files": ["one"]}),
        ("--files [one,two]", {"files": ["one", "two"]}),
        ("--kinds b", {"kinds": ["b"]}),
        ("--kinds [a,b]", {"kinds": ["a", "b"]}),
        ("--kinds a,b", {"kinds": ["a", "b"]}),
        ("--kinds=a,b", {"kinds": ["a", "b"]}),
        ("--files one,two.txt", {"files": ["one", "two.txt"]}),
        ("here one,two three", {"run": "here", "files": ["one,two", "three"]}),
        ("--search marginal", {"search": "marginal"}),
        ("--run 12", {"run": "12"}),
        ("--run -x", {"run": "-x"}),
        ("--run=a=b", {"run": "a=b"}),
        ("--run=", {"run": ""}),
        ("--device cpu", {"device": "cpu"}),
        ("--inner.size 5", {"inner": Inner(size=5)}),
        ("--inner.size 5 --inner.used false", {"inner": Inner(size=5, used=False)}),
        ("--other.name x", {"other": Inner(size=9, used=False, name="x")}),
    ],
)
def test_words(words: str, expected_value: dict[str, object]) -> None:
    assert parse(*words.split()) == Options(**expected_value)  # type: ignore[arg-type]


def test_dashes_and_underscores_are_the_same() -> None:
    config = parse_options(RunConfig, ["--training.clip-norm", "2", "--data.too-long=truncate"])
    assert (config.training.clip_norm, config.data.too_long) == (2.0, "truncate")


def test_messages_repeat_the_spelling_and_help_shows_dashes() -> None:
    for name in ("--training.clip-norm", "--training.clip_norm"):
        with pytest.raises(BadInputError, match=f"^{name}: must be a number"):
            parse_options(RunConfig, [name, "x"])
    with pytest.raises(BadInputError, match="did you mean --run-dir"):
        parse_options(RunConfig, ["--run_dirr", "x"])
    with pytest.raises(BadInputError, match=r"^--run-dir: given twice, as 'a' and as 'b'"):
        parse_options(RunConfig, ["--run-dir", "a", "--run_dir", "b"])
    assert parse_options(RunConfig, ["--run-dir", "a", "--run_dir", "a"]).run_dir == "a"
    described = describe_keys(RunConfig)
    assert "  --run-dir TEXT\n" in described
    assert "  --direct.hidden-size N\n" in described
    assert not [line for line in described.splitlines() if line.startswith("  --") and "_" in line.split()[0]]


def test_a_file_with_a_comma_in_its_name_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse("--files", "a,b.txt").files == ["a", "b.txt"]
    (tmp_path / "a,b.txt").touch()
    assert parse("--files", "a,b.txt").files == ["a,b.txt"]
    assert parse("--files", "a,?.txt").files == ["a,?.txt"], "a glob that finds it"
    assert parse("--files", "a*,c*").files == ["a*", "c*"]
    assert parse("--files", "a" * 5000 + ",b").files == ["a" * 5000, "b"], "no file can have such a name"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--rat 1", "unknown option --rat; did you mean --rate?"),
        ("--inner.sise 1", "unknown option --inner.sise; did you mean --inner.size?"),
        ("--sise 1", "unknown option --sise; did you mean --inner.size?"),
        ("--inner 1", "--inner is a section; set one of its keys, such as --inner.size"),
        ("--rate", "--rate needs a value; see --help"),
        ("--rate 1 --rate 2", "--rate: given twice, as '1' and as '2'; remove one of them"),
        ("here --run there", "--run: given twice, as 'here' and as 'there'; remove one of them"),
        ("here one --files two", "--files: given twice, as 'two' and as ['one']; remove one of them"),
        ("--files=", "--files: must not be empty; give a value, or leave it out"),
        ("--files=['']", "--files: must not be empty; give a value, or leave it out"),
        ("--inner.name=", "--inner.name: must not be empty; give a value, or leave it out"),
        ("--files one,,two", "--files: something is missing beside a comma in 'one,,two'; write a,b"),
        ("--kinds a,", "--kinds: something is missing beside a comma in 'a,'; write a,b"),
        ("--kinds a,c", "--kinds: must be one or more of a, b, but is 'a,c'"),
        ("--files=[]", "--files: must not be empty; name something, or leave it out"),
        ("--most=&a", "--most: must be a whole number or null, but is '&a'"),
        ("--most=#1", "--most: must be a whole number or null, but is '#1'"),
        ("--rate inf", "--rate: must be a number, but is 'inf'"),
        ("--rate 1e999", "--rate: must be a finite number, but is inf"),
        ("--most 9223372036854775808", "--most: must be at most 1099511627776, but is 9223372036854775808"),
        ("--kinds [&a", "--kinds: must be one or more of a, b, but is '[&a'"),
        ("--rate --quick", "--rate needs a value; see --help"),
        ("--rate fast", "--rate: must be a number, but is 'fast'"),
        ("--inner.size 1.5", "--inner.size: must be a whole number, but is '1.5'"),
        ("--most x", "--most: must be a whole number or null, but is 'x'"),
        ("--quick=maybe", "--quick: must be true or false, but is 'maybe'"),
        ("--search best", "--search: must be one of viterbi, marginal or null, but is 'best'"),
        ("--kinds c", "--kinds: must be one or more of a, b, but is 'c'"),
        ("--kinds [a", "--kinds: must be one or more of a, b, but is '[a'"),
    ],
)
def test_mistakes_on_the_command_line(words: str, complaint: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse(*words.split())
    assert str(caught.value) == complaint


def test_only_what_is_given() -> None:
    words = ["here", "--rate", "2", "--inner.size=4"]
    assert given_values(Options, words, ("run", "files*")) == {"run": "here", "rate": 2.0, "inner.size": 4}
    assert given_values(Options, []) == {}
    with pytest.raises(BadInputError, match="must be a number"):
        given_values(Options, ["--rate", "x"])


@dataclass(kw_only=True)
class Checked:
    size: int = 1

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1, but is {self.size}")


def test_a_dataclass_may_check_its_own_values() -> None:
    assert parse_options(Checked, ["--size", "2"]).size == 2
    with pytest.raises(BadInputError, match="size must be at least 1, but is 0"):
        parse_options(Checked, ["--size", "0"])


def test_an_argument_too_many() -> None:
    with pytest.raises(BadInputError, match="unexpected argument 'two'; see --help"):
        parse_options(Options, ["one", "two"], ("run",))
    for word, shown in (("two", "two"), ("my words", "'my words'")):
        with pytest.raises(BadInputError, match=rf"unexpected argument '{word}'; did you mean --files {shown}\?$"):
            parse_options(Options, ["one", word], ("run", "files?"))


@pytest.mark.parametrize(
    ("text", "expected_value"),
    [
        ("rate: 2", {"rate": 2.0}),
        ("rate: 1e-3", {"rate": 0.001}),  # text for YAML 1.1
        ("most: null", {"most": None}),
        ("quick: yes", {"quick": True}),
        ("files: one", {"files": ["one"]}),
        ("files: '[one'", {"files": ["[one"]}),
        ("files: [one, two]", {"files": ["one", "two"]}),
        ("files: one, two", {"files": ["one", "two"]}),
        ("kinds: a,b", {"kinds": ["a", "b"]}),
        ("files: ['one, two']", {"files": ["one, two"]}),
        ("inner: {size: 5}", {"inner": Inner(size=5)}),
        ("other: {name: x}", {"other": Inner(size=9, used=False, name="x")}),
        ("inner: {}", {}),
    ],
)
def test_files(text: str, expected_value: dict[str, object], tmp_path: Path) -> None:
    assert read(tmp_path, text) == Options(**expected_value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "config.yaml: empty"),
        ("3", "config.yaml: must contain keys and values"),
        ("a: [b\n", "config.yaml:2: not valid YAML"),
        ("run: a\nrun: b", "config.yaml:2: not valid YAML (duplicate key run)"),
        ("inner:\n  size: 1\n  size: 2", "config.yaml:3: not valid YAML (duplicate key size)"),
        ("[a]: 1", "config.yaml:1: not valid YAML"),
        ("1: 2", "config.yaml: a key must be text, but 1 is not"),
        ("inner: {true: 2}", "config.yaml: a key must be text, but inner.True is not"),
        ("rat: 1", "config.yaml: unknown key rat; did you mean rate?"),
        ("inner: {sise: 1}", "config.yaml: unknown key inner.sise; did you mean inner.size?"),
        ("iner: {size: 1}", "config.yaml: unknown key iner; did you mean inner?"),
        ("inner: 3", "config.yaml: inner must be a section with keys and values, but is 3"),
        ("inner: null", "config.yaml: inner must be a section with keys and values, but is None"),
        ("rate: null", "config.yaml: rate must not be null; set it, or remove it to use its default"),
        ("rate: fast", "config.yaml: rate: must be a number, but is 'fast'"),
        ("inner: {size: 1.5}", "config.yaml: inner.size: must be a whole number, but is 1.5"),
        ("inner: {used: 1}", "config.yaml: inner.used: must be true or false, but is 1"),
        ("run: 3", "config.yaml: run: must be text, but is 3"),
        ("kinds: [a, c]", "config.yaml: kinds: must be one or more of a, b, but is ['a', 'c']"),
        ("files: [1]", "config.yaml: files: must be a list (text), but is [1]"),
    ],
)
def test_mistakes_in_a_file(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as caught:
        read(tmp_path, text)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"none\.yaml: No such file"):
        load_yaml(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes("run: Bäume".encode("latin-1"))
    with pytest.raises(BadInputError, match="not UTF-8"):
        load_yaml(tmp_path / "latin.yaml")


TENFOLD = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n" for before, name in itertools.pairwise("abcdefghij")
)
MERGED = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{','.join([f'*{before}'] * 10)}]}}\n" for before, name in itertools.pairwise("abcdefghij")
)

NESTED = "a: &a [[[x]]]\n" + "".join(f"{b}: &{b} [[[*{a}]]]\n" for a, b in itertools.pairwise("abcdefgh"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (TENFOLD, "config.yaml:5: not valid YAML (more than 20,000 keys and values, with aliases written out)"),
        (MERGED, "config.yaml:5: not valid YAML (more than 20,000 keys and values, with aliases written out)"),
        ("run: " + "[" * 5000 + "]" * 5000, "config.yaml:1: not valid YAML (nested more than 20 deep)"),
        ("run: " + "{a: " * 5000 + "}" * 5000, "config.yaml:1: not valid YAML (nested more than 20 deep)"),
        ("run: &a [*a]", "config.yaml:1: not valid YAML (the alias *a is in its own anchor, or has none before it)"),
        ("inner: &a {size: *a}", "the alias *a is in its own anchor"),
        (NESTED, "config.yaml:7: not valid YAML (nested more than 20 deep)"),
        ("run: *a", "the alias *a is in its own anchor, or has none before it"),
        ("{a: b}: 1", "config.yaml:1: not valid YAML (a key is a list or a section; a key must be a name)"),
        ("? &a [*a]\n: 1", "the alias *a is in its own anchor"),
        ("most: 1" + "0" * 400, "most: must be at most 1099511627776, but is 10000"),
        ("most: 1" + "0" * 5000, "is not a number that can be used"),
        ("most: 0x" + "f" * 9000, "most: must be at most 1099511627776, but is a number of thousands of digits"),
        ("most: 0x_", "config.yaml:1: not valid YAML ('0x_' is not a number that can be used)"),
        ("most: true", "most: must be a whole number or null, but is True"),
        ("most: 2026-11-16", "most: must be a whole number or null, but is '2026-11-16'"),
        ("rate: .nan", "rate: must be a finite number, but is nan"),
        ("rate: -.inf", "rate: must be a finite number, but is -inf"),
        ("run: !!binary aGk=", "config.yaml:1: not valid YAML (the tag tag:yaml.org,2002:binary is not used"),
        ("inner: !!map 3", "the tag tag:yaml.org,2002:map is not used"),
        ("inner:\n\tsize: 1", "config.yaml:2: not valid YAML"),
        ("rate: 1\nrun: a\0b", "config.yaml:2: not valid YAML (a control character; is it a text file?)"),
        ('run: "a\\0b"', "run: must not contain a NUL character, but is 'a\\x00b'"),
        ('run: "a\\uD800b"', "run: must be Unicode text, but is 'a\\ud800b'"),
        ('files: [a, "a\\uD800b"]', "files: must be Unicode text"),
        ('files: [a, "a\\0b"]', "files: must not contain a NUL character"),
        ("rate: " + "x" * 100_000, "rate: must be a number, but is 'xxxxxxxxx"),
        (f"{'x' * 1000}: 1", "config.yaml: unknown key xxxx"),
        ("null: 1", "config.yaml: a key must be text, but None is not"),
        ("run: a\n---\nrun: b", "config.yaml:2: not valid YAML"),
        ("run: a\n" * 200_000, "config.yaml: larger than 1 MiB, so it is no configuration"),
    ],
)
def test_hostile_files_are_one_short_line(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as caught:
        read(tmp_path, text)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value).replace(str(tmp_path), "")) < 250


def test_plain_aliases_and_dates_are_fine(tmp_path: Path) -> None:
    text = "inner: &part {size: 4, name: x}\nother: {<<: *part, size: 5}\nrun: 2026-11-16\n"
    assert read(tmp_path, text) == Options(
        inner=Inner(size=4, name="x"), other=Inner(size=5, name="x", used=False), run="2026-11-16"
    )


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # to open it would block
    for file, complaint in (
        (tmp_path / "pipe", "pipe: not a regular file; write the configuration into one"),
        (Path("/dev/zero"), "/dev/zero: not a regular file"),
        (tmp_path, "Is a directory; name the configuration file inside it"),
        (Path("a\0b"), "not the name of a file"),
    ):
        with pytest.raises(BadInputError, match=complaint):
            load_yaml(file)


def test_options_override_a_file_key_by_key(tmp_path: Path) -> None:
    text = "inner: {size: 5, name: x}\nrate: 2"
    assert read(tmp_path, text, "--inner.size", "6") == Options(inner=Inner(size=6, name="x"), rate=2.0)
    with pytest.raises(BadInputError, match=r"^--rate: must be a number"):
        read(tmp_path, text, "--rate", "x")
    with pytest.raises(BadInputError, match="unexpected argument 'x'"):
        read(tmp_path, text, "x")


def test_one_section_is_read_whatever_the_rest_says(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("inner: {size: 5}\nfuture: 3\n")
    assert section_of(Inner, tmp_path / "config.yaml", "inner") == Inner(size=5)
    assert section_of(Inner, tmp_path / "config.yaml", "other") == Inner()
    with pytest.raises(BadInputError, match=r"config\.yaml: future must be a section"):
        section_of(Inner, tmp_path / "config.yaml", "future")
    (tmp_path / "config.yaml").write_text("inner: {sise: 5}\n")
    with pytest.raises(BadInputError, match=r"unknown key inner\.sise; did you mean inner\.size\?"):
        section_of(Inner, tmp_path / "config.yaml", "inner")


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8)
inners = st.builds(Inner, size=st.integers(-9, 9), name=st.none() | texts, used=st.booleans())
every = st.builds(
    Options,
    run=texts,
    files=st.lists(texts, max_size=3),
    rate=st.floats(allow_nan=False, allow_infinity=False, width=32),
    most=st.none() | st.integers(-LARGEST, LARGEST),
    quick=st.booleans(),
    search=st.sampled_from([None, "viterbi", "marginal"]),
    kinds=st.lists(st.sampled_from(["a", "b"]), max_size=3),
    inner=inners,
    other=inners,
)


@given(every)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, options: Options) -> None:
    file = tmp_path_factory.mktemp("dumped") / "config.yaml"
    file.write_text(dump_config(options), encoding="utf-8")
    assert read_config(Options, file) == options


@given(every)
def test_words_and_files_say_the_same(options: Options) -> None:
    """Every value that a word can express; null is a word, so a text that reads null or is a list cannot be given."""
    words = [f"--rate={options.rate!r}", f"--most={'null' if options.most is None else options.most}"]
    words += [f"--quick={str(options.quick).lower()}", f"--search={options.search or 'null'}"]
    for section in ("inner", "other"):
        words += [
            f"--{section}.{key}={str(getattr(getattr(options, section), key)).lower()}" for key in ("size", "used")
        ]
    parsed = parse(*words)
    assert (parsed.rate, parsed.most, parsed.quick, parsed.search) == (
        options.rate,
        options.most,
        options.quick,
        options.search,
    )
    assert (parsed.inner.size, parsed.other.used) == (options.inner.size, options.other.used)


def test_help_names_every_key_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("-h", "--help"):
        with pytest.raises(SystemExit) as stop:
            parse_options(Options, ["--rate", "x", word], (), "usage: this\n")
        assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: this\n\noptions:\n")
    assert all(f"  --{key}" in shown for key in all_keys(Options))
    described = describe_keys(Options)
    assert "  --rate X\n        A rate. (default: 0.5)\n" in described
    assert "  --device TEXT\n        Where to compute. (default: auto)\n" in described, "of a class it extends"
    assert "  --kinds a|b,…\n        Which kinds. (default: a)\n" in described
    assert "  --search viterbi|marginal\n        How to search.\n" in described
    assert "  --quick\n        Be quick.\n" in described
    assert "\nother: Another part.\n  --other.size N\n        How large it is. (default: 9)\n" in described
    assert "  --inner.used true|false\n        Whether it counts. (default: true)" in described
    assert max(map(len, described.splitlines())) <= 100


def test_help_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    assert max(map(len, describe_keys(Options).splitlines())) <= 50


def test_plain_words_for_types() -> None:
    kinds = (int, float, bool, str, int | None, Literal["x", "y"], list[int], list[Literal["x"]])
    assert [expected(kind) for kind in kinds] == [
        "a whole number",
        "a number",
        "true or false",
        "text",
        "a whole number or null",
        "one of x, y",
        "a list (a whole number)",
        "one or more of x",
    ]


@dataclass(kw_only=True)
class Bounded:
    """Numbers with bounds.

    Args:
        size: How large it is.
        rate: How fast it is.
        dropout: How much is dropped.
        most: A limit.
    """

    size: Count = 3
    rate: Positive = 0.1
    dropout: Annotated[float, Bounds(least=0, below=1)] = 0.5
    most: Count | None = None


@dataclass(kw_only=True)
class Outer:
    inner: Bounded = field(default_factory=Bounded)


def test_bounds_are_checked_where_a_value_is_given(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("inner: {dropout: 1}")
    with pytest.raises(
        BadInputError, match=r"config\.yaml: inner\.dropout: must be at least 0 and less than 1, but is 1"
    ):
        read_config(Outer, tmp_path / "config.yaml")
    for words, complaint in {
        "--inner.size 0": "--inner.size: must be at least 1, but is 0",
        "--inner.most -1": "--inner.most: must be at least 1, but is -1",
        "--inner.rate 0": "--inner.rate: must be greater than 0, but is 0.0",
    }.items():
        with pytest.raises(BadInputError) as caught:
            parse_options(Outer, words.split())
        assert str(caught.value) == complaint


def test_bounds_are_checked_in_python_too() -> None:
    check_bounds(Outer())
    for inner, complaint in (
        (Bounded(size=0), "inner.size: must be at least 1, but is 0"),
        (Bounded(size=True), "inner.size: must be a whole number, but is True"),
        (Bounded(size=1.5), "inner.size: must be a whole number, but is 1.5"),  # type: ignore[arg-type]
        (Bounded(most=0), "inner.most: must be at least 1, but is 0"),
        (Bounded(rate=math.nan), "inner.rate: must be a finite number, but is nan"),
        (Bounded(rate=-math.inf), "inner.rate: must be a finite number, but is -inf"),
        (Bounded(size=10**400), "inner.size: must be at most 1099511627776, but is 1000000"),
    ):
        with pytest.raises(ValueError, match="inner") as caught:
            check_bounds(Outer(inner=inner))
        assert complaint in str(caught.value)
        assert len(str(caught.value)) < 200


def test_help_shows_bounds() -> None:
    shown = describe_keys(Bounded)
    assert "How large it is. (at least 1; default: 3)" in shown
    assert "How much is dropped. (at least 0 and less than 1; default: 0.5)" in shown
    assert "A limit. (at least 1)" in shown


def test_the_front_end_needs_neither_torch_nor_a_parser_for_help() -> None:
    code = (
        "import sys; from dataclasses import dataclass; from noisychannel.arguments import describe_keys\n"
        "@dataclass\nclass Small:\n    a: int = 1\n"
        "describe_keys(Small); assert not {'torch', 'jsonargparse'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_two_keys_of_a_configuration_differ_only_in_dashes() -> None:
    keys = [key.replace("-", "_") for key in all_keys(RunConfig)]
    assert all(one != other for one, other in itertools.combinations(keys, 2))
