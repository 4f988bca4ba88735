"""How long one word takes, and how many words a second the program decodes, with the packaged model on a CPU.

    python benchmarks/latency.py [--words 300] [--lines 2000] [--rounds 3] [--against CHECKOUT/src]

The words are nouns of the PyPI package german-nouns, in a random order (seed 0). K1 is 10 and K2 is 5, as tuned.

one word     ``NoisyChannel(...)(word)`` in one thread, one word at a time, after some that do not count: with the
             alignments and the confidence of its output, for which the search keeps a longer list. "search" is the
             search alone, as ``decode`` runs it. They take turns. Beside the time that passes stands the time of the
             CPU: on a machine that others use, too, the first is longer.
a file       the command ``noisychannel decode demo FILE`` from start to end, on all cores. Modules are compiled
             before, as pip does when it installs a package; else the start takes some seconds more.

``--against`` measures another version of the program, too. Both take turns, process by process, round after round.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from noisychannel import NoisyChannel, Weights
from noisychannel.bench.timing import where_and_when
from noisychannel.data.german_nouns import read_nouns
from noisychannel.provenance import commit

OURS = Path(__file__).resolve().parents[1] / "src"
WARM_UP = 20
Seconds = tuple[float, float]
"""That pass, and of the CPU."""


def nouns(count: int) -> list[str]:
    """Distinct lemmas."""
    lemmas = list(dict.fromkeys(row["lemma"] for row in read_nouns("this benchmark") if row["lemma"]))
    random.Random(0).shuffle(lemmas)
    return lemmas[:count]


def one_by_one(words: list[str]) -> dict[str, list[Seconds]]:
    """Seconds of each word, by what was done with it."""
    torch.set_num_threads(1)
    full = NoisyChannel.load("demo", system="direct+channel+lm", device="cpu")
    direct = full.reweighted(Weights())
    ways: Mapping[str, Callable[[str], object]] = {
        "full": full,
        "full, no confidence": lambda word: full.batch([word], confident=False),
        "full, search": lambda word: full.batch([word], align=False, confident=False),
        "direct": direct,
        "direct, search": lambda word: direct.batch([word], align=False, confident=False),
    }
    times: dict[str, list[Seconds]] = {name: [] for name in ways}
    for n, word in enumerate([*words[:WARM_UP], *words]):
        for name, way in ways.items():
            passed, cpu = time.perf_counter(), time.process_time()
            way(word)
            if n >= WARM_UP:
                times[name].append((time.perf_counter() - passed, time.process_time() - cpu))
    return times


def measure_words(source: Path, count: int) -> dict[str, list[Seconds]]:
    """``one_by_one`` in a process of its own, which runs the code in ``source``."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--child", str(count)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, list[Seconds]] = json.loads(done.stdout)
    return found


def measure_file(source: Path, file: Path, compiled: Path) -> Seconds:
    """Seconds of the command, start and end included, and those of the CPU in all its processes.

    ``compiled``: a folder for compiled modules.
    """
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONPYCACHEPREFIX": str(compiled)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "noisychannel", "decode", "demo"]
    subprocess.run(command, env=environment, check=True, capture_output=True, input=b"Haus\n")
    start, cpu = time.perf_counter(), os.times()
    subprocess.run([*command, str(file)], env=environment, check=True, capture_output=True)
    spent = os.times()
    return time.perf_counter() - start, sum(spent[2:4]) - sum(cpu[2:4])


def percentile(seconds: list[float], share: float) -> float:
    return sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))]


def report_words(label: str, times: dict[str, list[Seconds]]) -> None:
    for name, seconds in times.items():
        figures = [
            f"{1e3 * percentile([s[kind] for s in seconds], share):.0f}" for kind in (0, 1) for share in (0.5, 0.95)
        ]
        print(f"| {label} | {name} | {' | '.join(figures)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=300, help="decoded one by one")
    parser.add_argument("--lines", type=int, default=2000, help="of the file; 0 for no file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path, help="the src of another checkout")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps(one_by_one(nouns(options.child))))
        return
    sources = {"": OURS} if options.against is None else {"before": options.against.resolve(), "now": OURS}
    versions = {name: commit(source / "noisychannel" / "__init__.py") for name, source in sources.items()}
    print(
        f"{where_and_when('cpu')}, {os.cpu_count()} cores; "
        + ", ".join(f"{n} {v}".strip() for n, v in versions.items())
    )
    words: dict[str, dict[str, list[Seconds]]] = {name: {} for name in sources}
    files: dict[str, list[Seconds]] = {name: [] for name in sources}
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "nouns.txt"
        file.write_text("".join(f"{noun}\n" for noun in nouns(options.lines)), encoding="utf-8")
        for _ in range(options.rounds):
            for name, source in sources.items():
                for way, seconds in measure_words(source, options.words).items():
                    words[name].setdefault(way, []).extend(seconds)
                if options.lines:
                    files[name].append(measure_file(source, file, Path(directory) / "compiled"))
    print(f"\nMilliseconds of one word ({options.words} words, {options.rounds} rounds).\n")
    print("| version | system | p50 | p95 | CPU, p50 | CPU, p95 |\n| --- | --- | ---: | ---: | ---: | ---: |")
    for name, times in words.items():
        report_words(name, times)
    if options.lines:
        print(f"\n`noisychannel decode demo FILE`, {options.lines} lines: seconds, and lines a second, medians.\n")
        print("| version | seconds | lines/s | seconds of the CPU |\n| --- | ---: | ---: | ---: |")
        for name, found in files.items():
            passed, cpu = (statistics.median(seconds[kind] for seconds in found) for kind in (0, 1))
            print(f"| {name} | {passed:.1f} | {options.lines / passed:.0f} | {cpu:.1f} |")


if __name__ == "__main__":
    main()
