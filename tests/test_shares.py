"""Items divided among processes: every item once, equal inputs together, and everything back in its place."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisychannel.experiments import shares
from noisychannel.experiments.experiment import ModelSet
from noisychannel.experiments.items import Item
from noisychannel.experiments.shares import divide, join, select


def models(name: str, reads_features: bool = True) -> ModelSet:
    return ModelSet((("direct", Path(name)),), (), reads_features)


PARTS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.lists(st.tuples(st.text("xyz", max_size=4), st.sampled_from([(), ("PL",)])), max_size=12),
    ),
    min_size=1,
    max_size=4,
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "FEWEST", 1)


@given(PARTS, st.integers(1, 5), st.booleans())
def test_every_item_has_one_place_and_equal_inputs_share_it(
    parts: list[tuple[str, list[tuple[str, tuple[str, ...]]]]], number: int, reads_features: bool
) -> None:
    of_parts = [models(name, reads_features) for name, _ in parts]
    items = [[Item(text, ("",), features) for text, features in some] for _, some in parts]
    divided = divide(of_parts, items, number)
    assert 1 <= len(divided) <= number
    for part, some in enumerate(items):
        assert sorted(n for share in divided for n in share[part]) == list(range(len(some)))
    homes: dict[object, set[int]] = {}
    for home, share in enumerate(divided):
        for of_part, some, numbers in zip(of_parts, items, share, strict=True):
            for n in numbers:
                features = some[n].features if reads_features else ()
                homes.setdefault((of_part, some[n].input, features), set()).add(home)
    assert all(len(home) == 1 for home in homes.values())
    assert join(divided, [select(items, share) for share in divided]) == items


def test_shares_are_alike_in_number_and_length() -> None:
    items = [[Item("x" * (n % 10 + 1) + str(n), ("",)) for n in range(103)]]
    divided = divide([models("a")], items, 4)
    assert sorted(len(share[0]) for share in divided) == [25, 26, 26, 26]
    lengths = [sum(len(items[0][n].input) for n in share[0]) for share in divided]
    assert max(lengths) - min(lengths) <= 20


def test_models_are_loaded_by_one_process_if_there_are_enough() -> None:
    of_parts = [models(name) for name in "aabbcd"]
    items = [[Item(f"{part} {n}", ("",)) for n in range(4)] for part in range(6)]
    divided = divide(of_parts, items, 3)
    homes = Counter(of_part for share in divided for of_part in {m for m, n in zip(of_parts, share, strict=True) if n})
    assert set(homes.values()) == {1}


def test_models_are_where_there_is_least_to_do() -> None:
    of_parts = [models(name) for name in "abcd"]
    items = [[Item(str(n), ("",)) for n in range(size)] for size in (10, 30, 10, 10)]
    divided = divide(of_parts, items, 2)
    assert sorted(sum(map(len, share)) for share in divided) == [30, 30]


def test_few_inputs_are_one_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "FEWEST", 10)
    items = [[Item(str(n % 25), ("",)) for n in range(100)]]
    assert len(divide([models("a")], items, 8)) == 2
    assert divide([models("a")], [items[0][:9]], 8) == [(tuple(range(9)),)]
    assert divide([models("a"), models("a")], [[], []], 8) == [((), ())]
