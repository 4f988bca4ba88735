"""A short form of ``benchmarks/serve.py``: many clients at once, each with its own answers."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from serving import running

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "serve.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("serve_bench", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["serve_bench"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_many_clients(bench: ModuleType) -> None:
    expected = bench.expected_outputs(40)
    with running() as server:
        load = asyncio.run(bench.put_load(server.address, expected, clients=60, seconds=2.0))
    assert set(load.outcomes) == {"right"}
    assert load.outcomes.total() >= 60
    assert load.batch > 2, "what waits is decoded together"
    assert max(load.memory) < 1.5 * load.memory[0]
    assert "| others | none |" in bench.report(load, 60, ["bench"])
