"""Where the proposing model alone and the whole objective disagree, which of them was right, and which term decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.evaluation.decoding import ROUNDING, with_all_terms
from noisychannel.evaluation.held_out import HeldOut
from noisychannel.pages import escape
from noisychannel.pages.charts import Bar, bars, table
from noisychannel.report.section import Section, beginning, caption, marked_text, paragraph, shown_text, spread
from noisychannel.report.subject import Subject
from noisychannel.reporting import plural

KEY, TITLE = "disagreements", "Where the channel and the direct model disagree"
EXAMPLES = 3
"""Of each kind."""
TERM_COLOURS = ("direct", "channel", "lm", "length", "word_list", "seen")


@dataclass(frozen=True)
class Disagreement:
    """An item of which two systems make different outputs."""

    item: int
    gain: float
    """How much better the output of the whole objective is; above zero if it is the right one."""


def find_disagreements(subject: Subject) -> list[Disagreement]:
    """All of them, in the order of the items."""
    assert subject.base is not None
    gains = subject.item_scores(subject.shown) - subject.item_scores(subject.base)
    pairs = zip(subject.shown.best, subject.base.best, strict=True)
    return [Disagreement(n, float(gains[n])) for n, (ours, alone) in enumerate(pairs) if ours.text != alone.text]


def disagreements_section(subject: Subject | None, reason: str) -> Section:
    """How often each was right, and examples with every term."""
    if subject is None:
        return Section(KEY, TITLE, reason=reason)
    title = TITLE if subject.shown.tuned[0].weights.channel else "Where the terms and the direct model disagree"
    if subject.base is None:
        return Section(
            KEY, title, reason=f"{subject.shown.label} is one model alone. Tune the run to weigh it with others."
        )
    found = find_disagreements(subject)
    ours, alone = subject.shown.label, subject.base.label
    kinds = {
        f"{ours} is {'right' if subject.exact else 'better'}": [one for one in found if one.gain > 0],
        f"{alone} is {'right' if subject.exact else 'better'}": [one for one in found if one.gain < 0],
        "neither is right" if subject.exact else "equally good": [one for one in found if one.gain == 0],
    }
    if subject.exact:
        right = subject.right(subject.shown)
        both = [one for one in found if one.gain == 0 and right[one.item]]
        if both:
            kinds["both are right"] = both
            kinds["neither is right"] = [one for one in found if one.gain == 0 and not right[one.item]]
    items = len(subject.held_out.inputs)
    judged = "An output is right if it is a reference." if subject.exact else (
        f"Outputs are compared by {subject.table.metrics[0].name} of the item."
    )  # fmt: skip
    note = (
        f"{alone} and {ours} give different outputs for {len(found):,} of {plural(items, 'item')} "
        f"({100 * len(found) / items:.1f} %). {judged}"
    )
    rows = [Bar(name, len(some), f"{len(some):,}") for name, some in kinds.items()]
    chart = bars("Who was right" if subject.exact else "Who was better", note, "items", rows)
    examples = {name: spread(some, EXAMPLES) for name, some in kinds.items() if some}
    notes = paragraph(note)
    if found:
        per_symbol = subject.shown.models[0].settings.per_symbol
        divided = ", with terms per symbol" if per_symbol else ""
        notes += paragraph(
            f"Examples: at most {EXAMPLES} of each kind, evenly spread over the items. Each number is weight × "
            f"term{divided}, their sum the score of the output. The bars are the differences: a term whose bar goes "
            f"to the right speaks for the output of {ours}."
        )
    body = f'<div class="beside">{chart}<div>{notes}</div></div>' + _examples(subject, examples)
    return Section(KEY, title, body + caption(subject.caption(subject.shown, subject.base)))


def _examples(subject: Subject, examples: dict[str, list[Disagreement]]) -> str:
    wanted = [one.item for some in examples.values() for one in some]
    terms = _terms(subject, wanted)
    parts = []
    for name, some in examples.items():
        parts.append(f"<h3>{escape(name)}</h3>")
        parts += [_example(subject, one.item, *terms[one.item]) for one in some]
    return "".join(parts)


def _terms(subject: Subject, items: Sequence[int]) -> dict[int, tuple[Weights, Hypothesis, Hypothesis]]:
    """The weights of some items, and the outputs of both systems with every term."""
    assert subject.base is not None
    found = {}
    for n in items:
        group, place = subject.evaluation.place(n)
        held_out, model = subject.evaluation.groups[group].held_out, subject.shown.models[group]
        one = HeldOut("", [held_out.inputs[place]], [held_out.features[place]], [held_out.references[place]])
        best = [[system.outputs[group][place][0]] for system in (subject.shown, subject.base)]
        ours, alone = (with_all_terms(model, one, [outputs])[0][0] for outputs in best)
        found[n] = (subject.shown.tuned[group].weights, ours, alone)
    return found


def _example(subject: Subject, n: int, weights: Weights, ours: Hypothesis, alone: Hypothesis) -> str:
    assert subject.base is not None
    held_out = subject.held_out
    reference = held_out.references[n][0]
    tags = (
        f' <span class="faint">{escape(beginning("; ".join(held_out.features[n])))}</span>'
        if held_out.features[n]
        else ""
    )
    texts = [
        f"<dt>{escape(system.label)}</dt><dd>{marked_text(system.best[n].text, reference, subject.characters)}</dd>"
        for system in (subject.shown, subject.base)
    ]
    facts = (
        f"<dl><dt>input</dt><dd>{shown_text(held_out.inputs[n])}{tags}</dd>"
        f"<dt>reference</dt><dd>{shown_text(reference)}</dd>{''.join(texts)}</dl>"
    )
    if not ours.complete or not alone.complete:
        return f'<article class="card">{facts}{paragraph("An output did not end; its terms do not compare.")}</article>'
    first, second = weighted_terms(ours, weights), weighted_terms(alone, weights)
    rows = [
        [label, *(f"{value:.2f}" for value in terms.values()), f"{sum(terms.values()):.2f}"]
        for label, terms in ((subject.shown.label, first), (subject.base.label, second))
    ]
    chart = bars(
        "What decided",
        "For each term the weighted difference between the two outputs.",
        f"for {subject.base.label}  ←  nats  →  for {subject.shown.label}",
        [Bar(name, value - second[name], f"{value - second[name]:+.2f}", term_colour(name))
         for name, value in first.items()],
    )  # fmt: skip
    numbers = table(["output of", *first, "sum"], rows)
    if sum(second.values()) > sum(first.values()) + ROUNDING:
        missed = f"The output of {subject.base.label} has the higher score: a search error of {subject.shown.label}."
        numbers += paragraph(missed, "remark")
    return f'<article class="card example"><div>{facts}{numbers}</div>{chart}</article>'


def weighted_terms(hypothesis: Hypothesis, weights: Weights) -> dict[str, float]:
    """Weight times term as the objective has it, for the terms that have a weight."""
    terms = hypothesis.weighed()
    return {
        name: weight * value
        for name, weight in weights.by_name().items()
        if weight and (value := terms.get(name)) is not None
    }


def term_colour(name: str) -> str:
    """The CSS variable of a term."""
    return f"term-{name}" if name in TERM_COLOURS else "term-other"
