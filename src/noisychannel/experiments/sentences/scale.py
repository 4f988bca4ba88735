"""How large an experiment on sentences is. Experiments give their own sizes; all that is theirs is said there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from noisychannel.experiments.estimates import Rates
from noisychannel.experiments.settings import MeasuringSettings
from noisychannel.training.config import ModelConfig, TransformerConfig


@dataclass(frozen=True, kw_only=True)
class SentenceScale(MeasuringSettings):
    """Sizes of data and models. Of data, all that there is if None."""

    lines: int | None = None
    """The first so many training pairs and unpaired outputs."""
    share: float = 1.0
    """What a number of pairs or unpaired outputs in the name of a row is multiplied by."""
    held_out: int | None = None
    """Items of each test set."""
    valid: int = 2_000
    """Pairs for early stopping: with many more, each evaluation takes as long as hundreds of updates."""
    dev: int = 500
    """Of these, the pairs that weights are tuned on: a decoding of them takes seconds."""
    subwords: int = 16_000
    hidden_size: int = 256
    dropout: float = 0.2
    learning_rate: float = 1e-3
    """It falls to zero at the last update: few updates then give a better model than a constant rate."""
    better_rate: float = 1e-3
    """Of direct models and channels of a kind with another rate."""
    batch_size: int = 32
    large_batch: int = 256
    updates: int = 40_000
    """Of direct models, channels and baselines."""
    passes: int = 8
    """The most passes over the pairs: with few of them more updates would only overfit."""
    least_passes: float = 2.5
    """Over larger data than these sizes are made for, which ``updates`` and ``lm_updates`` would not read once."""
    paced_updates: int = 0
    """Of direct models and channels: see ``ModelConfig``."""
    clip_norm: float = 1.0
    """The default of training."""
    evaluate_every: int = 2_000
    precision: Literal["fp32", "tf32", "bf16"] = "tf32"
    """Of training: tf32 is about as good as fp32 and several times faster on a GPU, bf16 twice as fast on a CPU."""
    lm: ModelConfig = field(
        default_factory=lambda: ModelConfig(
            hidden_size=1024, num_layers=2, dropout=0.5, learning_rate=1e-4, batch_size=128
        )
    )
    """With the paper's size and learning rate; the paper gives no batch size for it."""
    better_lm: Mapping[str, float | int] = field(default_factory=lambda: {"learning_rate": 1e-3})
    """What differs in a better language model: at 1e-4 it has learnt little when its updates end."""
    lm_updates: int = 30_000
    lm_passes: int = 12
    """The most passes over its outputs."""
    back_translated: int = 200_000
    """Unpaired outputs that are given inputs."""
    transformer: TransformerConfig = field(
        default_factory=lambda: TransformerConfig(
            hidden_size=512, num_layers=4, num_heads=8, feedforward_size=1024, warmup=2_000, batch_size=512
        )
    )
    """The present-day opponent; its updates are those of the others, or as many passes."""
    ngram_order: int = 0
    """Of the n-gram model of paired outputs, which is with each direct model; 0: none."""
    n_best: int = 1
    keep_terms: bool = False
    keep_alignments: bool = True
    decoding_batch: int = 128
    iterations: int = 4
    rates: Rates | None = None

    def limit(self, pairs: int, batch_size: int) -> int:
        """The updates of a model of so many pairs: as many pairs are seen with any batch size."""
        return self._limit(self.updates * self.batch_size, self.passes, pairs, batch_size)

    def most_updates(self, pairs: int, batch_size: int) -> int:
        """Those of a model that reads its pairs as often as is allowed."""
        return max(1, self.passes * pairs // batch_size)

    def lm_limit(self, outputs: int, batch_size: int) -> int:
        """The updates of a language model of so many outputs; likewise."""
        return self._limit(self.lm_updates * (self.lm.batch_size or 1), self.lm_passes, outputs, batch_size)

    def _limit(self, seen: int, passes: int, items: int, batch_size: int) -> int:
        """The updates in which so many items are seen, within bounds on the passes over all of them."""
        enough = max(seen, math.ceil(self.least_passes * items))
        return max(1, min(enough, passes * items) // batch_size)
