"""Which rule for tuning holds on other items? Some items of stored n-best lists are tuned on, the others are the test.

    python experiments/tuning/compare.py LISTS --sizes 50 100 200 300 --draws 5 --json compare.json

LISTS is a directory of files NAME.jsonl.xz. A line is one item:

    {"input": "Haus", "tags": "N;DAT;PL", "gold": "Häusern",
     "candidates": [{"text": "Häusern", "direct": -0.3, "channel": -0.9, "lm": -19.2, "length": 8, "word_list": 0.0}]}

``gold`` may be a list of references; ``word_list`` may be missing in all items of a file. For each file, size and draw,
some items are tuned on and all others are the test. The table has the mean test accuracy at each size, and against the
best weights of a large search on all items of a file (``best``): the mean loss, and the loss in the worst file.
"""

from __future__ import annotations

import argparse
import json
import lzma
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from noisychannel.evaluation.metrics import FloatArray, make_metric
from noisychannel.systems import System
from noisychannel.tuning import CandidateArrays, optimise
from noisychannel.tuning.expected import SHARPNESS, ExpectedScore
from noisychannel.tuning.search import coordinate_ascent, highest
from noisychannel.weights import TermSource, system_of

Rule = Callable[[CandidateArrays, System], FloatArray]
"""From the items to tune on to weights [T]."""


@dataclass(frozen=True)
class Lists:
    """The n-best lists of one file."""

    name: str
    system: System
    terms: list[FloatArray]
    right: list[FloatArray]

    @staticmethod
    def read(file: Path) -> Lists:
        with lzma.open(file, "rt", encoding="utf-8") as stream:
            items = [json.loads(line) for line in stream]
        listed = all("word_list" in candidate for item in items for candidate in item["candidates"])
        name = "direct+channel+lm" + ("+word_list" if listed else "")
        system = system_of(name, {"word_list": TermSource("word_list", Path())})
        terms = [np.array([[c[name] for name in system.terms] for c in item["candidates"]], float) for item in items]
        gold = [item["gold"] if isinstance(item["gold"], list) else [item["gold"]] for item in items]
        right = [
            np.array([[c["text"] in texts] for c in item["candidates"]], float)
            for item, texts in zip(items, gold, strict=True)
        ]
        return Lists(file.name.split(".")[0], system, terms, right)

    def of(self, items: np.ndarray) -> CandidateArrays:
        sizes = [len(self.terms[n]) for n in items]
        return CandidateArrays(
            make_metric("accuracy"),
            np.concatenate([self.terms[n] for n in items]),
            np.concatenate([self.right[n] for n in items]),
            np.cumsum([0, *sizes[:-1]]),
            np.repeat(np.arange(len(sizes)), sizes),
        )


class Likelihood(ExpectedScore):
    """The conditional log-likelihood of the right candidates, less the same price: for accuracy only."""

    def value(self, weights_WT: FloatArray) -> FloatArray:
        # A sharpness for all weights would be a sixth weight; the best of a few serves.
        best_W = np.max([self._log_likelihood(weights_WT, scale) for scale in (0.25, 0.5, 1.0)], axis=0)
        return best_W - self.price(weights_WT) / self.item

    def _log_likelihood(self, weights_WT: FloatArray, scale: float) -> FloatArray:
        candidates = self._candidates
        objective_FW = candidates.terms_FT @ (scale * weights_WT).T
        objective_FW -= np.maximum.reduceat(objective_FW, candidates.starts_N)[candidates.sentence_F]
        share_FW = np.exp(objective_FW)
        right_NW = np.add.reduceat(share_FW * candidates.statistics_FS, candidates.starts_N)
        has_right_N = np.add.reduceat(candidates.statistics_FS[:, 0], candidates.starts_N) > 0
        total_NW = np.add.reduceat(share_FW, candidates.starts_N)
        return np.asarray(np.log(right_NW[has_right_N] / total_NW[has_right_N] + 1e-12).sum(axis=0))


class HardScore(ExpectedScore):
    """The metric of the best candidates, less the same price."""

    def value(self, weights_WT: FloatArray) -> FloatArray:
        return self._candidates.scores(weights_WT) - self.price(weights_WT)


def start(candidates: CandidateArrays, system: System) -> FloatArray:
    return system.vector(system.start)


def direct(candidates: CandidateArrays, system: System) -> FloatArray:
    return system.vector(system.weights({}))


def lines(candidates: CandidateArrays, system: System) -> FloatArray:
    """The metric itself, by exact line searches from the start, the corners and the best of a random search."""
    random = np.random.default_rng(1)
    ranges = {"length": (-5.0, 10.0), "word_list": (0.0, 20.0)}
    drawn = [
        system.weights({free.name: float(random.uniform(*ranges.get(free.name, (0.0, 5.0)))) for free in system.free})
        for _ in range(96)
    ]
    scores_W = candidates.scores(np.stack([system.vector(weights) for weights in drawn]))
    starts = [system.start, *system.corners, *(drawn[w] for w in np.argsort(-scores_W)[:3])]
    found = [coordinate_ascent(candidates, system, weights) for weights in starts]
    return system.vector(max(found, key=lambda optimum: optimum.score).weights)


def expected(candidates: CandidateArrays, system: System) -> FloatArray:
    """The rule of ``tune``."""
    return system.vector(optimise(candidates, system, [system.start], seed=1).weights)


def near_the_start(score: type[ExpectedScore], **constants: float) -> Rule:
    """Another function of the weights, searched as ``optimise`` does."""

    def rule(candidates: CandidateArrays, system: System) -> FloatArray:
        function = score(candidates, system, system.start, **constants)
        return highest(function, system.vector(system.start)[None], seed=1)

    return rule


RULES: dict[str, Rule] = {
    "direct alone": direct,
    "start weights": start,
    "metric, line searches": lines,
    "metric + price": near_the_start(HardScore),
    "expected metric, no price": near_the_start(ExpectedScore, price=0.0),
    "expected metric, half the price": near_the_start(ExpectedScore, price=0.5),
    "expected metric, twice the price": near_the_start(ExpectedScore, price=2.0),
    "expected metric, half as sharp": near_the_start(ExpectedScore, sharpness=SHARPNESS / 2),
    "expected metric, twice as sharp": near_the_start(ExpectedScore, sharpness=SHARPNESS * 2),
    "likelihood + price": near_the_start(Likelihood),
    "expected metric + price (tune)": expected,
}


def best_fixed(lists: Lists) -> float:
    """The accuracy of the best weights that are found on all items themselves: what no tuning can be sure to reach."""
    everything = lists.of(np.arange(len(lists.terms)))
    return max(float(everything.scores(rule(everything, lists.system)[None])[0]) for rule in (lines, expected))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lists", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 100, 200, 300])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--match", nargs="+", default=[""], help="only files whose name contains one of these")
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=list(RULES), metavar="RULE")
    parser.add_argument("--json", type=Path, help="every test accuracy")
    options = parser.parse_args()
    files = [
        file for file in sorted(options.lists.glob("*.jsonl.xz")) if any(part in file.name for part in options.match)
    ]
    if not files:
        parser.error(f"{options.lists}: there are no lists *.jsonl.xz that match; give their directory")
    results: list[dict[str, str | int | float]] = []
    best = {}
    for file in files:
        lists = Lists.read(file)
        best[lists.name] = best_fixed(lists)
        for size in options.sizes:
            for draw in range(options.draws):
                order = np.random.default_rng([size, draw]).permutation(len(lists.terms))
                dev, test = lists.of(order[:size]), lists.of(order[size:])
                for name in options.rules:
                    began = time.process_time()
                    weights_T = RULES[name](dev, lists.system)
                    seconds = time.process_time() - began
                    score = float(test.scores(weights_T[None])[0])
                    results.append(
                        {"file": lists.name, "size": size, "draw": draw, "rule": name, "test": score}
                        | {
                            "seconds": seconds,
                            "weights": dict(zip(lists.system.terms, weights_T.tolist(), strict=True)),
                        }
                    )
        print(f"{lists.name}: best weights on all items {best[lists.name]:.1f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"best": best, "results": results}, indent=0), encoding="utf-8")
    print(table(results, best, options.rules, options.sizes))


def table(results: list[dict], best: dict[str, float], rules: list[str], sizes: list[int]) -> str:
    """In Markdown."""
    head = ["rule", *map(str, sizes), "mean", "loss", "worst file", "seconds"]
    rows = [head, ["---", *["---:"] * (len(head) - 1)]]
    for rule in rules:
        own = [result for result in results if result["rule"] == rule]
        means = [float(np.mean([result["test"] for result in own if result["size"] == size])) for size in sizes]
        losses = {
            name: float(np.mean([best[name] - result["test"] for result in own if result["file"] == name]))
            for name in best
        }
        seconds = float(np.mean([result["seconds"] for result in own]))
        numbers = [*means, float(np.mean(means)), float(np.mean(list(losses.values()))), max(losses.values())]
        rows.append([rule, *(f"{number:.2f}" for number in numbers), f"{seconds:.2f}"])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


if __name__ == "__main__":
    main()
