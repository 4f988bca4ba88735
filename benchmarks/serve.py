"""Many clients at once: is every answer right, does memory stay flat, how many inputs a second?

    python benchmarks/serve.py [--clients 200] [--seconds 60] [--output benchmarks/results/serve-cpu.md]

Starts ``noisychannel serve`` with the run of the package. Each client sends one input after the other, and compares
each answer with what the decoder gives for that input, asked beforehand. An answer that belongs to another input, a
refusal and a broken connection are counted apart. Memory is the server's resident memory: at the start (after a tenth
of the time), in the middle and at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import torch

from noisychannel import NoisyChannel, __version__
from noisychannel.provenance import commit

INPUTS = 400
"""Different inputs."""


def made_up(number: int, seed: int = 1) -> list[str]:
    """Pseudo-words of two to four syllables, all different."""
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < number:
        syllables = "".join(rng.choice("bdfghklmnrst") + rng.choice("aeiou") for _ in range(rng.randint(1, 3)))
        found[(syllables + rng.choice("lmnrst")).capitalize()] = None
    return list(found)


@contextmanager
def served(*options: str) -> Iterator[str]:
    """The address of a server that runs meanwhile."""
    command = [sys.executable, "-m", "noisychannel", "serve", "--port", "0", "--device", "cpu", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            if (found := re.search(r"http://\S+", line)) is None:
                raise SystemExit(f"the server did not start: {line}")
            yield found[0]
        finally:
            process.terminate()


@dataclass
class Load:
    """What clients have seen."""

    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    """Resident MiB of the server, every second or so."""
    batch: float = 0.0
    """Inputs that were decoded together, on average."""

    def percentile(self, share: float) -> float:
        return sorted(self.waits)[min(len(self.waits) - 1, int(share * len(self.waits)))]


class Client:
    """One connection that is kept. Libraries for HTTP need more time for 200 connections than the server does."""

    def __init__(self, address: str) -> None:
        found = re.fullmatch(r"http://([\d.]+):(\d+)/", address)
        assert found, address
        self.host, self.port = found[1], int(found[2])

    async def connect(self) -> None:
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body of the answer."""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        self.writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        told = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = re.search(r"content-length: (\d+)", told, re.IGNORECASE)
        assert length, told
        return int(told.split()[1]), await self.reader.readexactly(int(length[1]))


async def put_load(address: str, expected: dict[str, str], clients: int, seconds: float) -> Load:
    """Every client asks until the time is over, and then waits for its last answer."""
    load, texts, crowd, observer = Load(), list(expected), [Client(address) for _ in range(clients)], Client(address)
    for client in (*crowd, observer):
        await client.connect()
    began = time.monotonic()

    async def ask(client: Client, seed: int) -> None:
        rng = random.Random(seed)
        while time.monotonic() < began + seconds:
            text, asked = rng.choice(texts), time.monotonic()
            load.outcomes[await outcome(client, text, expected[text])] += 1
            load.waits.append(time.monotonic() - asked)

    async def measure() -> None:
        while time.monotonic() < began + seconds:
            measures = (await observer.ask("GET", "/metrics"))[1].decode()
            load.memory.append(figure(measures, "process_resident_memory_bytes") / 2**20)
            await asyncio.sleep(max(0.1, min(1.0, seconds / 30)))

    await asyncio.gather(measure(), *(ask(client, seed) for seed, client in enumerate(crowd)))
    load.seconds = time.monotonic() - began
    measures = (await observer.ask("GET", "/metrics"))[1].decode()
    load.batch = figure(measures, "noisychannel_batch_inputs_sum") / figure(measures, "noisychannel_batch_inputs_count")
    for client in (*crowd, observer):
        client.writer.close()
    return load


async def outcome(client: Client, text: str, expected: str) -> str:
    """One request: right, mixed up, wrong, refused or broken."""
    try:
        status, answer = await client.ask("POST", "/api/decode", json.dumps({"input": text}).encode())
    except (OSError, EOFError) as error:
        await client.connect()
        return f"broken ({type(error).__name__})"
    if status != 200:
        return f"refused ({status})"
    (result,) = json.loads(answer)["results"]
    if result["input"] != text:
        return "mixed up"
    return "right" if result["hypotheses"][0]["output"] == expected else "wrong"


def figure(measures: str, name: str) -> float:
    found = re.search(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", measures, re.MULTILINE)
    assert found, name
    return float(found[1])


def expected_outputs(number: int = INPUTS) -> dict[str, str]:
    """What the decoder gives for each input."""
    texts = made_up(number)
    model = NoisyChannel.load("demo", device="cpu")
    return {text: outputs[0].text for text, outputs in zip(texts, model.batch(texts), strict=True)}


def report(load: Load, clients: int, command: Sequence[str]) -> str:
    """A table in Markdown."""
    memory = load.memory[len(load.memory) // 10], load.memory[len(load.memory) // 2], load.memory[-1]
    rows = {
        "answers that are right": f"{load.outcomes['right']:,} of {load.outcomes.total():,}",
        "others": ", ".join(f"{n:,} {name}" for name, n in load.outcomes.items() if name != "right") or "none",
        "inputs a second": f"{load.outcomes['right'] / load.seconds:.1f}",
        "wait of a client, p50 / p95 / p99": " / ".join(
            f"{load.percentile(share):.2f} s" for share in (0.5, 0.95, 0.99)
        ),
        "inputs decoded together, mean": f"{load.batch:.1f}",
        "memory at the start / middle / end": " / ".join(f"{one:.0f} MiB" for one in memory),
    }
    threads = torch.get_num_threads()
    head = (
        f"`{' '.join(command)}`: {clients} clients on loopback, {load.seconds:.0f} s, {INPUTS} different inputs, "
        f"the run of the package with its default system (direct+channel+lm, K1 10, K2 5). noisychannel {__version__}, "
        f"commit {commit()}, torch {torch.__version__}, {date.today()}, "
        f"CPU ({platform.machine()}, {threads} threads).\n\n"
    )
    return head + "| | |\n| --- | ---: |\n" + "".join(f"| {name} | {value} |\n" for name, value in rows.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    expected = expected_outputs()
    with served() as address:
        load = asyncio.run(put_load(address, expected, options.clients, options.seconds))
    command = ["python", "benchmarks/serve.py", "--clients", str(options.clients), "--seconds", f"{options.seconds:g}"]
    text = report(load, options.clients, command)
    print(text)
    if options.output is not None:
        options.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
