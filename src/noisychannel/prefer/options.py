"""What a user can choose when people compare systems."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from noisychannel.arguments import Bounds, Count, Seed
from noisychannel.prefer.page import QUESTION


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Options of prefer A B.

    Args:
        a: The outputs of one system, FILE or FILE:SYSTEM.
        b: Those of the other.
        page: The page to write.
        items: At most so many items.
        seed: Which items are drawn. It does not decide which system is first; nobody can guess that.
        parts: Only items of these parts or groups, separated by commas. Default: all.
        question: What raters are asked.
        show_references: Show raters what is right.
        inputs: Of plain lines of outputs, the file of their inputs.
        references: Files of references, parallel to these inputs; shown to the raters.
    """

    a: str = ""
    b: str = ""
    page: str = ""
    items: Count = 100
    seed: Seed = 1
    parts: list[str] = field(default_factory=list)
    question: str = QUESTION
    show_references: bool = False
    inputs: str | None = None
    references: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Options of prefer serve.

    Args:
        page: The page.
        ratings: The file of ratings. Default: PAGE.ratings.jsonl.
        host: The address to listen at; 0.0.0.0 for all of this machine.
        port: The port; 0 takes one that is free.
    """

    page: str = ""
    ratings: str | None = None
    host: str = "127.0.0.1"
    port: Annotated[int, Bounds(least=0, most=65535)] = 8001


@dataclass(frozen=True, kw_only=True)
class TallyOptions:
    """Options of prefer tally.

    Args:
        ratings: Files of ratings.
        key: The key of the rated page.
        paper: Also print the figures of the paper, as a citation.
        allow_artificial: Count ratings that a trial or a test made, and say so.
        json: Also write everything there, with each segment; - is standard output, and the table is left out.
    """

    ratings: list[str] = field(default_factory=list)
    key: str = ""
    paper: bool = False
    allow_artificial: bool = False
    json: str | None = None
