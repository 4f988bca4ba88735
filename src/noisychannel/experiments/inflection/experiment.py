"""An inflection experiment: its data as files, and its runs.

    work/runs/bi-1, uni-1       seed 1: the direct model (bidirectional or not), and the channel
    work/runs/lm-strict         the language models of a setting; lm-better-strict with a better learning rate
    work/runs/lm-1000-strict    … with 1,000 unpaired forms of each type
    work/runs/bi-100-1          … with 100 pairs of each type
    work/runs/bt-4000-1         … with 4,000 back-translated forms of each type
    work/runs/joint-1           one model for all types, with the tags as features
    work/runs/fit-100-strict-1  … and others with copying, made-up pairs and words that are given inputs, see ``few``

A run has models for each type, or one model for all types. All runs have the vocabularies of one of the latter, so that
their models can be mixed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from noisychannel.atomic import write_text
from noisychannel.data.codec import Codec
from noisychannel.data.prepare import DataConfig
from noisychannel.experiments.back_translation import back_translate
from noisychannel.experiments.design import Design
from noisychannel.experiments.experiment import Experiment, TrainingPair
from noisychannel.experiments.inflection import few
from noisychannel.experiments.inflection.data import TaggedPair, TrainDevTest
from noisychannel.experiments.inflection.rows import DIRECT, PAPER, STRICT
from noisychannel.experiments.inflection.scale import Scale
from noisychannel.experiments.items import Item, Part, at_most, sample
from noisychannel.experiments.measuring import measure
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.settings import Setup
from noisychannel.models.registry import Role
from noisychannel.runs import RunDirectory
from noisychannel.training.config import ModelConfig, RunConfig, TrainingConfig
from noisychannel.training.run import prepare_run

Lists = Mapping[str, Sequence[str]]
"""Unpaired forms by tag set."""


class Inflection(Experiment):
    """The data and the runs of one experiment."""

    separator: str
    """Of tags."""
    vocabularies: str
    """The run whose vocabularies all runs have; it is one for all types."""

    def __init__(
        self, design: Design, tables: Mapping[str, TrainDevTest[TaggedPair]], setup: Setup, scale: Scale
    ) -> None:
        """``tables``: the pairs of each type."""
        self.scale = scale
        self.tables = {
            type_: TrainDevTest(
                sample(pairs.train, scale.pairs, seed=1), pairs.dev[: scale.held_out], pairs.test[: scale.held_out]
            )
            for type_, pairs in tables.items()
        }
        parts = [Part(type_, self._items(pairs.dev), self._items(pairs.test)) for type_, pairs in self.tables.items()]
        super().__init__(design, parts, setup, scale, sample(list(self.tables), scale.tuned_types, seed=1))
        self.back_translated = 0
        """Forms of each type, once the amount is chosen."""
        self._configs: dict[str, RunConfig] = {}

    def _items(self, pairs: Sequence[TaggedPair]) -> tuple[Item, ...]:
        return tuple(Item(pair.lemma, (pair.form,), self._features(pair)) for pair in pairs)

    def _features(self, pair: TaggedPair) -> tuple[str, ...]:
        return tuple(pair.tags.split(self.separator))

    @abstractmethod
    def lists(self) -> Mapping[str, Lists]:
        """For each setting, all unpaired forms."""

    @abstractmethod
    def grouped(self, run: str) -> bool:
        """Whether a run has models for each type; if not, it has one model for all types."""

    @cached_property
    def unpaired(self) -> dict[str, dict[str, list[str]]]:
        """For each setting, the unpaired forms of the tag sets that have pairs, as many as the scale allows."""
        tag_sets = {pair.tags for pairs in self.tables.values() for pair in pairs.train}
        return {
            setting: {tags: at_most(x, self.scale.unpaired, seed=1) for tags, x in lists.items() if tags in tag_sets}
            for setting, lists in self.lists().items()
        }

    # --- what the framework asks

    def run_name(self, row: SystemRow, role: str, seed: int) -> str:
        runs = row.models[role]
        if role == "lm" or role in row.terms:
            return f"{runs}-{row.setting}"
        return f"bt-{self.back_translated}-{seed}" if runs == "bt" else f"{runs}-{seed}"

    def run(self, name: str, part: Part) -> RunDirectory:
        run = RunDirectory(self.runs / name)
        return run.group(part.name) if self.grouped(name) else run

    def reads_features(self, run: str) -> bool:
        return not self.grouped(run)

    def training_pairs(self, part: Part, pairs: int | None, seed: int) -> Iterable[TrainingPair]:
        del seed
        train = sample(self.tables[part.name].train, pairs, seed=1)
        return [(pair.lemma, pair.form, self._features(pair)) for pair in train]

    def rows(self, block: str) -> list[SystemRow]:
        """Without the rows of a learning curve that have more pairs than there are."""
        most = min(len(pairs.train) for pairs in self.tables.values())
        return [row for row in super().rows(block) if row.pairs is None or row.pairs < most]

    def configs(self, runs: Collection[str]) -> list[list[RunConfig]]:
        """Direct models and channels of several seeds, or of several amounts of pairs, are trained together.

        Language models, which take longest, are first in the queue.
        """
        groups: dict[str, list[RunConfig]] = {}
        for run in runs:
            seeds = run.startswith(("copy-", "fit-", "reverse-"))
            together = f"bi {run.count('-')}" if run.startswith("bi-") else run.rpartition("-")[0] if seeds else run
            groups.setdefault(together, []).append(self.config(run))
        return sorted(groups.values(), key=lambda group: "lm" not in group[0].models)

    def train(self, runs: Collection[str]) -> None:
        """The run with the vocabularies is prepared first; it is trained only if a row needs it."""
        config = self.config(self.vocabularies)
        if not (Path(config.run_dir) / "run.json").exists():
            prepare_run(config, self.setup.say, wait=True)
        few.give_inputs(self, runs)
        super().train(runs)

    def train_now(self, runs: Collection[str]) -> None:
        """Train runs that need nothing of others."""
        super().train(runs)

    def input_codec(self) -> Codec:
        """The vocabulary of the inputs that all runs share."""
        return RunDirectory(self.runs / self.vocabularies).codecs()[0]

    def data_record(self) -> dict[str, Any]:
        return {
            "pairs": {type_: len(pairs.train) for type_, pairs in self.tables.items()},
            **super().data_record(),
            "unpaired": {s: {tags: len(x) for tags, x in lists.items()} for s, lists in self.unpaired.items()},
            "test forms among the unpaired, %": {
                setting: {type_: covered(lists, pairs.test) for type_, pairs in self.tables.items()}
                for setting, lists in self.unpaired.items()
            },
        }

    # --- back-translation

    def prepare(self, block: str) -> None:
        """Choose the amount of back-translated forms on dev, with direct models alone."""
        if block != "further":
            return
        seed, direct = self.scale.seeds[0], replace(DIRECT, setting=STRICT, seeds=1)
        self.train([f"bi-{seed}"])
        rows = {
            n: replace(direct, name=f"{direct.name}, {n} back-translated", models={"direct": f"bt-{n}"})
            for n in self.scale.back_translated
        }
        self.train([f"bt-{n}-{seed}" for n in rows])
        measured = zip(rows, measure(self, list(rows.values()), "dev"), strict=True)
        self.back_translated = max(measured, key=lambda each: each[1].scores["accuracy"]["score"])[0]

    def _back_translated_pairs(self, n: int, seed: int) -> dict[str, list[TaggedPair]]:
        """The pairs of each type, and forms with inputs drawn from the channel."""
        pairs = {}
        for part in self.parts:
            listed = self.unpaired[STRICT][part.name]
            forms = sample(listed, min(n, len(listed)), seed=1)
            drawn = back_translate(self.run(f"bi-{seed}", part).path, forms, self.setup.device)
            more = [TaggedPair(lemma, form, part.name) for lemma, form in drawn]
            pairs[part.name] = [*self.tables[part.name].train, *more]
        return pairs

    # --- files and configurations

    def write_pairs(self, name: str = "", train: Mapping[str, Sequence[TaggedPair]] | None = None) -> dict[str, str]:
        """Write the train and dev files, with other training pairs of each type if given; the files' names."""
        own = {type_: pairs.train for type_, pairs in self.tables.items()}
        rows = {"train": train or own, "dev": {type_: pairs.dev for type_, pairs in self.tables.items()}}
        for split, file in self.pair_files(name).items():
            self.write_rows(Path(file), rows[split])
        return self.pair_files(name)

    def write_rows(self, file: Path, rows: Mapping[str, Sequence[TaggedPair]]) -> None:
        _write(file, ["\t".join(pair) for of_type in rows.values() for pair in of_type])

    def pair_files(self, name: str) -> dict[str, str]:
        return {split: str(self.setup.work / "data" / f"{split}{name}.tsv") for split in ("train", "dev")}

    def write_unpaired(self, name: str, lists: Lists) -> str:
        file = self.setup.work / "data" / f"unpaired-{name}.tsv"
        _write(file, [f"{tags}\t{form}" for tags, forms in lists.items() for form in forms])
        return str(file)

    def config(self, run: str) -> RunConfig:
        """How a run is trained, by its name; its data files are written."""
        if run not in self._configs:
            self._configs[run] = self._config(run)
        return self._configs[run]

    def _config(self, run: str) -> RunConfig:
        scale = self.scale
        match run.split("-"):
            case ["joint", "lm", setting]:
                return self._lm(run, self.write_unpaired(setting, self.unpaired[setting]), better=True)
            case ["joint", seed]:
                files, size = self.write_pairs(), 2 * scale.hidden_size
                return self.make_config(run, ["direct", "channel"], files, int(seed), batch_size=32, hidden_size=size)
            case ["lm", setting]:
                return self._lm(run, self.write_unpaired(setting, self.unpaired[setting]))
            case ["lm", "better", setting]:
                file = self.write_unpaired(setting, self.unpaired[setting])
                return self._lm(run, file, better=True, word_list=setting == PAPER)
            case ["lm", n, setting]:
                lists = self.unpaired[setting] if int(n) else {}
                forms = {tags: sample(x, min(int(n), len(x)), seed=1) for tags, x in lists.items()}
                return self._lm(run, self.write_unpaired(f"{setting}-{n}", forms) if forms else "", better=True)
            case ["bi", seed]:
                return self.make_config(run, ["direct", "channel"], self.write_pairs(), int(seed))
            case ["bi", n, seed]:
                fewer = {type_: sample(pairs.train, int(n), seed=1) for type_, pairs in self.tables.items()}
                return self.make_config(run, ["direct", "channel"], self.write_pairs(f"-{n}", fewer), int(seed))
            case ["copy", seed]:
                config = self.make_config(run, ["direct", "channel"], self.write_pairs(), int(seed))
                copying = {role: replace(config.model(role), copy=True) for role in config.models}
                return replace(config, **copying)  # type: ignore[arg-type]
            case ["fit" | "reverse", _, _, _]:
                return few.few_config(self, run)
            case ["uni", seed]:
                return self.make_config(run, ["direct"], self.write_pairs(), int(seed), bidirectional=False)
            case ["seq2seq" | "attention" as role, seed]:
                return self.make_config(run, [role], self.write_pairs(), int(seed))
            case ["bt", n, seed]:
                files = self.pair_files(f"-bt-{n}")
                if not (self.runs / run / "run.json").exists():
                    self.write_pairs(f"-bt-{n}", self._back_translated_pairs(int(n), int(seed)))
                return self.make_config(run, ["direct"], files, int(seed), batch_size=64)
        raise ValueError(f"{self.design.name}: no run is called {run!r}")

    def _lm(self, run: str, unpaired: str, better: bool = False, word_list: bool = False) -> RunConfig:
        """A run of language models. One for all types has more to read, and so larger batches."""
        scale = self.scale
        lm = replace(
            scale.lm,
            learning_rate=scale.better_lm_rate if better else scale.lm.learning_rate,
            batch_size=(1 if self.grouped(run) else 4) * (scale.lm.batch_size or 1),
            max_updates=scale.better_lm_updates if better else scale.lm_updates,
            word_list=word_list,
        )
        return self.make_config(run, ["lm"], self.write_pairs(), unpaired=unpaired, lm=lm)

    def make_config(
        self,
        run: str,
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
        scale, grouped = self.scale, self.grouped(run)
        model = ModelConfig(hidden_size=hidden_size or scale.hidden_size, dropout=0.5)
        reader = replace(model, bidirectional=bidirectional)
        return RunConfig(
            run_dir=str(self.runs / run),
            models=list(models),
            seed=seed,
            device=self.setup.device,
            jobs=self.setup.jobs,
            data=DataConfig(
                train=[files["train"]],
                dev=[files["dev"]],
                columns="input,output,group" if grouped else "input,output,features",
                feature_separator=self.separator,
                unpaired=[unpaired] if unpaired else [],
                unpaired_columns="group,output" if grouped else "features,output",
                vocabularies=None if run == self.vocabularies else str(self.runs / self.vocabularies),
            ),
            direct=reader,
            channel=model,
            seq2seq=reader,
            attention=reader,
            lm=lm or scale.lm,
            training=TrainingConfig(
                batch_size=batch_size or scale.batch_size,
                max_updates=scale.updates,
                patience=8,
                decay_patience=3,
                precision="tf32",
            ),
        )


def covered(lists: Lists, test: Sequence[TaggedPair]) -> float:
    """The percentage of test forms that are among the unpaired forms of their tag set."""
    known = {tags: set(forms) for tags, forms in lists.items()}
    return 100 * sum(pair.form in known.get(pair.tags, ()) for pair in test) / len(test)


def _write(file: Path, lines: Iterable[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, "".join(f"{line}\n" for line in lines))
