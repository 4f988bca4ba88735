"""How large an experiment with few pairs is. Models have the sizes that ``fit`` plans; a quick try has smaller ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from noisychannel.decode.settings import SearchSettings
from noisychannel.experiments.few_pairs.transformer import TransformerSettings
from noisychannel.experiments.settings import MeasuringSettings
from noisychannel.fitting.plan import Plan
from noisychannel.fitting.rules import K1, K2

SEARCH = SearchSettings(k1=K1, k2=K2)


@dataclass(frozen=True, kw_only=True)
class FewPairsScale(MeasuringSettings):
    """Sizes of data and models; None: all of the data, and the models as planned."""

    tasks: int | None = None
    """The first so many parts."""
    dev: int | None = 100
    """Dev items of each part, to tune on. More would be unlike the case that is measured."""
    test: int | None = None
    words: int | None = None
    planned: Mapping[str, int] = field(default_factory=dict)
    """At most so much of what is planned: ``{"updates": 100, "made_up": 200}``."""
    opponent: TransformerSettings = TransformerSettings()  # noqa: RUF009 (frozen)
    minutes: float = 15.0
    """That ``fit`` may take for each part."""
    search: SearchSettings = SEARCH
    tuning: SearchSettings = SEARCH
    iterations: int = 3
    n_best: int = 5

    def limited(self, plan: Plan) -> Plan:
        """A plan with no more than ``planned``."""
        return replace(plan, **{name: min(most, getattr(plan, name)) for name, most in self.planned.items()})


QUICK = FewPairsScale(
    tasks=2,
    dev=40,
    test=60,
    words=300,
    seeds=(1,),
    planned={
        "updates": 200,
        "lm_updates": 60,
        "hidden_size": 48,
        "embedding_size": 32,
        "lm_hidden_size": 48,
        "made_up": 300,
        "words_given_inputs": 200,
        "repeat": 4,
    },
    opponent=TransformerSettings(
        size=32, feed_forward=64, layers=1, heads=2, dropout=0.1, warmup=50, updates=100, batch_size=32
    ),
    minutes=1.0,
    search=SearchSettings(k1=4, k2=2),
    tuning=SearchSettings(k1=4, k2=2),
    iterations=1,
    n_best=2,
)
"""A few minutes on two cores. Its figures show that everything works, and nothing else."""
