"""Confused symbols: what stands where the reference has something else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from noisychannel.data.edits import GAP, align
from noisychannel.evaluation.metrics import levenshtein
from noisychannel.pages.charts import table
from noisychannel.pages.heat_maps import HeatMap, heat_map
from noisychannel.report.section import LONGEST_SYMBOL, Section, beginning, caption, paragraph, spread
from noisychannel.report.subject import Subject

KEY, TITLE = "symbols", "Confused symbols"
SHOWN = 20
"""Rows of the table."""
DRAWN = 12
"""Symbols of the heat map."""
MOST_CELLS = 4_000_000
"""Of all tables that align outputs with references; that takes a few seconds."""
NOTHING = "∅"


def symbols_section(subject: Subject | None, reason: str) -> Section:
    """The most frequent confusions."""
    if subject is None:
        return Section(KEY, TITLE, reason=reason)
    pairs = wrong_pairs(subject)
    if not pairs:
        return Section(KEY, TITLE, reason=f"Every output of {subject.shown.label} is right.")
    cells = sum(len(ours) * len(theirs) for ours, theirs in pairs)
    used = spread(pairs, max(1, len(pairs) * MOST_CELLS // cells)) if cells > MOST_CELLS else pairs
    counts = confusions(used)
    if not counts:
        return Section(KEY, TITLE, reason="Wrong outputs have the symbols of their references.")
    unit = "characters" if subject.characters else "words or pieces of words"
    wanted = Counter(symbol for _, theirs in pairs for symbol in theirs)
    note = (
        f"Each wrong output is aligned with its nearest reference, {unit} as symbols. {NOTHING} stands for nothing: "
        "wanted but not written, or written but not wanted."
    )
    if len(used) < len(pairs):
        note += f" Of {len(pairs):,} wrong outputs, {len(used):,} were aligned, evenly spread over the items."
    total = sum(counts.values())
    rows = [
        [
            _shown(right),
            _shown(ours),
            f"{count:,}",
            f"{100 * count / total:.1f} %",
            f"{wanted[right]:,}" if right else "–",
        ]
        for (ours, right), count in counts.most_common(SHOWN)
    ]
    head = ["wanted", "written", "times", "share of differences", "wanted in wrong outputs"]
    body = paragraph(note) + f'<div class="beside">{_heat_map(counts)}{table(head, rows, numbers_from=2)}</div>'
    if len(counts) > SHOWN:
        body += paragraph(f"The {SHOWN} most frequent of {len(counts):,} confusions.", "faint")
    return Section(KEY, TITLE, body + caption(subject.caption(subject.shown)))


def wrong_pairs(subject: Subject) -> list[tuple[list[str], list[str]]]:
    """The symbols of each wrong output and of its nearest reference."""
    found = []
    codecs = [group.output_codec for group in subject.evaluation.groups for _ in group.held_out.inputs]
    for codec, output, references in zip(codecs, subject.shown.best, subject.held_out.references, strict=True):
        if output.text not in references:
            several = len(references) > 1
            nearest = min(references, key=lambda text: levenshtein(output.text, text)) if several else references[0]
            split = codec.split if codec.config.units != "subwords" else str.split
            found.append((split(output.text), split(nearest)))
    return found


def confusions(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Counter[tuple[str, str]]:
    """How often a symbol, or nothing, stands for another: written and wanted."""
    counts: Counter[tuple[str, str]] = Counter()
    for ours, theirs in pairs:
        counts.update((left, right) for left, right in align(ours, theirs) if left != right)
    # The order of equal counts must not depend on which item came first.
    return Counter(dict(sorted(counts.items(), key=lambda one: (-one[1], one[0]))))


def _heat_map(counts: Counter[tuple[str, str]]) -> str:
    """The symbols that take part most often, darkest where they are confused most."""
    often: Counter[str] = Counter()
    for (ours, right), count in counts.items():
        often.update({ours: count, right: count})
    often.pop(GAP, None)
    names = [*sorted(sorted(often), key=lambda symbol: -often[symbol])[:DRAWN], GAP]
    most = max(counts.values())
    shares = [[counts[ours, right] / most for ours in names] for right in names]
    labels = [_shown(name) for name in names]
    return heat_map(
        HeatMap("wanted (rows) and written (columns)", f"How often symbols are confused; the darkest is {most} times.",
                labels, labels, shares, "wanted", "written", f"share of {most}")
    )  # fmt: skip


def _shown(symbol: str) -> str:
    return {GAP: NOTHING, " ": "␣"}.get(symbol, beginning(symbol, LONGEST_SYMBOL))
