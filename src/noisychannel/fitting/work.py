"""The work directory of a fit, inside the run directory, and what is remembered to resume or to repeat it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from noisychannel import __version__
from noisychannel.arguments import option_name
from noisychannel.atomic import cannot_write, write_text
from noisychannel.errors import BadInputError
from noisychannel.fitting import rules
from noisychannel.fitting.estimate import Estimate
from noisychannel.fitting.facts import Facts
from noisychannel.fitting.options import FitOptions, UserData
from noisychannel.fitting.plan import Plan
from noisychannel.run_files import FIT, PLAN, WORK, RunFiles
from noisychannel.runs import RunDirectory
from noisychannel.schemas import Record, read_record
from noisychannel.training.lock import locked_run
from noisychannel.training.removal import clear_run, remove

FORMAT = 1
DATA = "data"
KEPT_FILES = ("train.tsv", "dev.tsv", "inputs.tsv", "words.tsv")
"""What a finished fit has in its folder for data."""


@dataclass(frozen=True)
class Begun(Record):
    """What a fit was asked to do, and what it planned: a repeated command follows the same plan."""

    noisychannel: str
    format: int
    chosen: dict[str, Any]
    files: dict[str, list[str]]
    """Checksums of the pairs and the words."""
    facts: Facts
    plan: Plan
    minutes: float | None = None
    """The time that the plan was made for; not recorded by earlier versions."""

    @property
    def trained(self) -> float:
        """The share of the updates that the rules want: less than 1 if there is too little time for them."""
        return self.plan.updates / rules.updates(self.facts.pairs)

    def planned_for(self, minutes: float) -> str:
        """The time of the plan, in words, if it was made for another one than this; else empty."""
        return f"--minutes {self.minutes:g}" if self.minutes not in (None, minutes) else ""


@dataclass(frozen=True)
class Done(Record):
    """What a finished fit leaves in fit.json."""

    begun: Begun
    default: str
    """The system that ``decode`` uses."""
    metric: str
    held_out: int
    """Pairs that the estimates are of."""
    estimates: tuple[Estimate, ...]
    helps: tuple[str, ...]
    made_inputs: int
    """Words that the models of the run were given with inputs."""
    seconds: float


class Work:
    """Where everything is."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.path = run_dir / WORK

    def run(self, part: str) -> Path:
        """The run of a part; that of all pairs is the run of the user."""
        return self.run_dir if part == "all" else self.path / part

    def reverse(self, part: str) -> Path:
        return self.path / f"{part}-reverse"

    @property
    def vocabulary(self) -> Path:
        """A run whose vocabularies all others use."""
        return self.path / "vocabulary"

    @property
    def reverse_vocabulary(self) -> Path:
        return self.path / "vocabulary-reverse"

    @property
    def unlisted_file(self) -> Path:
        """The words without the outputs of pairs."""
        return self.path / "unpaired.tsv"

    @property
    def material_file(self) -> Path:
        """Some of the words."""
        return self.path / "words.tsv"

    @property
    def symbols_file(self) -> Path:
        """Pairs for the vocabularies alone: symbols and tags that words have and pairs may not have."""
        return self.path / "vocabulary.tsv"

    def train_file(self, part: str) -> Path:
        return self.path / f"{part}.train.tsv"

    def held_out_file(self, part: str) -> Path:
        return self.path / f"{part}.dev.tsv"

    def inputs(self, part: str) -> Path:
        return self.path / f"{part}.inputs"

    def further_file(self, part: str) -> Path:
        """Words with the inputs that they were given."""
        return self.path / f"{part}.further.tsv"

    def words_file(self, part: str) -> Path:
        """Words with the tags that they were given."""
        return self.path / f"{part}.words.tsv"

    def reverse_file(self, file: Path) -> Path:
        """A file of pairs for the reverse runs."""
        return file.with_name(f"reverse.{file.name}")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from fitting here."""
        with locked_run(RunFiles(self.path)):
            yield

    def begin(self, begun: Begun) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        write_text(self.path / PLAN, json.dumps(asdict(begun), ensure_ascii=False, indent=1) + "\n")

    @property
    def exists(self) -> bool:
        """Whether a fit has finished, or left something to resume."""
        return (self.path / PLAN).exists() or (self.run_dir / FIT).exists()

    def begun(self) -> Begun | None:
        """What an unfinished fit planned."""
        file = self.path / PLAN
        return read_record(file, Begun, "start over (--overwrite)", [FORMAT]) if file.exists() else None

    def done(self) -> Done | None:
        """What a finished fit left."""
        file = self.run_dir / FIT
        return read_record(file, Done, "start over (--overwrite)") if file.exists() else None

    def finish(self, done: Done) -> None:
        write_text(self.run_dir / FIT, json.dumps(asdict(done), ensure_ascii=False, indent=1) + "\n")

    def clear(self) -> None:
        """Remove what an earlier fit has left, and the run."""
        inside = [path for path in self.path.glob("*") if path.name != ".lock"] if self.path.is_dir() else []
        home = self.run_dir / DATA
        ours = [home / name for name in KEPT_FILES] if (self.run_dir / FIT).exists() or inside else []
        for path in (*inside, self.run_dir / FIT, *ours):
            remove(path)
        if home.is_dir() and not any(home.iterdir()):
            home.rmdir()
        run = RunDirectory(self.run_dir)
        if run.header_file.exists():
            clear_run(run, [])


def check_place(options: FitOptions, work: Work) -> None:
    """Refuse a directory that holds something else."""
    place = options.place
    if place.exists() and not place.is_dir():
        raise BadInputError(f"--run-dir: {place} is a file; name another directory")
    for name in (options.pairs, *options.words, *([options.test] if options.test else [])):
        if Path(name).resolve().is_relative_to(place.resolve()):
            raise BadInputError(f"--run-dir: {place} holds {name}, which fit would replace; name another directory")
    if not place.is_dir() or not any(place.iterdir()):
        return
    ours = work.path.is_dir() or (place / FIT).exists()
    is_run = RunDirectory(place).header_file.exists()
    if not ours and not (is_run and options.overwrite):
        what = "is a run that fit did not make" if is_run else "is not empty, and not a run of fit"
        fix = "name another directory, or start over with --overwrite" if is_run else "name another directory"
        raise BadInputError(f"--run-dir: {place} {what}; {fix}")


def check_same(before: Begun, options: FitOptions, files: Mapping[str, list[str]], place: Path) -> None:
    """Refuse to resume a fit of other data or options."""
    fix = "repeat it as it was, name another --run-dir, or start over with --overwrite"
    for name, value in options.chosen.items():
        if before.chosen.get(name) != value:
            raise BadInputError(
                f"{option_name(name)}: {place} was begun with {before.chosen.get(name)}, not {value}; {fix}"
            )
    for name, sums in files.items():
        if before.files.get(name) != sums:
            asked = {"train": "PAIRS", "unpaired": "--words"}[name]
            raise BadInputError(f"{asked}: the files are not those that {place} was begun with; {fix}")


def begun_now(options: FitOptions, files: Mapping[str, list[str]], facts: Facts, plan: Plan) -> Begun:
    return Begun(__version__, FORMAT, options.chosen, dict(files), facts, plan, options.minutes)


def checksums_of(data: UserData) -> dict[str, list[str]]:
    """Of the files that decide the result."""
    return {key: [file.sha256 for file in files.values()] for key, files in data.sources.items()}
