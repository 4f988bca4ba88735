"""Held-out data: inputs with the outputs that are right, as the models see text."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from noisychannel.data.blank_lines import is_blank
from noisychannel.data.codec import Codec
from noisychannel.data.files import find_files, read_lines
from noisychannel.data.rows import Row
from noisychannel.errors import BadInputError
from noisychannel.runs import RunDirectory


@dataclass(frozen=True)
class HeldOut:
    """Inputs with what should come out."""

    name: str
    inputs: list[str]
    features: list[tuple[str, ...]]
    references: list[list[str]]
    """As the models see text: lower-cased if training was, and so on."""
    groups: list[str] = field(default_factory=list)
    """Empty texts if there are none."""
    columns: dict[str, list[str]] = field(default_factory=dict)
    """The values of columns that are ignored but have a name."""
    places: list[str] = field(default_factory=list)
    """Where each item comes from, as file:line."""

    @staticmethod
    def read(name: str, rows: Iterable[Row], further: Sequence[str], codec: Codec) -> HeldOut:
        """From pairs.

        ``further``: files with more references, parallel to the pairs. ``codec``: that of the outputs.
        """
        listed = list(rows)
        texts = [[row.output] for row in listed]
        for pattern in further:
            for references, text in zip(texts, _parallel_texts(pattern, listed), strict=True):
                references.append(text)
        seen = [[as_seen(text, codec) for text in references] for references in texts]
        named = [dict(row.further) for row in listed]
        return HeldOut(
            name,
            [row.input for row in listed],
            [row.features for row in listed],
            seen,
            [row.group for row in listed],
            {column: [values[column] for values in named] for column in (named[0] if named else ())},
            [row.where for row in listed],
        )

    @staticmethod
    def of_all(parts: Sequence[HeldOut]) -> HeldOut:
        """The parts of one set, one after another."""
        return HeldOut(
            parts[0].name,
            [text for part in parts for text in part.inputs],
            [tags for part in parts for tags in part.features],
            [texts for part in parts for texts in part.references],
            [group for part in parts for group in part.groups],
            {column: [value for part in parts for value in part.columns[column]] for column in parts[0].columns},
            [place for part in parts for place in part.places],
        )

    def units(self, by: str) -> list[Hashable]:
        """What each item is drawn with when a bootstrap resamples: items of one unit are drawn together."""
        known: dict[str, Sequence[Hashable]] = {
            "input": self.inputs,
            "line": range(len(self.inputs)),
            "output": [references[0] for references in self.references],
            **({"features": self.features} if any(self.features) else {}),
            **({"group": self.groups} if any(self.groups) else {}),
            **self.columns,
        }
        if by not in known:
            raise BadInputError(
                f"--resample-by: {self.name} has no {by!r}; there are {', '.join(known)} "
                "(--columns with -NAME names a further column)"
            )
        return list(known[by])


def _parallel_texts(pattern: str, rows: Sequence[Row]) -> list[str]:
    """The lines of further files that are parallel to rows of parallel files: file by file, with the same numbers.

    Lines without a row, which were blank when the rows were read, must be blank here, too.
    """
    texts: list[str] = []
    partners: dict[str, Path] = {}
    for file in find_files([pattern]):
        for line in read_lines(file):
            home, _, number = rows[len(texts)].where.rpartition(":") if len(texts) < len(rows) else ("", "", "")
            new = home not in partners and file not in partners.values()
            if number == str(line.number) and (new or partners.get(home) == file):
                partners[home] = file
                texts.append(line.text)
            elif not is_blank(line) and home:
                where = rows[len(texts)].where
                raise BadInputError(f"{line.where}: not parallel to {where}; blank lines must be the same")
            elif not is_blank(line):
                raise BadInputError(f"{line.where}: a reference without an input; there are {len(rows)} inputs")
    if len(texts) < len(rows):
        raise BadInputError(f"{pattern}: {len(texts)} references, but there are {len(rows)} inputs")
    return texts


def as_seen(text: str, codec: Codec) -> str:
    """A text as a model that writes it could write it."""
    return codec.splitter.join(codec.split(text))


def rows_of_groups(run: RunDirectory, rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each group of a run, by its name.

    A run without groups has the one group ''. A run that is itself a group has the rows of that group, and those that
    name no group.
    """
    header = run.header()
    found: dict[str, list[Row]] = {group: [] for group in header.groups}
    if found.keys() == {""}:
        own = header.group
        return {"": [row for row in rows if not own or row.group in ("", own)]}
    for row in rows:
        if row.group not in found:
            raise BadInputError(f"{row.where}: the run has no group {row.group!r}; it has {', '.join(found)}")
        found[row.group].append(row)
    return found
