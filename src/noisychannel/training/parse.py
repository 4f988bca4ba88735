"""YAML file and command line to RunConfig, with complaints that name the key and the nearest valid one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml
from jsonargparse import ArgumentError, ArgumentParser

from noisychannel.errors import BadInputError
from noisychannel.training.config import RunConfig


def make_parser(**kwargs: Any) -> ArgumentParser:
    """The parser of every key of a RunConfig, as ``--key.subkey value``."""
    parser = ArgumentParser(exit_on_error=False, allow_abbrev=False, default_env=False, **kwargs)
    parser.add_argument("--config", action="config", help="a YAML file; options after it override its keys")
    parser.add_class_arguments(RunConfig, nested_key=None, fail_untyped=True)
    return parser


def parse_config(file: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a configuration file and the command line's overrides (``--direct.hidden_size 256``)."""
    values = _load_yaml(file)
    _check_keys(values, RunConfig, str(file))
    options = _check_options(overrides)
    try:
        parser = make_parser()
        parsed = parser.parse_args(["--config", json.dumps(_listed(values, RunConfig)), *options]).as_dict()
    except ArgumentError as error:
        raise BadInputError(_explain(str(error), file, overrides)) from error
    config: RunConfig = _build(RunConfig, parsed)
    config.check()
    return config


def dump_config(config: RunConfig) -> str:
    """The configuration as YAML that ``parse_config`` reads back."""
    return yaml.safe_dump(asdict(config), sort_keys=False, allow_unicode=True)


def known_keys(cls: type = RunConfig, prefix: str = "") -> list[str]:
    """All dotted keys of a configuration class."""
    keys = []
    for name, kind in get_type_hints(cls).items():
        keys.append(prefix + name)
        if is_dataclass(kind) and isinstance(kind, type):
            keys += known_keys(kind, f"{prefix}{name}.")
    return keys


def _build(cls: Any, values: dict[str, Any]) -> Any:
    """A configuration dataclass, with those inside it, from checked values."""
    hints = get_type_hints(cls)
    inside = {name: _build(hints[name], values[name]) for name in hints if is_dataclass(hints[name])}
    return cls(**{name: values[name] for name in hints} | inside)


def _load_yaml(file: Path) -> dict[str, Any]:
    try:
        loaded = yaml.load(file.read_text(encoding="utf-8"), _UniqueKeys)
    except OSError as error:
        raise BadInputError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{file}: not UTF-8") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark else str(file)
        raise BadInputError(f"{where}: not YAML ({getattr(error, 'problem', None) or 'unreadable'})") from error
    if loaded is None:
        raise BadInputError(f"{file}: empty; copy one of the samples under configs/")
    if not isinstance(loaded, dict):
        raise BadInputError(f"{file}: must hold keys and values, as in the samples under configs/")
    return loaded


class _UniqueKeys(yaml.SafeLoader):
    """YAML as ever, but a key that stands twice is an error: one of the two would be lost without a word."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key} stands twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _check_keys(values: dict[str, Any], cls: type, where: str, prefix: str = "") -> None:
    hints = get_type_hints(cls)
    for key, value in values.items():
        if key not in hints:
            raise BadInputError(f"{where}: unknown key {prefix}{key}{_nearest(f'{prefix}{key}')}")
        kind = hints[key]
        if is_dataclass(kind) and isinstance(kind, type):
            if not isinstance(value, dict):
                raise BadInputError(f"{where}: {prefix}{key} must hold keys and values, but is {value!r}")
            _check_keys(value, kind, where, f"{prefix}{key}.")
        elif value is None and type(None) not in get_args(kind):
            raise BadInputError(f"{where}: {prefix}{key} must not be null; give it a value, or leave it out")


def _check_options(overrides: Sequence[str]) -> list[str]:
    """Refuse unknown options; a single value for a list becomes a list of one, as it does in the file."""
    checked: list[str] = []
    takes_list = False
    for word in overrides:
        if word.startswith("--"):
            key, equals, value = word[2:].partition("=")
            if key not in known_keys():
                raise BadInputError(f"unknown option --{key}{_nearest(key).replace('mean ', 'mean --')}")
            takes_list = _kind(key) is list
            checked += [f"--{key}", *([_as_list(value) if takes_list else value] if equals else [])]
        else:
            checked.append(_as_list(word) if takes_list else word)
    return checked


def _as_list(value: str) -> str:
    return value if value.startswith("[") else json.dumps([value])


def _listed(values: dict[str, Any], cls: type) -> dict[str, Any]:
    """The same values with single ones made lists where a list is expected."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        kind = get_type_hints(cls)[key]
        if is_dataclass(kind) and isinstance(kind, type):
            result[key] = _listed(value, kind)
        else:
            result[key] = [value] if get_origin(kind) is list and isinstance(value, str) else value
    return result


def _kind(key: str) -> Any:
    cls: Any = RunConfig
    for name in key.split("."):
        cls = get_type_hints(cls)[name]
    return get_origin(cls) or cls


def _nearest(key: str) -> str:
    """The valid key most like ``key``, as a whole or in its last part."""

    def likeness(known: str) -> float:
        whole = SequenceMatcher(None, key, known).ratio()
        return max(whole, 0.9 * SequenceMatcher(None, key.rpartition(".")[2], known.rpartition(".")[2]).ratio())

    return f"; did you mean {max(known_keys(), key=likeness)}?"


def _explain(message: str, file: Path, overrides: Sequence[str]) -> str:
    """A parser's message as one line that names the key as the user wrote it."""
    message = re.sub(r"\s+", " ", message).strip()
    found = re.fullmatch(r'Parser key "(.*?)": Expected an? (.*?)\. Got value: (.*)', message)
    if not found:
        return message
    key, kind, value = found.groups()
    kind = re.sub(r"<class '(\w+)'>|typing\.", r"\1", kind).replace("Literal", "one of ")
    given = any(word.startswith(f"--{key}") for word in overrides)
    return f"{f'--{key}' if given else f'{file}: {key}'}: must be {kind}, but is {value!r}"
