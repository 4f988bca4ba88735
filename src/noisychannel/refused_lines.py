"""Lines of an input that could not be used: told one by one while they are few, then only counted."""

from __future__ import annotations

from collections.abc import Callable

REPORTED = 20
"""Lines that are told; further ones are only counted."""


class WrongColumns(str):
    """Why a line cannot be used, if it has too many columns or too few: most often all lines of a file have."""


class RefusedLines:
    """Counts lines that cannot be used, and says why: of a wrong number of columns only once."""

    def __init__(self, done: str, report: Callable[[str], None]) -> None:
        """``done``: what could not be done with them, such as decoded."""
        self.done, self.report = done, report
        self.number = 0
        self.wrong_columns = 0
        """Those of them with a wrong number of columns."""

    def add(self, message: str) -> None:
        self.number += 1
        if isinstance(message, WrongColumns):
            self.wrong_columns += 1
            if self.wrong_columns == 1:
                self.report(f"{message} (of further lines like this, only the number is told)")
            return
        others = self.number - self.wrong_columns
        if others <= REPORTED:
            self.report(message)
        elif others == REPORTED + 1:
            self.report(f"further lines that cannot be {self.done} are only counted")

    def summary(self) -> str:
        """How many, if not all of them were told; else empty."""
        if self.number <= REPORTED and self.wrong_columns <= 1:
            return ""
        some = f", {self.wrong_columns} of them with a wrong number of columns"
        return f"{self.number} lines could not be {self.done}" + (some if 1 < self.wrong_columns < self.number else "")
