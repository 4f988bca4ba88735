"""What a user can say to ``fit``, and what is read from the files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Annotated, TypeAlias

from noisychannel.arguments import Bounds, Count, CountOrZero, Positive, Seed, check_bounds
from noisychannel.atomic import write_text
from noisychannel.data.blank_lines import BlankLines
from noisychannel.data.files import find_files, find_stored_files, read_lines
from noisychannel.data.prepare import DataConfig
from noisychannel.data.rows import HUB, Columns, Row, read_pairs, read_unpaired
from noisychannel.data.sources import SourceFiles, Sources
from noisychannel.data.standard_input import DASH, check_read_once, spool
from noisychannel.errors import BadInputError, shortened
from noisychannel.fitting.facts import FitUnits, choose_units, symbols
from noisychannel.text import TextConfig

LEAST_PAIRS = 20
"""Fewer pairs teach nothing, and nothing could be held out."""
SEPARATOR = ";"
LONGEST, TIMES_LONGER = 40, 4.0
"""Pairs and words with more symbols than this are left out: the larger of the two, so many times the median length."""
SIDES = ("input", "output")
Units: TypeAlias = dict[str, FitUnits]


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What to fit, and how.

    Args:
        pairs: The pairs: a file, a directory, a glob or hf:NAME:SPLIT.
        words: Files of outputs without inputs. May be repeated.
        columns: What the columns of the pairs are: a list of input, output, features and -, or a preset.
        word_columns: What the columns of the words are, such as output,features; a plain list has one, output.
        run_dir: The directory of the run; if not set, runs/ and the name of the pairs.
        test: Pairs, with the columns of PAIRS, on which the finished run is evaluated.
        seed: Decides the folds, the made-up pairs, the words that are given inputs, and the trainings.
        device: The device, such as cpu or cuda; auto takes a GPU if there is one.
        jobs: Processes that work at the same time; if not set, as many as fit.
        minutes: How long it may take if nothing else slows the machine down; a longer plan is shortened.
        folds: How many folds, or 0 to split dev off once; by rule if not set.
        copy: A score for putting out the symbol that is read; by rule if not set.
        made_up: How many made-up pairs; by rule if not set.
        inputs: How many words are given inputs by a reverse model; by rule if not set.
        lexicon: Whether outputs of new inputs are among the words just as often as those of the pairs. If not, the
            outputs of the pairs are left out of the words; by rule if not set: not if (nearly) all of them are listed.
        overwrite: Start over.
        keep_work: Keep the runs of the folds and the reverse runs, in .fit inside the run directory.
    """

    pairs: str = ""
    words: list[str] = field(default_factory=list)
    columns: str = "pairs"
    word_columns: str = "output"
    run_dir: str | None = None
    test: str | None = None
    seed: Seed = 1
    device: str = "auto"
    jobs: Count | None = None
    minutes: Positive = 15.0
    folds: Annotated[int, Bounds(least=0, most=20)] | None = None
    copy: bool | None = None
    made_up: CountOrZero | None = None
    inputs: CountOrZero | None = None
    lexicon: bool | None = None
    overwrite: bool = False
    keep_work: bool = False

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.folds == 1:
            raise BadInputError("--folds: must be 0 (split dev off once) or at least 2, but is 1")

    def with_standard_input(self, directory: Path) -> FitOptions:
        """The same options with a copy of standard input, in this directory, for what is named ``-``."""
        names = [self.pairs, *self.words, self.test or ""]
        check_read_once(names)
        if DASH not in names:
            return self
        if self.pairs == DASH and self.run_dir is None:
            raise BadInputError("--run-dir: pairs from standard input have no name; name a directory for the run")
        copy = spool(directory)
        words = [copy if name == DASH else name for name in self.words]
        return replace(
            self,
            pairs=copy if self.pairs == DASH else self.pairs,
            words=words,
            test=copy if self.test == DASH else self.test,
        )

    @property
    def place(self) -> Path:
        """The run directory."""
        if self.run_dir is not None:
            return Path(self.run_dir)
        name = Path(self.pairs.removeprefix(HUB).replace(":", "-").replace("*", "-")).name.split(".")[0]
        return Path("runs") / (name or "fit")

    @property
    def chosen(self) -> dict[str, object]:
        """What decides the result beside the files: repeated in another way, it would be another fit."""
        names = ("columns", "word_columns", "seed", "folds", "copy", "made_up", "inputs", "lexicon")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class UserData:
    """The pairs and the words of a user."""

    pairs: tuple[Row, ...]
    words: tuple[Row, ...]
    """Each once, in the order of the files."""
    columns: Columns
    config: DataConfig
    """Columns and words; the files of pairs are written by ``fit``."""
    sources: SourceFiles
    left_out: int = 0
    """Pairs that are much longer than the others."""
    words_left_out: str = ""
    """How many lines of the words are left out, and why, for the user; empty if there are none."""
    blank: str = ""
    """How many blank lines were skipped, for the user; empty if there were none."""

    @staticmethod
    def read(options: FitOptions) -> UserData:
        """Read and check everything. Nothing is written."""
        if not options.pairs:
            raise BadInputError("fit needs pairs: noisychannel fit pairs.tsv --words words.txt")
        if not options.pairs.startswith(HUB):
            find_stored_files([options.pairs])
        columns = Columns.parse(options.columns, "--columns", ("input", "output"))
        word_columns = Columns.parse(options.word_columns, "--word-columns", ("output",))
        for name, roles in (("--columns", columns.roles), ("--word-columns", word_columns.roles)):
            if "group" in roles:
                raise BadInputError(
                    f"{name}: fit makes one run; fit the pairs of each group by themselves, without group"
                )
        if options.word_columns != "output" and not options.words:
            raise BadInputError("--word-columns would be ignored: there are no words; give --words, or leave it out")
        _check_plain(options)
        for name in (*options.words, *([options.test] if options.test else [])):
            if not name.startswith(HUB):
                find_stored_files([name])
        asked = Sources(DataConfig(train=[options.pairs], unpaired=options.words))
        blank = BlankLines()
        pairs = list(read_pairs([options.pairs], columns, SEPARATOR, blank))
        units: Units = {side: choose_units([getattr(row, side) for row in pairs]) for side in SIDES}
        pairs = [_written_once(row, units) for row in pairs]
        limits = {side: _longest([len(symbols(getattr(row, side), units[side])) for row in pairs]) for side in SIDES}
        usual = [row for row in pairs if all(len(symbols(getattr(row, s), units[s])) <= limits[s] for s in SIDES)]
        left_out = len(pairs) - len(usual)
        pairs = usual
        inputs = len({row.input for row in pairs})
        if len(pairs) < LEAST_PAIRS or inputs < LEAST_PAIRS:
            raise BadInputError(
                f"{options.pairs}: {len(pairs)} pairs of {inputs} different inputs; fit needs at least {LEAST_PAIRS} "
                "of both, and 100 or more to be useful"
            )
        if options.test is not None and not sum(1 for _ in read_pairs([options.test], columns, SEPARATOR)):
            raise BadInputError(f"{options.test}: empty; there is nothing to evaluate (--test)")
        tagged = "features" in columns.roles
        known: dict[tuple[str, tuple[str, ...]], Row] = {}
        repeated = too_long = 0
        for row in read_unpaired(options.words, word_columns, SEPARATOR, blank):
            if tagged and "features" in word_columns.roles and not row.features:
                raise BadInputError(
                    f"{row.where}: a word without tags; add them, remove the line, or name the column - "
                    "(--word-columns) to do without the tags of all words"
                )
            row = _written_once(row, units)
            if len(symbols(row.output, units["output"])) > limits["output"]:
                too_long += 1
            elif known.setdefault((row.output, row.features if tagged else ()), row) is not row:
                repeated += 1
        if options.words and not known:
            raise BadInputError(f"{', '.join(options.words)}: no words; leave out --words, or name another file")
        if tagged and "features" in word_columns.roles:
            _check_tags(pairs, list(known.values()), word_columns)
        if "features" in word_columns.roles and not tagged:
            # Nothing could read them.
            word_columns = Columns(
                tuple("-" if x == "features" else x for x in word_columns.roles), word_columns.fields
            )
        reasons = {"repeated": repeated, f"longer than {limits['output']} symbols": too_long}
        words_left_out = ", ".join(f"{number:,} {why}" for why, number in reasons.items() if number)
        config = DataConfig(
            columns=",".join(columns.roles),
            unpaired=list(options.words),
            unpaired_columns=word_columns.written,
            feature_separator=SEPARATOR,
            input=TextConfig(max_length=limits["input"]),
            output=TextConfig(max_length=limits["output"]),
        )
        return UserData(
            tuple(pairs), tuple(known.values()), columns, config, asked.record(), left_out, words_left_out, str(blank)
        )


def _written_once(row: Row, units: Units) -> Row:
    """A row as the models see it: words have one space between them. So equal texts are equal everywhere."""
    for side in SIDES:
        if units[side] == "words":
            text = " ".join(getattr(row, side).split())
            row = row._replace(input=text) if side == "input" else row._replace(output=text)
    return row


def _longest(lengths: Sequence[int]) -> int:
    """A longer side would take most of the time and memory: the cost of a batch is that of its longest pair."""
    return max(LONGEST, math.ceil(TIMES_LONGER * median(lengths))) if lengths else LONGEST


def _check_tags(pairs: Sequence[Row], words: Sequence[Row], columns: Columns) -> None:
    """Refuse words that have no tag of the pairs: their columns are probably named in the wrong order."""
    tags = {tag for row in pairs for tag in row.features}
    if not words or not tags or any(not tags.isdisjoint(row.features) for row in words):
        return
    first, paired = words[0], next(row for row in pairs if row.features)
    found = (
        f"{first.where}: --word-columns {columns.written} reads the word {shortened(first.output)} with the tags "
        f"{shortened(SEPARATOR.join(first.features))}, and no word has a tag of the pairs (such as "
        f"{shortened(SEPARATOR.join(paired.features))})"
    )
    if any(not tags.isdisjoint(row.output.split(SEPARATOR)) for row in words):
        swapped = columns.exchanged("output", "features").written
        raise BadInputError(f"{found}; the columns are the other way round: --word-columns {swapped}")
    raise BadInputError(f"{found}; name the columns as they are, or name that of the tags - to do without tags")


def _check_plain(options: FitOptions) -> None:
    """Refuse words with several columns of which nothing is said."""
    if options.word_columns != "output":
        return
    for name in options.words:
        if name.startswith(HUB):
            continue
        for file in find_files([name]):
            line = next((line for line in read_lines(file) if "\t" in line.text), None)
            if line is not None:
                raise BadInputError(
                    f"{line.where}: {line.text.count(chr(9)) + 1} columns, but nothing says what they are; name them, "
                    "such as --word-columns output,features (or features,output; - for a column to ignore)"
                )


def write_rows(file: Path, rows: Sequence[Row], columns: Columns) -> None:
    """Rows with the columns of the user's pairs."""
    lines = []
    for row in rows:
        values = {"input": row.input, "output": row.output, "features": SEPARATOR.join(row.features)}
        values |= {f"-{name}": value for name, value in row.further}
        lines.append("\t".join(values.get(role, "").replace("\t", " ") for role in columns.roles) + "\n")
    write_text(file, "".join(lines))
