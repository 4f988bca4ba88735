"""Decoding by brute force: all outputs one by one, and the chart search again from its definition.

Scores of whole outputs come from the models' own ``log_prob`` and ``viterbi``, which have oracles of their own
(``oracles``). Scores of partial outputs come from the models' parameters, by enumerating alignments. Nothing is shared
with ``noisychannel.decode``. Positions are 0-based: cell i has read x[0..i].

Shapes: I input positions, J output positions, V output symbols.
"""

from __future__ import annotations

import copy
import itertools
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

import oracles
from noisychannel import SSNT, Hypothesis, LanguageModel, Weights
from noisychannel.ids import BOS, EOS, PAD

Tokens = tuple[int, ...]

INPUT_SYMBOLS = 7


@dataclass(frozen=True)
class Models:
    direct: SSNT
    channel: SSNT
    lm: LanguageModel

    def for_weights(self, weights: Weights) -> dict[str, nn.Module | None]:
        """The decoder's arguments, without the models it does not need."""
        return {
            "direct": self.direct,
            "channel": self.channel if weights.channel else None,
            "lm": self.lm if weights.lm else None,
        }

    def to(self, dtype: torch.dtype) -> Models:
        return Models(*(copy.deepcopy(model).to(dtype) for model in (self.direct, self.channel, self.lm)))


def random_models(seed: int, V: int = 6, bidirectional: bool = False, scale: float = 3.5, hidden: int = 3) -> Models:
    """Three random models in float64, with opinions: their weights are far from zero."""
    torch.manual_seed(seed)
    models = Models(
        SSNT(INPUT_SYMBOLS, V, hidden, bidirectional=bidirectional),
        SSNT(V, INPUT_SYMBOLS, hidden),
        LanguageModel(V, hidden, num_layers=1),
    ).to(torch.float64)
    with torch.no_grad():
        for model in (models.direct, models.channel, models.lm):
            model.eval()
            for parameter in model.parameters():
                parameter.mul_(scale)
    return models


def reluctant(models: Models, by: float = 10.0) -> Models:
    """The same, but direct and language model end an output readily, only not at once: the best ones are longer."""
    with torch.no_grad():
        for model, word in ((models.direct, models.direct.output_word), (models.lm, models.lm.word)):
            (state,) = model.decoder(torch.tensor([[BOS]]))[0]
            word.bias[EOS] += by / 2
            word.weight[EOS] -= by * state / (state @ state)
    return models


def random_input(rng: random.Random, longest: int = 5) -> list[int]:
    """An input of up to ``longest`` symbols, often EOS alone."""
    return [*rng.choices(range(3, INPUT_SYMBOLS), k=rng.randrange(longest)), EOS]


def random_weights(rng: random.Random) -> Weights:
    """Each term off one time in four, but not all three models; the length weight of either sign."""
    pick = [0.0]
    while not any(pick):
        pick = [rng.uniform(0.2, 1.5) if rng.random() < 0.75 else 0.0 for _ in range(3)]
    return Weights(*pick, length=rng.uniform(-1.5, 1.5) if rng.random() < 0.75 else 0.0)


def objective(weights: Weights, direct: float, channel: float, lm: float, length: int) -> float:
    return weights.direct * direct + weights.channel * channel + weights.lm * lm + weights.length * length


# --- whole outputs ---------------------------------------------------------------------------------------------------


class Terms(NamedTuple):
    """What the models say of one (x, y), from scratch."""

    marginal: float
    """log q(y | x)."""
    viterbi: float
    """The best alignment's."""
    alignment: tuple[int, ...]
    channel: float
    """log p(x | y)."""
    channel_viterbi: float
    channel_alignment: tuple[int, ...]
    lm: float
    length: int

    def score(self, weights: Weights, search: str, channel_alignment: str = "marginal") -> float:
        channel = self.channel_viterbi if channel_alignment == "viterbi" else self.channel
        return objective(weights, getattr(self, search), channel, self.lm, self.length)


@torch.no_grad()
def terms(models: Models, x: Sequence[int], outputs: Sequence[Tokens]) -> list[Terms]:
    """Of each output (EOS left out)."""
    y = pad_sequence([torch.tensor([*tokens, EOS]) for tokens in outputs], batch_first=True, padding_value=PAD)
    y_lengths = torch.tensor([len(tokens) + 1 for tokens in outputs])
    xs, x_lengths = torch.tensor([list(x)] * len(outputs)), torch.full((len(outputs),), len(x))
    best, alignment = models.direct.viterbi(xs, x_lengths, y, y_lengths)
    channel_best, channel_alignment = models.channel.viterbi(y, y_lengths, xs, x_lengths)
    columns = (
        models.direct.log_prob(xs, x_lengths, y, y_lengths).tolist(),
        best.tolist(),
        [tuple(row[:n]) for row, n in zip(alignment.tolist(), y_lengths.tolist(), strict=True)],
        models.channel.log_prob(y, y_lengths, xs, x_lengths).tolist(),
        channel_best.tolist(),
        [tuple(row) for row in channel_alignment.tolist()],
        models.lm.log_prob(y, y_lengths).tolist(),
        y_lengths.tolist(),
    )
    return [Terms(*row) for row in zip(*columns, strict=True)]


def every_output(symbols: Iterable[int], longest: int) -> list[Tokens]:
    """All outputs of up to ``longest`` symbols, EOS included and left out."""
    symbols = list(symbols)
    return [tokens for n in range(longest) for tokens in itertools.product(symbols, repeat=n)]


def best_outputs(
    models: Models,
    x: Sequence[int],
    symbols: Iterable[int],
    weights: Weights,
    max_length: int,
    search: str,
    channel_alignment: str = "marginal",
) -> list[tuple[Tokens, float]]:
    """All outputs, best first."""
    outputs = every_output(symbols, max_length)
    scored = [
        (tokens, term.score(weights, search, channel_alignment))
        for tokens, term in zip(outputs, terms(models, x, outputs), strict=True)
    ]
    return sorted(scored, key=lambda pair: -pair[1])


def assert_same(found: Sequence[Hypothesis], expected: Sequence[tuple[Tokens, float]], tolerance: float = 1e-9) -> None:
    """The same outputs, in the same order, with the same scores."""
    assert [hypothesis.tokens for hypothesis in found] == [tokens for tokens, _ in expected]
    for hypothesis, (_, score) in zip(found, expected, strict=True):
        assert math.isclose(hypothesis.score, score, rel_tol=tolerance, abs_tol=tolerance)


def pairs(found: Iterable[Hypothesis]) -> list[tuple[Tokens, float]]:
    return [(hypothesis.tokens, hypothesis.score) for hypothesis in found]


# --- partial outputs -------------------------------------------------------------------------------------------------


def log_sum(values: Iterable[float]) -> float:
    values = list(values)
    top = max(values)
    return top if top == -math.inf else top + math.log(sum(math.exp(value - top) for value in values))


def _parameters(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().double() for name, value in model.named_parameters()}


class _SSNT:
    """W and U of an SSNT, to meet states."""

    def __init__(self, model: SSNT) -> None:
        self.parameters = _parameters(model)

    def encode(self, symbols: Sequence[int]) -> Tensor:
        bidirectional = "encoder.forwards.0.weight_ih_l0" in self.parameters
        states = (oracles.bidirectional_states if bidirectional else oracles.forward_states)(
            self.parameters, "encoder", symbols
        )
        return torch.stack(states)

    def after(self, symbols: Sequence[int]) -> Tensor:
        """The decoder's states after BOS and after each symbol."""
        return torch.stack(oracles.forward_states(self.parameters, "decoder", [1, *symbols]))

    def meet(self, h_NH: Tensor, s_NH: Tensor) -> tuple[Tensor, Tensor]:
        """log p(every word) [N,V] and the logit of e [N], where states broadcast."""
        p = self.parameters
        word = h_NH @ p["input_word.weight"].T + s_NH @ p["output_word.weight"].T + p["output_word.bias"]
        gate = h_NH @ p["input_gate.weight"].T + s_NH @ p["output_gate.weight"].T + p["output_gate.bias"]
        return word.log_softmax(-1), (gate.tanh() @ p["emit.weight"].T + p["emit.bias"]).squeeze(-1)


class PartialScores:
    """What the three models say of partial outputs for one x, by enumerating alignments."""

    def __init__(self, models: Models, x: Sequence[int], marginal: bool, channel_max: bool = False) -> None:
        self.x = list(x)
        self._direct, self._channel, self._lm = _SSNT(models.direct), _SSNT(models.channel), _parameters(models.lm)
        self._h = self._direct.encode(self.x)
        self._channel_s = self._channel.after(self.x[:-1])
        self._join: Callable[[Tensor], Tensor] = (lambda t: t.logsumexp(0)) if marginal else (lambda t: t.max())
        self._channel_join: Callable[[Tensor], Tensor] = (
            (lambda t: t.max()) if channel_max else (lambda t: t.logsumexp(0))
        )
        self.next = cache(self._next)
        self.direct = cache(self._direct_at)
        self.channel = cache(self._channel_at)
        self.channel_row = cache(self._channel_row)
        self.lm = cache(self._lm_of)

    def _next(self, prefix: Tokens) -> tuple[Tensor, Tensor]:
        """After a prefix, at each position of x: log p(every word) [I,V] and the logit of e [I]."""
        return self._direct.meet(self._h, self._direct.after(prefix)[-1:])

    def _direct_at(self, prefix: Tokens, i: int) -> float:
        """log q(prefix, z_j = i | x)."""
        steps = [self.next(prefix[:j]) for j in range(len(prefix))]
        word_IJ = torch.stack([word[:, symbol] for (word, _), symbol in zip(steps, prefix, strict=True)], 1)
        emit_IJ = torch.stack([emit for _, emit in steps], 1)
        return float(self._join(oracles.alignment_scores(word_IJ[: i + 1], emit_IJ[: i + 1])))

    def path(self, prefix: Tokens, z: Tokens) -> float:
        """log q(prefix, z | x)."""
        total, k = 0.0, 0
        for j, i in enumerate(z):
            word, emit = self.next(prefix[:j])
            total += float(torch.nn.functional.logsigmoid(-emit[k:i]).sum())
            total += float(torch.nn.functional.logsigmoid(emit[i]) + word[i, prefix[j]])
            k = i
        return total

    def _channel_row(self, prefix: Tokens) -> tuple[Tensor, Tensor]:
        """At the last position of a prefix: log p(x_i) [I] and the logit of e [I]."""
        word_IV, emit_I = self._channel.meet(self._channel.encode(prefix)[-1:], self._channel_s)
        return word_IV[torch.arange(len(self.x)), torch.tensor(self.x)], emit_I

    def _channel_at(self, prefix: Tokens, i: int, whole: bool = False) -> float:
        """log p(x_0..x_i, z_i ≤ j | prefix), or with z_i = j where ``whole``."""
        rows = [self.channel_row(prefix[: j + 1]) for j in range(len(prefix))]
        word_JI, emit_JI = (torch.stack(part)[:, : i + 1] for part in zip(*rows, strict=True))
        ends = range(len(prefix), len(prefix) + 1) if whole else range(1, len(prefix) + 1)
        ways = torch.stack([self._channel_join(oracles.alignment_scores(word_JI[:j], emit_JI[:j])) for j in ends])
        return float(self._channel_join(ways))

    def _lm_of(self, prefix: Tokens) -> float:
        return float(oracles.lm_log_prob(self._lm, prefix))


class Answer(NamedTuple):
    tokens: Tokens
    score: float
    direct: float


def chart_search(
    models: Models,
    x: Sequence[int],
    symbols: Iterable[int],
    weights: Weights,
    k1: int,
    k2: int,
    max_length: int,
    search: str,
    channel_alignment: str = "marginal",
    recombine: bool = True,
    eos_at_once: bool = False,
    look_ahead: bool = False,
) -> list[Answer]:
    """Every complete output the search meets, best first.

    Cell (i, j) holds hypotheses by their identity: the prefix where they ``recombine``, else prefix and alignment.
    ``eos_at_once`` asks a partial output in the last column for all of x, EOS included, which is wrong.
    ``look_ahead``: a prefix that moves to cell i has to explain what is before i, wherever it stood.
    """
    marginal = search == "marginal"
    scores = PartialScores(models, x, marginal, channel_alignment == "viterbi")
    last = len(x) - 1
    symbols = list(symbols)

    def others(prefix: Tokens, i: int, complete: bool) -> tuple[float, float]:
        channel = 0.0
        if weights.channel and complete:
            channel = scores.channel(prefix, last, whole=True)
        elif weights.channel:
            at = last - 1 if i == last and not eos_at_once else i
            channel = 0.0 if at < 0 else scores.channel(prefix, at)
        return channel, scores.lm(prefix) if weights.lm else 0.0

    cells: list[dict[Any, float]] = [{((), ()): 0.0}] + [{} for _ in range(last)]
    answers: list[Answer] = []
    for length in range(1, max_length + 1):
        new_cells: list[dict[Any, float]] = []
        for i in range(len(x)):
            ranks: dict[Any, list[float]] = {}
            for k in range(i + 1):
                for (prefix, z), parent in cells[k].items():
                    if look_ahead and prefix and weights.channel:
                        before = scores.channel(prefix, i - 1) if i else 0.0
                        parent += weights.channel * (before - others(prefix, k, complete=False)[0])
                    word, emit = scores.next(prefix)
                    move = float(
                        torch.nn.functional.logsigmoid(-emit[k:i]).sum() + torch.nn.functional.logsigmoid(emit[i])
                    )
                    for symbol in [*symbols, EOS] if i == last else symbols:
                        key = (*prefix, symbol), () if recombine else (*z, i)
                        ranks.setdefault(key, []).append(parent + move + float(word[i, symbol]))
            ranked = {key: log_sum(ways) if marginal else max(ways) for key, ways in ranks.items()}
            cell: dict[Any, float] = {}
            for key in sorted(ranked, key=lambda key: -ranked[key])[:k1]:
                prefix, z = key
                direct = scores.direct(prefix, i) if recombine else scores.path(prefix, z)
                complete = prefix[-1] == EOS
                score = objective(weights, direct, *others(prefix, i, complete), length)
                if complete:
                    answers.append(Answer(prefix[:-1], score, direct))
                else:
                    cell[key] = score
            new_cells.append(dict(sorted(cell.items(), key=lambda item: -item[1])[:k2]))
        cells = new_cells
    return sorted(answers, key=lambda answer: -answer.score)
