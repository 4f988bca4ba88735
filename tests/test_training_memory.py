"""Sizes before anything is allocated: parameters in closed form, free memory, and models that are too large for it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from noisychannel import devices
from noisychannel.errors import BadInputError
from noisychannel.models.registry import ROLES, Role
from noisychannel.training import memory, run
from noisychannel.training.config import ModelConfig, RunConfig, TransformerConfig
from noisychannel.training.run import train_run
from toys import toy_config

GIB = 1 << 30


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    role=st.sampled_from(list(ROLES)),
    hidden_size=st.integers(1, 6),
    num_layers=st.integers(1, 3),
    embedding_size=st.none() | st.integers(1, 6),
    bidirectional=st.booleans(),
    symbols=st.tuples(st.integers(5, 9), st.integers(5, 9)),
)
def test_parameters_are_counted_without_building_the_model(
    role: Role,
    hidden_size: int,
    num_layers: int,
    embedding_size: int | None,
    bidirectional: bool,
    symbols: tuple[int, int],
) -> None:
    kind = partial(TransformerConfig, num_heads=1) if role == "transformer" else ModelConfig
    sizes = kind(
        hidden_size=hidden_size, num_layers=num_layers, embedding_size=embedding_size, bidirectional=bidirectional
    )
    description = ROLES[role].describe(sizes, {"input": symbols[0], "output": symbols[1]})
    assert description.parameters == sum(p.numel() for p in description.build().parameters())


def refusal(config: RunConfig) -> str:
    with pytest.raises(BadInputError) as caught:
        train_run(config, lambda event: None, lambda line: None)
    assert not Path(config.run_dir).exists(), "nothing is left of a run that was refused"
    return str(caught.value)


def free(monkeypatch: pytest.MonkeyPatch, size: int | None) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda device: size)


@pytest.mark.parametrize("sizes", [{"hidden_size": 10**9}, {"num_layers": 10**6}, {"embedding_size": 10**9}])
def test_a_model_that_cannot_fit_is_refused_before_the_data_is_read(
    sizes: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 8 * GIB)
    config = toy_config(tmp_path)
    config.direct = replace(config.direct, hidden_size=256)
    for key, value in sizes.items():
        setattr(config.direct, key, value)
    Path(config.data.train[0]).write_text("not two columns")
    message = refusal(config)
    ((key, value),) = sizes.items()
    assert message.startswith("direct: ")
    assert f"{key} {value:,}" in message
    assert "8.0 GiB are free" in message
    largest = int(message.rpartition(f"direct.{key} ")[2])
    for number, fits in ((largest, True), (largest + 1, False)):
        setattr(config.direct, key, number)
        parameters = ROLES["direct"].describe(config.direct, memory.LEAST_SYMBOLS).parameters
        assert (24 * parameters <= 8 * GIB) == fits


def test_a_vocabulary_can_be_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = toy_config(tmp_path, models=("lm",))
    least = 24 * ROLES["lm"].describe(config.lm, memory.LEAST_SYMBOLS).parameters
    free(monkeypatch, least)
    message = refusal(config)
    assert "14 output symbols" in message
    assert "a smaller vocabulary (data.input.max_size, data.output.max_size)" in message


def test_a_line_can_be_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = toy_config(tmp_path)
    long = "ab" * 500
    with Path(config.data.train[0]).open("a") as file:
        file.write(f"{long}\t{long}\n")
    free(monkeypatch, 4 * 1001 * 1001 * 32)
    message = refusal(config)
    assert "the longest line of the training data (1,001 × 1,001 symbols) needs at least" in message
    assert "set data.input.max_length" in message
    config.data.input.max_length = 50
    train_run(config, lambda event: None, lambda line: None)


def test_fewer_models_at_a_time_if_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = toy_config(tmp_path, models=("direct", "channel", "lm"), max_epochs=1)
    config.jobs = None
    seen: list[int] = []
    monkeypatch.setattr(run, "run_jobs", lambda jobs, processes, *others: seen.append(processes) or [])
    monkeypatch.setattr("noisychannel.training.jobs.cores", lambda: 8)
    said: list[str] = []
    # 21,537 parameters of each SSNT and 9,358 of the language model, 24 bytes each.
    for size, expected in ((None, 3), (GIB, 3), (1_200_000, 2), (600_000, 1)):
        free(monkeypatch, size)
        train_run(config, lambda event: None, said.append)
        assert seen.pop() == expected
        assert any(f"training {expected} at a time" in line for line in said) == (expected < 3)
        said.clear()


def test_the_memory_of_this_machine_is_known() -> None:
    size = devices.free_memory(torch.device("cpu"))
    assert size is None or 1 << 20 < size < 1 << 50


def test_a_container_has_less_memory_than_its_machine(tmp_path: Path) -> None:
    own = tmp_path / "cgroup"

    def group(place: str, **files: str) -> None:
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (tmp_path / place / name.replace("_", ".", 1)).write_text(text)

    own.write_text("0::/outer/inner\n")
    group("outer", memory_max="1000\n", memory_current="300\n", memory_stat="anon 250\ninactive_file 50\n")
    group("outer/inner", memory_max="max\n", memory_current="200\n")
    assert devices._free_in_groups(tmp_path, own) == [750]
    own.write_text("5:cpu:/\n4:memory:/job\n0::/\n")
    group("memory/job", memory_limit_in_bytes="500\n", memory_usage_in_bytes="600\n")
    assert devices._free_in_groups(tmp_path, own) == [0]
