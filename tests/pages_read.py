"""Reads a page back as a browser would, far enough to compare its numbers and to see that nothing foreign is in it."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "img", "input", "link", "hr"}


class PageReader(HTMLParser):
    """Tags with their attributes, and the text and tables of each section."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.section = ""
        self.texts: dict[str, str] = {}
        self.tables: dict[str, list[list[list[str]]]] = {}
        self.feed(page)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "section":
            self.section = dict(attrs)["id"] or ""
            self.tables[self.section] = []
        elif tag == "table":
            self.tables.setdefault(self.section, []).append([])
        elif tag == "tr":
            self.tables[self.section][-1].append([])
        elif tag in ("td", "th"):
            self.tables[self.section][-1][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "section":
            self.section = ""

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.texts[self.section] = self.texts.get(self.section, "") + data
        if self.open and {"td", "th"} & set(self.open) and self.tables.get(self.section):
            self.tables[self.section][-1][-1][-1] += data

    def table(self, section: str, first: str) -> list[list[str]]:
        """The first table of a section whose head begins with this cell, without the head."""
        return next(rows[1:] for rows in self.tables[section] if rows[0][0] == first)
