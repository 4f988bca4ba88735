"""What decoding maximises:  O(x, y) = w_direct·log q(y|x) + w_channel·log p(x|y) + w_lm·log p(y) + w_length·|y|."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from torch import Tensor


@dataclass(frozen=True)
class Weights:
    """The four weights; zero switches a term off, and then its model is neither needed nor run."""

    direct: float = 1.0
    channel: float = 0.0
    lm: float = 0.0
    length: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not math.isfinite(value):
                raise ValueError(f"the weight {name} must be a finite number, but is {value}")

    def combine(self, direct: Tensor, channel: Tensor | None, lm: Tensor | None, length: int) -> Tensor:
        """O of hypotheses of one length from their terms; a term that was not computed is None."""
        # A weight of zero must not meet the -inf of a cell that cannot be reached: 0 · -inf is nan.
        total = self.direct * direct if self.direct else direct.masked_fill(direct > -math.inf, 0.0)
        for weight, term in ((self.channel, channel), (self.lm, lm)):
            if weight and term is not None:
                total = total + weight * term
        return total + self.length * length
