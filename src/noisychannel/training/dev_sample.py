"""Which dev pairs the evaluations during training use: all of them, unless evaluating would take much of the time.

A thousand pairs tell one perplexity from the next as well as ten thousand do. The sample depends on the data and the
configuration alone, and a training keeps its sample when it resumes: perplexities of different samples do not compare.
"""

from __future__ import annotations

import numpy as np

from noisychannel.data.batches import Rows, plan_batches
from noisychannel.data.corpus import Corpus
from noisychannel.training.config import TrainingConfig

DEV_COST = 0.35
"""A batch of dev, which needs no gradients, takes so much of an update."""
MOST_COST = 0.15
"""Evaluations take at most so much of the time of the updates, unless the smallest sample takes longer."""
LEAST_PAIRS = 1000
"""The smallest sample, unless the user asks for less."""
DRAWN_WITH = 1
"""The seed of the sample."""


def sample_size(corpus: Corpus, training: TrainingConfig, batch_size: int, interval: int) -> int:
    """How many pairs of a dev corpus an evaluation uses. ``interval``: the updates between two evaluations."""
    if training.dev_limit is not None:
        return min(training.dev_limit or corpus.size, corpus.size)
    batches = len(plan_batches(corpus, batch_size, training.batch_symbols, order=None))
    share = MOST_COST * interval * training.accumulate / (DEV_COST * max(1, batches))
    return corpus.size if share >= 1 else min(corpus.size, max(LEAST_PAIRS, int(share * corpus.size)))


def sample(corpus: Corpus, size: int) -> Rows:
    """So many rows of a dev corpus, in their order."""
    if size >= corpus.size:
        return np.arange(corpus.size)
    return np.sort(np.random.default_rng(DRAWN_WITH).permutation(corpus.size)[:size])
