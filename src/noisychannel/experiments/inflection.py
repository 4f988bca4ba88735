"""An inflection experiment: its data as files, its models as runs.

    work/data/…             the pairs and the unpaired lists, as ``noisychannel train`` reads them
    work/runs/bi-1, uni-1   seed 1: direct model (reading both ways, or one), and the channel
    work/runs/lm-paper      the language models of a setting

A run has one set of models for each type, or one for all, with the tags as features (the language model's too). All
runs share the vocabularies of one of the latter, so that their models can be mixed. Whatever is finished in ``work`` is
left alone, so an experiment that was interrupted goes on when it is repeated.
"""

from __future__ import annotations

import multiprocessing
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from noisychannel.atomic import write_text
from noisychannel.data.prepare import DataConfig
from noisychannel.decode.settings import SearchSettings
from noisychannel.experiments.inflection_data import Splits, TaggedPair, some
from noisychannel.runs import RunDirectory
from noisychannel.training.config import ModelConfig, Role, RunConfig, TrainingConfig
from noisychannel.training.run import Say, prepare_run, train_runs
from noisychannel.training.world import choose_device

Setting = Literal["paper", "strict"]
"""Unpaired lists as they are, or without any form of a dev or test lemma."""
ExperimentPart = Literal["table", "further", "curves"]
"""The paper's table, rows beyond it, and learning curves."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large the experiment is."""

    types: int | None = None
    """The last so many; all where None, and so for the next three."""
    pairs: int | None = None
    held_out: int | None = None
    """Of dev and of test, for each type."""
    unpaired: int | None = None
    seeds: tuple[int, ...] = (1, 2, 3)
    hidden_size: int = 128
    updates: int = 8_000
    """Most updates of a direct model, a channel or a baseline; patience ends most of them before."""
    batch_size: int = 20
    lm: ModelConfig = field(
        default_factory=lambda: ModelConfig(
            hidden_size=512, num_layers=2, dropout=0.2, learning_rate=1e-4, batch_size=128
        )
    )
    """With the paper's size and rate."""
    lm_updates: int = 10_000
    better_lm_rate: float = 1e-3
    better_lm_updates: int = 8_000
    """A rate at which the language model learns better, and faster."""
    search: SearchSettings = SearchSettings(k1=60, k2=30, max_growth=8)  # noqa: RUF009 (frozen)
    tuning: SearchSettings = SearchSettings(k1=20, k2=10, max_growth=8)  # noqa: RUF009 (frozen)
    """The search while weights are tuned."""
    tuned_types: int | None = None
    """Weights are tuned on the dev items of so many types, drawn at random; of all where None."""
    iterations: int = 5
    """Of tuning."""


@dataclass(frozen=True)
class Setup:
    """Where an experiment is done, and how."""

    data: Path
    """The folder that holds morphology/."""
    work: Path
    scale: Scale
    device: str = "auto"
    jobs: int | None = None
    """Processes at a time; chosen for the machine where None."""
    say: Say = print

    @property
    def morphology(self) -> Path:
        return self.data / "morphology"


class Inflection(ABC):
    """The data and the runs of one experiment."""

    name: str
    parts: tuple[ExperimentPart, ...]
    """Those it has."""
    separator: str
    """Of tags."""
    vocabularies: str
    """The run whose vocabularies all runs share; it has no groups."""

    def __init__(self, tables: Mapping[str, Splits[TaggedPair]], setup: Setup) -> None:
        """``tables``: the items of each type; accuracy is the mean over types."""
        self.morphology, self.work, self.scale = setup.morphology, setup.work, setup.scale
        self.device, self.jobs, self.say = setup.device, setup.jobs, setup.say
        scale = setup.scale
        self.tables = {
            type_: Splits(
                some(splits.train, scale.pairs, seed=1), splits.dev[: scale.held_out], splits.test[: scale.held_out]
            )
            for type_, splits in tables.items()
        }

    @abstractmethod
    def lists(self) -> Mapping[Setting, Mapping[str, list[str]]]:
        """All unpaired forms of each tag set."""

    @abstractmethod
    def grouped(self, name: str) -> bool:
        """Whether a run has models for each type; else it has one for all, with the tags as features."""

    def __getstate__(self) -> dict[str, object]:
        """For processes that measure: what is said is said by the one that waits for them."""
        return {**self.__dict__, "say": print}

    @property
    def types(self) -> list[str]:
        return list(self.tables)

    def unpaired(self) -> dict[Setting, dict[str, list[str]]]:
        """The unpaired forms of each tag set that there are pairs of, as many as the scale allows."""
        tag_sets = {pair.tags for splits in self.tables.values() for pair in splits.train}
        return {
            setting: {tags: _at_most(forms, self.scale.unpaired) for tags, forms in lists.items() if tags in tag_sets}
            for setting, lists in self.lists().items()
        }

    def run(self, name: str, type_: str = "") -> RunDirectory:
        """A run of the experiment, or that of one of its types."""
        run = RunDirectory(self.work / "runs" / name)
        return run.group(type_) if self.grouped(name) else run

    def lm(self, run: str, better: bool = False, word_list: bool = False) -> ModelConfig:
        """The language model of a run; one for all types has more to read, and so larger batches."""
        scale = self.scale
        batch_size = (1 if self.grouped(run) else 4) * (scale.lm.batch_size or 1)
        rate = scale.better_lm_rate if better else scale.lm.learning_rate
        updates = scale.better_lm_updates if better else scale.lm_updates
        return replace(scale.lm, learning_rate=rate, batch_size=batch_size, max_updates=updates, word_list=word_list)

    # --- files

    def write_pairs(self, name: str = "", train: Mapping[str, Sequence[TaggedPair]] | None = None) -> dict[str, str]:
        """The train and dev files; with other training pairs of each type, where given."""
        files = {split: str(self.work / "data" / f"{split}{name}.tsv") for split in ("train", "dev")}
        for split, file in files.items():
            rows = {type_: getattr(splits, split) for type_, splits in self.tables.items()}
            pairs = train if train is not None and split == "train" else rows
            _write(Path(file), ["\t".join(pair) for of_type in pairs.values() for pair in of_type])
        return files

    def write_unpaired(self, name: str, lists: Mapping[str, Sequence[str]]) -> str:
        file = self.work / "data" / f"unpaired-{name}.tsv"
        _write(file, [f"{tags}\t{form}" for tags, forms in lists.items() for form in forms])
        return str(file)

    # --- runs

    def config(
        self,
        name: str,
        models: Sequence[Role],
        files: Mapping[str, str],
        seed: int = 1,
        bidirectional: bool = True,
        unpaired: str = "",
        lm: ModelConfig | None = None,
        batch_size: int | None = None,
        hidden_size: int | None = None,
    ) -> RunConfig:
        """A run with the paper's sizes, dropout and learning rates, unless told otherwise."""
        scale = self.scale
        model = ModelConfig(hidden_size=hidden_size or scale.hidden_size, dropout=0.5)
        both = replace(model, bidirectional=bidirectional)
        return RunConfig(
            run_dir=str(self.work / "runs" / name),
            models=list(models),
            seed=seed,
            device=self.device,
            jobs=self.jobs,
            data=DataConfig(
                train=[files["train"]],
                dev=[files["dev"]],
                columns="input,output,group" if self.grouped(name) else "input,output,features",
                feature_separator=self.separator,
                unpaired=[unpaired] if unpaired else [],
                unpaired_columns="group,output" if self.grouped(name) else "features,output",
                vocabularies=None if name == self.vocabularies else str(self.work / "runs" / self.vocabularies),
            ),
            direct=both,
            channel=model,
            seq2seq=both,
            attention=both,
            lm=lm or scale.lm,
            training=TrainingConfig(
                batch_size=batch_size or scale.batch_size,
                max_updates=scale.updates,
                patience=8,
                decay_patience=3,
                precision="tf32",
            ),
        )

    def train(self, groups: Sequence[Sequence[RunConfig]]) -> None:
        """Train the runs of each group together; on a GPU, the groups at the same time."""
        groups = [group for group in groups if not all(self._finished(config) for config in group)]
        if choose_device(self.device).type != "cuda" or len(groups) < 2 or self.jobs == 1:
            for group in groups:
                self.say(_train(group))
            return
        with ProcessPoolExecutor(len(groups), multiprocessing.get_context("spawn")) as pool:
            for lines in pool.map(_train, groups):
                self.say(lines)

    def prepare(self, configs: Sequence[RunConfig]) -> None:
        """Make, of these, the run whose vocabularies the others share."""
        for config in configs:
            if config.data.vocabularies is None and not (Path(config.run_dir) / "run.json").exists():
                prepare_run(config, self.say)

    def _finished(self, config: RunConfig) -> bool:
        run = RunDirectory(Path(config.run_dir))
        if not (run.path / "run.json").exists():
            return False
        runs = [self.run(run.path.name, type_) for type_ in self.types]
        listed = all(one.word_list_file.exists() for one in runs) or not config.lm.word_list
        return listed and all(one.finished(role) for one in runs for role in config.models)


def _train(configs: Sequence[RunConfig]) -> str:
    """What became of the models, a line each."""
    return "\n".join(
        f"{finished.label}: dev perplexity {finished.dev_perplexity:.4f} at step {finished.best_step} "
        f"of {finished.step}{' (its limit)' if finished.at_limit else ''}, {finished.seconds:.0f} s"
        for finished in train_runs(configs, lambda event: None, lambda line: None)
    )


def _at_most(forms: list[str], n: int | None) -> list[str]:
    return forms if n is None or n >= len(forms) else some(forms, n, seed=1)


def _write(file: Path, lines: Iterable[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, "".join(f"{line}\n" for line in lines))
