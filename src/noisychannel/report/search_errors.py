"""Search errors and model errors: is a wrong output the fault of the search, or do the models prefer it?"""

from __future__ import annotations

from dataclasses import dataclass

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.evaluation.decoding import is_search_error, reference_scores
from noisychannel.pages.charts import Bar, bars
from noisychannel.report.disagreements import weighted_terms
from noisychannel.report.section import Section, caption, marked_text, paragraph, shown_text, spread
from noisychannel.report.subject import Subject
from noisychannel.reporting import plural

KEY, TITLE = "search-errors", "Search errors and model errors"
EXAMPLES = 5
"""Of each kind."""


@dataclass(frozen=True)
class ScoredError:
    """A wrong output whose reference the models could have written."""

    item: int
    group: int
    ours: Hypothesis
    reference: Hypothesis

    @property
    def by_search(self) -> bool:
        return is_search_error(self.ours, self.reference)


def scored_errors(subject: Subject) -> list[ScoredError]:
    """The wrong outputs of the system that is shown, but for those whose reference no search may find."""
    found, first = [], 0
    evaluation, shown = subject.evaluation, subject.shown
    for number, (group, model, outputs) in enumerate(zip(evaluation.groups, shown.models, shown.outputs, strict=True)):
        for n, reference in reference_scores(model, group.held_out, outputs).items():
            found.append(ScoredError(first + n, number, outputs[n][0].hypothesis, reference))
        first += len(outputs)
    return found


def search_errors_section(subject: Subject | None, reason: str) -> Section:
    """How many of each, and examples."""
    if subject is None:
        return Section(KEY, TITLE, reason=reason)
    wrong = subject.right(subject.shown).count(False)
    if not wrong:
        return Section(KEY, TITLE, reason=f"Every output of {subject.shown.label} is right.")
    errors = scored_errors(subject)
    search, model = ([one for one in errors if one.by_search is kind] for kind in (True, False))
    rest = wrong - len(errors)
    note = (
        f"{plural(wrong, 'output')} of {subject.shown.label} differ from the reference. If the reference has the "
        "higher score, the search should have found it: a search error, which a wider search may fix (larger --k1 and "
        "--k2 of decode). Else the models prefer what was written: a model error, which better models or weights can "
        "fix. A reference with unknown symbols, or longer than an output may be, cannot be found at all."
    )
    rows = [
        Bar("search errors: the reference scores higher", len(search), _share(len(search), wrong)),
        Bar("model errors: the output scores higher", len(model), _share(len(model), wrong), "term-channel"),
        Bar("the reference cannot be written", rest, _share(rest, wrong), "term-length"),
    ]
    chart = bars("Why outputs are wrong", note, "outputs", rows)
    notes = paragraph(note)
    if errors:
        notes += paragraph(
            f"Examples: at most {EXAMPLES} of each kind, evenly spread over the items. The last columns are the "
            "scores of both, and what each term (weight × term) gives the reference more than the output: a negative "
            "number speaks for the output."
        )
    body = f'<div class="beside">{chart}<div>{notes}</div></div>'
    body += _examples(subject, "Search errors", spread(search, EXAMPLES))
    body += _examples(subject, "Model errors", spread(model, EXAMPLES))
    return Section(KEY, TITLE, body + caption(subject.caption(subject.shown)))


def _share(some: int, of: int) -> str:
    return f"{some:,} ({100 * some / of:.1f} %)"


def _examples(subject: Subject, title: str, errors: list[ScoredError]) -> str:
    if not errors:
        return ""
    sets = [tuned.weights.by_name() for tuned in subject.shown.tuned]
    names = list(dict.fromkeys(name for weights in sets for name, weight in weights.items() if weight))
    head = ["input", "output", "reference", "score of output", "score of reference", *names]
    cells = "".join(f"<th>{name}</th>" if n < 3 else f'<th class="number">{name}</th>' for n, name in enumerate(head))
    rows = []
    for one in errors:
        text, right = subject.shown.best[one.item].text, subject.held_out.references[one.item][0]
        weights = subject.shown.tuned[one.group].weights
        ours, theirs = (weighted_terms(h, weights) for h in (one.ours, one.reference))
        complete = one.ours.complete
        numbers = [f"{one.ours.score:.2f}" if complete else "no end", f"{one.reference.score:.2f}"]
        numbers += [
            f"{theirs[name] - ours[name]:+.2f}" if complete and name in ours and name in theirs else "–"
            for name in names
        ]
        shown = [shown_text(subject.held_out.inputs[one.item]), marked_text(text, right, subject.characters)]
        shown.append(shown_text(right))
        rows.append(
            "<tr>"
            + "".join(f"<td>{cell}</td>" for cell in shown)
            + "".join(f'<td class="number">{cell}</td>' for cell in numbers)
            + "</tr>"
        )
    table = f"<table><thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<h3>{title}</h3><div class="scroll">{table}</div>'
