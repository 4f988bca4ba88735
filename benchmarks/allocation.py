"""What a training on a CPU gains if it keeps the memory that it frees, with words as symbols.

    python benchmarks/allocation.py [--vocabulary 8000] [--hidden 256] [--batch 64] [--rounds 5]

One process for each model, precision and way trains on random pairs; ways alternate. A process has one thread, as in
``noisychannel train``, which trains a model on each core. Times are medians of rounds; memory is the peak of a process
(VmHWM).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from contextlib import nullcontext
from datetime import date
from statistics import median

import torch
from torch import Tensor, nn

from noisychannel import SSNT, LanguageModel, __version__
from noisychannel.allocation import freed_memory_kept
from noisychannel.ids import EOS
from noisychannel.provenance import commit

FIRST_WORD = 4
MODELS = ("direct", "channel", "lm")
UPDATES = 8
"""Of a process, after the first, which is slower."""


def sentences(vocabulary: int, batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Ids and lengths of random sentences."""
    ids = torch.randint(FIRST_WORD, vocabulary, (batch, length))
    ids[:, -1] = EOS
    return ids, torch.full((batch,), length)


def make(name: str, options: argparse.Namespace) -> nn.Module:
    V = options.vocabulary
    if name == "lm":
        return LanguageModel(V, 2 * options.hidden, num_layers=2, dropout=0.3)
    return SSNT(V, V, options.hidden, bidirectional=name == "direct", dropout=0.3)


def seconds_of_an_update(name: str, precision: str, options: argparse.Namespace) -> float:
    model = make(name, options)
    optimiser = torch.optim.Adam(model.parameters(), fused=True)
    sides = [sentences(options.vocabulary, options.batch, options.length) for _ in range(1 if name == "lm" else 2)]
    arguments = [tensor for side in sides for tensor in side]
    times = []
    for _ in range(1 + UPDATES):
        began = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = -model(*arguments).sum()
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        times.append(time.perf_counter() - began)
    return median(times[1:])


def one(name: str, precision: str, way: str, options: argparse.Namespace) -> None:
    """What a process of its own measures, as JSON."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with freed_memory_kept(torch.device("cpu")) if way == "kept" else nullcontext():
        seconds = seconds_of_an_update(name, precision, options)
    with open("/proc/self/status", encoding="ascii") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    print(json.dumps({"seconds": seconds, "gib": peak / (1 << 20)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=8_000, help="of both sides")
    parser.add_argument("--hidden", type=int, default=256, help="of direct model and channel; the LM has twice as many")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--length", type=int, default=14, help="words of a sentence, with its end")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(*options.one, options)
        return
    print(f"allocation: noisychannel {__version__}, torch {torch.__version__}, {date.today()}, commit {commit()}\n")
    print(f"`python benchmarks/allocation.py {' '.join(sys.argv[1:])}`\n")
    print("| model | precision | ms an update, given back | kept | times faster | GiB, given back | kept |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for precision in ("fp32", "bf16"):
        for name in MODELS:
            found: dict[str, list[dict[str, float]]] = {"given back": [], "kept": []}
            for _ in range(options.rounds):
                for way, results in found.items():
                    command = [sys.executable, __file__, *sys.argv[1:], "--one", name, precision, way]
                    done = subprocess.run(command, check=True, capture_output=True, text=True)
                    results.append(json.loads(done.stdout))
            before, after = ([result["seconds"] for result in results] for results in found.values())
            ratio = median(x / y for x, y in zip(before, after, strict=True))
            peaks = [median(result["gib"] for result in results) for results in found.values()]
            print(
                f"| {name} | {precision} | {1e3 * median(before):.0f} | {1e3 * median(after):.0f} | {ratio:.2f} | "
                f"{peaks[0]:.2f} | {peaks[1]:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
