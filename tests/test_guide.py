"""The commands of docs/guide-few-pairs.md, in their order, on a few pairs of a made-up spelling."""

from __future__ import annotations

import contextlib
import io
import random
import re
import shlex
from pathlib import Path

import pytest

from noisychannel.cli.main import main
from test_fit import shrink
from toys import LETTERS, double_vowels

GUIDE = Path(__file__).parents[1] / "docs" / "guide-few-pairs.md"
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
OTHER_PROGRAMS = ("head", "wc", "paste")


def commands() -> list[str]:
    return [line for block in BLOCK.findall(GUIDE.read_text(encoding="utf-8")) for line in block.splitlines()]


def write_data(place: Path) -> None:
    rng = random.Random(1)
    tokens = sorted({"".join(rng.choices(LETTERS, k=rng.randint(3, 5))) for _ in range(150)})
    rng.shuffle(tokens)
    pairs = [f"{token}\t{double_vowels(token)}\n" for token in tokens]
    files = {"pairs.tsv": pairs[:24], "more-pairs.tsv": pairs[:30], "test.tsv": pairs[30:40]}
    files |= {"words.txt": [f"{double_vowels(token)}\n" for token in tokens[40:]]}
    files |= {"tokens.txt": [f"{token}\n" for token in tokens[30:36]]}
    for name, lines in files.items():
        (place / name).write_text("".join(lines), encoding="utf-8")


def do(command: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a command of the guide in this process: what it prints."""
    before, _, last = command.rpartition(" | ")
    words = shlex.split(last)
    assert words[0] == "noisychannel", command
    if before:
        printf, text = shlex.split(before)
        assert printf == "printf"
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.replace("\\n", "\n").encode())))
    if words[1] == "fit":
        words += ["--jobs", "1"]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        assert main(words[1:]) == 0, command
    return shown.getvalue()


def test_every_command_of_the_guide_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    shown = {line: do(line, monkeypatch) for line in commands() if line.split()[0] not in OTHER_PROGRAMS}
    fitted, decoded = list(shown.values())[:2]
    assert "decode uses this" in fitted
    assert len(decoded.splitlines()) == 2
    assert len((tmp_path / "modern.txt").read_text(encoding="utf-8").splitlines()) == 6
    assert len((tmp_path / "marked.tsv").read_text(encoding="utf-8").splitlines()) == 6
    assert len((tmp_path / "outputs.tsv").read_text(encoding="utf-8").splitlines()) >= 10
    assert "runs/old" in list(shown.values())[-1]
