"""Memory that a training keeps: real processes, because the settings are those of a whole process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
import torch

from noisychannel.allocation import freed_memory_kept

PROGRAM = """
import torch
from noisychannel.allocation import freed_memory_kept

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) >> 10

def use_and_free():
    torch.ones(64 << 18)
    return resident()

before = resident()
without = use_and_free() - before
with freed_memory_kept(torch.device("cpu")) as kept:
    within = use_and_free() - before
print(kept, without, within, resident() - before, use_and_free() - before)
"""
BLOCK = 64
"""MiB."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_what_is_freed_is_kept_inside_and_given_back_afterwards() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    kept, without, within, after, later = done.stdout.split()
    assert kept == "True"
    assert int(without) < BLOCK / 2, "otherwise the process keeps it anyway, and there is nothing to gain"
    assert int(within) >= BLOCK
    assert int(after) < BLOCK / 2
    assert int(later) < BLOCK / 2, "the usual settings are back"


def test_nothing_changes_if_the_device_has_memory_of_its_own() -> None:
    with freed_memory_kept(torch.device("meta")) as kept:
        assert not kept
