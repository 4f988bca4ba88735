"""What changes between the two sides of a pair: an alignment of their symbols, and the stretches that stay the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

GAP = ""
Cell: TypeAlias = tuple[str, str]
"""A symbol of the input and the one of the output that it is aligned with. One of them may be a gap."""


def align(left: Sequence[str], right: Sequence[str]) -> list[Cell]:
    """Symbols of both in pairs, with gaps: as few changes as can be, a replaced symbol counting a bit more than a gap.

    Of equally good alignments the one that pairs symbols as far to the left as it can.
    """

    def replaced(i: int, j: int) -> float:
        return 0.0 if left[i] == right[j] else 1.1

    # Of the rest of both, from the last symbols to the first.
    cost = [[float(len(left) - i + len(right) - j) for j in range(len(right) + 1)] for i in range(len(left) + 1)]
    for i in reversed(range(len(left))):
        for j in reversed(range(len(right))):
            cost[i][j] = min(replaced(i, j) + cost[i + 1][j + 1], 1 + cost[i + 1][j], 1 + cost[i][j + 1])
    cells, i, j = [], 0, 0
    while i < len(left) or j < len(right):
        rest = cost[i][j]
        both = i < len(left) and j < len(right)
        if both and rest == replaced(i, j) + cost[i + 1][j + 1]:
            cells.append((left[i], right[j]))
            i, j = i + 1, j + 1
        elif i < len(left) and rest == 1 + cost[i + 1][j]:
            cells.append((left[i], GAP))
            i += 1
        else:
            cells.append((GAP, right[j]))
            j += 1
    return cells


def stretches(cells: Sequence[Cell]) -> list[slice]:
    """The longest possible stretches of cells whose two symbols are the same, in order."""
    found = []
    start = 0
    for n in range(len(cells) + 1):
        if n == len(cells) or cells[n][0] != cells[n][1]:
            if n > start:
                found.append(slice(start, n))
            start = n + 1
    return found
