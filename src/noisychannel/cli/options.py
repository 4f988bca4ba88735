"""A command's options from a small dataclass: typed, explained by ``--help``, and complained about in one line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, TypeVar, get_origin, get_type_hints

from jsonargparse import ArgumentError, ArgumentParser

from noisychannel.errors import BadInputError

T = TypeVar("T")


def parse_options(cls: type[T], words: Sequence[str], positional: Sequence[str], usage: str) -> T:
    """Read ``words`` into the dataclass ``cls``; its fields in ``positional`` are given without a name, in order.

    A last positional field with a star, such as ``files*``, is a list and takes all the words that are left. A
    yes-or-no option needs no value, and a list may be given as a single word.
    """
    kinds = get_type_hints(cls)
    parser = ArgumentParser(exit_on_error=False, allow_abbrev=False, default_env=False, prog="noisychannel")
    parser.add_class_arguments(cls, nested_key=None)
    if "-h" in words or "--help" in words:
        print(usage + "\n" + key_help(parser))
        raise SystemExit(0)
    options: list[str] = []
    free, rest = list(positional), list[str]()
    pending: str | None = None  # an option that waits for its value
    for word in words:
        if word.startswith("--"):
            if pending is not None:
                options.append(_valued(pending, None, kinds[pending]))
            name, equals, value = word[2:].partition("=")
            pending = name.replace("-", "_")
            if pending not in kinds:
                close = get_close_matches(pending, kinds, n=1, cutoff=0.0)
                raise BadInputError(f"unknown option --{name}; did you mean --{close[0]}?")
            if equals:
                options.append(_valued(pending, value, kinds[pending]))
                pending = None
        elif pending is not None and not (kinds[pending] is bool and word not in ("true", "false")):
            options.append(_valued(pending, word, kinds[pending]))
            pending = None
        elif free and free[0].endswith("*"):
            rest.append(word)
        elif free:
            options.append(f"--{free.pop(0)}={word}")
        else:
            raise BadInputError(f"one word too many: {word!r}; see --help")
    if pending is not None:
        options.append(_valued(pending, None, kinds[pending]))
    if rest:
        options.append(f"--{positional[-1].removesuffix('*')}={json.dumps(rest)}")
    try:
        parsed: Any = parser.parse_args(options)
    except ArgumentError as error:
        message = re.sub(r"\s+", " ", str(error))
        raise BadInputError(f"{message}; see --help") from error
    return cls(**{name: parsed[name] for name in kinds})


def check_at_least(least: int, options: object, *names: str) -> None:
    """Refuse numbers below ``least``; an option that was not given is no number."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value < least:
            raise BadInputError(f"--{name}: must be at least {least}, but is {value}")


def key_help(parser: ArgumentParser) -> str:
    """The options a parser knows, without those that it adds of itself and that mean nothing here."""
    text = parser.format_help().partition("\n\n")[2]
    text = re.sub(r"^  (-h, --help|--config |--print_config).*\n(?: {6,}.*\n)*", "", text, flags=re.MULTILINE)
    return re.sub(r", --[\w.]+\+ [\w.{},+\[\]]+", "", text)


def _valued(name: str, value: str | None, kind: Any) -> str:
    if value is None:
        if kind is not bool:
            raise BadInputError(f"--{name} needs a value; see --help")
        value = "true"
    if get_origin(kind) is list and not value.startswith("["):
        value = json.dumps([value])
    return f"--{name}={value}"
