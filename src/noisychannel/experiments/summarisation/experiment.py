"""Summarisation: its data as files, and its runs.

    work/runs/vocabularies            the words of both sides, which all runs share; vocabularies.subwords: the subwords
    work/runs/direct.bi.all.1         direct models by kind, number of pairs and seed; channels and others likewise
    work/runs/lm.paper.all            the language model of all headlines, paired or not
    work/runs/lm.paper.100000+0       … of the headlines of 100,000 pairs, and no others

Vocabularies are made from all pairs and all headlines, in every setting: then settings can share the language model of
all headlines. Runs with one model each are trained side by side on a GPU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from noisychannel.atomic import write_text
from noisychannel.data.prepare import DataConfig
from noisychannel.devices import choose_device
from noisychannel.experiments.back_translation import back_translate
from noisychannel.experiments.design import Design
from noisychannel.experiments.experiment import Experiment, TrainingPair
from noisychannel.experiments.items import Item, Part, at_most, sample
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.settings import Setup
from noisychannel.experiments.summarisation.cited import ALL, APPENDIX, APPENDIX_PART, FEW
from noisychannel.experiments.summarisation.data import (
    MOST_INPUT_WORDS,
    MOST_OUTPUT_WORDS,
    TEXT,
    Pair,
    SummarisationData,
    read_data,
)
from noisychannel.experiments.summarisation.design import DESIGN
from noisychannel.experiments.summarisation.rows import FEW_PAIRS
from noisychannel.experiments.summarisation.scale import QUICK, SummarisationScale
from noisychannel.models.registry import Role
from noisychannel.text import TextConfig, Units
from noisychannel.training.config import ModelConfig, RunConfig, TrainingConfig
from noisychannel.training.run import prepare_run

EVERYTHING = "all"
"""In names: all pairs, or all headlines."""
SUBWORDS: Units = "subwords"
VOCABULARIES = "vocabularies"


class RunSpec(NamedTuple):
    """What the name of a run says."""

    role: Role
    kind: str
    pairs: int | None
    """All if None."""
    headlines: int | None
    """Unpaired; all if None."""
    seed: int

    @property
    def name(self) -> str:
        if self.role != "lm":
            return f"{self.role}.{self.kind}.{_amount(self.pairs)}.{self.seed}"
        if self.headlines is None:
            return f"lm.{self.kind}.{EVERYTHING}"
        return f"lm.{self.kind}.{_amount(self.pairs)}+{self.headlines}"

    @staticmethod
    def parse(name: str) -> RunSpec:
        role, kind, amount, *seed = name.split(".")
        pairs, _, headlines = amount.partition("+")
        return RunSpec(role, kind, _number(pairs), _number(headlines), int(seed[0]) if seed else 1)  # type: ignore[arg-type]


def _amount(n: int | None) -> str:
    return EVERYTHING if n is None else str(n)


def _number(text: str) -> int | None:
    return None if text in (EVERYTHING, "") else int(text)


class Summarisation(Experiment):
    """The data and the runs."""

    def __init__(self, design: Design, data: SummarisationData, setup: Setup, scale: SummarisationScale) -> None:
        self.scale, self.data, self.rates = scale, data, scale.rates
        self.valid = sample(data.valid, min(scale.valid, len(data.valid)), seed=1)
        dev = tuple(Item(pair.source, (pair.headline,)) for pair in self.valid[: scale.dev])
        first, *others = data.tests
        tests = {name: tuple(at_most(items, scale.held_out, seed=1)) for name, items in data.tests.items()}
        parts = [Part(first, dev, tests[first]), *(Part(name, (), tests[name]) for name in others)]
        super().__init__(design, [*parts, Part(APPENDIX_PART, (), APPENDIX)], setup, scale)
        self._written: set[Path] = set()

    # --- what the framework asks

    def run_name(self, row: SystemRow, role: str, seed: int) -> str:
        """A language model has one seed; one of all headlines is the same for any number of pairs."""
        pairs, headlines = self._scaled(row.pairs), self._scaled(row.unpaired)
        if row.model_of(role) == "lm":
            if pairs is None and headlines is not None and headlines >= len(self.data.headlines):
                headlines = None
            return RunSpec("lm", row.models[role], pairs, headlines, self.scale.seeds[0]).name
        return RunSpec(role, row.models[role], pairs, None, seed).name  # type: ignore[arg-type]

    def configs(self, runs: Collection[str]) -> list[list[RunConfig]]:
        """On a GPU every run is a group of its own, language models first, which take longest; on a CPU one group."""
        configs = sorted((self.config(run) for run in runs), key=lambda config: "lm" not in config.models)
        together = choose_device(self.setup.device).type == "cpu"
        return [configs] if together and configs else [[config] for config in configs]

    def train(self, runs: Collection[str]) -> None:
        """Vocabularies first; then the channels that draw inputs for back-translation."""
        for kind in sorted({RunSpec.parse(run).kind == SUBWORDS for run in runs}):
            config = self._vocabularies(subwords=kind)
            if not (Path(config.run_dir) / "run.json").exists():
                self.setup.say(f"{config.run_dir}: reading the data and making the vocabularies")
                prepare_run(config, self.setup.say)
        specs = [RunSpec.parse(run) for run in runs]
        drawing = {spec: self._drawing(spec) for spec in specs if spec.kind == "back"}
        if drawing:
            super().train(list(dict.fromkeys(drawing.values())))
            for spec, channel in drawing.items():
                self._back_translate(spec, channel)
        super().train(runs)

    def training_pairs(self, part: Part, pairs: int | None, seed: int) -> Iterable[TrainingPair]:
        """The prefix baselines need none."""
        del part, pairs, seed
        return []

    def for_block(self, block: str) -> Experiment:
        """Wide searches are slow: the block of searches has the first test set only."""
        return self.restricted_to([self.parts[0].name]) if block == "search" else self

    def data_record(self) -> dict[str, Any]:
        pairs, headlines = len(self.data.train), len(self.data.headlines)
        few = min(self._scaled(FEW_PAIRS) or 0, pairs)
        return {
            **super().data_record(),
            "pairs": {"train": pairs},
            "unpaired": {ALL: {"headlines": headlines}, FEW: {"headlines": headlines + pairs - few}},
            "pairs that were too long": self.data.dropped,
            "early stopping": len(self.valid),
        }

    def settings_record(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self.scale).items() if key != "rates"}

    @property
    def tuning_record(self) -> str:
        dev = sum(len(part.dev) for part in self.tuning_parts)
        return (
            f"for {self.design.metrics[0]} on {dev} dev pairs drawn at random, with the models of the first seed, and "
            "shared by all sets and seeds"
        )

    # --- files

    def _scaled(self, n: int | None) -> int | None:
        return None if n is None else round(n * self.scale.share)

    def pairs(self, n: int | None) -> list[Pair]:
        """So many training pairs; a smaller sample is the beginning of a larger one."""
        return at_most(self.data.train, n, seed=1)

    def _file(self, name: str, lines: Iterable[str]) -> str:
        """Write a file of data, once in this process."""
        file = self.setup.work / "data" / name
        if file not in self._written:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, "".join(f"{line}\n" for line in lines))
            self._written.add(file)
        return str(file)

    def _train_file(self, n: int | None) -> str:
        return self._file(f"train-{_amount(n)}.tsv", map("\t".join, self.pairs(n)))

    @cached_property
    def _valid_file(self) -> str:
        return self._file("valid.tsv", map("\t".join, self.valid))

    def _headlines_file(self, n: int | None) -> list[str]:
        if n == 0 or not self.data.headlines:
            return []
        return [self._file(f"headlines-{_amount(n)}.txt", at_most(self.data.headlines, n, seed=1))]

    # --- back-translation

    def _drawing(self, spec: RunSpec) -> str:
        """The run whose channel draws first sentences."""
        return spec._replace(role="channel", kind="plain").name

    def _back_file(self, spec: RunSpec) -> Path:
        return self.setup.work / "data" / f"back-{_amount(spec.pairs)}.{spec.seed}.tsv"

    def _back_translate(self, spec: RunSpec, channel: str) -> None:
        file = self._back_file(spec)
        if file.exists():
            return
        headlines = at_most(self.data.headlines, self.scale.back_translated, seed=1)
        drawn = back_translate(
            self.runs / channel, headlines, self.setup.device, longest=MOST_INPUT_WORDS + 1, unknown=True
        )
        self.setup.say(f"back-translation: {len(drawn):,} of {len(headlines):,} headlines have a first sentence now")
        self._file(file.name, map("\t".join, drawn))

    # --- configurations

    def config(self, run: str) -> RunConfig:
        """How a run is trained, by its name; its data files are written."""
        spec = RunSpec.parse(run)
        config = self._base(run, [spec.role], subwords=spec.kind == SUBWORDS)
        config.seed = spec.seed
        config.data.train = [self._train_file(spec.pairs if spec.role != "lm" or spec.headlines is not None else None)]
        if spec.role == "lm":
            config.data.unpaired = self._headlines_file(spec.headlines)
            return self._lm(config, spec)
        further = self.scale.back_translated if spec.kind == "back" else 0
        if spec.kind == "back":
            config.data.further = [str(self._back_file(spec))]
        batch = self.scale.large_batch if spec.kind == "large" else self.scale.batch_size
        model = ModelConfig(
            hidden_size=self.scale.hidden_size,
            bidirectional=spec.role != "channel" and spec.kind != "uni",
            dropout=self.scale.dropout,
            batch_size=batch,
            max_updates=self.scale.limit(len(self.pairs(spec.pairs)) + further, batch),
            copy=spec.kind == "copy",
        )
        return replace(config, **{spec.role: model})  # type: ignore[arg-type]

    def _lm(self, config: RunConfig, spec: RunSpec) -> RunConfig:
        """With the paper's rate it is constant, unless dev stops improving; with the better one it falls to zero."""
        scale, better = self.scale, spec.kind == "better"
        headlines = len(self.pairs(spec.pairs)) + len(self.data.headlines[: spec.headlines])
        most = scale.lm_passes * headlines // (scale.lm.batch_size or 1)
        lm = replace(
            scale.lm,
            learning_rate=scale.better_lm_rate if better else scale.lm.learning_rate,
            max_updates=max(1, min(scale.lm_updates, most)),
        )
        training = replace(config.training, schedule="linear" if better else "plateau")
        return replace(config, lm=lm, training=training)

    def _vocabularies(self, subwords: bool) -> RunConfig:
        """The run whose vocabularies others share; it is never trained. Subwords are made from fewer pairs."""
        name = f"{VOCABULARIES}.{SUBWORDS}" if subwords else VOCABULARIES
        config = self._base(name, ["lm"], subwords)
        config.data.vocabularies = None
        config.data.train = [self._train_file(self._scaled(FEW_PAIRS) if subwords else None)]
        config.data.unpaired = [] if subwords else self._headlines_file(None)
        return config

    def _base(self, run: str, models: Sequence[Role], subwords: bool) -> RunConfig:
        scale, name = self.scale, f"{VOCABULARIES}.{SUBWORDS}" if subwords else VOCABULARIES
        words = replace(TEXT, max_size=scale.vocabulary)
        side = replace(words, units=SUBWORDS, max_size=scale.subwords) if subwords else words
        return RunConfig(
            run_dir=str(self.runs / run),
            models=list(models),
            device=self.setup.device,
            jobs=self.setup.jobs,
            data=DataConfig(
                dev=[self._valid_file],
                columns="input,output",
                input=_limited(side, MOST_INPUT_WORDS),
                output=_limited(side, MOST_OUTPUT_WORDS),
                too_long="drop",
                vocabularies=str(self.runs / name),
            ),
            training=TrainingConfig(
                batch_size=scale.batch_size,
                learning_rate=scale.learning_rate,
                evaluate_every=scale.evaluate_every,
                clip_norm=scale.clip_norm,
                schedule="linear",
                precision=scale.precision,
            ),
        )


def _limited(side: TextConfig, words: int) -> TextConfig:
    """Words are limited; pairs of subwords were chosen by their words before."""
    return replace(side, max_length=words) if side.units == "words" else side


def make_summarisation(setup: Setup, quick: bool) -> Summarisation:
    scale = QUICK if quick else SummarisationScale()
    return Summarisation(DESIGN, read_data(setup.data, scale.lines), setup, scale)
