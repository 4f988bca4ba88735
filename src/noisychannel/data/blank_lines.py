"""Lines without content. Running text separates sentences by them: they are skipped and counted."""

from __future__ import annotations

from collections import Counter

from noisychannel.data.files import Line


def is_blank(line: Line) -> bool:
    """Whether a line has nothing but whitespace, tabs included: a spreadsheet writes empty rows as tabs."""
    return not line.text.strip()


class BlankLines:
    """How many blank lines were skipped, by file."""

    def __init__(self) -> None:
        self.by_file: Counter[str] = Counter()

    def skips(self, line: Line) -> bool:
        """Whether a line is blank; it is then counted."""
        blank = is_blank(line)
        if blank:
            self.by_file[str(line.file)] += 1
        return blank

    def __str__(self) -> str:
        """Such as ``12 blank lines skipped (train.tsv)``; empty if there were none."""
        if not self.by_file:
            return ""
        files = list(self.by_file)
        if len(files) > 1:
            files = [f"{number:,} in {file}" for file, number in self.by_file.most_common(3)]
        further = ["…"] if len(self.by_file) > len(files) else []
        return f"{counted_blanks(self.by_file.total())} ({', '.join([*files, *further])})"


def counted_blanks(number: int) -> str:
    return f"{number:,} blank line{'' if number == 1 else 's'} skipped"
