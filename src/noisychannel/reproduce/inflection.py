"""The paper's inflection experiment: its data as files, its models as runs, one set of models for each type.

    work/data/…             the pairs and the unpaired lists, as ``noisychannel train`` reads them
    work/runs/bi-1, uni-1   seed 1: direct model (reading both ways, or one), and the channel
    work/runs/lm-paper      the language models of a setting
    work/runs/joint-1       one model for all types, which are its features

All runs share the vocabularies of the joint one, so that their models can be mixed. Whatever is finished in ``work``
is left alone, so an experiment that was interrupted goes on when it is repeated.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Literal

from noisychannel.atomic import write_text
from noisychannel.data.prepare import DataConfig
from noisychannel.reproduce.inflection_data import (
    Splits,
    german_noun_paradigms,
    held_out_paradigms,
    read_unpaired,
    read_wiktionary,
    some,
    without_lemmas,
)
from noisychannel.runs import RunDirectory
from noisychannel.training.config import ModelConfig, Role, RunConfig, TrainingConfig
from noisychannel.training.run import Say, prepare_run, train_runs
from noisychannel.training.world import choose_device
from noisychannel.weights import SearchSettings

Part = Literal["noun", "verb"]
Setting = Literal["paper", "strict"]
SETTINGS: tuple[Setting, ...] = ("paper", "strict")


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
    epochs: int = 60
    batch_size: int = 20
    lm: ModelConfig = field(
        default_factory=lambda: ModelConfig(
            hidden_size=512, num_layers=2, dropout=0.2, learning_rate=1e-4, batch_size=128
        )
    )
    """With the paper's size and rate; how long it is trained depends on how many forms there are."""
    lm_updates: int = 10_000
    """At most."""
    better_lm_rate: float = 1e-3
    better_lm_updates: int = 4_000
    """A rate at which the language model learns better, and faster."""
    search: SearchSettings = SearchSettings(k1=60, k2=30, max_growth=8)  # noqa: RUF009 (frozen)
    tuning: SearchSettings = SearchSettings(k1=20, k2=10, max_growth=8)  # noqa: RUF009 (frozen)
    """The search while weights are tuned."""
    tuned_on: int | None = None
    """Dev items of each type."""
    iterations: int = 4
    """Of tuning."""


FULL: dict[Part, Scale] = {"noun": Scale(), "verb": Scale(tuned_on=100)}
"""There are more verb types, and so enough items to tune on."""
QUICK = Scale(
    types=2,
    pairs=500,
    held_out=100,
    unpaired=5000,
    seeds=(1,),
    hidden_size=96,
    epochs=25,
    lm=ModelConfig(hidden_size=128, num_layers=1, dropout=0.2, learning_rate=1e-3, batch_size=64),
    lm_updates=600,
    better_lm_updates=600,
    search=SearchSettings(k1=10, k2=5, max_growth=8),
    tuning=SearchSettings(k1=10, k2=5, max_growth=8),
    iterations=2,
)
"""A few minutes on two cores. Its figures say that everything works, and nothing else."""


class Inflection:
    """The data and the runs of one part of speech."""

    def __init__(
        self,
        part: Part,
        data: Path,
        work: Path,
        scale: Scale,
        device: str = "auto",
        jobs: int | None = None,
        say: Say = print,
    ) -> None:
        self.part, self.work, self.scale, self.device, self.jobs, self.say = part, work, scale, device, jobs, say
        morphology = data / "morphology"
        tables = read_wiktionary(morphology, part)
        self.tables = {
            name: Splits(
                some(splits.train, scale.pairs, seed=1),
                splits.dev[: scale.held_out],
                splits.test[: scale.held_out],
            )
            for name, splits in list(tables.items())[-(scale.types or 0) :]
        }
        self._morphology = morphology

    def __getstate__(self) -> dict[str, object]:
        """For processes that measure: what is said is said by the one that waits for them."""
        return {**self.__dict__, "say": print}

    @property
    def types(self) -> list[str]:
        return list(self.tables)

    def unpaired(self) -> dict[Setting, dict[str, list[str]]]:
        """The forms of each type: as they are, and without any form of a dev or test lemma."""
        return {
            setting: {name: _at_most(forms[name], self.scale.unpaired) for name in self.types}
            for setting, forms in _unpaired(self._morphology, self.part).items()
        }

    def run(self, name: str, type_: str = "") -> RunDirectory:
        """A run of the experiment, or that of one of its types."""
        run = RunDirectory(self.work / "runs" / name)
        return run if name.startswith("joint-") else run.group(type_)

    def lm(self, lists: Mapping[str, Sequence[str]], better: bool = False) -> ModelConfig:
        """The language model for unpaired lists: as many epochs as the updates allow it."""
        scale = self.scale
        forms = sum(len(lists.get(name, ())) + len(splits.train) for name, splits in self.tables.items())
        batches = forms / len(self.tables) / (scale.lm.batch_size or 1)
        rate = scale.better_lm_rate if better else scale.lm.learning_rate
        updates = scale.better_lm_updates if better else scale.lm_updates
        return replace(scale.lm, learning_rate=rate, max_epochs=max(1, round(updates / batches)))

    # --- files

    def write_pairs(
        self, name: str = "", train: Mapping[str, Sequence[tuple[str, str]]] | None = None
    ) -> dict[str, str]:
        """The train and dev files; with other training pairs of each type, where given."""
        files = {split: str(self.work / "data" / f"{split}{name}.tsv") for split in ("train", "dev")}
        for split, file in files.items():
            rows = {type_: getattr(splits, split) for type_, splits in self.tables.items()}
            pairs = train if train is not None and split == "train" else rows
            _write(Path(file), [f"{x}\t{y}\t{type_}" for type_, pairs_ in pairs.items() for x, y in pairs_])
        return files

    def write_unpaired(self, name: str, lists: Mapping[str, Sequence[str]]) -> str:
        file = self.work / "data" / f"unpaired-{name}.tsv"
        _write(file, [f"{type_}\t{form}" for type_, forms in lists.items() for form in forms])
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
        scale, joint = self.scale, name.startswith("joint-")
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
                columns="input,output,features" if joint else "input,output,group",
                feature_separator=":",
                unpaired=[unpaired] if unpaired else [],
                unpaired_columns="group,output",
                vocabularies=None if name == VOCABULARIES else str(self.work / "runs" / VOCABULARIES),
            ),
            direct=both,
            channel=model,
            attention=both,
            lm=lm or scale.lm,
            training=TrainingConfig(
                batch_size=batch_size or scale.batch_size,
                max_epochs=scale.epochs,
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
                _train(group, self.say)
            return
        with ProcessPoolExecutor(len(groups), multiprocessing.get_context("spawn")) as pool:
            for lines in pool.map(_train_quietly, groups):
                for line in lines:
                    self.say(line)

    def prepare(self, config: RunConfig) -> None:
        """Make the run whose vocabularies the others share."""
        if not (Path(config.run_dir) / "run.json").exists():
            prepare_run(config, self.say)

    def _finished(self, config: RunConfig) -> bool:
        run = RunDirectory(Path(config.run_dir))
        if not (run.path / "run.json").exists():
            return False
        return all(self.run(run.path.name, type_).finished(role) for type_ in self.types for role in config.models)


VOCABULARIES = "joint-1"
"""The run whose vocabularies all runs share."""


def _train(configs: Sequence[RunConfig], say: Callable[[str], object]) -> None:
    for finished in train_runs(configs, lambda event: None, lambda line: None):
        say(
            f"{finished.label}: dev perplexity {finished.dev_perplexity:.4f} at step {finished.best_step} "
            f"of {finished.step}, {finished.seconds:.0f} s"
        )


def _train_quietly(configs: Sequence[RunConfig]) -> list[str]:
    lines: list[str] = []
    _train(configs, lines.append)
    return lines


@cache
def _unpaired(morphology: Path, part: Part) -> dict[Setting, dict[str, list[str]]]:
    lists = read_unpaired(morphology / "unpaired" / f"de_{part}.tsv")
    gold = held_out_paradigms(read_wiktionary(morphology, part))
    paradigms = [gold, *([german_noun_paradigms()] if part == "noun" else [])]
    return {"paper": lists, "strict": without_lemmas(lists, gold, *paradigms)}


def _at_most(forms: list[str], n: int | None) -> list[str]:
    return forms if n is None or n >= len(forms) else some(forms, n, seed=1)


def _write(file: Path, lines: Iterable[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, "".join(f"{line}\n" for line in lines))
