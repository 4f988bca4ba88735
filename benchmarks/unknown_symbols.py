"""How sure the models of the package are of nouns with a symbol that they have never seen, and how many they get right.

    python benchmarks/unknown_symbols.py [--items 400] [--seed 1]

The nouns are those of the package german-nouns with a dative plural. Prints the share of right outputs and the mean
confidence, with the feature of unknown symbols and without it.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace

from noisychannel import NoisyChannel
from noisychannel.confidence import UNKNOWN, UNSEEN
from noisychannel.data.german_nouns import read_nouns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    model = NoisyChannel.load("demo", device="cpu")
    fitted = model.confidence
    assert fitted is not None
    rows = read_nouns("this benchmark")
    nouns = sorted({(row["lemma"], row["dativ plural"]) for row in rows if row["lemma"] and row["dativ plural"]})
    unknown = [noun for noun in nouns if model.unknown_symbols(noun[0])]
    some = random.Random(options.seed).sample(unknown, min(options.items, len(unknown)))
    blind = replace(fitted, features={**fitted.features, UNKNOWN: replace(UNSEEN, coefficient=0.0)})
    for name, confidence in (("with the feature", fitted), ("without it", blind)):
        judge = model.reweighted(model.weights, confidence=confidence)
        best = [outputs[0] for outputs in judge.batch([lemma for lemma, _ in some])]
        right = sum(output.text == form for output, (_, form) in zip(best, some, strict=True))
        sure = sum(output.confidence or 0.0 for output in best) / len(best)
        print(f"{name}: {right} of {len(some)} right, mean confidence {sure:.4f}")


if __name__ == "__main__":
    main()
