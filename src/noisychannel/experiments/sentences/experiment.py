"""An experiment on pairs of sentences: its data as files, and its runs.

    work/runs/vocabularies            the words of both sides, which runs share; vocabularies.NAME: other vocabularies
    work/runs/direct.bi.all.1         runs by role, kind, data and seed; see ``specs``

Runs with one model each are trained side by side on a GPU.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from noisychannel.atomic import write_text
from noisychannel.data.prepare import DataConfig
from noisychannel.devices import choose_device
from noisychannel.experiments.back_translation import back_translate
from noisychannel.experiments.design import Design
from noisychannel.experiments.experiment import Experiment, TrainingPair
from noisychannel.experiments.items import Part, at_most, sample
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.sentences.amounts import Amounts
from noisychannel.experiments.sentences.pairs import Pair, SentenceData, items_of, short_pairs
from noisychannel.experiments.sentences.remarks import data_remarks, name_remarks, passes_remark
from noisychannel.experiments.sentences.scale import SentenceScale
from noisychannel.experiments.sentences.specs import Kind, RunSpec, amount, vocabulary_run
from noisychannel.experiments.settings import Setup
from noisychannel.experiments.training import require_same
from noisychannel.models.registry import Role
from noisychannel.text import TextConfig
from noisychannel.training.config import ModelConfig, NGramConfig, RunConfig, TrainingConfig, TransformerConfig
from noisychannel.training.run import prepare_run


class SentenceExperiment(Experiment):
    """The data and the runs. The first test set has the dev items, and goals are about it."""

    kinds: Mapping[str, Kind]
    """The kinds of models by name."""
    longest: tuple[int, int]
    """Words of the longest training pair of the usual data; a user's own may have longer ones."""
    unpaired_noun = "outputs"
    """What unpaired outputs are called."""

    def __init__(
        self, design: Design, data: SentenceData, setup: Setup, scale: SentenceScale, shown: Sequence[Part] = ()
    ) -> None:
        """``shown``: further parts, whose outputs are shown."""
        self.scale, self.data, self.rates = scale, data, scale.rates
        self.amounts = Amounts(len(data.train), len(data.unpaired), self.unpaired_noun, scale.share)
        self.valid = sample(data.valid, min(scale.valid, len(data.valid)), seed=1)
        self.stopping = short_pairs(self.valid, *data.longest)
        dev = items_of(self.valid[: scale.dev])
        first, *others = data.tests
        tests = {name: tuple(at_most(items, scale.held_out, seed=1)) for name, items in data.tests.items()}
        parts = [Part(first, dev, tests[first]), *(Part(name, (), tests[name]) for name in others)]
        super().__init__(design, [*parts, *shown], setup, scale)
        self._written: set[Path] = set()
        for line in (*data_remarks(data), *name_remarks(design, scale.share)):
            setup.say(line)

    # --- what a subclass says

    @abstractmethod
    def sides(self, vocabulary: str) -> tuple[TextConfig, TextConfig]:
        """How inputs and outputs become the symbols of a vocabulary."""

    def vocabulary_data(self, vocabulary: str) -> tuple[int | None, list[str]]:
        """What a vocabulary is made from: a number of pairs, and files of unpaired outputs."""
        del vocabulary
        return None, []

    def vocabulary_of(self, spec: RunSpec) -> str:
        """The vocabulary of a run; by its kind, unless a subclass says otherwise."""
        return self.kinds[spec.kind].vocabulary

    # --- what the framework asks

    def run_name(self, row: SystemRow, role: str, seed: int) -> str:
        """A language model has one seed; one of all outputs is the same for any number of pairs."""
        pairs, unpaired = self.amounts.scaled(row.pairs), self.amounts.scaled(row.unpaired)
        if row.model_of(role) == "lm":
            if pairs is None and unpaired is not None and unpaired >= len(self.data.unpaired):
                unpaired = None
            return RunSpec("lm", row.models[role], pairs, unpaired, self.scale.seeds[0]).name
        return RunSpec(row.model_of(role), row.models[role], pairs, None, seed).name  # type: ignore[arg-type]

    def configs(self, runs: Collection[str]) -> list[list[RunConfig]]:
        """On a GPU every run is a group of its own, language models first, which take longest; on a CPU one group."""
        configs = sorted((self.config(run) for run in runs), key=lambda config: "lm" not in config.models)
        together = choose_device(self.setup.device).type == "cpu"
        return [configs] if together and configs else [[config] for config in configs]

    def train(self, runs: Collection[str]) -> None:
        """Vocabularies first; then the channels that draw inputs for back-translation."""
        specs = [RunSpec.parse(run) for run in runs]
        if specs:
            self.setup.say(passes_remark(zip(map(self.config, runs), map(self.amount_of, specs), strict=True)))
        for name in sorted({self.vocabulary_of(spec) for spec in specs}):
            config = self._vocabularies(name)
            if (Path(config.run_dir) / "run.json").exists():
                require_same(config)
            else:
                self.setup.say(f"{config.run_dir}: reading the data and making the vocabularies")
                prepare_run(config, self.setup.say, wait=True)
        drawing = {spec: self._drawing(spec) for spec in specs if self.kinds[spec.kind].back_translated}
        if drawing:
            super().train(list(dict.fromkeys(drawing.values())))
            for spec, channel in drawing.items():
                self._back_translate(spec, channel)
        super().train(runs)

    def training_pairs(self, part: Part, pairs: int | None, seed: int) -> Iterable[TrainingPair]:
        del part, seed
        return ((pair.source, pair.target, ()) for pair in self.pairs(self.amounts.scaled(pairs)))

    def for_block(self, block: str) -> Experiment:
        """The block of searches has the first test set only, because wide ones are slow, and terms, to count errors."""
        if block != "search":
            return self
        fewer = self.restricted_to([self.parts[0].name])
        fewer.scale = fewer.settings = replace(self.scale, keep_terms=True)
        return fewer

    def rows(self, block: str) -> list[SystemRow]:
        """Without those that ask for more data than there is."""
        return [row for row in super().rows(block) if not self.amounts.lacking(row)]

    def left_out(self, block: str) -> str:
        return self.amounts.left_out(self.design.blocks[block])

    def data_record(self) -> dict[str, Any]:
        return {
            **super().data_record(),
            **self.amounts.record(self.design.rows),
            "pairs that were too long": self.data.dropped,
            "early stopping": len(self.stopping),
            **({"inputs": "characters"} if self.data.characters else {}),
        }

    def amounts_record(self, row: SystemRow) -> dict[str, Any]:
        named = {"pairs": row.pairs, "unpaired": row.unpaired}
        amounts = {name: self.amounts.scaled(n) for name, n in named.items() if n is not None}
        return {"amounts": amounts} if self.amounts.share != 1 and amounts else {}

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

    def pairs(self, n: int | None) -> list[Pair]:
        """So many training pairs; a smaller sample is the beginning of a larger one."""
        return at_most(self.data.train, n, seed=1)

    def _file(self, name: str, lines: Iterable[str]) -> str:
        """Write a file of data, once in this process, and not if it is there: another command may be reading it."""
        file = self.setup.work / "data" / name
        if file not in self._written:
            file.parent.mkdir(parents=True, exist_ok=True)
            text = "".join(f"{line}\n" for line in lines)
            if not (file.exists() and file.read_bytes() == text.encode()):
                write_text(file, text)
            self._written.add(file)
        return str(file)

    def _train_file(self, n: int | None) -> str:
        return self._file(f"train-{amount(n)}.tsv", map("\t".join, self.pairs(n)))

    @cached_property
    def _valid_file(self) -> str:
        return self._file("valid.tsv", map("\t".join, self.stopping))

    def unpaired_files(self, n: int | None) -> list[str]:
        """A file of so many unpaired outputs; none if there are none."""
        if n == 0 or not self.data.unpaired:
            return []
        return [self._file(f"unpaired-{amount(n)}.txt", at_most(self.data.unpaired, n, seed=1))]

    def left_outputs(self, n: int | None) -> list[str]:
        """The outputs of the pairs that a sample of ``n`` leaves."""
        return [] if n is None else [pair.target for pair in sample(self.data.train, len(self.data.train), seed=1)[n:]]

    # --- back-translation

    def _drawing(self, spec: RunSpec) -> str:
        """The run whose channel draws inputs."""
        return spec._replace(role="channel", kind="plain").name

    def _back_file(self, spec: RunSpec) -> Path:
        return self.setup.work / "data" / f"back-{amount(spec.pairs)}.{spec.seed}.tsv"

    def _back_translate(self, spec: RunSpec, channel: str) -> None:
        file = self._back_file(spec)
        if file.exists():
            return
        outputs = at_most(self.data.unpaired or self.left_outputs(spec.pairs), self.scale.back_translated, seed=1)
        longest = self.data.longest[0] + 1
        drawn = back_translate(self.runs / channel, outputs, self.setup.device, longest=longest, unknown=True)
        self.setup.say(f"back-translation: {len(drawn):,} of {len(outputs):,} {self.unpaired_noun} have an input now")
        self._file(file.name, map("\t".join, drawn))

    # --- configurations

    def config(self, run: str) -> RunConfig:
        """How a run is trained, by its name; its data files are written."""
        spec = RunSpec.parse(run)
        kind = self.kinds[spec.kind]
        config = self._base(run, [spec.role], self.vocabulary_of(spec))
        config.seed = spec.seed
        config.data.train = [self._train_file(spec.pairs if spec.role != "lm" or spec.unpaired is not None else None)]
        if spec.role == "lm":
            config.data.unpaired = self.unpaired_files(spec.unpaired)
            return self._lm(config, spec)
        if kind.back_translated:
            config.data.further = [str(self._back_file(spec))]
        if spec.role == "direct":
            config.ngrams = NGramConfig(pairs=self.scale.ngram_order)
        if spec.role == "transformer":
            return replace(config, transformer=self._transformer(spec))
        batch = self.scale.large_batch if kind.large_batch else self.scale.batch_size
        return replace(config, **{spec.role: self._model(spec, batch)})  # type: ignore[arg-type]

    def amount_of(self, spec: RunSpec) -> int:
        """How many pairs, or outputs of a language model, a run learns from; back-translated ones are among them."""
        pairs = len(self.pairs(spec.pairs))
        if spec.role == "lm":
            return pairs + len(self.data.unpaired[: spec.unpaired])
        if self.kinds[spec.kind].back_translated:
            pairs += min(self.scale.back_translated, len(self.data.unpaired or self.left_outputs(spec.pairs)))
        return pairs

    def _model(self, spec: RunSpec, batch: int) -> ModelConfig:
        """A model of pairs."""
        kind, scale = self.kinds[spec.kind], self.scale
        limit = scale.most_updates if kind.most_passes else scale.limit
        return ModelConfig(
            hidden_size=scale.hidden_size,
            bidirectional=spec.role != "channel" and kind.bidirectional,
            dropout=scale.dropout,
            learning_rate=scale.better_rate if kind.better_rate else None,
            batch_size=batch,
            max_updates=limit(self.amount_of(spec), batch),
            copy=kind.copy,
            paced_updates=scale.paced_updates if spec.role in ("direct", "channel") else 0,
        )

    def _transformer(self, spec: RunSpec) -> TransformerConfig:
        """As many passes as the other models have updates at most, in larger batches."""
        scale = self.scale
        batch = scale.transformer.batch_size or scale.batch_size
        most = scale.most_updates(self.amount_of(spec), batch)
        return replace(scale.transformer, max_updates=min(scale.updates, most))

    def _lm(self, config: RunConfig, spec: RunSpec) -> RunConfig:
        """The paper's learning rate is constant, unless dev stops improving; that of the better one falls to zero.

        As many outputs are seen with any batch size.
        """
        scale, kind = self.scale, self.kinds[spec.kind]
        changed = scale.better_lm if kind.better_rate else ["learning_rate"] if kind.better_lm_rate else []
        lm: ModelConfig = replace(scale.lm, **{name: scale.better_lm[name] for name in changed})  # type: ignore[arg-type]
        lm = replace(lm, max_updates=scale.lm_limit(self.amount_of(spec), lm.batch_size or 1))
        training = replace(config.training, schedule="linear" if kind.better_rate else "plateau")
        return replace(config, lm=lm, training=training)

    def _vocabularies(self, vocabulary: str) -> RunConfig:
        """The run whose vocabularies others share; it is never trained."""
        config = self._base(vocabulary_run(vocabulary), ["lm"], vocabulary)
        config.data.vocabularies = None
        pairs, config.data.unpaired = self.vocabulary_data(vocabulary)
        config.data.train = [self._train_file(pairs)]
        return config

    def _base(self, run: str, models: Sequence[Role], vocabulary: str) -> RunConfig:
        scale, longest = self.scale, self.data.longest
        sides = [_limited(side, most) for side, most in zip(self.sides(vocabulary), longest, strict=True)]
        return RunConfig(
            run_dir=str(self.runs / run),
            models=list(models),
            device=self.setup.device,
            jobs=self.setup.jobs,
            data=DataConfig(
                dev=[self._valid_file],
                columns="input,output",
                input=sides[0],
                output=sides[1],
                too_long="drop",
                vocabularies=str(self.runs / vocabulary_run(vocabulary)),
            ),
            training=TrainingConfig(
                batch_size=scale.batch_size,
                # Batches of longer pairs than usual are smaller, so that they need no more memory.
                batch_symbols=None if longest == self.longest else scale.batch_size * sum(self.longest),
                learning_rate=scale.learning_rate,
                evaluate_every=scale.evaluate_every,
                clip_norm=scale.clip_norm,
                schedule="linear",
                precision=scale.precision,
            ),
        )


def _limited(side: TextConfig, words: int) -> TextConfig:
    """Words are limited; pairs of other units were chosen by their words before."""
    return replace(side, max_length=words) if side.units == "words" else side
