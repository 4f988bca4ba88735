"""How large the experiment is: the paper's sizes, and those of a quick try.

What the paper states: one layer of 256 for direct model and channel, dropout 0.2, Adam with 1e-3, batches of 32; for
the language model two layers of 1024, dropout 0.5, 1e-4; K1 20, K2 10. All else is ours, and said here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from noisychannel.decode.settings import SearchSettings
from noisychannel.experiments.estimates import Cost, Rates
from noisychannel.experiments.sentences.scale import SentenceScale
from noisychannel.experiments.summarisation.data import MOST_OUTPUT_WORDS
from noisychannel.training.config import ModelConfig

SEARCH = SearchSettings(k1=20, k2=10, max_length=MOST_OUTPUT_WORDS + 1, memory=12, products="tf32", look_ahead=True)
"""No output is longer than training headlines can be. What a search in TF32 finds is scored exactly. 12 GiB are
enough for the longest sentence of DUC-2003, of 377 words, and eight processes fit on a GPU of 139 GiB, also if two of
them search widely."""

H200 = Rates(
    device="one NVIDIA H200",
    updates={
        "direct": Cost(2.0e-3, 6.0e-5),
        "channel": Cost(2.0e-3, 6.0e-5),
        "attention": Cost(3.5e-3, 6.0e-5),
        "seq2seq": Cost(3.0e-3, 6.0e-5),
        "lm": Cost(4.2e-3, 1.8e-5),
    },
    side_by_side=1.7,
    sentences=95.0,
    start=100.0,
)
"""From benchmarks/results/train-h200.md (3.8 ms an update of an SSNT, 5.3 of attention; the LM in TF32), and from the
experiment itself: four trainings side by side, and the tuning and decoding of few-better-lm by five processes. That
block decoded 86 sentences in a second. An estimate counts more decodings than its tuning needed, so its rate is 95."""


@dataclass(frozen=True, kw_only=True)
class SummarisationScale(SentenceScale):
    """The paper's sizes."""

    vocabulary: int = 30_000
    """The most frequent words of each side; they cover 97 % of both. The paper does not say."""
    updates: int = 40_000
    """2.5 passes over all pairs, about 2.5 minutes each on an H200."""
    lm: ModelConfig = field(
        default_factory=lambda: ModelConfig(
            hidden_size=1024, num_layers=2, dropout=0.5, learning_rate=1e-4, batch_size=64
        )
    )
    """The paper gives no batch size for it. At so small a rate many updates are worth more than large batches."""
    lm_updates: int = 50_000
    """2.8 passes over all headlines, about 3 minutes on an H200."""
    better_lm: Mapping[str, float | int] = field(
        default_factory=lambda: {"learning_rate": 1e-3, "dropout": 0.2, "batch_size": 128}
    )
    """In so few passes less dropout is enough, and at this rate fewer updates with larger batches are."""
    search: SearchSettings = SEARCH
    tuning: SearchSettings = SEARCH
    rates: Rates | None = H200


SMALL_RATES = Rates(
    device="two CPU cores with bfloat16 instructions",
    updates={
        "direct": Cost(2.0e-2, 2.0e-3),
        "channel": Cost(2.0e-2, 2.0e-3),
        "attention": Cost(2.0e-2, 1.5e-3),
        "seq2seq": Cost(2.0e-2, 1.5e-3),
        "lm": Cost(2.0e-2, 5.0e-4),
    },
    side_by_side=1.8,
    sentences=5.0,
)
"""Of the block table: each model by one process, two at a time; all rows by two processes, most of the time beside
another training."""
SMALL_SEARCH = replace(SEARCH, k1=10, k2=5, memory=4, products="ieee")
SMALL = SummarisationScale(
    vocabulary=5_000,
    held_out=1_000,
    valid=1_000,
    dev=200,
    hidden_size=128,
    dropout=0.1,
    learning_rate=3e-3,
    updates=7_800,
    evaluate_every=1_300,
    least_passes=0,
    precision="bf16",
    lm=ModelConfig(hidden_size=256, num_layers=2, dropout=0.2, learning_rate=1e-4, batch_size=64),
    better_lm={"learning_rate": 3e-3},
    lm_updates=8_000,
    search=SMALL_SEARCH,
    tuning=SMALL_SEARCH,
    iterations=2,
    decoding_batch=32,
    rates=SMALL_RATES,
)
"""For two CPU cores: models and searches of half the paper's size, a language model of a quarter, 5,000 words, and 2.5
passes over 100,000 pairs. Half the test set, which interval and p-value allow for."""

TWO_CORES: Mapping[str, Cost] = {
    "direct": Cost(4.0e-3, 8.0e-4),
    "channel": Cost(4.0e-3, 8.0e-4),
    "attention": Cost(1.0e-2, 1.0e-3),
    "seq2seq": Cost(1.0e-2, 1.0e-3),
    "lm": Cost(4.0e-3, 4.0e-4),
}
_QUICK_SEARCH = SearchSettings(k1=6, k2=3, max_length=16, look_ahead=True)
QUICK = SummarisationScale(
    lines=2_000,
    share=0.01,
    held_out=40,
    valid=100,
    dev=30,
    vocabulary=1_000,
    subwords=500,
    hidden_size=48,
    learning_rate=5e-3,
    large_batch=64,
    updates=150,
    passes=4,
    least_passes=0,
    evaluate_every=75,
    precision="fp32",
    lm=ModelConfig(hidden_size=64, num_layers=2, dropout=0.2, learning_rate=1e-3, batch_size=64),
    lm_updates=150,
    back_translated=200,
    seeds=(1, 2),
    search=_QUICK_SEARCH,
    tuning=_QUICK_SEARCH,
    iterations=1,
    rates=Rates(device="two CPU cores", updates=TWO_CORES, side_by_side=1.6, sentences=8.0, start=20.0),
)
"""A few minutes on two cores. Its figures show that everything works, and nothing else."""
