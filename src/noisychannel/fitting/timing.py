"""How long a plan takes on this machine: the speed of updates is measured, the rest follows from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from noisychannel.devices import choose_device
from noisychannel.fitting.facts import Facts
from noisychannel.fitting.plan import Plan, explained
from noisychannel.fitting.rules import LM_BATCH
from noisychannel.ids import EOS
from noisychannel.models import SSNT, LanguageModel
from noisychannel.reporting import plural
from noisychannel.training.jobs import choose_processes
from noisychannel.training.loop import cpu_threads
from noisychannel.training.timing import BUSY, seconds_of, seconds_together

WARM_UP, MEASURED = 2, 4
"""Updates."""
LONGER = 1.2
"""A batch is as long as its longest sequence: so much longer than the mean."""
TAG_SYMBOLS = 4
"""About so many tags has a tagged input."""
WORD_COST = 0.22
"""Giving a word an input takes so many updates of the direct model (0.21 measured on German forms)."""
DRAWN_COST = 0.02
"""The same for an input that is drawn."""
TUNED_COST = 12.0
"""Tuning and estimating take so many updates of the direct model for each held-out pair."""
START_COST = 12.0
"""Seconds that starting processes and preparing data take."""
SHORTER = (1.0, 0.85, 0.7, 0.55, 0.45, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05)
"""Shares of the updates and of the words that are given inputs, until a plan fits into its time."""
LEAST_UPDATES = 100
MARGIN = 0.85
"""Of the minutes, so much is planned."""

PREPARE, REVERSE, INPUTS, TRAIN, TUNE = (
    "data",
    "reverse models",
    "inputs for words",
    "direct, channel and language model",
    "weights and estimate",
)


@dataclass(frozen=True)
class Speed:
    """Seconds of one update of each model, on one core or on the GPU."""

    direct: float
    channel: float
    lm: float
    processes: int
    """How many models are trained at the same time."""
    stacked: bool
    """Whether one process trains all models together, on a GPU."""


def measure_speed(plan: Plan, facts: Facts, device: str, jobs: int | None) -> Speed:
    """Time a few updates of models of the planned sizes, on sequences of the usual lengths."""
    where = choose_device(device)
    processes = choose_processes(64, where, jobs)
    tags = TAG_SYMBOLS if facts.tags else 0
    x, y = (round(LONGER * length) + 1 for length in (facts.input_length, facts.output_length))
    sizes = (facts.input_symbols + 40, facts.output_symbols + 40)
    H, E, B = plan.hidden_size, plan.embedding_size, plan.batch_size

    def ids(batch: int, length: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        drawn = torch.randint(4, size, (batch, length), device=where)
        drawn[:, -1] = EOS
        return drawn, torch.full((batch,), length)

    def direct() -> float:
        model = SSNT(sizes[0], sizes[1], H, bidirectional=True, embedding_size=E).to(where)
        batch = *ids(B, x + tags, sizes[0]), *ids(B, y, sizes[1])
        return _seconds(model, lambda: model.log_prob(*batch))

    def channel() -> float:
        model = SSNT(sizes[1], sizes[0], H, embedding_size=E).to(where)
        batch = *ids(B, y + tags, sizes[1]), *ids(B, x + tags, sizes[0])
        return _seconds(model, lambda: model.log_prob(*batch))

    def lm() -> float:
        model = LanguageModel(sizes[1], plan.lm_hidden_size, num_layers=1).to(where)
        batch = ids(LM_BATCH, y + tags, sizes[1])
        return _seconds(model, lambda: model.log_prob(*batch))

    busy = 1.0 if where.type == "cuda" or processes == 1 else BUSY
    with cpu_threads(1):
        return Speed(busy * direct(), busy * channel(), busy * lm(), processes, where.type == "cuda")


def _seconds(model: nn.Module, log_prob: Callable[[], torch.Tensor]) -> float:
    optimiser = torch.optim.Adam(model.parameters())

    def update() -> None:
        (-log_prob().sum()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()

    return seconds_of(update, WARM_UP, MEASURED)


def estimate_stages(plan: Plan, facts: Facts, speed: Speed) -> dict[str, float]:
    """The seconds of each stage of a plan, in order."""
    parts = plan.folds + 1 if plan.folds else 1
    held_out = facts.pairs if plan.folds else plan.dev_pairs
    lms = 1 if plan.shares_lm else parts
    main = _trained([*[speed.direct * plan.updates, speed.channel * plan.updates] * parts,
                     *[speed.lm * plan.lm_updates] * lms], speed)  # fmt: skip
    stages = {PREPARE: START_COST / 2}
    if plan.words_given_inputs:
        stages[REVERSE] = START_COST / 2 + _trained([speed.direct * plan.reverse_updates] * parts, speed)
        cost = DRAWN_COST if plan.inputs_drawn else WORD_COST
        stages[INPUTS] = parts * plan.words_given_inputs * cost * speed.direct / _shared(speed)
    stages[TRAIN] = START_COST / 2 + main
    stages[TUNE] = START_COST / 2 + held_out * TUNED_COST * speed.direct
    return stages


def shortened(plan: Plan, facts: Facts, speed: Speed, minutes: float) -> Plan:
    """The plan with so few updates and words that it takes no longer than this."""
    for share in SHORTER:
        found = replace(
            plan,
            updates=max(LEAST_UPDATES, round(plan.updates * share)),
            lm_updates=max(LEAST_UPDATES, round(plan.lm_updates * share)),
            words_given_inputs=(given := round(plan.words_given_inputs * share)),
            words_given_tags=plan.words_given_tags and given > 0,
        )
        if sum(estimate_stages(found, facts, speed).values()) <= MARGIN * 60 * minutes:
            break
    if found == plan:
        return plan
    seconds = sum(estimate_stages(found, facts, speed).values())
    fits = seconds <= MARGIN * 60 * minutes
    why = (
        f"the updates are {100 * found.updates / plan.updates:.0f} % of what fit would choose for these pairs"
        + (
            f", to fit into {plural(minutes, 'minute')} on this machine"
            if fits
            else f"; even that may take more than {plural(minutes, 'minute')}"
        )
        + "; with a larger --minutes (and --overwrite) the models would be better"
    )
    return explained(found, facts, why)


def _trained(costs: list[float], speed: Speed) -> float:
    """The seconds of several trainings."""
    return seconds_together(costs, speed.processes, speed.stacked)


def _shared(speed: Speed) -> float:
    return 20.0 if speed.stacked else float(speed.processes)
