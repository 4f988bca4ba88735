"""Options and configuration files: words and YAML into dataclasses, for every command.

A dataclass names the keys, with their types, defaults and, in its docstring, what each one does. A field that is itself
a dataclass is a section; its keys are dotted, such as ``direct.hidden_size``. Every field needs a default.

    parse_options(Options, words)     the options of a command
    read_config(Config, file, words)  a YAML file, with options that override its keys
    section_of(Config, file, "data")  one section of a YAML file

jsonargparse converts and checks each value on its own. The messages are ours: one line that names the file or option,
the key, what is expected and what was given.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from noisychannel.errors import BadInputError, did_you_mean

T = TypeVar("T")

PLAIN_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
PLACEHOLDERS = {int: "N", float: "X", str: "TEXT"}
LONGEST_LINE = 100
"""Characters of a line of ``--help``, unless the terminal is narrower."""


class Given(NamedTuple):
    """The value of one key as the user gave it."""

    value: Any
    where: str
    """For messages: ``--key``, or ``file: key``."""
    is_word: bool
    """Whether it comes from the command line, as text."""


def parse_options(cls: type[T], words: Sequence[str], positional: Sequence[str] = (), usage: str = "") -> T:
    """The options of a command as an instance of the dataclass ``cls``. ``--help`` prints them after ``usage``.

    The fields in ``positional`` are given without a name, in order. A last one with a star, such as ``files*``, is a
    list and takes all remaining words. ``--key value`` and ``--key=value`` are the same, and so are ``-`` and ``_`` in
    a key. An option that is true or false needs no value. A list can be given as a single value.
    """
    if asks_for_help(words):
        print(usage + "\noptions:\n" + describe_keys(cls))
        raise SystemExit(0)
    return _build(cls, _read_words(cls, words, positional))


def given_values(cls: type, words: Sequence[str], positional: Sequence[str] = ()) -> dict[str, Any]:
    """The values that a command line gives, by key; keys that keep their defaults are absent."""
    kinds = all_keys(cls)
    return {key: _convert(kinds[key], one) for key, one in _read_words(cls, words, positional).items()}


def read_config(cls: type[T], file: Path, words: Sequence[str] = ()) -> T:
    """A YAML file as an instance of the dataclass ``cls``; options in ``words`` override its keys."""
    return _build(cls, _read_mapping(cls, load_yaml(file), str(file)) | _read_words(cls, words, ()))


def section_of(cls: type[T], file: Path, section: str) -> T:
    """One section of a YAML file as an instance of its dataclass; the rest of the file is not checked."""
    values = load_yaml(file).get(section, {})
    if not isinstance(values, dict):
        raise BadInputError(f"{file}: {section} must be a section with keys and values, but is {values!r}")
    given = _read_mapping(cls, values, str(file), f"{section}.")
    return _build(cls, {key.removeprefix(f"{section}."): one for key, one in given.items()})


def dump_config(config: Any) -> str:
    """A dataclass as YAML that ``read_config`` reads back."""
    return yaml.safe_dump(asdict(config), sort_keys=False, allow_unicode=True)


def check_at_least(least: int, options: object, *names: str) -> None:
    """Refuse options below ``least``; those that are None are not checked."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value < least:
            raise BadInputError(f"--{name}: must be at least {least}, but is {value}")


def asks_for_help(words: Sequence[str]) -> bool:
    return "-h" in words or "--help" in words


def all_keys(cls: type, prefix: str = "") -> dict[str, Any]:
    """Every dotted key of a dataclass that takes a value, with its type."""
    keys: dict[str, Any] = {}
    for name, kind in get_type_hints(cls).items():
        if isinstance(kind, type) and is_dataclass(kind):
            keys |= all_keys(kind, f"{prefix}{name}.")
        else:
            keys[prefix + name] = kind
    return keys


def describe_keys(cls: type) -> str:
    """The keys of a dataclass for ``--help``: options, what they do, and their defaults."""
    width = min(LONGEST_LINE, shutil.get_terminal_size((LONGEST_LINE, 24)).columns)
    return "\n".join(_describe(cls(), "", width))


def load_yaml(file: Path) -> dict[str, Any]:
    """The keys and values of a YAML file."""
    try:
        loaded = yaml.load(file.read_text(encoding="utf-8"), _UniqueKeys)
    except OSError as error:
        raise BadInputError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{file}: not UTF-8") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark else str(file)
        raise BadInputError(f"{where}: not valid YAML ({getattr(error, 'problem', None) or 'unreadable'})") from error
    if loaded is None:
        raise BadInputError(f"{file}: empty; copy one of the samples in configs/")
    if not isinstance(loaded, dict):
        raise BadInputError(f"{file}: must contain keys and values, like the samples in configs/")
    return loaded


class _UniqueKeys(yaml.SafeLoader):
    """YAML in which a duplicate key is an error. The standard loader keeps the last value and says nothing."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = str(self.construct_object(key_node, deep=True))
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key}", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _read_mapping(cls: type, values: Mapping[Any, Any], where: str, prefix: str = "") -> dict[str, Given]:
    """The values of a YAML file by dotted key."""
    given: dict[str, Given] = {}
    kinds = get_type_hints(cls)
    for name, value in values.items():
        key, kind = f"{prefix}{name}", kinds.get(name)
        if kind is None:
            known = dict.fromkeys(f"{prefix}{name}" for name in kinds) | all_keys(cls, prefix)
            raise BadInputError(f"{where}: unknown key {key}{did_you_mean(key, known)}")
        if is_dataclass(kind):
            if not isinstance(value, dict):
                raise BadInputError(f"{where}: {key} must be a section with keys and values, but is {value!r}")
            given |= _read_mapping(kind, value, where, f"{key}.")  # type: ignore[arg-type]
        elif value is None and type(None) not in get_args(kind):
            raise BadInputError(f"{where}: {key} must not be null; set it, or remove it to use its default")
        else:
            given[key] = Given(value, f"{where}: {key}", is_word=False)
    return given


def _read_words(cls: type, words: Sequence[str], positional: Sequence[str]) -> dict[str, Given]:
    """The values of a command line by dotted key. The last of a repeated option counts."""
    kinds, given = all_keys(cls), dict[str, Given]()
    free, rest, left = list(positional), list[str](), list(reversed(words))
    while left:
        word = left.pop()
        if word.startswith("--"):
            key, value = _split_option(word, kinds)
            if value is None and left and _can_be_value(left[-1], kinds[key]):
                value = left.pop()
            if value is None and kinds[key] is not bool:
                raise BadInputError(f"--{key} needs a value; see --help")
            given[key] = Given("true" if value is None else value, f"--{key}", is_word=True)
        elif free and free[0].endswith("*"):
            rest.append(word)
        elif free:
            key = free.pop(0)
            given[key] = Given(word, f"--{key}", is_word=True)
        else:
            raise BadInputError(f"unexpected argument {word!r}; see --help")
    if rest:
        key = free[0].removesuffix("*")
        given[key] = Given(rest, f"--{key}", is_word=False)
    return given


def _split_option(word: str, kinds: Mapping[str, Any]) -> tuple[str, str | None]:
    """The key of ``--key`` or ``--key=value``, and the value if it has one."""
    name, equals, value = word.removeprefix("--").partition("=")
    key = name.replace("-", "_")
    if key not in kinds:
        inside = [known for known in kinds if known.startswith(f"{key}.")]
        if inside:
            raise BadInputError(f"--{name} is a section; set one of its keys, such as --{inside[0]}")
        raise BadInputError(f"unknown option --{name}{did_you_mean(key, kinds, '--')}")
    return key, value if equals else None


def _can_be_value(word: str, kind: Any) -> bool:
    """Whether the word after an option is its value: for true or false only these two, else it is a new argument."""
    return word in ("true", "false") if kind is bool else not word.startswith("--")


def _build(cls: type[T], given: Mapping[str, Given]) -> T:
    """The defaults of a dataclass with the given values in their place."""
    kinds = all_keys(cls)
    values = {key: _convert(kinds[key], one) for key, one in given.items()}
    try:
        return _replaced(cls(), values)
    except ValueError as error:  # of a dataclass that checks its own values
        raise BadInputError(str(error)) from error


def _replaced(defaults: T, values: Mapping[str, Any]) -> T:
    """A dataclass with other values for some dotted keys."""
    changed = {key: value for key, value in values.items() if "." not in key}
    for section in dict.fromkeys(key.partition(".")[0] for key in values if "." in key):
        inside = {key.partition(".")[2]: value for key, value in values.items() if key.startswith(f"{section}.")}
        changed[section] = _replaced(getattr(defaults, section), inside)
    return replace(defaults, **changed)  # type: ignore[type-var]


def _convert(kind: Any, given: Given) -> Any:
    """A given value as its key's type."""
    from jsonargparse import ArgumentError

    value, is_word = given.value, given.is_word
    if isinstance(value, str) and (kind is str or str in get_args(kind)) and get_origin(kind) is not list:
        return None if is_word and value == "null" and type(None) in get_args(kind) else value
    if get_origin(kind) is list and isinstance(value, str) and not (is_word and value.startswith("[")):
        value, is_word = [value], False
    parser = _parser_of(kind)
    try:
        return (parser.parse_args([f"--value={value}"]) if is_word else parser.parse_object({"value": value})).value
    except ArgumentError:
        raise BadInputError(f"{given.where}: must be {expected(kind)}, but is {given.value!r}") from None


@cache
def _parser_of(kind: Any) -> Any:
    """A parser of a single value."""
    from jsonargparse import ArgumentParser  # imported only when there is a value: --help needs none

    parser = ArgumentParser(exit_on_error=False, default_env=False, add_help=False)
    parser.add_argument("--value", type=kind)
    return parser


def expected(kind: Any) -> str:
    """A type in plain words, such as ``a whole number`` or ``one of viterbi, marginal``."""
    inside = get_args(kind)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, inside))}"
    if get_origin(kind) is list:
        one = expected(inside[0])
        return one.replace("one of", "one or more of", 1) if get_origin(inside[0]) is Literal else f"a list ({one})"
    if get_origin(kind) in (Union, UnionType):
        return " or ".join("null" if one is type(None) else expected(one) for one in inside)
    return PLAIN_NAMES.get(kind, str(kind))


def _describe(defaults: Any, prefix: str, width: int) -> Iterator[str]:
    """The keys of a dataclass, then its sections, each under a line that says what it is about."""
    kinds, about = get_type_hints(type(defaults)), _descriptions(type(defaults))
    sections = {name: getattr(defaults, name) for name, kind in kinds.items() if is_dataclass(kind)}
    for name, kind in kinds.items():
        if name not in sections:
            value = getattr(defaults, name)
            yield f"  --{prefix}{name}{' true|false' if value is True else _placeholder(kind)}"
            text = about.get(name, "") + _default(value)
            yield from textwrap.wrap(text, width, initial_indent=" " * 8, subsequent_indent=" " * 8)
    for name, section in sections.items():
        yield f"\n{prefix}{name}: {about.get(name, '')}"
        yield from _describe(section, f"{prefix}{name}.", width)


def _descriptions(cls: type) -> dict[str, str]:
    """What each field does, from the docstrings of a dataclass and of those that it extends."""
    from docstring_parser import parse

    documented = [base for base in reversed(cls.__mro__) if is_dataclass(base)]
    params = [param for base in documented for param in parse(base.__doc__ or "").params]
    return {param.arg_name: " ".join((param.description or "").split()) for param in params}


def _placeholder(kind: Any) -> str:
    """What stands after an option for its value; nothing if it needs none."""
    inside = [one for one in get_args(kind) if one is not type(None)]
    if kind is bool:
        return ""
    if get_origin(kind) is Literal:
        return f" {'|'.join(map(str, inside))}"
    if get_origin(kind) is list:
        return f" [{_placeholder(inside[0]).strip()},…]"
    if get_origin(kind) in (Union, UnionType):
        return _placeholder(inside[0])
    return f" {PLACEHOLDERS.get(kind, 'VALUE')}"


def _default(value: Any) -> str:
    """The default of a key; nothing if it is unset or off."""
    if value is None or value is False or value in ("", []):
        return ""
    shown = "true" if value is True else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return f" (default: {shown})"
