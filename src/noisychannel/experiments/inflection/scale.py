"""How large an inflection experiment is: the paper's sizes, and those of a quick try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from noisychannel.decode.settings import SearchSettings
from noisychannel.experiments.settings import MeasuringSettings
from noisychannel.fitting.plan import Plan
from noisychannel.training.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class Scale(MeasuringSettings):
    """Sizes of data and models. Of data, all that there is if None."""

    types: int | None = None
    """The last so many types."""
    pairs: int | None = None
    """Training pairs of each type."""
    held_out: int | None = None
    """Dev items, and test items, of each type."""
    unpaired: int | None = None
    """Unpaired forms of each tag set."""
    hidden_size: int = 128
    updates: int = 8_000
    """Most updates of a direct model, a channel or a baseline; patience ends most of them earlier."""
    batch_size: int = 20
    """Pairs in a training batch."""
    lm: ModelConfig = field(
        default_factory=lambda: ModelConfig(
            hidden_size=512, num_layers=2, dropout=0.2, learning_rate=1e-4, batch_size=128
        )
    )
    """With the paper's size and learning rate."""
    lm_updates: int = 10_000
    better_lm_rate: float = 1e-3
    better_lm_updates: int = 8_000
    """A learning rate with which the language model becomes better, and earlier."""
    search: SearchSettings = SearchSettings(k1=60, k2=30, max_growth=8)  # noqa: RUF009 (frozen)
    tuning: SearchSettings = SearchSettings(k1=20, k2=10, max_growth=8)  # noqa: RUF009 (frozen)
    n_best: int = 5
    """Ten would make the files of verbs twice as large: 6 MB."""
    tuned_types: int | None = None
    """Weights are tuned on the dev items of so many types, drawn at random."""
    back_translated: tuple[int, ...] = (4_000, 16_000)
    """Back-translated forms of each type; the best amount is chosen on dev."""
    planned: Mapping[str, int] = field(default_factory=dict)
    """At most so much of what ``fit`` plans: ``{"updates": 100, "made_up": 200}``."""

    def limited(self, plan: Plan) -> Plan:
        """A plan with no more than ``planned``."""
        return replace(plan, **{name: min(most, getattr(plan, name)) for name, most in self.planned.items()})


QUICK = Scale(
    types=2,
    pairs=500,
    held_out=100,
    unpaired=5000,
    seeds=(1,),
    hidden_size=96,
    updates=600,
    lm=ModelConfig(hidden_size=128, num_layers=1, dropout=0.2, learning_rate=1e-3, batch_size=64),
    lm_updates=600,
    better_lm_updates=600,
    search=SearchSettings(k1=10, k2=5, max_growth=8),
    tuning=SearchSettings(k1=10, k2=5, max_growth=8),
    iterations=2,
    planned={"updates": 200, "hidden_size": 64, "made_up": 400, "words_given_inputs": 300},
)
"""A few minutes on two cores. Its figures show that everything works, and nothing else."""
