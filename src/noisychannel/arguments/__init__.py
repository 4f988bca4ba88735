"""Options and configuration files: words and YAML into dataclasses, for every command.

A dataclass names the keys, with their types, defaults and, in its docstring, what each one does. A field that is itself
a dataclass is a section; its keys are dotted, such as ``direct.hidden_size``. Every field needs a default.

    parse_options(Options, words)     the options of a command
    read_config(Config, file, words)  a YAML file, with options that override its keys
    section_of(Config, file, "data")  one section of a YAML file

jsonargparse converts and checks each value on its own. The messages are ours: one line that names the file or option,
the key, what is expected and what was given. ``reading`` finds the values, ``bounds`` says which numbers a field may
have, ``explaining`` writes ``--help``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml

from noisychannel.arguments.bounds import (
    Bounds,
    Count,
    CountOrZero,
    Positive,
    Seed,
    all_bounds,
    check_bounds,
    check_number,
)
from noisychannel.arguments.explaining import describe_keys
from noisychannel.arguments.kinds import expected
from noisychannel.arguments.lists import option_name, split_list
from noisychannel.arguments.reading import Given, all_keys, read_mapping, read_words
from noisychannel.arguments.yaml_files import check_structure, load_yaml
from noisychannel.errors import BadInputError, shortened

__all__ = [
    "Bounds",
    "Count",
    "CountOrZero",
    "Positive",
    "Seed",
    "all_keys",
    "asks_for_help",
    "check_bounds",
    "describe_keys",
    "dump_config",
    "expected",
    "given_values",
    "load_yaml",
    "option_name",
    "parse_options",
    "read_config",
    "section_of",
    "split_list",
]

T = TypeVar("T")


def parse_options(
    cls: type[T],
    words: Sequence[str],
    positional: Sequence[str] = (),
    usage: str = "",
    unset: Collection[str] = (),
) -> T:
    """The options of a command as an instance of the dataclass ``cls``. ``--help`` prints them after ``usage``.

    The fields in ``positional`` are given without a name, in order. A last one with a star, such as ``files*``, is a
    list and takes all remaining words. One with a question mark, such as ``words?``, needs its name, and an argument in
    its place is answered with it. ``--key value`` and ``--key=value`` are the same, and so are ``-`` and ``_`` in
    a key. An option that is true or false needs no value. A list is ``a,b``, ``[a,b]`` or a single value, in YAML
    files too. ``unset``: keys whose defaults ``--help`` does not show, because something else decides if they are not
    given.
    """
    if asks_for_help(words):
        print(usage + "\noptions:\n" + describe_keys(cls, unset))
        raise SystemExit(0)
    given = read_words(cls, words, positional)
    for key, value in _converted(cls, given).items():
        if value == []:
            raise BadInputError(f"{given[key].where}: must not be empty; name something, or leave it out")
    return _build(cls, given)


def given_values(cls: type, words: Sequence[str], positional: Sequence[str] = ()) -> dict[str, Any]:
    """The values that a command line gives, by key; keys that keep their defaults are absent."""
    return _converted(cls, read_words(cls, words, positional))


def read_config(cls: type[T], file: Path, words: Sequence[str] = ()) -> T:
    """A YAML file as an instance of the dataclass ``cls``; options in ``words`` override its keys."""
    return _build(cls, read_mapping(cls, load_yaml(file), str(file)) | read_words(cls, words, ()))


def section_of(cls: type[T], file: Path, section: str) -> T:
    """One section of a YAML file as an instance of its dataclass; the rest of the file is not checked."""
    values = load_yaml(file).get(section, {})
    if not isinstance(values, dict):
        raise BadInputError(f"{file}: {section} must be a section with keys and values, but is {shortened(values)}")
    given = read_mapping(cls, values, str(file), f"{section}.")
    return _build(cls, {key.removeprefix(f"{section}."): one for key, one in given.items()})


def dump_config(config: Any) -> str:
    """A dataclass as YAML that ``read_config`` reads back."""
    return yaml.safe_dump(asdict(config), sort_keys=False, allow_unicode=True)


def asks_for_help(words: Sequence[str]) -> bool:
    return "-h" in words or "--help" in words


def _build(cls: type[T], given: Mapping[str, Given]) -> T:
    """The defaults of a dataclass with the given values in their place."""
    values = _converted(cls, given)
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


def _converted(cls: type, given: Mapping[str, Given]) -> dict[str, Any]:
    """The given values as their keys' types, inside their bounds."""
    kinds, bounds = all_keys(cls), all_bounds(cls)
    values = {key: _convert(kinds[key], one) for key, one in given.items()}
    for key, value in values.items():
        check_number(value, kinds[key], bounds.get(key), given[key].where)
        _check_text(value, kinds[key], given[key])
    return values


def _check_text(value: Any, kind: Any, given: Given) -> None:
    """Refuse NUL characters, text that is not Unicode, and empty words where leaving the option out says the same."""
    texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
    if any("\0" in text for text in texts):
        raise BadInputError(f"{given.where}: must not contain a NUL character, but is {shortened(value)}")
    if any(not _is_unicode(text) for text in texts):
        raise BadInputError(f"{given.where}: must be Unicode text, but is {shortened(value)}")
    if given.is_word and "" in texts and (isinstance(value, list) or type(None) in get_args(kind)):
        raise BadInputError(f"{given.where}: must not be empty; give a value, or leave it out")


def _is_unicode(text: str) -> bool:
    """Whether a text can be written; bytes in the names of files that are not UTF-8 can be."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _convert(kind: Any, given: Given) -> Any:
    """A given value as its key's type."""
    from jsonargparse import ArgumentError

    value, is_word = given.value, given.is_word
    if isinstance(value, str) and (kind is str or str in get_args(kind)) and get_origin(kind) is not list:
        return None if is_word and value == "null" and type(None) in get_args(kind) else value
    if get_origin(kind) is list and isinstance(value, str) and not (is_word and value.startswith("[")):
        value, is_word = split_list(value, given.where), False
    refusal = BadInputError(f"{given.where}: must be {expected(kind)}, but is {shortened(given.value)}")
    parser = _parser_of(kind)
    try:
        if is_word:
            check_structure(value)  # the parser reads it as YAML
        found = (parser.parse_args([f"--value={value}"]) if is_word else parser.parse_object({"value": value})).value
    except (ArgumentError, yaml.YAMLError):
        raise refusal from None
    if is_word and found is None and value != "null":  # such as an anchor, or a comment
        raise refusal
    return found


@cache
def _parser_of(kind: Any) -> Any:
    """A parser of a single value."""
    from jsonargparse import ArgumentParser  # imported only when there is a value: --help needs none

    parser = ArgumentParser(exit_on_error=False, default_env=False, add_help=False)
    parser.add_argument("--value", type=kind)
    return parser
