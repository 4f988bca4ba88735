"""How large the experiment is: as ``fit`` plans it, or a quick try."""

from __future__ import annotations

from dataclasses import dataclass

from noisychannel.decode.settings import SearchSettings
from noisychannel.experiments.few_pairs.scale import QUICK as QUICK_PAIRS
from noisychannel.experiments.few_pairs.scale import FewPairsScale
from noisychannel.experiments.normalisation.rows import SAMPLES, SIZES


@dataclass(frozen=True, kw_only=True)
class NormalisationScale(FewPairsScale):
    """Sizes of data and models. ``dev``: tokens to tune on; ``seeds``: which samples; ``words``: of the word list."""

    sizes: tuple[int, ...] = SIZES
    """Numbers of training tokens."""
    tokens: int | None = None
    """The first tokens of dev and of test; all if None."""
    seeds: tuple[int, ...] = SAMPLES
    dev: int | None = 2_000
    n_best: int = 1
    keep_terms: bool = False
    decoding_batch: int = 512


QUICK = NormalisationScale(
    sizes=(100, 1_000),
    seeds=(1,),
    dev=150,
    tokens=400,
    words=2_000,
    planned={**QUICK_PAIRS.planned, "words_given_inputs": 300},
    search=SearchSettings(k1=4, k2=2),
    tuning=SearchSettings(k1=4, k2=2),
    iterations=1,
)
"""A few minutes on two cores. Its figures show that everything works, and nothing else."""
