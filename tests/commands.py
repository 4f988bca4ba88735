"""Commands in this process, with streams of their own: to start a program takes longer than most of what it does."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from noisychannel.cli.main import main


def run_here(words: list[str], text: bytes) -> subprocess.CompletedProcess[bytes]:
    """``noisychannel`` with these words and this standard input."""
    given, shown, told = (io.TextIOWrapper(io.BytesIO(x), "utf-8", write_through=True) for x in (text, b"", b""))
    with pytest.MonkeyPatch.context() as patch:
        for name, stream in (("stdin", given), ("stdout", shown), ("stderr", told)):
            patch.setattr(sys, name, stream)
        code = main(words)
    return subprocess.CompletedProcess(words, code, shown.buffer.getvalue(), told.buffer.getvalue())  # type: ignore[attr-defined]
