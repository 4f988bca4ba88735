"""The result of an evaluation: a table for reading, and a record from which every score can be computed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from noisychannel import __version__
from noisychannel.evaluation.calibration import Reliability
from noisychannel.evaluation.held_out import HeldOut
from noisychannel.evaluation.metrics import Metric
from noisychannel.provenance import provenance

RECORD_KEYS = {"noisychannel", "run", "test", "sentences", "signatures", "bootstrap", "systems", "items"}
"""What every record has."""
FEW_UNITS = 10
"""With fewer units a bootstrap says next to nothing about chance."""


class MetricValue(NamedTuple):
    """One metric of one system."""

    score: float
    low: float
    high: float
    p_value: float | None
    """Against the direct model; None for that model itself."""


@dataclass(frozen=True)
class Bootstrap:
    """How intervals and p-values were computed."""

    samples: int
    seed: int
    resampled_by: str
    """What the items of one unit, which are drawn together, have in common."""
    units: int


@dataclass(frozen=True, kw_only=True)
class SystemResult:
    """One row of the table."""

    system: str
    baseline: bool
    """Made from the training pairs alone, without a model."""
    weights: dict[str, Any] | None = None
    search: dict[str, Any] | None = None
    """By group, if groups differ; None for baselines."""
    compared_with: str | None
    """The direct model of the p-values; None for a direct model itself."""
    measured: dict[str, MetricValue]
    length_ratio: float
    sentences_per_second: float | None = None
    average_lagging: float | None = None
    """In input symbols; None for a bidirectional direct model, which reads everything first."""
    search_errors: float | None = None
    """In per cent of the inputs; None if they were not counted."""
    outputs: list[str]
    """The best output of each input."""
    complete: list[bool]
    """Whether each output reached its end."""
    confidence: list[float] | None = None
    """The probability that each output is right; None if the system has no confidence."""
    reliability: Reliability | None = None
    """How well these agree with what is right."""


@dataclass(frozen=True)
class EvaluationTable:
    """All systems on one test set."""

    run: str
    held_out: HeldOut
    metrics: Sequence[Metric]
    bootstrap: Bootstrap
    results: list[SystemResult]

    def result(self, system: str) -> SystemResult:
        """The row of that name."""
        return next(result for result in self.results if result.system == system)

    def record(self) -> dict[str, Any]:
        """For a file."""
        held_out = self.held_out
        return {
            **provenance(),
            "run": self.run,
            "test": held_out.name,
            "sentences": len(held_out.inputs),
            "signatures": {metric.name: metric.signature for metric in self.metrics},
            "bootstrap": asdict(self.bootstrap),
            "systems": [
                {**asdict(result), "measured": {name: m._asdict() for name, m in result.measured.items()}}
                for result in self.results
            ],
            "items": {
                "inputs": held_out.inputs,
                "features": held_out.features,
                "groups": held_out.groups,
                "references": held_out.references,
                "columns": held_out.columns,
            },
        }

    def table(self) -> str:
        """All systems, a row each, in Markdown."""
        lagging = any(result.average_lagging is not None for result in self.results)
        errors = any(result.search_errors is not None for result in self.results)
        titles = ["system", *(metric.name for metric in self.metrics), "length ratio", "sentences/s"]
        titles += ["average lagging"] if lagging else []
        titles += ["search errors"] if errors else []
        rows = [titles]
        for result in self.results:
            cells = [result.system]
            for m in result.measured.values():
                significance = "" if m.p_value is None else f" p={m.p_value:.3f}"
                cells.append(f"{m.score:.2f} [{m.low:.2f}, {m.high:.2f}]{significance}")
            cells += [f"{result.length_ratio:.3f}", _shown(result.sentences_per_second, ".1f")]
            cells += [_shown(result.average_lagging, ".2f")] if lagging else []
            cells += [_shown(result.search_errors, ".2f", " %")] if errors else []
            rows.append(cells)
        return "\n".join([markdown(rows), "", self._notes()])

    def _notes(self) -> str:
        signatures = "; ".join(f"{metric.name} {metric.signature}" for metric in self.metrics)
        against, drawn = "direct", self.bootstrap
        if sum(result.compared_with is None for result in self.results) > 1:
            against = "the direct model with the same search"
            if with_baselines := [result.compared_with for result in self.results if result.baseline]:
                against += f" (baselines: {with_baselines[0]})"
        too_few = ", too few for reliable intervals and p-values" if drawn.units < FEW_UNITS else ""
        return (
            f"{self.held_out.name}, {len(self.held_out.inputs)} items, noisychannel {__version__}. {signatures}. "
            f"In brackets: 95 % bootstrap intervals; p: paired bootstrap against {against} ({drawn.samples} samples, "
            f"seed {drawn.seed}). Resampled by {drawn.resampled_by}: {drawn.units} units{too_few}."
        )


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table; the first row is its head."""
    shown = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(len(row[n]) for row in shown) for n in range(len(shown[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in shown
    ]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(lines)


def _shown(value: float | None, form: str, unit: str = "") -> str:
    return "–" if value is None else f"{value:{form}}{unit}"
