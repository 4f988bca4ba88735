"""How the kernels are tested: on the GPU if there is one, else in Triton's interpreter, against the portable code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

MARKS = [
    # NumPy, in the interpreter, tells of -inf - -inf.
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
    # Triton 3.9 tells of a default that will change, and that nothing here depends on.
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION:UserWarning"),
    # PyTorch calls the mode that finds waits for a GPU a prototype.
    pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning"),
]


@contextmanager
def interpreted() -> Iterator[None]:
    """Import kernels in here: Triton looks at the environment when it meets a definition, and its own library has some.

    A module that does is skipped where Triton is missing.
    """
    with pytest.MonkeyPatch.context() as environment:
        if DEVICE == "cpu":
            environment.setenv("TRITON_INTERPRET", "1")
        pytest.importorskip("triton", reason="the kernels need Triton: pip install triton")
        yield


@pytest.fixture(autouse=True)
def portable_is_portable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The portable functions use no kernel; the kernels are called by their own names."""
    monkeypatch.setenv("NOISYCHANNEL_KERNELS", "off")
    if DEVICE == "cpu":
        # The interpreter brings in more of Triton when it is first used.
        monkeypatch.setenv("TRITON_INTERPRET", "1")
