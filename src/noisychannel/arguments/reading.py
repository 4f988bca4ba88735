"""The values that a YAML file or a command line gives, by dotted key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import yaml

from noisychannel.errors import BadInputError, did_you_mean


class Given(NamedTuple):
    """The value of one key as the user gave it."""

    value: Any
    where: str
    """For messages: ``--key``, or ``file: key``."""
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


def read_mapping(cls: type, values: Mapping[Any, Any], where: str, prefix: str = "") -> dict[str, Given]:
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
            given |= read_mapping(kind, value, where, f"{key}.")  # type: ignore[arg-type]
        elif value is None and type(None) not in get_args(kind):
            raise BadInputError(f"{where}: {key} must not be null; set it, or remove it to use its default")
        else:
            given[key] = Given(value, f"{where}: {key}", is_word=False)
    return given


def read_words(cls: type, words: Sequence[str], positional: Sequence[str]) -> dict[str, Given]:
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
