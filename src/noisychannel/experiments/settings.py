"""How an experiment is measured, and where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from noisychannel.arguments import Count, CountOrZero, check_bounds
from noisychannel.decode.settings import SearchSettings
from noisychannel.reporting import Reporter, Say, Silent


@dataclass(frozen=True, kw_only=True)
class MeasuringSettings:
    """How rows are measured."""

    seeds: tuple[int, ...] = (1, 2, 3)
    search: SearchSettings = SearchSettings()  # noqa: RUF009 (frozen)
    tuning: SearchSettings = SearchSettings()  # noqa: RUF009 (frozen)
    """The search while weights are tuned."""
    iterations: CountOrZero = 5
    """Of tuning."""
    n_best: Count = 10
    """How many outputs of each test input are kept for the first seed; of other seeds only the best."""
    keep_terms: bool = True
    """Whether outputs are kept with their terms. Without, the files of blocks with many items are much smaller."""
    keep_alignments: bool = False
    """Whether the best outputs are kept with their alignments, for ``Design.function_words``."""
    decoding_batch: Count = 256
    """Inputs that are decoded together."""

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True)
class Setup:
    """Where an experiment works, and with which resources."""

    data: Path
    """The folder of the data."""
    work: Path
    device: str = "auto"
    jobs: Count | None = None
    """Processes at a time; chosen for the machine if None."""
    say: Say = print
    """Called with each line for the user."""
    reporter: Reporter = Silent()  # noqa: RUF009 (no state)
    """Told how far the work is."""

    def __post_init__(self) -> None:
        check_bounds(self)
