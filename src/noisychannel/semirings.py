"""Semirings: the lattice recursion is written once, and each semiring makes it answer another question.

Every element is a tensor of logarithms (for Entropy, of pairs). ``times`` extends a path, ``plus`` joins the two ways
of reaching a node. The backward pass needs one more function: ``share`` is the part of a node's weight that came by the
first way, which is the derivative of ``plus(first, second)`` with respect to ``first``:

=========  ==================  ====================  ==============================================
semiring   plus                share                 the recursion gives
=========  ==================  ====================  ==============================================
Log        log(e^a + e^b)      sigmoid(a - b)        log marginal; shares give posteriors
Max        max(a, b)           1 if a >= b else 0    Viterbi score; shares give the best alignment
Sample     log(e^a + e^b)      Bernoulli(of Log's)   log marginal; shares give sampled alignments
Entropy    of (log w, H)       --                    entropy of the alignment
=========  ==================  ====================  ==============================================
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F


class Semiring(Protocol):
    """What the forward recursion needs."""

    def lift(self, log_weight: Tensor) -> Tensor:
        """Turn the logarithm of an arc's weight into an element."""
        ...

    def plus(self, first: Tensor, second: Tensor) -> Tensor: ...

    def times(self, first: Tensor, second: Tensor) -> Tensor: ...


class DirectedSemiring(Semiring, Protocol):
    """A semiring that also tells where the weight of a node came from."""

    def share(self, first: Tensor, second: Tensor) -> Tensor:
        """The part of ``plus(first, second)`` that is due to ``first``, in [0, 1]; 0 if ``first`` is -inf."""
        ...


class Log:
    """Sum over paths, in logarithms."""

    def lift(self, log_weight: Tensor) -> Tensor:
        return log_weight

    def plus(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.logaddexp(first, second)

    def times(self, first: Tensor, second: Tensor) -> Tensor:
        return first + second

    def share(self, first: Tensor, second: Tensor) -> Tensor:
        # -inf - -inf is nan: a node that is not reached contributes nothing.
        return torch.sigmoid(first - second).nan_to_num_(nan=0.0)


class Max(Log):
    """The best path. In a tie the first way wins, so the result does not depend on the machine."""

    def plus(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.maximum(first, second)

    def share(self, first: Tensor, second: Tensor) -> Tensor:
        came_first = (first >= second) & (first > -torch.inf)
        return came_first.to(first.dtype)


class Sample(Log):
    """Paths drawn from the exact posterior: forward like ``Log``, backward one coin toss per sample."""

    def __init__(self, num_samples: int, generator: torch.Generator | None = None) -> None:
        self.num_samples = num_samples
        self.generator = generator

    def share(self, first: Tensor, second: Tensor) -> Tensor:
        """[D,B,K] -> [D,num_samples·B,K]."""
        probability = super().share(first, second).repeat(1, self.num_samples, 1)
        return torch.bernoulli(probability, generator=self.generator)


class Entropy:
    """Elements [2, ...]: the log of a total weight, and the entropy of the paths that make it up.

    Joining two sets of paths with shares w and 1 - w:  H = w (H1 - log w) + (1 - w) (H2 - log(1 - w)).
    """

    def lift(self, log_weight: Tensor) -> Tensor:
        return torch.stack([log_weight, torch.zeros_like(log_weight)])

    def plus(self, first: Tensor, second: Tensor) -> Tensor:
        ahead = first[0] - second[0]
        joined = torch.zeros_like(ahead)
        # sigmoid(x) and sigmoid(-x) sum to one almost exactly; exp(a - log(e^a + e^b)) would not, and the error would
        # grow along the lattice.
        for advantage, entropy in ((ahead, first[1]), (-ahead, second[1])):
            share, log_share = torch.sigmoid(advantage), F.logsigmoid(advantage)
            joined = joined + torch.where(share > 0, share * (entropy - log_share), 0.0)
        return torch.stack([torch.logaddexp(first[0], second[0]), joined])

    def times(self, first: Tensor, second: Tensor) -> Tensor:
        return first + second
