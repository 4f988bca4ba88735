"""The rows: baselines and systems, each with so many training tokens. The samples take the place of seeds."""

from __future__ import annotations

from dataclasses import replace

from noisychannel.experiments.few_pairs.rows import baseline, row
from noisychannel.experiments.normalisation.data import OPEN, STRICT
from noisychannel.experiments.rows import SystemRow

SIZES = (100, 250, 500, 1_000, 5_000, 10_000)
STRICT_SIZES = (100, 1_000, 10_000)
SAMPLES = (1, 2, 3)

IDENTITY = baseline("identity", "identity")
MEMORISED = baseline("memorised outputs, else identity", "memorised")
RULES = baseline("longest-suffix rules", "rules")
DIRECT = row("direct", "direct", "rule", OPEN)
WITH_LM = row("direct + LM", "direct+lm", "rule", OPEN)
NO_CHANNEL = row("everything but the channel", "direct+lm+word_list+seen", "rule", OPEN)
FULL = row("full", "direct+channel+lm+word_list+seen", "rule", OPEN)
OPEN_ROWS = (IDENTITY, MEMORISED, RULES, DIRECT, WITH_LM, NO_CHANNEL, FULL)
STRICT_ROWS = tuple(replace(of, setting=STRICT) for of in (NO_CHANNEL, FULL))


def with_tokens(of: SystemRow, size: int) -> SystemRow:
    """A row whose models have so many training tokens."""
    models = dict.fromkeys(of.models, f"rule.p{size}")
    return replace(of, name=f"{of.name}, {size:,} tokens", unrestricted=of.name, pairs=size, models=models)


BLOCKS: dict[str, tuple[SystemRow, ...]] = {
    "open": tuple(with_tokens(of, size) for size in SIZES for of in OPEN_ROWS),
    "strict": tuple(with_tokens(of, size) for size in STRICT_SIZES for of in STRICT_ROWS),
}
