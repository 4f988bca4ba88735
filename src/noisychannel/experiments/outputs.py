"""What every row of a table put out, and what follows from that alone: intervals and significance.

Both resample lemmas, all of whose items are drawn together. A system is compared with the direct model and with the
rules that were made from the same pairs: in a learning curve, from as few.

Shapes: N test items of all types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from noisychannel.evaluation.metrics import FloatArray, make_metric
from noisychannel.evaluation.significance import confidence_interval, paired_bootstrap
from noisychannel.experiments.inflection import Inflection
from noisychannel.experiments.inflection_systems import BASELINE, RULES
from noisychannel.experiments.measured import Measured

ACCURACY = make_metric("accuracy")
ITEM = ("type", "lemma", "form")
"""The first columns."""
FEWER_PAIRS = re.compile(r", \d+ pairs$")
"""The end of the names of rows of a learning curve."""
SAMPLES = 10_000


def outputs_table(experiment: Inflection, measured: Iterable[Measured]) -> list[str]:
    """A header, and for each test item a line: type, lemma, form, and what each row and seed put out; tab-separated."""
    items = [(type_, *pair[:2]) for type_, splits in experiment.tables.items() for pair in splits.test]
    columns: dict[str, list[str]] = {}
    for m in measured:
        for seed, of_types in m.outputs.items():
            which = f"seed {seed}" if seed else "all seeds"
            columns[f"{m.setting}: {m.row.name} [{which}]"] = [text for of_type in of_types for text in of_type]
    lines = ["\t".join((*ITEM, *columns))]
    return lines + ["\t".join((*item, *texts)) for item, *texts in zip(items, *columns.values(), strict=True)]


class Outputs:
    """The table, read."""

    def __init__(self, lines: Iterable[str]) -> None:
        header, *rows = (line.rstrip("\n").split("\t") for line in lines)
        self.types, self.lemmas, forms = ([row[n] for row in rows] for n in range(len(ITEM)))
        self.right: dict[str, list[FloatArray]] = {}
        """By row: for each seed, whether each item was right."""
        for n, column in enumerate(header[len(ITEM) :], start=len(ITEM)):
            texts = [row[n] for row in rows]
            right = np.array([text == form for text, form in zip(texts, forms, strict=True)], np.float64)
            self.right.setdefault(column.rpartition(" [")[0], []).append(right)

    def per_item(self, row: str) -> FloatArray:
        """How often each item was right, over seeds: [N,1]."""
        return np.mean(self.right[row], axis=0)[:, None]

    def accuracy(self, row: str) -> float:
        """The mean over types, in per cent."""
        right_N, types = self.per_item(row)[:, 0], np.array(self.types)
        return 100 * float(np.mean([right_N[types == type_].mean() for type_ in dict.fromkeys(self.types)]))

    def interval(self, row: str) -> tuple[float, float]:
        """The 95 % bootstrap interval of the accuracy over items."""
        return confidence_interval(ACCURACY, self.per_item(row), SAMPLES, groups=self.lemmas)

    def p_value(self, row: str, baseline: str) -> float:
        """Of the difference between two rows, by a paired bootstrap."""
        return paired_bootstrap(ACCURACY, self.per_item(row), self.per_item(baseline), SAMPLES, groups=self.lemmas)


def judge(rows: Sequence[dict[str, Any]], outputs: Outputs) -> None:
    """Give every row of a results file its interval, and its p-values against direct (bi) and the rules."""
    settings = {row["name"]: row["setting"] for row in reversed(rows)}
    for row in rows:
        name = row_name(row)
        fewer = FEWER_PAIRS.search(row["name"])
        row["interval"] = list(outputs.interval(name))
        for key, baseline in (("p", BASELINE), ("p against rules", RULES)):
            against = baseline + (fewer[0] if fewer else "")
            other = f"{settings[against]}: {against}"
            row[key] = None if other == name else outputs.p_value(name, other)


def row_name(row: Mapping[str, Any]) -> str:
    """What a row is called in the table of outputs."""
    return f"{row['setting']}: {row['name']}"
