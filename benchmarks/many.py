"""Many small models at once: one after the other, several processes, or stacked into one batched model?

    python benchmarks/many.py [--device cpu|cuda] [--models 8] [--jobs 1 2 8] [--epochs 2]

Trains one direct model (bidirectional, 1×128, batch 20, the paper's inflection setting) for each of several made-up
inflection types of 2,364 lemmas through ``noisychannel train`` with different ``jobs``, and prints wall-clock seconds,
start-up included. The last line is a prototype of the alternative: the update
of all models as one, with every weight stacked and every product batched, and the LSTM as a loop of such products.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import tempfile
import time
from datetime import date
from pathlib import Path

import torch
from torch import Tensor, nn

from noisychannel import SSNT, __version__
from noisychannel.data.prepare import DataConfig
from noisychannel.joint import word_log_probs
from noisychannel.lattice import log_marginal
from noisychannel.symbols import after_bos, reversed_within
from noisychannel.training.config import ModelConfig, RunConfig, TrainingConfig
from noisychannel.training.run import train_run

LETTERS = "abcdefghijklmnopqrstuvwxyzäöüß"
LEMMAS, BATCH, HIDDEN = 2364, 20, 128


def write_types(directory: Path, models: int) -> DataConfig:
    rng = random.Random(1)

    def rows(lemmas: int) -> str:
        words = ["".join(rng.choices(LETTERS, k=rng.randint(4, 16))) for _ in range(lemmas)]
        return "".join(f"{w}\t{w}{LETTERS[m % 26]}n\ttype{m}\n" for w in words for m in range(models))

    (directory / "train.tsv").write_text(rows(LEMMAS), encoding="utf-8")
    (directory / "dev.tsv").write_text(rows(200), encoding="utf-8")
    return DataConfig(
        train=[str(directory / "train.tsv")], dev=[str(directory / "dev.tsv")], columns="input,output,group"
    )


def time_jobs(data: DataConfig, jobs: int, epochs: int, device: str, directory: Path) -> float:
    """Seconds from start to end."""
    config = RunConfig(
        run_dir=str(directory / f"run{jobs}"), models=["direct"], jobs=jobs, device=device, data=data,
        direct=ModelConfig(hidden_size=HIDDEN, bidirectional=True, dropout=0.5),
        training=TrainingConfig(batch_size=BATCH, max_epochs=epochs, patience=epochs),
    )  # fmt: skip
    began = time.perf_counter()
    train_run(config, listen=lambda event: None, say=lambda line: None)
    return time.perf_counter() - began


class StackedSSNT(nn.Module):
    """M bidirectional SSNTs of one layer as one: weights [M, …], batches [M, B, …]. A prototype for timing."""

    def __init__(self, models: int, vocab: int, hidden: int) -> None:
        super().__init__()

        def weight(*size: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(models, *size) * 0.1)

        self.embeddings = nn.ParameterList(weight(vocab, hidden) for _ in range(2))
        self.x_gates = nn.ParameterList(weight(hidden, 4 * hidden) for _ in range(3))
        self.h_gates = nn.ParameterList(weight(hidden, 4 * hidden) for _ in range(3))
        self.biases = nn.ParameterList(weight(1, 4 * hidden) for _ in range(3))
        self.input_word, self.output_word = weight(2 * hidden, vocab), weight(hidden, vocab)
        self.input_gate, self.output_gate, self.emit = (
            weight(2 * hidden, hidden),
            weight(hidden, hidden),
            weight(hidden, 1),
        )
        self.dropout = nn.Dropout(0.5)

    def lstm(self, n: int, x_MBTH: Tensor) -> Tensor:
        M, B, T, H = x_MBTH.shape
        gates = torch.baddbmm(self.biases[n], x_MBTH.reshape(M, B * T, H), self.x_gates[n]).view(M, B, T, 4 * H)
        h = c = x_MBTH.new_zeros(M, B, H)
        states = []
        for t in range(T):
            i, f, g, o = torch.baddbmm(gates[:, :, t], h, self.h_gates[n]).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            states.append(h)
        return self.dropout(torch.stack(states, 2))

    def forward(self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        M, B, I = inputs.shape
        J = outputs.shape[2]
        which = torch.arange(M, device=inputs.device)[:, None, None]
        x = self.dropout(self.embeddings[0][which, inputs])
        y = self.dropout(self.embeddings[1][which, after_bos(outputs.flatten(0, 1)).view(M, B, J)])
        back = reversed_within(x.flatten(0, 1), input_lengths.flatten()).view_as(x)
        back = reversed_within(self.lstm(1, back).flatten(0, 1), input_lengths.flatten()).view_as(x)
        h = torch.cat([self.lstm(0, x), back], -1).view(M, B * I, -1)
        s = self.lstm(2, y).view(M, B * J, -1)
        word = word_log_probs(
            (h @ self.input_word).view(M * B, I, -1), (s @ self.output_word).view(M * B, J, -1), outputs.flatten(0, 1)
        )
        gate = torch.tanh((h @ self.input_gate).view(M, B, I, 1, -1) + (s @ self.output_gate).view(M, B, 1, J, -1))
        emit = (gate.flatten(1, 3) @ self.emit).view(M * B, I, J)
        return log_marginal(word, emit, input_lengths.flatten(), output_lengths.flatten())


def time_update(model: nn.Module, arguments: tuple[Tensor, ...], device: str) -> float:
    """Median milliseconds of one update."""
    optimiser = torch.optim.Adam(model.parameters(), fused=True)
    times = []
    for _ in range(23):
        began = time.perf_counter()
        (-model(*arguments).sum() / 300).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times[3:]) * 1e3


def compare_updates(models: int, device: str) -> tuple[float, float]:
    """Milliseconds of an update of one model, and of all models stacked."""
    I, J, V = 11, 13, 40
    ids = torch.randint(4, V, (models, BATCH, I + J), device=device)
    inputs, outputs = ids[..., :I], ids[..., I:]
    lengths = torch.full((models, BATCH), I), torch.full((models, BATCH), J)
    single = SSNT(V, V, HIDDEN, bidirectional=True, dropout=0.5).to(device)
    alone = time_update(single, (inputs[0], lengths[0][0], outputs[0], lengths[1][0]), device)
    stacked = StackedSSNT(models, V, HIDDEN).to(device)
    return alone, time_update(stacked, (inputs, lengths[0], outputs, lengths[1]), device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", type=int, default=8)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    machine = torch.cuda.get_device_name() if options.device == "cuda" else f"{platform.machine()} CPU"
    print(
        f"noisychannel {__version__}, torch {torch.__version__}, {machine}, {os.cpu_count()} cores, {date.today()}: "
        f"{options.models} direct models, {options.epochs} epochs of {LEMMAS} pairs each\n"
    )
    print("| jobs | seconds | × one after the other |\n| ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as name:
        data = write_types(Path(name), options.models)
        first = None
        for jobs in options.jobs:
            seconds = time_jobs(data, jobs, options.epochs, options.device, Path(name))
            first = first or seconds
            print(f"| {jobs} | {seconds:.1f} | {first / seconds:.2f} |", flush=True)
    alone, stacked = compare_updates(options.models, options.device)
    print(
        f"\nOne update: {alone:.2f} ms for one model, {alone * options.models:.2f} ms for {options.models} in turn, "
        f"{stacked:.2f} ms stacked ({alone * options.models / stacked:.2f} times faster than in turn)."
    )


if __name__ == "__main__":
    main()
