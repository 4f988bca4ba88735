"""How large the experiments are: the paper's sizes, and those of a quick try.

What the paper states: one layer of 512 for direct model and channel, Adam with 1e-3; for the language model two layers
of 1024, 1e-4; dropout 0.5 for all; words seen fewer than five times are UNK; K1 20, K2 10. All else is ours, and said
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from noisychannel.decode.settings import SearchSettings
from noisychannel.experiments.estimates import Cost, Rates
from noisychannel.experiments.sentences.scale import SentenceScale
from noisychannel.training.config import ModelConfig, TransformerConfig

SEARCH = SearchSettings(k1=20, k2=10, allow_unk=False, memory=6, products="tf32", look_ahead=True)
"""UNK is never put out: a Chinese word in its place helps nobody. Sentences are short, so 6 GiB hold large batches, and
many processes can share a GPU."""
CAPTION_SEARCH = replace(SEARCH, allow_unk=None)
"""In outputs UNK is replaced by the German word that the direct model aligns it with: many are names."""

H200 = Rates(
    device="one NVIDIA H200",
    updates={
        "direct": Cost(2.5e-3, 2.5e-5),
        "channel": Cost(2.5e-3, 2.5e-5),
        "attention": Cost(4.0e-3, 2.5e-5),
        "seq2seq": Cost(3.5e-3, 2.5e-5),
        "transformer": Cost(1.5e-2, 1.0e-5),
        "lm": Cost(4.0e-3, 1.2e-5),
    },
    side_by_side=1.7,
    sentences=300.0,
    start=60.0,
)
"""Those of summarisation, scaled: sentences of 6 and 8 words instead of 26 and 12, vocabularies of a third, layers
twice as large."""


@dataclass(frozen=True, kw_only=True)
class TranslationScale(SentenceScale):
    """The paper's sizes, with the data of TVsub."""

    input_types: int = 30_000
    output_types: int = 20_000
    """The most types of each side."""
    min_count: int = 5
    """Rarer words are UNK: 12,402 and 8,819 types are left."""
    subwords: int = 8_000
    """The Chinese of the pairs has about 4,000 characters, which are all among them."""
    hidden_size: int = 512
    dropout: float = 0.5
    better_rate: float = 2e-3
    batch_size: int = 256
    """The paper does not say; sentences are short."""
    updates: int = 12_000
    """17 passes over all pairs."""
    passes: int = 25
    paced_updates: int = 1_000
    """Without them a direct model reads the whole sentence before it writes: docs/experiments/translation.md."""
    evaluate_every: int = 1_000
    lm: ModelConfig = field(
        default_factory=lambda: ModelConfig(
            hidden_size=1024, num_layers=2, dropout=0.5, learning_rate=1e-4, batch_size=256
        )
    )
    lm_updates: int = 20_000
    """2.4 passes over all English; it is raised to 2.5, ``least_passes``."""
    lm_passes: int = 25
    ngram_order: int = 3
    dev: int = 1_000
    """Weights are tuned on BLEU, a score of a corpus; sentences are short."""
    iterations: int = 2
    decoding_batch: int = 256
    keep_terms: bool = True
    """For counts of search errors."""
    search: SearchSettings = SEARCH
    tuning: SearchSettings = SEARCH
    rates: Rates | None = H200


MULTI30K = TranslationScale(
    min_count=2,
    batch_size=128,
    updates=9_000,
    passes=40,
    paced_updates=0,
    lm_updates=9_000,
    lm_passes=80,
    evaluate_every=500,
    valid=1_014,
    dev=500,
    search=CAPTION_SEARCH,
    tuning=CAPTION_SEARCH,
    rates=replace(H200, sentences=250.0),
)
"""With 29,000 pairs of 12 words; 40 passes, because there are few. Words seen once are UNK, as in tutorials. German and
English have about the same word order, so models align without it."""

SMALL_RATES = Rates(
    device="two CPU cores with bfloat16 instructions",
    updates={
        "direct": Cost(3.0e-2, 2.7e-3),
        "channel": Cost(3.0e-2, 2.7e-3),
        "attention": Cost(3.0e-2, 2.7e-3),
        "seq2seq": Cost(3.0e-2, 2.7e-3),
        "lm": Cost(3.0e-2, 2.5e-3),
    },
    side_by_side=1.6,
    sentences=7.0,
)
SMALL_SEARCH = replace(CAPTION_SEARCH, k1=10, k2=5)
SMALL = replace(
    MULTI30K,
    valid=1_014,
    dev=150,
    hidden_size=256,
    dropout=0.3,
    learning_rate=2e-3,
    batch_size=64,
    updates=3_600,
    passes=10,
    evaluate_every=200,
    precision="bf16",
    lm=ModelConfig(hidden_size=512, num_layers=2, dropout=0.3, learning_rate=1e-4, batch_size=64),
    lm_updates=4_000,
    seeds=(1,),
    search=SMALL_SEARCH,
    tuning=SMALL_SEARCH,
    iterations=2,
    decoding_batch=32,
    rates=SMALL_RATES,
)
"""For two CPU cores: models and searches of half the size, 8 passes over all pairs, 10 over few."""
CHINESE_SMALL = replace(
    SMALL,
    min_count=5,
    valid=1_000,
    dev=200,
    updates=7_200,
    paced_updates=500,
    evaluate_every=900,
    least_passes=0,
    lm_updates=8_000,
    search=replace(SMALL_SEARCH, allow_unk=False),
    tuning=replace(SMALL_SEARCH, allow_unk=False),
)
"""For two CPU cores: 2.5 passes over the pairs, a quarter of one over all English. The vocabularies are the paper's."""

TWO_CORES: Mapping[str, Cost] = {
    "direct": Cost(4.0e-3, 5.0e-4),
    "channel": Cost(4.0e-3, 5.0e-4),
    "attention": Cost(1.0e-2, 6.0e-4),
    "seq2seq": Cost(1.0e-2, 6.0e-4),
    "transformer": Cost(1.0e-2, 6.0e-4),
    "lm": Cost(4.0e-3, 4.0e-4),
}
_QUICK_SEARCH = SearchSettings(k1=6, k2=3, max_length=16, allow_unk=False, look_ahead=True)
QUICK = TranslationScale(
    lines=6_000,
    share=0.01,
    held_out=60,
    valid=100,
    dev=40,
    min_count=2,
    subwords=2_500,
    hidden_size=48,
    learning_rate=5e-3,
    better_rate=1e-2,
    batch_size=32,
    updates=400,
    paced_updates=40,
    passes=4,
    least_passes=0,
    evaluate_every=200,
    precision="fp32",
    lm=ModelConfig(hidden_size=64, num_layers=2, dropout=0.2, learning_rate=1e-3, batch_size=64),
    lm_updates=200,
    transformer=TransformerConfig(hidden_size=48, num_layers=2, warmup=20, batch_size=64),
    back_translated=200,
    seeds=(1, 2),
    search=_QUICK_SEARCH,
    tuning=_QUICK_SEARCH,
    iterations=1,
    rates=Rates(device="two CPU cores", updates=TWO_CORES, side_by_side=1.6, sentences=20.0, start=10.0),
)
"""A few minutes on two cores. Its figures show that everything works, and nothing else."""
QUICK_MULTI30K = replace(
    QUICK,
    lines=3_000,
    share=0.1,
    held_out=25,
    search=replace(_QUICK_SEARCH, allow_unk=None),
    tuning=replace(_QUICK_SEARCH, allow_unk=None),
)
