"""Seen tokens: the full system beside memorised outputs, sample by sample, and the inputs on which they differ most.

python experiments/normalisation/seen_inputs.py anselm [dev|test]

Reads the recorded outputs of the block ``open``. An input counts as often as it occurs; a difference is the number of
tokens that the full system gets right and memorised outputs get wrong, less the reverse.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path

from noisychannel.experiments.blocks import Block

RESULTS = Path(__file__).parent / "results"
SHOWN = 3
SYSTEMS = ("memorised outputs, else identity", "full")
HEADER = (
    "| tokens | sample | seen | memorised | full | largest differences |\n| ---: | ---: | ---: | ---: | ---: | --- |"
)


def main(text: str, part: str = "dev") -> None:
    block = Block.read(RESULTS / f"normalisation-{text}.open.json")
    rows = {(row["base"], row["pairs"]): n for n, row in enumerate(block.rows)}
    right: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    differences: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for key, item in block.items.items():
        if key[0] != part:
            continue
        for sample in item.seen_in:
            size, seed = map(int, sample.split("-"))
            memorised, full = (block.n_best[rows[name, size]][seed][key][0].text for name in SYSTEMS)
            gains = item.count * ((full in item.references) - (memorised in item.references))
            counted = right[size, seed]
            counted["tokens"] += item.count
            counted["memorised"] += item.count * (memorised in item.references)
            counted["full"] += item.count * (full in item.references)
            if gains:
                differences[size, seed][f"{item.input} → {full} for {memorised}"] += gains
    print(HEADER)
    for (size, seed), counted in sorted(right.items()):
        most = sorted(differences[size, seed].items(), key=lambda pair: -abs(pair[1]))[:SHOWN]
        shown = ", ".join(f"{what} {gain:+d}" for what, gain in most)
        accuracies = " | ".join(f"{100 * counted[name] / counted['tokens']:.2f}" for name in ("memorised", "full"))
        print(f"| {size:,} | {seed} | {counted['tokens']:,} | {accuracies} | {shown} |")


if __name__ == "__main__":
    main(*sys.argv[1:3])
