"""Records as lines of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

DECIMALS = 6
"""Of numbers. Sums in float32 have about seven digits; further ones would depend on the batch."""


def json_line(record: Mapping[str, Any]) -> str:
    """A record as one line, its numbers with ``DECIMALS``; those that JSON cannot write (infinite, NaN) are null."""
    return json.dumps(writable(record), ensure_ascii=False, allow_nan=False)


def writable(value: Any) -> Any:
    """A value with its numbers as ``json_line`` writes them."""
    if isinstance(value, float):
        return round(value, DECIMALS) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: writable(item) for key, item in value.items()}
    return [writable(item) for item in value] if isinstance(value, (list, tuple)) else value
