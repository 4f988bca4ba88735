"""What holds for every test."""

import os
import signal
from collections.abc import Iterator

import pytest

# Some virtual machines announce AMX but do not allow it: oneDNN's bfloat16 products then die of an illegal instruction.
# Set before torch is imported, and inherited by every process that a test starts.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
# One thread in each process, and threads that wait sleep: pytest-xdist already keeps every core busy.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture(autouse=True)
def usual_signals() -> Iterator[None]:
    """A shell ignores ctrl-C for background jobs, nohup ignores SIGHUP, and what a test starts would inherit that."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        if handler is not None:
            signal.signal(number, handler)
