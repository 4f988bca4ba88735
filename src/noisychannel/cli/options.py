"""A command's options from a small dataclass: typed, explained by ``--help``, and complained about in one line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, TypeVar

from jsonargparse import ArgumentError, ArgumentParser

from noisychannel.errors import BadInputError

T = TypeVar("T")


def parse_options(cls: type[T], words: Sequence[str], positional: Sequence[str], usage: str) -> T:
    """Read ``words`` into the dataclass ``cls``; its fields in ``positional`` are given without a name, in order.

    A last positional field with a star, such as ``files*``, is a list and takes all the words that are left.
    """
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    parser = ArgumentParser(exit_on_error=False, allow_abbrev=False, default_env=False, prog="noisychannel")
    parser.add_class_arguments(cls, nested_key=None)
    if "-h" in words or "--help" in words:
        print(usage + "\noptions:\n" + parser.format_help().partition("\n\n")[2])
        raise SystemExit(0)
    options, free = [], list(positional)
    rest: list[str] = []
    expects_value = False
    for word in words:
        if word.startswith("--"):
            name = word[2:].partition("=")[0].replace("-", "_")
            if name not in names:
                close = get_close_matches(name, names, n=1, cutoff=0.0)
                raise BadInputError(f"unknown option --{name}; did you mean --{close[0]}?")
            options.append("--" + name + word[2 + len(name) :])
            expects_value = "=" not in word
        elif expects_value:
            options.append(word)
            expects_value = False
        elif free and free[0].endswith("*"):
            rest.append(word)
        elif free:
            options.append(f"--{free.pop(0)}={word}")
        else:
            raise BadInputError(f"one word too many: {word!r}; see --help")
    if rest:
        options.append(f"--{positional[-1].removesuffix('*')}={json.dumps(rest)}")
    try:
        parsed: Any = parser.parse_args(options)
    except ArgumentError as error:
        message = re.sub(r"\s+", " ", str(error))
        raise BadInputError(f"{message}; see --help") from error
    return cls(**{name: parsed[name] for name in names})
