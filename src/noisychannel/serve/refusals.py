"""Why a request is refused, in plain words: the errors of its schema, one line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noisychannel.errors import did_you_mean
from noisychannel.serve import schema

TAKEN: dict[str, type[schema.Closed]] = {
    "/api/decode": schema.DecodeRequest,
    "/api/explain": schema.DecodeRequest,
    "/api/score": schema.ScoreRequest,
    "/api/rerank": schema.RerankRequest,
}
"""What each path takes."""
LISTED: dict[str, type[schema.Closed]] = {"inputs": schema.Input, "pairs": schema.Pair, "items": schema.Candidates}
"""The objects in the lists of requests."""
OTHER_NAMES = {"tags": "features"}
"""Names of keys that are usual elsewhere."""


def reason(path: str, error: Mapping[str, Any]) -> str:
    """The line for an error of pydantic in a request to this path: where, and what to do."""
    place = [part for part in error["loc"] if part != "body"]
    message = _plain(path, place, error) or error["msg"].removeprefix("Value error, ")
    return f"{'.'.join(map(str, place))}: {message}" if place else message


def _plain(path: str, place: list[str | int], error: Mapping[str, Any]) -> str | None:
    """In words of the interface; None if those of pydantic will do."""
    if error["type"] == "extra_forbidden":
        return f"there is no such key{_suggestion(path, place)}"
    match error["type"], place:
        case "list_type", [*_, "features"]:
            return 'must be a list of texts, such as ["N", "DAT", "PL"]'
        case (("model_type" | "model_attributes_type" | "dict_type"), ["inputs", int()]):
            return 'must be an object with text, such as {"text": "Baum"}'
        case (("model_type" | "model_attributes_type" | "dict_type"), []):
            return "the body must be a JSON object; see /docs"
        case "dict_type", ["weights"]:
            return 'must be an object with a number for each term, such as {"lm": 0.3}'
        case (("model_type" | "model_attributes_type" | "dict_type"), _):
            return "must be an object; see /docs"
        case "string_type", _:
            return "must be a text"
        case (("int_type" | "int_from_float"), _):
            return "must be a whole number"
        case "float_type", _:
            return "must be a number"
        case "list_type", _:
            return "must be a list"
        case "too_short", _:
            return "must not be empty"
        case "greater_than_equal", _:
            return f"must be at least {error['ctx']['ge']}"
        case "missing", []:
            return "the body is empty; send JSON, see /docs"
        case "missing", _:
            return "is missing"
    return None


def _suggestion(path: str, place: list[str | int]) -> str:
    kind = LISTED.get(str(place[0])) if len(place) > 1 else TAKEN.get(path)
    known = list(kind.model_fields) if kind else []
    if (other := OTHER_NAMES.get(str(place[-1]))) in known:
        return f"; did you mean {other}?"
    return did_you_mean(str(place[-1]), known) if known else ""
