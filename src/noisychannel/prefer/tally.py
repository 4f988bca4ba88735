"""Counting ratings as the paper's Table 3 does, with agreement and a sign test.

A segment (an item of the page) counts if at least two raters rated it, one label has more votes than every other, and
this label has at least half of the votes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from noisychannel.evaluation.table import markdown
from noisychannel.prefer.agreement import exact_interval, krippendorff_alpha, pairwise_agreement, sign_test
from noisychannel.prefer.key import Key, KeyItem
from noisychannel.prefer.ratings import Rating
from noisychannel.provenance import provenance
from noisychannel.reporting import plural

Label = Literal["both bad", "both good", "A better", "B better"]
LABELS: tuple[Label, ...] = ("both bad", "both good", "A better", "B better")
"""In the order of the paper's table."""
Excluded = Literal["fewer than two raters", "no single label in plurality", "less than half agree"]
FEWEST_RATERS = 2
PAPER = ("Yu et al. (2017), Table 3: A direct, B noisy channel", 188, 106, 135, 212)
"""The paper's figures, for LABELS."""
NOT_RATED = "not rated yet"


def decide(labels: Sequence[Label]) -> Label | Excluded:
    """The label of a segment, or why it does not count."""
    if len(labels) < FEWEST_RATERS:
        return "fewer than two raters"
    (best, votes), *others = Counter(labels).most_common()
    if others and others[0][1] == votes:
        return "no single label in plurality"
    return best if 2 * votes >= len(labels) else "less than half agree"


@dataclass(frozen=True)
class Segment:
    """An item with what its raters said."""

    item: KeyItem
    votes: dict[str, Label]
    """By rater."""

    @property
    def decision(self) -> Label | Excluded:
        return decide(list(self.votes.values()))


@dataclass(frozen=True)
class Tally:
    """The ratings of one page."""

    key: Key
    ratings: list[Rating]
    segments: list[Segment]

    @staticmethod
    def of(key: Key, ratings: Sequence[Rating]) -> Tally:
        """``ratings``: those that count, see ``read_ratings``."""
        votes: dict[str, dict[str, Label]] = {item.id: {} for item in key.items}
        items = {item.id: item for item in key.items}
        for rating in ratings:
            votes[rating.item][rating.rater_id] = _label(items[rating.item], rating)
        return Tally(key, list(ratings), [Segment(item, votes[item.id]) for item in key.items])

    @property
    def artificial(self) -> bool:
        return any(rating.artificial for rating in self.ratings)

    @property
    def raters(self) -> list[str]:
        return sorted({rating.rater_id for rating in self.ratings})

    def count(self, decision: Label | Excluded) -> int:
        return sum(segment.decision == decision for segment in self.segments)

    def record(self) -> dict[str, Any]:
        """Everything, for a program."""
        segments = [
            {
                "item": one.item.id,
                "input": one.item.input,
                "features": list(one.item.features),
                "A": one.item.a,
                "B": one.item.b,
                "votes": one.votes,
                "decision": one.decision,
            }
            for one in self.segments
        ]
        return {**provenance(), **self.figures(), "segments": segments}

    def figures(self) -> dict[str, Any]:
        """What the table says, and on what it rests."""
        counts = {label: self.count(label) for label in LABELS}
        reasons: tuple[Excluded, ...] = Excluded.__args__  # type: ignore[attr-defined]
        votes = [list(segment.votes.values()) for segment in self.segments]
        preferred = counts["A better"], counts["B better"]
        return {
            **({"artificial ratings": True} if self.artificial else {}),
            "page": self.key.page,
            "systems": {"A": self.key.a, "B": self.key.b},
            "references shown": self.key.references,
            "items": {
                "common": self.key.common,
                "same output": self.key.equal,
                "shown": len(self.key.items),
                "seed": self.key.seed,
            },
            "raters": {rater: sum(rating.rater_id == rater for rating in self.ratings) for rater in self.raters},
            "ratings": len(self.ratings),
            "segments that count": sum(counts.values()),
            "counts": counts,
            "left out": {reason: self.count(reason) for reason in reasons},
            "pairwise agreement": pairwise_agreement(votes),
            "alpha": krippendorff_alpha(votes),
            "sign test": {
                "p": sign_test(*preferred) if any(preferred) else None,
                "share of B": preferred[1] / sum(preferred) if any(preferred) else None,
                "interval": exact_interval(preferred[1], sum(preferred)) if any(preferred) else None,
            },
            "left preferred": _left_preferred(self.ratings),
        }

    def text(self, paper: bool = False) -> str:
        """For reading. ``paper``: with the figures of the paper below ours."""
        figures, key = self.figures(), self.key
        counts = figures["counts"]
        lines = [f"A: {key.a}", f"B: {key.b}", ""]
        if self.artificial:
            lines = ["ARTIFICIAL RATINGS: no person made them. This table says nothing about the systems.", "", *lines]
        rated = bool(self.ratings)
        total = figures["segments that count"]
        name = "artificial ratings" if self.artificial else "these ratings"
        rows = [["", "segments", *LABELS]]
        rows.append([name, str(total), *(str(counts[label]) for label in LABELS)] if rated else [NOT_RATED] + ["–"] * 5)
        if paper:
            rows.append([PAPER[0], str(sum(PAPER[1:])), *map(str, PAPER[1:])])
        lines += [markdown(rows), "", *self._notes(figures)]
        return "\n".join(lines)

    def _notes(self, figures: dict[str, Any]) -> list[str]:
        items, test = figures["items"], figures["sign test"]
        shown = (
            f"Page {self.key.page}, noisychannel {self.key.noisychannel}: {items['shown']} items "
            f"of {items['common']}, drawn with seed {items['seed']}; on "
            f"{items['same output']} the outputs are the same"
        )
        if not self.ratings:
            return [f"{shown}."]
        left_out = [f"{count} ({reason})" for reason, count in figures["left out"].items() if count]
        notes = [
            f"{shown}. {plural(len(self.raters), 'rater')}, {plural(figures['ratings'], 'rating')}. "
            "A segment counts with at least two raters, at least half of them agreed, and one label in plurality. "
            f"Left out: {', '.join(left_out) or 'none'}.",
            f"Agreement: {_share(figures['pairwise agreement'])} of the pairs of raters; Krippendorff's alpha "
            f"(nominal) {_figure(figures['alpha'])}.",
        ]
        if test["p"] is None:
            notes.append("Sign test: no segment prefers either system.")
        else:
            low, high = test["interval"]
            notes.append(
                f"Sign test: B is better in {figures['counts']['B better']} of "
                f"{figures['counts']['A better'] + figures['counts']['B better']} segments with a preference, "
                f"{_share(test['share of B'])} [{100 * low:.1f}, {100 * high:.1f}]; two-sided p = {test['p']:.2g}."
            )
        left = figures["left preferred"]
        if left["preferences"]:
            notes.append(f"Raters preferred the output on the left in {left['left']} of {left['preferences']} ratings.")
        return notes


def _label(item: KeyItem, rating: Rating) -> Label:
    if rating.choice == "first" or rating.choice == "second":
        return "A better" if item.system(rating.choice) == "A" else "B better"
    assert rating.choice is not None
    return rating.choice


def _left_preferred(ratings: Sequence[Rating]) -> dict[str, int]:
    """A check of the raters, not of the systems: about half, if the place does not matter to them."""
    preferences = [rating for rating in ratings if rating.choice in ("first", "second")]
    return {"left": sum(rating.choice == rating.left for rating in preferences), "preferences": len(preferences)}


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _figure(value: float | None) -> str:
    return "– (not defined)" if value is None else f"{value:.3f}"
