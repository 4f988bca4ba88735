"""The character transformer that few pairs are compared with."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from noisychannel.experiments.few_pairs.tasks import Pair
from noisychannel.experiments.few_pairs.transformer import (
    Symbols,
    TrainedTransformer,
    Transformer,
    TransformerSettings,
    train_transformer,
)

SMALL = TransformerSettings(
    size=32, feed_forward=32, layers=1, heads=2, dropout=0.0, learning_rate=8e-3, warmup=20, updates=80, batch_size=40
)


def examples(number: int, seed: int) -> list[Pair]:
    """A tag decides whether an x is added; the other tag says nothing."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abc", k=rng.randint(1, 3))) for _ in range(number)]
    return [Pair(x, x + "x" * (tag == "ADD"), (tag, "N")) for x in words for tag in [rng.choice(["ADD", "NOT"])]]


@pytest.fixture
def untrained() -> TrainedTransformer:
    torch.manual_seed(2)
    symbols = Symbols(examples(50, 1))
    return TrainedTransformer(Transformer(len(symbols), SMALL), symbols, torch.device("cpu"))


def test_it_learns_to_copy_and_to_read_tags() -> None:
    trained = train_transformer(examples(300, 1), examples(20, 2), replace(SMALL, evaluate_every=40), "cpu")
    assert trained.accuracy(examples(60, 3)) > 80
    assert trained.dev_accuracy == pytest.approx(trained.accuracy(examples(20, 2)))  # the best model is kept
    assert trained.best_step % 40 == 0


def test_neither_the_order_of_tags_nor_the_batch_counts(untrained: TrainedTransformer) -> None:
    some = [*examples(6, 4), Pair("abcdabcdabcd", "", ("ADD", "N")), Pair("a", "", ()), Pair("äb", "", ("X", "N"))]
    together = untrained.decode(some)
    assert together == [untrained.decode([pair])[0] for pair in some]
    untrained.model.eval()
    turned = [pair._replace(tags=pair.tags[::-1]) for pair in some]
    states, padding = untrained.model.read(*untrained.sources(some))
    other, _ = untrained.model.read(*untrained.sources(turned))
    letters = [(n, i) for n, pair in enumerate(some) for i in range(len(pair.tags), len(pair.tags) + len(pair.input))]
    for n, i in letters:
        torch.testing.assert_close(states[n, i], other[n, i])
    assert padding.sum() > 0


def test_an_output_depends_on_earlier_symbols_alone(untrained: TrainedTransformer) -> None:
    model = untrained.model.eval()
    states, padding = model.read(*untrained.sources(examples(3, 5)))
    outputs = torch.tensor([[1, 5, 6, 7]] * 3)
    changed = outputs.clone()
    changed[:, 3] = 8
    one, other = (model.write(x, states, padding) for x in (outputs, changed))
    torch.testing.assert_close(one[:, :3], other[:, :3])
    assert not torch.allclose(one[:, 3], other[:, 3])
