"""What ``fit`` says at its end: the estimate, whether the models are worth it, how to decode, and what would help."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from noisychannel.errors import command_line
from noisychannel.fitting.estimate import Estimate
from noisychannel.fitting.fit import FitResult
from noisychannel.fitting.options import SEPARATOR
from noisychannel.runs import RunDirectory
from noisychannel.weights import read_system

UNITS = {"accuracy": " %", "edit_distance": " edits"}
LOWER_IS_BETTER = ("edit_distance",)
MUCH_LISTED = 0.2
"""With a smaller share of the outputs on the list of words, an estimate does not rest on it."""


def describe(result: FitResult) -> Iterator[str]:
    """Lines for a person."""
    done, plan = result.done, result.done.begun.plan
    if result.table is not None:
        yield from (result.table.table(), "")
    yield (
        f"{done.metric} on {done.held_out:,} pairs that were held out, with 95 % intervals:"
        if not plan.folds
        else f"{done.metric} on all {done.held_out:,} pairs, each held out once, with 95 % intervals:"
    )
    width = max(len(one.system) for one in done.estimates)
    for one in done.estimates:
        unit = UNITS.get(done.metric, "")
        mark = "  <- decode uses this" if one.system == done.default else ""
        yield f"  {one.system:<{width}}  {one.score:6.2f}{unit}  [{one.low:.2f}, {one.high:.2f}]{mark}"
    if plan.folds:
        share = (plan.folds - 1) / plan.folds
        yield f"The models of the run have seen all pairs; those of the estimate had {100 * share:.0f} % of them."
    facts = done.begun.facts
    if facts.inputs < facts.pairs:
        yield "All held-out inputs are new to the models; inputs that are among the pairs can do better."
    if plan.seen:
        yield (
            "So the estimates are for inputs that are not among the pairs. For those that are, the system also uses "
            "what their outputs were there (seen), which was not measured."
        )
    yield "The weights of each estimate were tuned on other pairs than it is measured on."
    yield from _listed(result)
    yield from _verdict(result)
    yield from _confidence(result)
    yield f"run: {result.run_dir}    (decode, evaluate and score work on it)"
    yield f"decode: {_example(result)}"
    yield "what would help most:"
    yield from (f"  {n}. {line}" for n, line in enumerate(done.helps, start=1))


def _verdict(result: FitResult) -> Iterator[str]:
    """Say it plainly if something simpler is as good."""
    done = result.done
    own = next(one for one in done.estimates if one.system == done.default)
    sign = -1 if done.metric in LOWER_IS_BETTER else 1
    simple = [one for one in done.estimates if one.baseline and sign * one.score >= sign * own.score]
    if simple:
        best: Estimate = max(simple, key=lambda one: sign * one.score)
        compared = "is as good as" if best.score == own.score else "is better than"
        advice = "here: the models do not pay until there are more pairs or words"
        if (trained := done.begun.trained) < 1:
            advice = (
                f"here, but the models had only {100 * trained:.0f} % of the updates that fit would choose: give it "
                "more time first (--minutes, with --overwrite)"
            )
        yield f"{best.system} ({best.score:.2f}) {compared} {own.system} ({own.score:.2f}) {advice}"


def _listed(result: FitResult) -> Iterator[str]:
    """What an estimate that rests on the list assumes: that new outputs are on it as often as those of the pairs."""
    done, plan, listed = result.done, result.done.begun.plan, result.done.begun.facts.listed
    if "word_list" not in done.default.split("+") or plan.without_outputs or listed < MUCH_LISTED:
        return
    smaller = done.default.replace("+word_list", "")
    without = next((f" ({smaller}: {one.score:.2f})" for one in done.estimates if one.system == smaller), "")
    yield (
        f"{100 * listed:.0f} % of the outputs of the pairs are on the list of words. The estimate of "
        f"{done.default} assumes that as many outputs of new inputs are{without}. If the list was made from the pairs, "
        "the estimate is too high: fit again with --lexicon false --overwrite"
    )


def _confidence(result: FitResult) -> Iterator[str]:
    """How far the confidences of decode can be trusted."""
    fitted = read_system(RunDirectory.open(result.run_dir)).confidence
    if fitted is not None and fitted.calibration is not None:
        yield f"confidence (decode --confidence), by cross-validation: {fitted.calibration}"


def _example(result: FitResult) -> str:
    row = result.example
    text = row.input + ("\t" + SEPARATOR.join(row.features) if row.features else "")
    # printf reads backslashes and percent signs.
    spelt = text.replace("\\", "\\\\").replace("%", "%%").replace("\t", "\\t") + "\\n"
    return f"printf {shlex.quote(spelt)} | {command_line('decode', result.run_dir)}"
