"""Sentences per second of the search: ``noisychannel.bench.decode`` with all its options.

python benchmarks/decode.py [--device cpu|cuda] [--run RUN --words FILE]
                            [--parts rates,reference,growth,precision,channel_words,processes,counts,profile]
"""

from __future__ import annotations

import argparse

import torch

from noisychannel.bench import decode


def main() -> None:
    parser = argparse.ArgumentParser(description=decode.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--run", help="a trained and tuned run, for the characters setting")
    parser.add_argument("--words", help="inputs for it: the first column of a file")
    parser.add_argument("--parts", default="rates,reference,growth")
    parser.add_argument("--settings", default="characters,words", help="also words-30k and headlines")
    parser.add_argument("--batches", default="1,64", help="sentences decoded together")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--products",
        default="tf32",
        choices=("tf32", "bf16"),
        help="stands beside ieee in precision and profile, and is that of processes",
    )
    parser.add_argument("--processes", default="1,2,4", help="how many, in the part processes")
    options = parser.parse_args()
    if (options.run is None) != (options.words is None):
        parser.error("--run and --words go together: the models, and what they are to decode")
    bench = decode.DecodeBench(
        device=options.device,
        parts=options.parts.split(","),
        settings=options.settings.split(","),
        batches=[int(size) for size in options.batches.split(",")],
        rounds=options.rounds,
        run=options.run,
        words=options.words,
        products=options.products,
        processes=[int(count) for count in options.processes.split(",")],
    )
    for line in bench.report():
        print(line, flush=True)


if __name__ == "__main__":
    main()
