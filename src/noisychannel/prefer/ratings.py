"""Ratings: what raters said, one JSON line for each rating.

    {"format": 1, "page": "3f…", "item": "9a…", "rater": "Ann", "choice": "first", "left": "second", "at": "2026-…Z"}

``choice`` names the outputs in the order of the page, whatever the rater saw on the left. If a rater rates an item
again, the last rating counts; a choice of null takes the rating back.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from noisychannel.data.files import find_files, read_lines
from noisychannel.errors import BadInputError, NoisyChannelError, shortened
from noisychannel.prefer.key import Key
from noisychannel.schemas import ClosedRecord, parse_record

FORMAT = 1
LONGEST_NAME = 80
"""Characters of a rater's name."""
AGAIN = "download the ratings again"

Side = Literal["first", "second"]
Choice = Literal["first", "second", "both good", "both bad"]


@dataclass(frozen=True, kw_only=True)
class Rating(ClosedRecord):
    """One rating."""

    format: Literal[1]
    page: str
    item: str
    rater: str
    choice: Choice | None
    left: Side
    """Which output this rater saw on the left."""
    at: str
    """When, with its time zone."""
    artificial: bool = False
    """Made by a test, not by a person."""

    def __post_init__(self) -> None:
        if not self.rater_id or len(self.rater) > LONGEST_NAME:
            raise ValueError(f"rater: must have 1 to {LONGEST_NAME} characters")
        try:
            aware = datetime.fromisoformat(self.at).tzinfo is not None
        except ValueError:
            aware = False
        if not aware:
            raise ValueError("at: must be a time with its zone, such as 2026-01-31T12:00:00Z")

    @property
    def rater_id(self) -> str:
        """Who it is: names that differ in case or blanks alone are one person, who must not count twice."""
        return " ".join(unicodedata.normalize("NFC", self.rater).casefold().split())

    @property
    def time(self) -> datetime:
        return datetime.fromisoformat(self.at)

    def json(self) -> str:
        """A line, without its end."""
        record = asdict(self)
        if not self.artificial:
            del record["artificial"]
        return json.dumps(record, ensure_ascii=False)


def read_ratings(
    files: Sequence[str],
    key: Key,
    allow_artificial: bool = False,
    warn: Callable[[str], None] = lambda line: None,
) -> list[Rating]:
    """The ratings that count, in the order of time: the last one of each rater and item.

    Artificial ratings are left out unless they are allowed, and ``warn`` is told how many there are. They come out
    first: a trial of a rater must not replace what the same person said in earnest.
    """
    known = {item.id for item in key.items}
    ratings, trials = list[Rating](), list[Rating]()
    for file in find_files(files):
        for line in read_lines(file):
            if not line.text.strip():
                continue
            if not line.text.lstrip().startswith('{"'):
                raise BadInputError(f"{line.where}: no rating; {file} is no file of ratings (is it a key?)")
            try:
                rating = parse_record(line.text, Rating, Path(line.where), AGAIN)
            except NoisyChannelError as error:
                raise BadInputError(str(error)) from error
            if rating.page != key.page:
                raise BadInputError(
                    f"{line.where}: a rating of page {shortened(rating.page)}, but the key is of page '{key.page}'; "
                    "give the key that was written with the rated page"
                )
            if rating.item not in known:
                raise BadInputError(f"{line.where}: the page has no item {shortened(rating.item)}; {AGAIN}")
            (trials if rating.artificial and not allow_artificial else ratings).append(rating)
    found, left_out = counting(ratings), counting(trials)
    if left_out and not found:
        raise BadInputError(
            f"{', '.join(files)}: all ratings are artificial (trials or tests); give ratings of people, or see what "
            "these would give with --allow-artificial"
        )
    if left_out:
        count = (
            "1 artificial rating (a trial or a test) was"
            if len(left_out) == 1
            else (f"{len(left_out)} artificial ratings (trials or tests) were")
        )
        warn(f"{count} left out")
    return found


def counting(ratings: Iterable[Rating]) -> list[Rating]:
    """The ratings that count. Of two with the same time, the one that comes later here is the last."""
    last: dict[tuple[str, str], Rating] = {}
    for rating in sorted(ratings, key=lambda rating: rating.time):
        last.pop((rating.rater_id, rating.item), None)  # so that the order is that of the ratings that count
        last[rating.rater_id, rating.item] = rating
    return [rating for rating in last.values() if rating.choice is not None]
