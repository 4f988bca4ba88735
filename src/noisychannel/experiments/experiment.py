"""An experiment: a design with its data, its runs, and a place to work in.

    work/data/…       files of pairs and unpaired outputs, as ``noisychannel train`` reads them
    work/runs/…       one run directory for each name that ``run_name`` gives
    work/measured/…   tuned weights and decoded outputs, so that nothing is measured twice

A subclass says which run has the model of a row, and how that run is trained; everything else is generic. Finished
work is never repeated: an interrupted experiment continues when the command is repeated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from noisychannel.decode.settings import SearchSettings
from noisychannel.evaluation.baselines import BASELINES, Answer
from noisychannel.experiments.design import Design
from noisychannel.experiments.items import Part
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.settings import MeasuringSettings, Setup
from noisychannel.experiments.training import train_groups
from noisychannel.runs import RunDirectory
from noisychannel.systems import PROPOSERS
from noisychannel.training.config import RunConfig
from noisychannel.weights import TermSource

if TYPE_CHECKING:
    from noisychannel.experiments.estimates import Rates

TrainingPair = tuple[str, str, tuple[str, ...]]
"""Input, output and features."""


@dataclass(frozen=True)
class ModelSet:
    """The run directories of the models that decode one part together."""

    roles: tuple[tuple[str, Path], ...]
    """The proposing model first; its run has the vocabularies."""
    terms: tuple[tuple[str, TermSource], ...]
    reads_features: bool

    def files(self) -> list[Path]:
        """The files that decide what the models do."""
        files = [RunDirectory(path).model_file(role) for role, path in self.roles]
        return files + [source.file() for _, source in self.terms]


class Experiment(ABC):
    """One experiment."""

    samples = False
    """Whether each seed has training pairs of its own. Baselines, too, are then measured for each seed."""
    rates: Rates | None = None
    """How fast some machine is with its models; blocks then begin with an estimate."""

    def __init__(
        self,
        design: Design,
        parts: Iterable[Part],
        setup: Setup,
        settings: MeasuringSettings,
        tuning_parts: Sequence[str] | None = None,
    ) -> None:
        """``tuning_parts``: the parts whose dev items tune the weights; all that have dev items if None."""
        self.design, self.setup, self.settings = design, setup, settings
        self.parts = tuple(parts)
        by_name = {part.name: part for part in self.parts}
        names = [part.name for part in self.parts if part.dev] if tuning_parts is None else tuning_parts
        self.tuning_parts = tuple(by_name[name] for name in names)

    # --- what a subclass says

    @abstractmethod
    def run_name(self, row: SystemRow, role: str, seed: int) -> str:
        """The run that has the model of a role (or further term) of a row, for a seed."""

    @abstractmethod
    def configs(self, runs: Collection[str]) -> list[list[RunConfig]]:
        """How to train these runs: groups of configurations. The models of a group are trained together."""

    def run(self, name: str, part: Part) -> RunDirectory:
        """The run directory of a run for a part; override it if runs have groups for the parts."""
        del part
        return RunDirectory(self.runs / name)

    def reads_features(self, run: str) -> bool:
        """Whether the models of a run were trained with the items' features."""
        del run
        return True

    def training_pairs(self, part: Part, pairs: int | None, seed: int) -> Iterable[TrainingPair]:
        """The training pairs of a part, for baselines; ``pairs`` of them. ``seed``: if each seed has its own."""
        raise NotImplementedError(f"{self.design.name} has a baseline, but no training_pairs")

    def baseline(self, row: SystemRow, part: Part, seed: int) -> Answer:
        """The baseline of a row, made from the training pairs."""
        return BASELINES[row.baseline](self.training_pairs(part, row.pairs, seed))

    def prepare(self, block: str) -> None:
        """Anything that must be done before the runs of a block are known, such as a choice on dev."""
        del block

    def rows(self, block: str) -> list[SystemRow]:
        """The rows of a block; override it if some do not apply to the data."""
        return list(self.design.blocks[block])

    def left_out(self, block: str) -> str:
        """Which rows of a block do not apply to the data, and why; empty if all do."""
        del block
        return ""

    def for_block(self, block: str) -> Experiment:
        """The experiment as a block measures it; override it, with ``restricted_to``, if a block has fewer parts."""
        del block
        return self

    def data_record(self) -> dict[str, Any]:
        """For the results: sizes of the data. Plots need ``pairs`` by part, and ``unpaired`` by setting and part."""
        return {"test": {part.name: len(part.test) for part in self.parts}}

    def amounts_record(self, row: SystemRow) -> dict[str, Any]:
        """For the results of a row: its ``amounts`` of data, if they are not those of its name."""
        del row
        return {}

    # --- what follows

    def restricted_to(self, parts: Collection[str]) -> Self:
        """The same experiment with some of its parts."""
        fewer = copy(self)
        fewer.parts = tuple(part for part in self.parts if part.name in parts)
        fewer.tuning_parts = tuple(part for part in self.tuning_parts if part.name in parts)
        return fewer

    @property
    def runs(self) -> Path:
        return self.setup.work / "runs"

    def seeds(self, row: SystemRow) -> tuple[int, ...]:
        return self.settings.seeds[: row.seeds]

    def search(self, row: SystemRow) -> SearchSettings:
        return replace(self.settings.search, **row.search)

    def run_names(self, row: SystemRow, seeds: Iterable[int]) -> dict[str, list[str]]:
        """For each run that a row needs, the roles of its models."""
        runs: dict[str, list[str]] = {}
        for seed in seeds:
            for name in row.used_models():
                role = row.model_of(name)
                roles = runs.setdefault(self.run_name(row, name, seed), [])
                if role not in roles:
                    roles.append(role)
        return runs

    def models(self, row: SystemRow, seed: int, part: Part) -> ModelSet:
        """Where the models of a row are."""
        used = {name: self.run_name(row, name, seed) for name in row.used_models()}
        roles = [(role, self.run(run, part).path) for role, run in used.items() if role not in row.terms]
        terms = [(name, TermSource(kind, self.run(used[name], part).path)) for name, kind in row.terms.items()]
        proposer = next(run for role, run in used.items() if role in PROPOSERS)
        return ModelSet(tuple(roles), tuple(terms), self.reads_features(proposer))

    def train(self, runs: Collection[str]) -> None:
        """Train these runs; those that are finished are left as they are."""
        train_groups(self.configs(runs), self.setup)

    def settings_record(self) -> dict[str, Any]:
        """For the results: how the experiment was done."""
        return asdict(self.settings)

    @property
    def tuning_record(self) -> str:
        """For the results: what the weights were tuned on."""
        of_parts = shared = ""
        seed = self.design.seed_noun
        if len(self.parts) > 1:
            noun, number = f"{self.design.part_noun}s", len(self.tuning_parts)
            shared = f"{noun} and "
            of_parts = f" of {'all' if number == len(self.parts) else number} {noun} together"
            if number == 1:
                of_parts = f" of {self.tuning_parts[0].name}"
        return f"on the dev items{of_parts}, with the models of the first {seed}, and shared by all {shared}{seed}s"
