"""The page that raters get: inputs and pairs of outputs, without a word about the systems.

It is one file. Everything that it knows is a record inside it, ``PageRecord``; ``page.js`` shows that, and ``kept.js``
keeps what raters say. The fingerprint of the page follows from the record, and so says nothing that the page does not
say.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from noisychannel.atomic import write_text
from noisychannel.errors import BadInputError
from noisychannel.pages import asset, document, embedded_json
from noisychannel.prefer.key import Key, draw_sides, key_file, make_key
from noisychannel.schemas import ClosedRecord, parse_record, read_content

if TYPE_CHECKING:
    from noisychannel.prefer.pairing import Comparison

FORMAT = 1
DATA = "prefer-data"
"""The id of the element with the record."""
QUESTION = "Which output is better?"
AGAIN = "make the page again"


@dataclass(frozen=True)
class PageItem(ClosedRecord):
    """What raters see of an item."""

    id: str
    input: str
    features: tuple[str, ...]
    references: tuple[str, ...]
    """Empty unless raters are to see them."""
    outputs: tuple[str, str]
    """In the order that the key knows."""


@dataclass(frozen=True)
class PageRecord(ClosedRecord):
    """What the page knows."""

    format: int
    page: str
    """Its fingerprint."""
    question: str
    """What raters are asked."""
    stored: bool
    """Whether a server stores the ratings."""
    items: list[PageItem]


def fingerprint(question: str, items: Sequence[PageItem]) -> str:
    """Of what raters see."""
    content = json.dumps([question, *(asdict(item) for item in items)])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def make_page(
    comparison: Comparison, question: str = QUESTION, references: bool = False, secret: int | None = None
) -> tuple[PageRecord, Key]:
    """The page and its key. ``secret``: draw the sides with this number; only tests have a reason to know it."""
    unveiled = draw_sides(comparison, secret)
    items = [
        PageItem(
            one.id,
            one.input,
            one.features,
            pair.references if references else (),
            (one.a, one.b) if one.first == "A" else (one.b, one.a),
        )
        for one, pair in zip(unveiled, comparison.pairs, strict=True)
    ]
    page = PageRecord(FORMAT, fingerprint(question, items), question, False, items)
    return page, make_key(comparison, unveiled, page.page, references)


def html(page: PageRecord) -> str:
    """The whole document."""
    package = "noisychannel.prefer"
    body = (
        f'<main id="page"><noscript>This page needs JavaScript.</noscript></main>\n{embedded_json(DATA, asdict(page))}'
    )
    scripts = asset(package, "kept.js"), asset(package, "page.js")
    return document(page.question, body, styles=(asset(package, "page.css"),), scripts=scripts)


def write_page(file: Path, page: PageRecord, key: Key) -> None:
    """The page, and its key beside it. A page that exists is never replaced: it may have been rated."""
    check_new(file)
    write_text(key_file(file), key.json())
    try:
        write_text(file, html(page))
    except BaseException:
        key_file(file).unlink(missing_ok=True)
        raise


def check_new(file: Path) -> None:
    """Refuse a name under which no new page can be written."""
    if file.is_dir() or not file.parent.is_dir():
        raise BadInputError(f"--page: {file} cannot be a file; name one in an existing directory")
    for one in (file, key_file(file)):
        if one.exists():
            raise BadInputError(
                f"--page: {one} exists, and ratings of that page need its key; name another file, or remove "
                f"{file} and {key_file(file)}"
            )


def read_page(file: Path) -> PageRecord:
    """The record inside a page."""
    if not file.is_file():
        raise BadInputError(f"{file}: no such page; make one: noisychannel prefer A B --page {file}")
    text = read_content(file, AGAIN).decode("utf-8", "replace")
    found = re.search(rf'<script type="application/json" id="{DATA}">(.*?)</script>', text, re.DOTALL)
    if found is None:
        raise BadInputError(f"{file}: not a page of noisychannel prefer; name one that prefer A B --page has written")
    page = parse_record(found[1], PageRecord, file, AGAIN, [FORMAT])
    if fingerprint(page.question, page.items) != page.page:
        raise BadInputError(f"{file}: was changed after it was made, so ratings of it cannot be trusted; {AGAIN}")
    return page
