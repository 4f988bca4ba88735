"""Errors grouped by kind, as ``evaluate`` prints them, with more of them."""

from __future__ import annotations

from noisychannel.evaluation.error_kinds import ErrorKind
from noisychannel.evaluation.report import errors_of
from noisychannel.pages import escape
from noisychannel.report.section import LONGEST_TEXT, Section, caption, marked_text, paragraph, shown_text
from noisychannel.report.subject import Subject
from noisychannel.reporting import plural

KEY, TITLE = "errors", "Errors by kind"
KINDS = 20


def kinds_section(subject: Subject | None, reason: str) -> Section:
    """A table of kinds with examples."""
    if subject is None:
        return Section(KEY, TITLE, reason=reason)
    if not subject.exact:
        metric = subject.table.metrics[0].name
        return Section(
            KEY, TITLE, reason=f"Outputs are measured by {metric}: nearly all differ from their reference somewhere."
        )
    errors = errors_of(subject.run, subject.table, subject.shown.label)
    if not errors.kinds:
        return Section(KEY, TITLE, reason=f"Every output of {subject.shown.label} is right.")
    note = f"{errors.wrong:,} of {plural(errors.items, 'output')} of {errors.system} are wrong"
    if errors.direct_right is not None and subject.base is not None:
        note += f"; {subject.base.label} alone is right in {errors.direct_right:,} of these"
    note += ". An output with several differences counts for each."
    if errors.seen_items is not None and errors.seen_right is not None:
        new = errors.items - errors.seen_items
        right = errors.items - errors.wrong - errors.seen_right
        note += (
            f" Inputs that are in the training pairs: {_share(errors.seen_right, errors.seen_items)}; "
            f"new inputs: {_share(right, new)}."
        )
    shown = errors.kinds[:KINDS]
    with_direct, with_seen = (all(getattr(k, name) is not None for k in shown) for name in ("direct_right", "seen"))
    head = ["error", "outputs", "share", *(["direct right"] if with_direct else [])]
    head += [*(["input seen"] if with_seen else []), "examples"]
    cells = "".join(
        f"<th>{name}</th>" if name in ("error", "examples") else f'<th class="number">{name}</th>' for name in head
    )
    rows = "".join(_row(kind, with_direct, with_seen, subject.characters) for kind in shown)
    body = paragraph(note) + (
        f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table></div>'
    )
    if len(errors.kinds) > KINDS:
        body += paragraph(f"The {KINDS} most frequent of {len(errors.kinds):,} kinds.", "faint")
    return Section(KEY, TITLE, body + caption(subject.caption(subject.shown)))


def _row(kind: ErrorKind, with_direct: bool, with_seen: bool, characters: bool) -> str:
    numbers = [f"{len(kind.items):,}", f"{kind.share:.1f} %"]
    numbers += [str(kind.direct_right)] if with_direct else []
    numbers += [str(kind.seen)] if with_seen else []
    examples = "; ".join(
        f"{shown_text(one.input)} → {marked_text(one.output, one.reference, characters)}, "
        f"not {shown_text(one.reference)}"
        for one in kind.examples
    )
    return (
        f"<tr><td>{escape(kind.kind[:LONGEST_TEXT])}</td>"
        + "".join(f'<td class="number">{cell}</td>' for cell in numbers)
        + f'<td class="wide">{examples}</td></tr>'
    )


def _share(right: int, items: int) -> str:
    return f"{items:,} items, {100 * right / items:.1f} % right" if items else "none"
