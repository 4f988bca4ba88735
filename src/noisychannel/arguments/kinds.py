"""Types in plain words, for messages."""

from __future__ import annotations

from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

PLAIN_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


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


def is_flag(kind: Any) -> bool:
    """Whether an option needs no value: true or false, also if something else decides when it is not given."""
    return kind is bool or set(get_args(kind)) == {bool, type(None)}
