"""Brute force: every quantity of the mathematics again, from its definition, slowly and in float64.

Nothing here is shared with the package. Alignments are enumerated one by one, the joint softmax is materialised, the
LSTM is written out gate by gate. Indices are 0-based: the definition's z_0 = 1 is position 0, z_J = I is I - 1.

Shapes: B batch, I input positions, J output positions, V words, A alignments, G gate units.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

Alignment = tuple[int, ...]


# --- the lattice, by enumeration -------------------------------------------------------------------------------------


@cache
def alignments(I: int, J: int) -> list[Alignment]:
    """Every z_1..z_J with z_j >= z_{j-1} and z_J = I."""
    return [
        z
        for z in itertools.product(range(I), repeat=J)
        if all(before <= after for before, after in itertools.pairwise(z)) and z[-1] == I - 1
    ]


@cache
def decisions(I: int, J: int) -> tuple[Tensor, Tensor]:
    """For each alignment, where it emits and where it shifts, as zeros and ones: [A,I,J], [A,I,J].

    p(z_j = i | z_{j-1} = k) shifts at k <= i' < i in column j, then emits at (i, j).
    """
    emits = torch.zeros(len(alignments(I, J)), I, J, dtype=torch.float64)
    shifts = torch.zeros_like(emits)
    for a, z in enumerate(alignments(I, J)):
        k = 0
        for j, i in enumerate(z):
            for shifted in range(k, i):
                shifts[a, shifted, j] = 1
            emits[a, i, j] = 1
            k = i
    return emits, shifts


def alignment_scores(word_logp_IJ: Tensor, emit_logit_IJ: Tensor) -> Tensor:
    """log p(v, z | u) of every alignment, in the order of ``alignments``: [A]. Differentiable."""
    word, emit = word_logp_IJ.double(), emit_logit_IJ.double()
    emits, shifts = decisions(*word.shape)
    return (emits * (word + logsigmoid(emit)) + shifts * logsigmoid(-emit)).sum((1, 2))


def log_marginal(word_logp_IJ: Tensor, emit_logit_IJ: Tensor) -> Tensor:
    """log p(v, z_J = I | u): []. Differentiable."""
    return alignment_scores(word_logp_IJ, emit_logit_IJ).logsumexp(0)


def alignment_distribution(word_logp_IJ: Tensor, emit_logit_IJ: Tensor) -> dict[Alignment, float]:
    """p(z | u, v) of every alignment."""
    probabilities = alignment_scores(word_logp_IJ, emit_logit_IJ).softmax(0).tolist()
    return dict(zip(alignments(*word_logp_IJ.shape), probabilities, strict=True))


def best_alignments(word_logp_IJ: Tensor, emit_logit_IJ: Tensor, tie: float = 1e-9) -> tuple[float, set[Alignment]]:
    """The best score, and every alignment that reaches it up to ``tie``."""
    scores = alignment_scores(word_logp_IJ, emit_logit_IJ).tolist()
    best = max(scores)
    every = zip(alignments(*word_logp_IJ.shape), scores, strict=True)
    return best, {z for z, score in every if score >= best - tie}


def posteriors(word_logp_IJ: Tensor, emit_logit_IJ: Tensor) -> Tensor:
    """p(z_j = i | u, v): [I,J]."""
    emits, _ = decisions(*word_logp_IJ.shape)
    return torch.einsum("a,aij->ij", alignment_scores(word_logp_IJ, emit_logit_IJ).softmax(0), emits)


def entropy(word_logp_IJ: Tensor, emit_logit_IJ: Tensor) -> float:
    """Entropy of p(z | u, v) in nats."""
    return -sum(p * math.log(p) for p in alignment_distribution(word_logp_IJ, emit_logit_IJ).values() if p > 0)


# --- the lattice, by loops, where there are too many alignments to list ----------------------------------------------


def _log_add(x: float, y: float) -> float:
    if x < y:
        x, y = y, x
    return x if y == -math.inf else x + math.log1p(math.exp(y - x))


def lattice_loop(word_logp_IJ: Tensor, emit_logit_IJ: Tensor) -> tuple[float, Tensor, Tensor]:
    """log p(v, z_J = I | u) and its gradients by word_logp and by emit_logit, cell by cell: [], [I,J], [I,J].

    arrive(i,j): everything that reaches i before v_j is emitted. rest(i,j): everything that can follow from there.
    """
    I, J = word_logp_IJ.shape
    emit = emit_logit_IJ.double()
    say = (word_logp_IJ.double() + logsigmoid(emit)).tolist()
    shift = logsigmoid(-emit).tolist()

    arrive = [[-math.inf] * J for _ in range(I)]
    for j in range(J):
        for i in range(I):
            stay = (0.0 if i == 0 else -math.inf) if j == 0 else arrive[i][j - 1] + say[i][j - 1]
            move = -math.inf if i == 0 else arrive[i - 1][j] + shift[i - 1][j]
            arrive[i][j] = _log_add(stay, move)
    total = arrive[I - 1][J - 1] + say[I - 1][J - 1]

    emitted = [[0.0] * J for _ in range(I)]
    shifted = [[0.0] * J for _ in range(I)]
    rest = [[-math.inf] * (J + 1) for _ in range(I + 1)]
    rest[I - 1][J] = 0.0
    for j in reversed(range(J)):
        for i in reversed(range(I)):
            emitting, shifting = say[i][j] + rest[i][j + 1], shift[i][j] + rest[i + 1][j]
            rest[i][j] = _log_add(emitting, shifting)
            emitted[i][j] = math.exp(arrive[i][j] + emitting - total)
            shifted[i][j] = math.exp(arrive[i][j] + shifting - total)
    # d log e / d logit = 1 - e and d log shift / d logit = -e, each as often as the decision is taken.
    word_grad, shift_grad = (torch.tensor(x, dtype=torch.float64) for x in (emitted, shifted))
    return total, word_grad, word_grad * (-emit).sigmoid() - shift_grad * emit.sigmoid()


# --- the joint softmax, materialised ---------------------------------------------------------------------------------


def joint_log_normaliser(input_scores_BIV: Tensor, output_scores_BJV: Tensor) -> Tensor:
    """log Σ_w exp(a_i[w] + c_j[w]): [B,I,J]. Differentiable."""
    return (input_scores_BIV.double()[:, :, None] + output_scores_BJV.double()[:, None]).logsumexp(-1)


def joint_word_log_probs(input_scores_BIV: Tensor, output_scores_BJV: Tensor, targets_BJ: Tensor) -> Tensor:
    """log softmax(a_i + c_j)[v_j]: [B,I,J]. Differentiable."""
    logits_BIJV = input_scores_BIV.double()[:, :, None] + output_scores_BJV.double()[:, None]
    index_BIJ1 = targets_BJ[:, None, :, None].expand(-1, logits_BIJV.shape[1], -1, 1)
    return logits_BIJV.log_softmax(-1).gather(-1, index_BIJ1).squeeze(-1)


# --- the models, from their parameters -------------------------------------------------------------------------------

Parameters = dict[str, Tensor]


def _lstm(parameters: Parameters, prefix: str, layer: int, inputs: Sequence[Tensor]) -> list[Tensor]:
    """One layer over one sequence: a list of [E] -> a list of [H]. Gates are stored in the order i, f, g, o."""
    weight_ih, weight_hh = parameters[f"{prefix}.weight_ih_l{layer}"], parameters[f"{prefix}.weight_hh_l{layer}"]
    bias = parameters[f"{prefix}.bias_ih_l{layer}"] + parameters[f"{prefix}.bias_hh_l{layer}"]
    h = c = torch.zeros(weight_hh.shape[1], dtype=weight_hh.dtype)
    states = []
    for x in inputs:
        i, f, g, o = (weight_ih @ x + weight_hh @ h + bias).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(h)
    return states


def forward_states(parameters: Parameters, prefix: str, symbols: Sequence[int]) -> list[Tensor]:
    """The top layer of a left-to-right LSTM after each symbol."""
    states = [parameters[f"{prefix}.embedding.weight"][symbol] for symbol in symbols]
    layer = 0
    while f"{prefix}.lstm.weight_ih_l{layer}" in parameters:
        states = _lstm(parameters, f"{prefix}.lstm", layer, states)
        layer += 1
    return states


def bidirectional_states(parameters: Parameters, prefix: str, symbols: Sequence[int]) -> list[Tensor]:
    """The top layer of a bidirectional LSTM, forward state before backward state; each layer reads both of the last."""
    states = [parameters[f"{prefix}.embedding.weight"][symbol] for symbol in symbols]
    layer = 0
    while f"{prefix}.forwards.{layer}.weight_ih_l0" in parameters:
        forwards = _lstm(parameters, f"{prefix}.forwards.{layer}", 0, states)
        backwards = _lstm(parameters, f"{prefix}.backwards.{layer}", 0, states[::-1])[::-1]
        states = [torch.cat(pair) for pair in zip(forwards, backwards, strict=True)]
        layer += 1
    return states


def ssnt_lattice(parameters: Parameters, source: Sequence[int], target: Sequence[int]) -> tuple[Tensor, Tensor]:
    """log p(v_j | i, j) and the logit of e(i, j), one (i, j) at a time: [I,J], [I,J].

    The softmax is over W [h_i; s_j] + b; the emission is a one-hidden-layer tanh network on [h_i; s_j].
    """
    parameters = {name: value.double() for name, value in parameters.items()}
    bidirectional = "encoder.forwards.0.weight_ih_l0" in parameters
    h = (bidirectional_states if bidirectional else forward_states)(parameters, "encoder", source)
    s = forward_states(parameters, "decoder", [1, *target[:-1]])
    W = torch.cat([parameters["input_word.weight"], parameters["output_word.weight"]], 1)
    U = torch.cat([parameters["input_gate.weight"], parameters["output_gate.weight"]], 1)
    word, emit = [], []
    for h_i in h:
        for s_j, v_j in zip(s, target, strict=True):
            both = torch.cat([h_i, s_j])
            word.append((W @ both + parameters["output_word.bias"]).log_softmax(0)[v_j])
            hidden = (U @ both + parameters["output_gate.bias"]).tanh()
            emit.append(parameters["emit.weight"][0] @ hidden + parameters["emit.bias"][0])
    return torch.stack(word).reshape(len(h), len(s)), torch.stack(emit).reshape(len(h), len(s))


def lm_next_log_probs(parameters: Parameters, prefix: Sequence[int]) -> Tensor:
    """log p(next symbol | prefix), the prefix without its BOS: [V]."""
    parameters = {name: value.double() for name, value in parameters.items()}
    state = forward_states(parameters, "decoder", [1, *prefix])[-1]
    return (parameters["word.weight"] @ state + parameters["word.bias"]).log_softmax(0)


def lm_log_prob(parameters: Parameters, target: Sequence[int]) -> Tensor:
    """log p(target), one prefix at a time: []."""
    steps = [lm_next_log_probs(parameters, target[:j])[symbol] for j, symbol in enumerate(target)]
    return torch.stack(steps).sum()
