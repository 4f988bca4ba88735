"""What a search returns."""

from __future__ import annotations

from dataclasses import dataclass


def longest_output(input_length: int, max_length: int | None = None, max_growth: int | None = None) -> int:
    """Of an input, EOS included in both: at most so long, and so much longer than it; 2·|x| + 10 where nobody says."""
    if max_length is None and max_growth is None:
        return 2 * input_length + 10
    longest = [] if max_length is None else [max_length]
    return min([*longest, *([] if max_growth is None else [input_length + max_growth])])


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output with its scores; a term that was not computed is None."""

    tokens: tuple[int, ...]
    """Output ids, EOS excluded."""
    score: float
    """The objective that the search maximised."""
    direct: float
    """log q(y | x) of the model that proposed it."""
    channel: float | None
    """log p(x | y)."""
    lm: float | None
    """log p(y)."""
    length: int
    """|y|, EOS included."""
    alignment: tuple[int, ...] | None
    """For each output position, EOS included, the input position at which the direct model emitted it."""
    channel_alignment: tuple[int, ...] | None
    """For each input position, EOS included, the output position at which the channel model emitted it."""
    complete: bool
    """False for the best partial output of a search in which no output reached EOS."""
