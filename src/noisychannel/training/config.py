"""The configuration of a training run, which ``noisychannel train`` reads and ``config.yaml`` stores."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from noisychannel.arguments import Bounds, Count, CountOrZero, Positive, Seed, check_bounds, given_values, read_config
from noisychannel.data.prepare import DataConfig
from noisychannel.errors import BadInputError
from noisychannel.models.registry import ROLES, Role

DEFAULT_UPDATES = 20_000


Order = Annotated[int, Bounds(least=0, most=6)]
"""The symbols of an n-gram."""


class Limits(NamedTuple):
    """Where a training ends, unless patience ends it before."""

    updates: float
    epochs: float

    def total(self, per_epoch: int) -> int:
        """The updates to the nearer limit, if an epoch has so many."""
        return int(min(self.updates, self.epochs * per_epoch))


@dataclass(kw_only=True)
class ModelConfig:
    """One model.

    Args:
        hidden_size: Units of each LSTM layer.
        num_layers: LSTM layers.
        embedding_size: Size of the symbol embeddings; if not set, hidden_size.
        bidirectional: Read the input in both directions. Not for the channel and the language model.
        dropout: On the inputs and outputs of the LSTM, and between its layers.
        learning_rate: Of this model; if not set, training.learning_rate.
        warmup: Of this model; if not set, training.warmup.
        batch_size: Of this model; if not set, training.batch_size.
        max_updates: The most updates of this model. If it has a limit, the limits in training do not apply to it.
        max_epochs: The most passes of this model over its training data. If it has a limit, those in training do not
            apply to it.
        word_list: For the language model only: store the list of its training outputs. The list is then a term of the
            objective, word_list, whose weight is tuned.
        copy: For the direct model and the channel: a score for putting out the symbol that is read. Use it if the two
            sides share their symbols, as a lemma and its form do.
        copy_start: That score before training, in nats.
        paced_updates: For the direct model and the channel: the number of updates at the beginning that keep an even
            pace, in which the model learns what to write but not when; at most a tenth of all. For languages whose
            word order differs: without it, a model may learn to write the whole output at one place, and never align.
    """

    hidden_size: Count = 256
    num_layers: Count = 1
    embedding_size: Count | None = None
    bidirectional: bool = False
    dropout: Annotated[float, Bounds(least=0, below=1)] = 0.2
    learning_rate: Positive | None = None
    warmup: CountOrZero | None = None
    batch_size: Count | None = None
    max_updates: Count | None = None
    max_epochs: Count | None = None
    word_list: bool = False
    copy: bool = False
    copy_start: Annotated[float, Bounds(least=0, most=100)] = 3.0
    paced_updates: CountOrZero = 0

    def paced(self, total: int) -> int:
        """How many of so many updates keep an even pace: never more than a tenth."""
        return min(self.paced_updates, total // 10)


@dataclass(kw_only=True)
class TransformerConfig(ModelConfig):
    """The transformer. hidden_size is that of every layer, num_layers those of either side.

    Args:
        num_heads: Heads of each attention; hidden_size must be a multiple of it.
        feedforward_size: Units inside each layer; if not set, four times hidden_size.
        label_smoothing: The share of the probability that training spreads over the vocabulary. Training losses include
            it; dev perplexities do not.
    """

    num_layers: Count = 3
    dropout: Annotated[float, Bounds(least=0, below=1)] = 0.3
    learning_rate: Positive | None = 5e-4
    warmup: CountOrZero | None = 1000
    num_heads: Count = 4
    feedforward_size: Count | None = None
    label_smoothing: Annotated[float, Bounds(least=0, below=1)] = 0.1


@dataclass(kw_only=True)
class NGramConfig:
    """N-gram models of outputs, further terms of the objective. They are counted, not trained.

    Args:
        pairs: The order of a model of the outputs of the training pairs: the term ngram_pairs, which is usually
            subtracted. 0 for none.
        outputs: The order of a model of what the language model is trained on: the term ngram_outputs. 0 for none.
    """

    pairs: Order = 0
    outputs: Order = 0


@dataclass(kw_only=True)
class TrainingConfig:
    """How every model is trained.

    Args:
        batch_size: The most sequences in a batch.
        batch_symbols: The most symbols in a batch, both sides and padding included; if not set, there is no such limit.
        accumulate: Batches whose gradients are added up before each update.
        max_updates: The most updates; 20,000 if neither this nor max_epochs is set. Patience usually ends a training
            earlier. A training that stops here says so, and continues if the command is repeated with a larger number.
        max_epochs: The most passes over the training data.
        learning_rate: The learning rate of Adam.
        warmup: Updates in which the learning rate rises from zero.
        clip_norm: The largest norm of a gradient; longer gradients are scaled down to it.
        evaluate_every: Updates between evaluations on dev; if not set, one epoch, but at least 100 and at most 2,000.
        dev_limit: The most dev pairs that an evaluation uses, drawn with a fixed seed; 0 for all. If not set, all,
            unless the evaluations would take long: then fewer, but at least 1,000.
        schedule: How the learning rate falls: plateau multiplies it by decay when dev perplexity has not improved;
            linear lowers it in every update, to zero at the limit of updates. A linear training always runs to its
            limit: patience, decay and decay_patience do not apply.
        patience: Stop after this number of evaluations without a better dev perplexity.
        decay: The factor for the learning rate when dev perplexity has not improved.
        decay_patience: Evaluations without improvement before each decay.
        checkpoint_every: Updates between checkpoints; each evaluation writes one too. (With CUDA graphs there is one
            checkpoint per minute.)
        log_every: Updates between records of the training loss.
        precision: fp32; tf32 rounds the factors of matrix products on a GPU; bf16 runs the networks in bfloat16,
            which is faster on a GPU, and with words as symbols on a CPU with instructions for it (AVX-512 BF16, AMX).
            Probabilities and the lattice are always computed in float32.
        cuda_graphs: On one GPU, train models of the same role and shape together, with one CUDA graph per update. Small
            models spend most of their time launching kernels, so this is many times faster. Not with accumulate.
    """

    batch_size: Count = 64
    batch_symbols: Count | None = None
    accumulate: Count = 1
    max_updates: Count | None = None
    max_epochs: Count | None = None
    learning_rate: Positive = 1e-3
    warmup: CountOrZero = 0
    clip_norm: Positive = 1.0
    evaluate_every: Count | None = None
    dev_limit: CountOrZero | None = None
    schedule: Literal["plateau", "linear"] = "plateau"
    patience: Count = 5
    decay: Annotated[float, Bounds(above=0, most=1)] = 0.5
    decay_patience: Count = 2
    checkpoint_every: Count = 500
    log_every: Count = 100
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    cuda_graphs: bool = True


@dataclass(kw_only=True)
class RunConfig:
    """A training run.

    Args:
        run_dir: The directory of the run. Repeating the command resumes what is unfinished.
        models: Which models to train.
        seed: The seed of the initial weights, the order of the data, and dropout.
        device: The device, such as cpu, cuda or cuda:1; auto takes a GPU if there is one.
        jobs: Processes that train models at the same time; if not set, as many as fit.
        tensorboard: Write TensorBoard events beside metrics.jsonl.
        data: The files and their columns.
        direct: q(output | input).
        channel: p(input | output).
        lm: p(output).
        seq2seq: The sequence-to-sequence baseline without attention.
        attention: The sequence-to-sequence baseline with attention.
        transformer: The transformer, a present-day baseline.
        ngrams: N-gram models of outputs.
        training: How every model is trained.
    """

    run_dir: str = "runs/default"
    models: list[Role] = field(default_factory=lambda: ["direct", "channel", "lm"])
    seed: Seed = 1
    device: str = "auto"
    jobs: Count | None = None
    tensorboard: bool = False
    data: DataConfig = field(default_factory=DataConfig)
    direct: ModelConfig = field(default_factory=lambda: ModelConfig(bidirectional=True))
    channel: ModelConfig = field(default_factory=ModelConfig)
    lm: ModelConfig = field(default_factory=lambda: ModelConfig(num_layers=2))
    seq2seq: ModelConfig = field(default_factory=lambda: ModelConfig(bidirectional=True))
    attention: ModelConfig = field(default_factory=lambda: ModelConfig(bidirectional=True))
    transformer: TransformerConfig = field(default_factory=TransformerConfig)
    ngrams: NGramConfig = field(default_factory=NGramConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def model(self, role: Role) -> ModelConfig:
        config: ModelConfig = getattr(self, role)
        return config

    def limits(self, role: Role) -> Limits:
        """The limits of a model: its own, those in training, or the default."""
        for config in (self.model(role), self.training):
            if config.max_updates or config.max_epochs:
                return Limits(config.max_updates or math.inf, config.max_epochs or math.inf)
        return Limits(DEFAULT_UPDATES, math.inf)

    def check(self) -> None:
        """Refuse impossible values and combinations; the message names the key."""
        check_bounds(self)
        if not self.run_dir:
            raise BadInputError("run_dir: is empty; name a directory")
        if not self.models:
            raise BadInputError(f"models: empty; choose from {', '.join(ROLES)}")
        if len(set(self.models)) != len(self.models):
            raise BadInputError(f"models: duplicate model in {', '.join(self.models)}")
        for role in ROLES:
            model = self.model(role)
            for key, reason in ROLES[role].refuses.items():
                if value := getattr(model, key):
                    raise BadInputError(
                        f"{role}.{key}: {reason}; {'set it to false' if value is True else 'leave it out'}"
                    )
        if self.transformer.hidden_size % self.transformer.num_heads:
            raise BadInputError(
                f"transformer.num_heads: {self.transformer.num_heads} does not divide transformer.hidden_size "
                f"{self.transformer.hidden_size}; choose one that does"
            )
        for role in self.models:
            if self.training.schedule == "linear" and self.limits(role).epochs != math.inf:
                raise BadInputError(
                    f"training.schedule: linear needs a limit of updates, but {role} has one of epochs; set "
                    "max_updates, and not max_epochs"
                )
        if not self.data.feature_separator:
            raise BadInputError("data.feature_separator: must not be empty; write features with one, such as V;PST")
        for side in (self.data.input, self.data.output):
            name = "data.input" if side is self.data.input else "data.output"
            if side.sentencepiece is not None and side.units != "subwords":
                raise BadInputError(f"{name}.sentencepiece: is only for units: subwords, but units is {side.units}")
            if side.remove_spaces and side.units == "words":
                raise BadInputError(f"{name}.remove_spaces: leaves one word of each line; set units to characters")


def parse_config(file: Path, words: Sequence[str] = ()) -> RunConfig:
    """Read a configuration file; options such as ``--direct.hidden_size 256`` override its keys.

    The config.yaml of a run, or of one of its groups, is that of the run where it lies, which may have been moved.
    """
    config = read_config(RunConfig, file, words)
    run_dir = _run_of(file)
    if run_dir is not None and "run_dir" not in given_values(RunConfig, words) and not _same(run_dir, config.run_dir):
        config.run_dir = str(run_dir)
    config.check()
    return config


def _run_of(file: Path) -> Path | None:
    """The run directory whose configuration a file is; None if it is that of no run."""
    if file.name != "config.yaml" or not (file.parent / "run.json").exists():
        return None
    above = Path(os.path.normpath(file.parent / ".."))
    return above if (above / "run.json").exists() else file.parent


def _same(run_dir: Path, other: str) -> bool:
    return Path(other).exists() and run_dir.samefile(other)
