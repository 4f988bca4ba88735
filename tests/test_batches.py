"""Batches: every row once, within the limits, with little padding, and the same for the same seed."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from noisychannel.data.batches import Batch, Rows, make_batch, plan_batches
from noisychannel.data.corpus import Corpus, Sequences

Lengths = list[tuple[int, int]]
"""Of the input and the output of every row."""

some_lengths = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=40)
batch_sizes = st.integers(1, 7)
symbol_limits = st.none() | st.integers(1, 80)


def corpus_of(lengths: Lengths) -> Corpus:
    return Corpus(Sequences.of([[5] * i for i, _ in lengths]), Sequences.of([[5] * j for _, j in lengths]))


def lm_corpus_of(lengths: list[int]) -> Corpus:
    return Corpus(None, Sequences.of([[5] * j for j in lengths]))


def as_lists(batches: list[Rows]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def epoch(seed: int, number: int) -> np.random.Generator:
    return np.random.default_rng([seed, number])


def padded_size(lengths: Lengths, rows: list[int]) -> int:
    """The symbols of a batch, padding included."""
    return len(rows) * (max(lengths[n][0] for n in rows) + max(lengths[n][1] for n in rows))


def padding(lengths: Lengths, batches: list[list[int]]) -> float:
    """Which part of all batches is padding."""
    return 1 - sum(i + j for i, j in lengths) / sum(padded_size(lengths, rows) for rows in batches)


# --- what every plan keeps


@settings(deadline=None, derandomize=True, max_examples=100)
@given(lengths=some_lengths, batch_size=batch_sizes, batch_symbols=symbol_limits, seed=st.none() | st.integers(0, 9))
def test_every_row_is_in_one_batch_and_limits_hold(
    lengths: Lengths, batch_size: int, batch_symbols: int | None, seed: int | None
) -> None:
    order = None if seed is None else epoch(seed, 0)
    batches = as_lists(plan_batches(corpus_of(lengths), batch_size, batch_symbols, order))
    assert sorted(itertools.chain(*batches)) == list(range(len(lengths)))
    for rows in batches:
        assert 1 <= len(rows) <= batch_size
        if batch_symbols is not None and len(rows) > 1:
            assert padded_size(lengths, rows) <= batch_symbols


@settings(deadline=None, derandomize=True, max_examples=100)
@given(lengths=some_lengths, batch_size=batch_sizes, batch_symbols=symbol_limits)
def test_without_an_order_rows_are_sorted_and_batches_full(
    lengths: Lengths, batch_size: int, batch_symbols: int | None
) -> None:
    batches = as_lists(plan_batches(corpus_of(lengths), batch_size, batch_symbols, None))
    by_length = sorted(range(len(lengths)), key=lambda n: (lengths[n][1], lengths[n][0]))
    assert list(itertools.chain(*batches)) == by_length
    for rows, following in itertools.pairwise(batches):
        one_more = [*rows, following[0]]
        too_many = len(one_more) > batch_size
        too_large = batch_symbols is not None and padded_size(lengths, one_more) > batch_symbols
        assert too_many or too_large


@settings(deadline=None, derandomize=True, max_examples=50)
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=40), batch_symbols=symbol_limits)
def test_a_language_model_counts_outputs_only(lengths: list[int], batch_symbols: int | None) -> None:
    batches = as_lists(plan_batches(lm_corpus_of(lengths), 5, batch_symbols, None))
    assert list(itertools.chain(*batches)) == sorted(range(len(lengths)), key=lambda n: lengths[n])
    for rows in batches:
        size = len(rows) * max(lengths[n] for n in rows)
        assert len(rows) <= 5
        assert len(rows) == 1 or batch_symbols is None or size <= batch_symbols


@pytest.mark.parametrize("ordered", [False, True])
def test_a_row_over_the_limit_is_a_batch_of_its_own(ordered: bool) -> None:
    lengths = [(3, 3), (50, 50), (2, 4), (4, 2), (60, 1)]
    batches = as_lists(plan_batches(corpus_of(lengths), 8, 30, epoch(1, 0) if ordered else None))
    assert [1] in batches
    assert [4] in batches
    assert sorted(itertools.chain(*batches)) == [0, 1, 2, 3, 4]


def test_limits_are_counted_with_padding() -> None:
    # Sorted by output: (1,1) (9,1) (1,2). The first two fit in 2 * (9 + 1) = 20; all three need 3 * (9 + 2) = 33.
    corpus = corpus_of([(9, 1), (1, 2), (1, 1)])
    assert as_lists(plan_batches(corpus, 8, 33, None)) == [[2, 0, 1]]
    assert as_lists(plan_batches(corpus, 8, 32, None)) == [[2, 0], [1]]
    assert as_lists(plan_batches(corpus, 8, 20, None)) == [[2, 0], [1]]
    assert as_lists(plan_batches(corpus, 8, 19, None)) == [[2], [0], [1]]


@pytest.mark.parametrize("batch_symbols", [None, 100])
@pytest.mark.parametrize("ordered", [False, True])
def test_no_rows_make_no_batches(batch_symbols: int | None, ordered: bool) -> None:
    assert plan_batches(lm_corpus_of([]), 4, batch_symbols, epoch(1, 0) if ordered else None) == []


# --- the order of an epoch


@pytest.fixture(scope="module")
def nouns() -> Lengths:
    """Lengths like those of words and their inflected forms."""
    rng = random.Random(7)
    lengths = [rng.randint(3, 40) for _ in range(5000)]
    return [(i, max(1, i + rng.randint(-2, 4))) for i in lengths]


@pytest.mark.parametrize("batch_symbols", [None, 600])
def test_an_epoch_depends_on_the_seed_and_its_number_only(nouns: Lengths, batch_symbols: int | None) -> None:
    plans = {
        (seed, number): as_lists(plan_batches(corpus_of(nouns), 16, batch_symbols, epoch(seed, number)))
        for seed, number in itertools.product((1, 2), (0, 1))
    }
    for (seed, number), plan in plans.items():
        assert plan == as_lists(plan_batches(corpus_of(nouns), 16, batch_symbols, epoch(seed, number)))
    for one, other in itertools.combinations(plans.values(), 2):
        assert one != other
        # Not only other batches first, but other rows together.
        assert {frozenset(rows) for rows in one} != {frozenset(rows) for rows in other}


def test_long_and_short_batches_come_in_random_order(nouns: Lengths) -> None:
    batches = as_lists(plan_batches(corpus_of(nouns), 16, None, epoch(1, 0)))
    longest = [max(nouns[n][1] for n in rows) for rows in batches]
    ascending = sum(a <= b for a, b in itertools.pairwise(longest)) / (len(longest) - 1)
    assert 0.35 < ascending < 0.65


@pytest.mark.parametrize("batch_symbols", [None, 600])
def test_there_is_little_padding(nouns: Lengths, batch_symbols: int | None) -> None:
    in_order = as_lists(plan_batches(corpus_of(nouns), 16, batch_symbols, None))
    shuffled = as_lists(plan_batches(corpus_of(nouns), 16, batch_symbols, epoch(1, 0)))
    unsorted = [list(range(n, min(n + 16, len(nouns)))) for n in range(0, len(nouns), 16)]
    assert padding(nouns, unsorted) > 0.4
    assert padding(nouns, in_order) < 0.03
    assert padding(nouns, shuffled) < 0.08


# --- padded batches


def test_a_batch_holds_its_rows_padded() -> None:
    corpus = Corpus(Sequences.of([[4, 2], [5, 6, 2], [7, 8, 9, 2]]), Sequences.of([[6, 7, 8, 2], [2], [9, 2]]))
    batch = make_batch(corpus, np.array([2, 0]))
    assert batch.inputs is not None
    assert batch.inputs.tolist() == [[7, 8, 9, 2], [4, 2, 0, 0]]
    assert batch.outputs.tolist() == [[9, 2, 0, 0], [6, 7, 8, 2]]
    assert batch.input_lengths is not None
    assert batch.input_lengths.tolist() == [4, 2]
    assert batch.output_lengths.tolist() == [2, 4]
    assert {tensor.dtype for tensor in batch.arguments} == {torch.int64}
    assert [tensor.tolist() for tensor in batch.arguments] == [
        [[7, 8, 9, 2], [4, 2, 0, 0]], [4, 2], [[9, 2, 0, 0], [6, 7, 8, 2]], [2, 4],
    ]  # fmt: skip


def test_a_batch_is_no_wider_than_its_longest_row() -> None:
    corpus = Corpus(Sequences.of([[4, 2], [5, 6, 2]]), Sequences.of([[6, 7, 8, 2], [2]]))
    batch = make_batch(corpus, np.array([1]))
    assert batch.arguments[0].tolist() == [[5, 6, 2]]
    assert batch.outputs.tolist() == [[2]]


def test_a_batch_of_a_language_model_has_no_inputs() -> None:
    batch = make_batch(Corpus(None, Sequences.of([[4, 2], [5, 6, 2]])), np.array([0, 1]))
    assert batch.inputs is None
    assert batch.input_lengths is None
    assert [tensor.tolist() for tensor in batch.arguments] == [[[4, 2, 0], [5, 6, 2]], [2, 3]]


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    rows=st.lists(st.tuples(*[st.lists(st.integers(3, 99), max_size=6)] * 2), min_size=1, max_size=12),
    batch_size=batch_sizes,
)
def test_batches_hold_the_corpus(rows: list[tuple[list[int], list[int]]], batch_size: int) -> None:
    pairs = [([*x, 2], [*y, 2]) for x, y in rows]
    corpus = Corpus(Sequences.of([x for x, _ in pairs]), Sequences.of([y for _, y in pairs]))
    for batch_rows in plan_batches(corpus, batch_size, None, epoch(3, 0)):
        inputs, input_lengths, outputs, output_lengths = make_batch(corpus, batch_rows).arguments
        for b, n in enumerate(batch_rows):
            x, y = pairs[n]
            assert inputs[b].tolist() == x + [0] * (inputs.shape[1] - len(x))
            assert outputs[b].tolist() == y + [0] * (outputs.shape[1] - len(y))
            assert (input_lengths[b], output_lengths[b]) == (len(x), len(y))


@pytest.mark.parametrize("with_inputs", [False, True])
def test_a_batch_moves_to_a_device_but_its_lengths_stay(with_inputs: bool) -> None:
    sides = Sequences.of([[4, 2], [5, 6, 2]])
    batch = make_batch(Corpus(sides if with_inputs else None, sides), np.array([0, 1]))
    moved = batch.to(torch.device("meta"))
    assert isinstance(moved, Batch)
    assert moved.outputs.device.type == "meta"
    assert moved.output_lengths is batch.output_lengths
    assert moved.input_lengths is batch.input_lengths
    assert (moved.inputs is not None and moved.inputs.device.type == "meta") == with_inputs
