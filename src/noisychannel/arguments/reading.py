"""The values that a YAML file or a command line gives, by dotted key."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, NamedTuple, get_args, get_type_hints

from noisychannel.arguments.kinds import is_flag
from noisychannel.arguments.lists import option_name
from noisychannel.errors import BadInputError, cut, did_you_mean, shortened


class Given(NamedTuple):
    """The value of one key as the user gave it."""

    value: Any
    where: str
    """For messages: ``--key`` as the user wrote it, or ``file: key``."""
    is_word: bool
    """Whether it comes from the command line, as text."""


def all_keys(cls: type, prefix: str = "") -> dict[str, Any]:
    """Every dotted key of a dataclass that takes a value, with its type."""
    keys: dict[str, Any] = {}
    for name, kind in get_type_hints(cls).items():
        if isinstance(kind, type) and is_dataclass(kind):
            keys |= all_keys(kind, f"{prefix}{name}.")
        else:
            keys[prefix + name] = kind
    return keys


def read_mapping(cls: type, values: Mapping[Any, Any], where: str, prefix: str = "") -> dict[str, Given]:
    """The values of a YAML file by dotted key."""
    given: dict[str, Given] = {}
    kinds = get_type_hints(cls)
    for name, value in values.items():
        if not isinstance(name, str):
            raise BadInputError(f"{where}: a key must be text, but {prefix}{shortened(name)} is not")
        key, kind = f"{prefix}{name}", kinds.get(name)
        if kind is None:
            known = dict.fromkeys(f"{prefix}{name}" for name in kinds) | all_keys(cls, prefix)
            raise BadInputError(f"{where}: unknown key {cut(key)}{did_you_mean(key, known)}")
        if is_dataclass(kind):
            if not isinstance(value, dict):
                raise BadInputError(f"{where}: {key} must be a section with keys and values, but is {shortened(value)}")
            given |= read_mapping(kind, value, where, f"{key}.")  # type: ignore[arg-type]
        elif value is None and type(None) not in get_args(kind):
            raise BadInputError(f"{where}: {key} must not be null; set it, or remove it to use its default")
        else:
            given[key] = Given(value, f"{where}: {key}", is_word=False)
    return given


def read_words(cls: type, words: Sequence[str], positional: Sequence[str]) -> dict[str, Given]:
    """The values of a command line by dotted key. An option may be repeated only with the same value."""
    kinds, given = all_keys(cls), dict[str, Given]()
    free, rest, left = list(positional), list[str](), list(reversed(words))
    while left:
        word = left.pop()
        if word.startswith("--"):
            key, value = _split_option(word, kinds)
            where = word.partition("=")[0]
            if value is None and left and _can_be_value(left[-1], kinds[key]):
                value = left.pop()
            if value is None and not is_flag(kinds[key]):
                raise BadInputError(f"{where} needs a value; see --help")
            _give(given, key, Given("true" if value is None else value, where, is_word=True))
        elif free and free[0].endswith("*"):
            rest.append(word)
        elif free and free[0].endswith("?"):
            meant = f"{option_name(free[0].removesuffix('?'))} {shlex.quote(cut(word))}"
            raise BadInputError(f"unexpected argument {shortened(word)}; did you mean {meant}?")
        elif free:
            key = free.pop(0)
            _give(given, key, Given(word, option_name(key), is_word=True))
        else:
            raise BadInputError(f"unexpected argument {shortened(word)}; see --help")
    if rest:
        key = free[0].removesuffix("*")
        _give(given, key, Given(rest, option_name(key), is_word=False))
    return given


def _give(given: dict[str, Given], key: str, one: Given) -> None:
    """Add a value, and refuse a second one that differs."""
    before = given.setdefault(key, one)
    if before.value != one.value:
        values = f"as {shortened(before.value)} and as {shortened(one.value)}"
        raise BadInputError(f"{before.where}: given twice, {values}; remove one of them")


def _split_option(word: str, kinds: Mapping[str, Any]) -> tuple[str, str | None]:
    """The key of ``--key`` or ``--key=value``, and the value if it has one."""
    name, equals, value = word.removeprefix("--").partition("=")
    key = name.replace("-", "_")
    if key not in kinds:
        inside = [known for known in kinds if known.startswith(f"{key}.")]
        if inside:
            raise BadInputError(f"--{name} is a section; set one of its keys, such as {option_name(inside[0])}")
        known = [other.replace("_", "-") for other in kinds]
        raise BadInputError(f"unknown option --{cut(name)}{did_you_mean(key.replace('_', '-'), known, '--')}")
    return key, value if equals else None


def _can_be_value(word: str, kind: Any) -> bool:
    """Whether the word after an option is its value: for true or false only these two, else it is a new argument."""
    return word in ("true", "false") if is_flag(kind) else not word.startswith("--")
