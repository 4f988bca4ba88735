"""What all sections of a report share: examples chosen by rule, texts of users as markup, captions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from noisychannel.data.edits import align
from noisychannel.pages import escape

T = TypeVar("T")

LONGEST_TEXT = 400
"""Characters of a text that a page shows."""
LONGEST_SYMBOL = 40
"""Characters of a symbol that a table shows; a word can be long."""
LONGEST_MARKED = 150
"""Symbols of texts in which differences are marked."""


@dataclass(frozen=True)
class Section:
    """A part of the page. It has a body, or a reason why it is left out."""

    key: str
    """Its anchor."""
    title: str
    body: str = ""
    reason: str = ""


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most so many of some items, evenly spread over them: the rule by which examples are chosen."""
    if len(items) <= most:
        return list(items)
    return [items[n * len(items) // most] for n in range(most)]


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def caption(text: str) -> str:
    """Where the numbers of a section come from."""
    return paragraph(text, "caption")


def beginning(text: str, most: int = LONGEST_TEXT) -> str:
    """A text, or its beginning if it is long: what users' files hold must not make a page large."""
    return text if len(text) <= most else text[:most] + " …"


def shown_text(text: str) -> str:
    """A text of a user as markup; its beginning if it is long."""
    return f'<span class="symbols">{escape(beginning(text))}</span>' if text else '<span class="faint">(nothing)</span>'


def marked_text(text: str, other: str, characters: bool) -> str:
    """A text as markup: what the other one does not have there is underlined, what only the other has is a caret."""
    ours, theirs = (list(one) if characters else one.split() for one in (text, other))
    if not text or max(len(ours), len(theirs)) > LONGEST_MARKED or len(text) > LONGEST_TEXT:
        return shown_text(text)
    parts: list[str] = []
    missing = '<mark class="missing"></mark>'
    for left, right in align(ours, theirs):
        if left:
            parts.append(escape(left) if left == right else f"<mark>{escape(left)}</mark>")
        elif not parts or parts[-1] != missing:
            parts.append(missing)
    between = "" if characters else " "
    joined = between.join(parts).replace(f"</mark>{between}<mark>", between)
    return f'<span class="symbols">{joined}</span>'
