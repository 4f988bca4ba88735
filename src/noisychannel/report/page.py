"""The whole page: what it is about, its sections, and the command that made it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from noisychannel.errors import BadInputError
from noisychannel.pages import asset, document, escape
from noisychannel.provenance import provenance
from noisychannel.report.alignments import alignments_section
from noisychannel.report.coverage import coverage_section
from noisychannel.report.disagreements import disagreements_section
from noisychannel.report.kinds import kinds_section
from noisychannel.report.learning import learning_section
from noisychannel.report.options import PageOptions
from noisychannel.report.search_errors import search_errors_section
from noisychannel.report.section import Section, paragraph
from noisychannel.report.subject import (
    Remembering,
    Subject,
    dev_subject,
    made_by,
    make_subject,
    reason_without_items,
    run_name,
    weights_of,
)
from noisychannel.report.symbols import symbols_section
from noisychannel.report.systems import systems_section
from noisychannel.report.training import training_section
from noisychannel.report.weights import weights_section
from noisychannel.report.words import words_section
from noisychannel.reporting import Reporter, Silent
from noisychannel.runs import RunDirectory

MARK = "<!-- noisychannel report -->"
"""By which a page is known as one of ours."""
HEADLINE = '<p class="headline">'
"""Begins the most important number, which only a page with items has."""


def shows_items(beginning: bytes) -> bool:
    """Whether the page that begins so was made of items that were decoded."""
    return HEADLINE.encode() in beginning


def make_page(
    run: RunDirectory,
    options: PageOptions = PageOptions(),  # noqa: B008 (frozen)
    command: str = "",
    reporter: Reporter = Silent(),  # noqa: B008 (no state)
) -> str:
    """The report of a run as one HTML document. ``command``: what made it, for the last line."""
    if options.curve and not options.test:
        raise BadInputError("--curve: the runs are compared on a test set; name one: noisychannel report RUN TEST")
    told = Remembering(reporter)
    reason = reason_without_items(run, options)
    subject = None if reason else make_subject(run, options, told)
    of_weights = _weights_subject(run, options, subject, told)
    makers: tuple[Callable[[], Section], ...] = (
        lambda: systems_section(run, subject),
        lambda: training_section(run),
        lambda: learning_section(run, subject, reason, options, told),
        lambda: weights_section(of_weights, reason, options.samples, options.seed),
        lambda: disagreements_section(subject, reason),
        lambda: search_errors_section(subject, reason),
        lambda: kinds_section(subject, reason),
        lambda: symbols_section(subject, reason),
        lambda: alignments_section(subject, reason),
        lambda: coverage_section(subject, reason),
        lambda: words_section(_terms(subject)),
    )
    sections = []
    with told.counting("sections", len(makers)) as progress:
        for make in makers:
            sections.append(make())
            progress(1)
    # What all sections lack is said once, at the top.
    lacking = [section for section in sections if reason and section.reason == reason]
    if reason:
        told.say(f"{reason}; the page is written without these sections: {_titles(lacking)}")
    title = f"Report: {run_name(run)}"
    summary = _summary(run, subject, reason, told.warnings)
    body = [MARK, f"<header><h1>{escape(title)}</h1>{summary}{_contents(sections)}</header>"]
    shown = [_markup(section) for section in sections if section not in lacking]
    body += ["<main>", *shown, _left_out(lacking), "</main>", _footer(run, command)]
    styles = asset("noisychannel.pages", "charts.css"), asset("noisychannel.report", "report.css")
    return document(title, "\n".join(body), styles=styles)


def _weights_subject(
    run: RunDirectory, options: PageOptions, subject: Subject | None, reporter: Remembering
) -> Subject | None:
    """The items on which weights are varied: dev data, as for tuning, if the run has any that it was not trained on."""
    if subject is None or subject.split == "dev" or not subject.shown.tuned[0].system.free:
        return subject
    on_dev = replace(options, test="", columns=None, systems=[subject.shown.tuned[0].name], baselines=[])
    return subject if reason_without_items(run, on_dev) else dev_subject(run, on_dev, reporter)


def _summary(run: RunDirectory, subject: Subject | None, reason: str, warnings: Sequence[str]) -> str:
    """The most important number, what it was measured on, and what to know about it."""
    parts = []
    if subject is not None:
        metric = subject.table.metrics[0].name
        value = subject.result.measured[metric]
        parts.append(
            f"{HEADLINE}<b>{value.score:.2f}{' %' if metric == 'accuracy' else ''}</b> "
            f"<span>{escape(metric.replace('_', ' '))} of "
            f"<b>{escape(subject.shown.label)}</b> (95 % interval {value.low:.2f} to {value.high:.2f})</span></p>"
        )
        parts.append(
            paragraph(f"On {subject.data}. {subject.shown.label}: {weights_of(subject.shown)}. {made_by(run)}")
        )
        if subject.simpler:
            parts.append(paragraph(subject.simpler, "remark"))
        if subject.split == "dev":
            parts.append(
                '<p class="remark"><b>Measured on dev data.</b> The weights were chosen on these data, so scores on '
                "new inputs are likely to be lower. Name a test set for an honest measurement.</p>"
            )
    else:
        parts += [paragraph(reason, "remark"), paragraph(made_by(run))]
    parts += [paragraph(warning, "remark") for warning in warnings]
    return f'<div class="card summary">{"".join(parts)}</div>'


def _terms(subject: Subject | None) -> set[str]:
    """The parts of all systems that are shown."""
    systems = () if subject is None else subject.evaluation.decoded
    weights = [tuned.weights.by_name() for system in systems for tuned in system.tuned]
    used = {name for of_system in weights for name, weight in of_system.items() if weight}
    proposers = {model.proposer for system in systems for model in system.models}
    return (used - {"direct"}) | proposers


def _contents(sections: Sequence[Section]) -> str:
    items = "".join(
        f'<li><a href="#{section.key}">{escape(section.title)}</a></li>' for section in sections if not section.reason
    )
    return f'<nav aria-label="Sections"><ul>{items}</ul></nav>'


def _markup(section: Section) -> str:
    body = section.body or paragraph(f"Left out. {section.reason}", "remark")
    return f'<section id="{section.key}"><h2>{escape(section.title)}</h2>{body}</section>'


def _left_out(sections: Sequence[Section]) -> str:
    """The sections that have no items to look at."""
    return paragraph(f"Left out, for the reason at the top: {_titles(sections)}.", "remark") if sections else ""


def _titles(sections: Sequence[Section]) -> str:
    return "; ".join(section.title for section in sections)


def _footer(run: RunDirectory, command: str) -> str:
    known = provenance()
    commit = f", commit {known['commit']}" if known["commit"] else ""
    versions = f"noisychannel {known['noisychannel']}{commit}, torch {known['torch']}"
    made = f"<p>Made by: <code>{escape(command)}</code></p>" if command else ""
    return f"<footer>{made}{paragraph(f'{versions}. {made_by(run)}')}</footer>"
