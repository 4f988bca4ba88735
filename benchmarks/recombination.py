"""Does joining equal outputs in a cell find better outputs than the paper's algorithm, which keeps paths apart?

    python benchmarks/recombination.py [--models 120] [--seed 0]

Random models with peaked distributions, random inputs, objectives and length weights. Each search returns its best
output; both outputs are then scored alike, by the objective with the direct model's best alignment, from scratch. A
search that completes no output loses to one that does. "mean gain" is the mean of the objective found by joining minus
that found by the literal search, in nats, where both completed an output.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from dataclasses import dataclass
from datetime import date

import torch

from noisychannel import SSNT, Hypothesis, LanguageModel, NoisyChannelDecoder, Weights, __version__
from noisychannel.decode.reference import ReferenceDecoder
from noisychannel.ids import EOS

BEAMS = ((2, 1), (4, 2), (8, 4), (16, 8))
INPUT_SYMBOLS, OUTPUT_SYMBOLS, HIDDEN, SCALE = 9, 9, 4, 3.0
MAX_LENGTH = 6
EOS_BONUS = 2.0
"""Added to the direct model's EOS logit, so that outputs end."""
TIE = 1e-9


@dataclass(frozen=True)
class Problem:
    """One sentence, the models, and what to maximise."""

    x: list[int]
    direct: SSNT
    channel: SSNT
    lm: LanguageModel
    weights: Weights

    @staticmethod
    def draw(seed: int) -> Problem:
        rng = random.Random(seed)
        torch.manual_seed(seed)
        models = (
            SSNT(INPUT_SYMBOLS, OUTPUT_SYMBOLS, HIDDEN),
            SSNT(OUTPUT_SYMBOLS, INPUT_SYMBOLS, HIDDEN),
            LanguageModel(OUTPUT_SYMBOLS, HIDDEN, num_layers=1),
        )
        with torch.no_grad():
            for model in models:
                model.double().eval()
                for parameter in model.parameters():
                    parameter.mul_(SCALE)
            models[0].output_word.bias[EOS] += EOS_BONUS
        x = [*rng.choices(range(4, INPUT_SYMBOLS), k=rng.randint(2, 4)), EOS]
        weights = Weights(rng.uniform(0.3, 1), rng.uniform(0.3, 1), rng.uniform(0.3, 1), rng.uniform(0, 2))
        return Problem(x, *models, weights)

    def joined(self, k1: int, k2: int) -> Hypothesis | None:
        decoder = NoisyChannelDecoder(
            self.direct, self.channel, self.lm, self.weights, k1=k1, k2=k2, max_length=MAX_LENGTH
        )
        best = decoder.decode([self.x])[0][0]
        return best if best.complete else None

    def literal(self, k1: int, k2: int) -> Hypothesis | None:
        decoder = ReferenceDecoder(
            self.direct, self.channel, self.lm, self.weights, k1=k1, k2=k2, max_length=MAX_LENGTH, recombine=False
        )
        answers = decoder.decode(self.x)
        return answers[0] if answers else None

    @torch.no_grad()
    def objective(self, hypothesis: Hypothesis | None) -> float:
        """O of an output, from scratch; -inf of none."""
        if hypothesis is None:
            return -float("inf")
        y = torch.tensor([[*hypothesis.tokens, EOS]])
        x, x_length, y_length = torch.tensor([self.x]), torch.tensor([len(self.x)]), torch.tensor([y.shape[1]])
        direct, _ = self.direct.viterbi(x, x_length, y, y_length)
        channel, lm = self.channel.log_prob(y, y_length, x, x_length), self.lm.log_prob(y, y_length)
        weights = self.weights
        score = weights.direct * direct + weights.channel * channel + weights.lm * lm + weights.length * y.shape[1]
        return float(score)


def compare(problems: list[Problem], k1: int, k2: int) -> str:
    """One row of the table."""
    outcomes: Counter[str] = Counter()
    gains = []
    for problem in problems:
        joined, literal = (problem.objective(search(k1, k2)) for search in (problem.joined, problem.literal))
        if max(joined, literal) == -float("inf"):
            outcomes["neither"] += 1
            continue
        if min(joined, literal) > -float("inf"):
            gains.append(joined - literal)
        winner = "joined" if joined > literal + TIE else "literal" if literal > joined + TIE else "tie"
        outcomes[winner] += 1
    mean = f"{sum(gains) / len(gains):+.3f}" if gains else "–"
    counts = " | ".join(str(outcomes[name]) for name in ("joined", "literal", "tie", "neither"))
    return f"| {k1} | {k2} | {counts} | {mean} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seeds = range(arguments.seed, arguments.seed + arguments.models)
    print(
        f"recombination: noisychannel {__version__}, torch {torch.__version__}, {date.today().isoformat()}, "
        f"{len(seeds)} random models, seeds {seeds.start}..{seeds.stop - 1}, "
        f"inputs of 3 to 5 symbols, outputs of at most {MAX_LENGTH}, search=viterbi, all three models and length, "
        f"EOS logit of the direct model raised by {EOS_BONUS:g}\n"
    )
    print("| k1 | k2 | joined better | literal better | same | neither completes | mean gain of joining |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    problems = [Problem.draw(seed) for seed in seeds]
    for k1, k2 in BEAMS:
        print(compare(problems, k1, k2), flush=True)


if __name__ == "__main__":
    main()
