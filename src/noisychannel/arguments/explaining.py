"""``--help``, from the types, defaults and docstrings of dataclasses."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Collection, Iterator
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from noisychannel.arguments.bounds import all_bounds
from noisychannel.arguments.kinds import is_flag
from noisychannel.arguments.lists import option_name

PLACEHOLDERS = {int: "N", float: "X", str: "TEXT"}
LONGEST_LINE = 100
"""Characters of a line of ``--help``, unless the terminal is narrower."""


def describe_keys(cls: type, unset: Collection[str] = ()) -> str:
    """The keys of a dataclass for ``--help``: options, what they do, and their defaults, except those of ``unset``."""
    width = min(LONGEST_LINE, shutil.get_terminal_size((LONGEST_LINE, 24)).columns)
    return "\n".join(_describe(cls(), "", width, unset))


def _describe(defaults: Any, prefix: str, width: int, unset: Collection[str]) -> Iterator[str]:
    """The keys of a dataclass, then its sections, each under a line that says what it is about."""
    cls: Any = type(defaults)
    kinds, about, bounds = get_type_hints(cls), _descriptions(cls), all_bounds(cls)
    sections = {name: getattr(defaults, name) for name, kind in kinds.items() if is_dataclass(kind)}
    for name, kind in kinds.items():
        if name not in sections:
            value = getattr(defaults, name)
            yield f"  {option_name(prefix + name)}{' true|false' if value is True else _placeholder(kind)}"
            notes = [str(bounds[name])] if name in bounds else []
            notes += [] if name in unset else _default(value)
            text = about.get(name, "") + (f" ({'; '.join(notes)})" if notes else "")
            yield from textwrap.wrap(text, width, initial_indent=" " * 8, subsequent_indent=" " * 8)
    for name, section in sections.items():
        yield f"\n{prefix}{name}: {about.get(name, '')}"
        yield from _describe(section, f"{prefix}{name}.", width, unset)


def _descriptions(cls: type) -> dict[str, str]:
    """What each field does, from the docstrings of a dataclass and of those that it extends."""
    from docstring_parser import parse

    documented = [base for base in reversed(cls.__mro__) if is_dataclass(base)]
    params = [param for base in documented for param in parse(base.__doc__ or "").params]
    return {param.arg_name: " ".join((param.description or "").split()) for param in params}


def _placeholder(kind: Any) -> str:
    """What stands after an option for its value; nothing if it needs none."""
    inside = [one for one in get_args(kind) if one is not type(None)]
    if is_flag(kind):
        return ""
    if get_origin(kind) is Literal:
        return f" {'|'.join(map(str, inside))}"
    if get_origin(kind) is list:
        return f" {_placeholder(inside[0]).strip()},…"
    if get_origin(kind) in (Union, UnionType):
        return _placeholder(inside[0])
    return f" {PLACEHOLDERS.get(kind, 'VALUE')}"


def _default(value: Any) -> list[str]:
    """The default of a key; nothing if it is unset or off."""
    if value is None or value is False or value in ("", []):
        return []
    shown = "true" if value is True else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return [f"default: {shown}"]
