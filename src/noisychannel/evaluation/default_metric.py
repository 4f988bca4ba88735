"""The metric of a user who names none: accuracy, or BLEU if outputs are sentences, of which hardly one is ever right.

BLEU rather than ROUGE, because ROUGE's tokenizer drops every letter but a to z.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from noisychannel.data.rows import Row
from noisychannel.errors import BadInputError
from noisychannel.evaluation.metrics import make_metric
from noisychannel.reporting import Reporter
from noisychannel.runs import RunDirectory
from noisychannel.weights import read_system

EXACT = ("accuracy", "edit_distance")
"""Metrics of tasks in which an output is right or wrong. For others, errors by kind say nothing: every headline differs
from its reference in most of its words."""
OF_SENTENCES = "bleu"
SMALL_INVENTORY = 200
"""A side with more different words than this is running text; with fewer, words may be sounds, say."""
SEVERAL = 3
"""A typical sentence has at least so many words."""


def default_metric(run: RunDirectory, rows: Iterable[Row], reporter: Reporter, option: str) -> str:
    """The metric for these items, and a line for the user if it is not accuracy. ``option`` names another one."""
    if not are_sentences(run, [row.output for row in rows]):
        return EXACT[0]
    try:
        make_metric(OF_SENTENCES)
    except BadInputError as error:
        reporter.warn(f"outputs are sentences, of which accuracy says little, but {error}")
        return EXACT[0]
    reporter.warn(f"outputs are sentences, so the metric is {OF_SENTENCES}; for another: {option} rouge1 (headlines)")
    return OF_SENTENCES


def are_sentences(run: RunDirectory, outputs: Sequence[str]) -> bool:
    """Whether at least half of the outputs have several words, of many. Models may know few of these."""
    codec = run.groups()[0].codecs()[1]
    types = max(len(codec), len({word for text in outputs for word in text.split()}))
    if codec.config.units == "characters" or types <= SMALL_INVENTORY:
        return False
    return bool(outputs) and 2 * sum(len(text.split()) >= SEVERAL for text in outputs) >= len(outputs)


def tuned_metric(run: RunDirectory) -> str | None:
    """The metric that a run was tuned on; None if it is not tuned."""
    metric = read_system(run.groups()[0]).record.get("metric")
    return None if metric is None else str(metric)
