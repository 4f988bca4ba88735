"""What the inflection experiment found, as JSON to keep and Markdown to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from typing import Any

import torch

from noisychannel import __version__
from noisychannel.reproduce.inflection import Inflection, Part
from noisychannel.reproduce.inflection_systems import BASELINE, FULL_BETTER, Measured, significance
from noisychannel.training.world import choose_device

PAPER: dict[str, dict[Part, float]] = {
    "direct (bi)": {"noun": 87.68, "verb": 94.83},
    "channel + LM + bias (bi)": {"noun": 78.13, "verb": 92.13},
    "direct + LM + bias (bi)": {"noun": 90.31, "verb": 94.83},
    "direct + channel + LM + bias (bi)": {"noun": 90.94, "verb": 97.15},
}
"""Test accuracies in Yu et al. (2017)."""
CITED: dict[str, dict[Part, float]] = {
    "NCK15 (Nicolai et al., 2015)": {"noun": 88.60, "verb": 97.50},
    "FTND16 (Faruqui et al., 2016)": {"noun": 88.12, "verb": 97.92},
    "NCK15+, with unpaired forms": {"noun": 89.90, "verb": 97.90},
    "FTND16+, with unpaired forms": {"noun": 89.31, "verb": 97.11},
}
"""Test accuracies of other systems, as the paper gives them."""
RULES: dict[Part, float] = {"noun": 87.75, "verb": 96.41}
"""The rule baseline of the SIGMORPHON 2023 shared task (longest-suffix rules) on this data; no part of this package."""
TUNED = "on the dev items of all types together, with the models of the first seed, and shared by all types and seeds"
EXAMPLES = 12
"""Of each kind."""


def to_json(experiment: Inflection, measured: Sequence[Measured], seconds: Mapping[str, float]) -> dict[str, Any]:
    """Everything that is known about the figures."""
    scale, device = experiment.scale, choose_device(experiment.device)
    lemmas = [pair.lemma for splits in experiment.tables.values() for pair in splits.test]
    baseline = next(m for m in measured if m.row.name == BASELINE)
    return {
        "experiment": f"inflection-{experiment.part}s",
        "noisychannel": __version__,
        "torch": torch.__version__,
        "date": date.today().isoformat(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "data": {
            "pairs": {name: len(splits.train) for name, splits in experiment.tables.items()},
            "test": {name: len(splits.test) for name, splits in experiment.tables.items()},
            "unpaired": {
                setting: {name: len(forms) for name, forms in lists.items()}
                for setting, lists in experiment.unpaired().items()
            },
        },
        "scale": asdict(scale),
        "tuned": TUNED,
        "seconds": dict(seconds),
        "rows": [_row(experiment, m, baseline, lemmas) for m in measured],
        "examples": _examples(experiment, measured, baseline),
    }


def _row(experiment: Inflection, measured: Measured, baseline: Measured, lemmas: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": measured.row.name,
        "setting": measured.setting,
        "system": measured.row.system,
        "models": {"direct": measured.row.direct, "channel": measured.row.channel, "lm": measured.row.lm},
        "search": measured.row.search,
        "accuracy": measured.mean,
        "deviation": measured.deviation,
        "seeds": measured.accuracies,
        "types": {name: measured.of_type(n) for n, name in enumerate(experiment.types)},
        "weights": asdict(measured.weights),
        "p": None if measured is baseline else significance(measured, baseline, lemmas),
    }
    if measured.notes:
        row["notes"] = dict(measured.notes)
    if measured.tuned is not None:
        row["dev"] = {"accuracy": measured.tuned.dev_score, "decodings": len(measured.tuned.history)}
    return row


def _examples(experiment: Inflection, measured: Sequence[Measured], baseline: Measured) -> dict[str, list[list[str]]]:
    """Test items, of the first seed, on which the full model in the strict setting and the direct model differ."""
    full = next(m for m in measured if m.setting == "strict" and m.row == FULL_BETTER)
    found: dict[str, list[list[str]]] = {"helps": [], "hurts": []}
    seed = experiment.scale.seeds[0]
    for n, (name, splits) in enumerate(experiment.tables.items()):
        for k, pair in enumerate(splits.test):
            before, after = baseline.outputs[seed][n][k], full.outputs[seed][n][k]
            if (before == pair.form) != (after == pair.form):
                kind = "helps" if after == pair.form else "hurts"
                found[kind].append([name, pair.lemma, pair.form, before, after])
    # Spread over types: every so many of them.
    return {kind: items[:: max(1, len(items) // EXAMPLES)][:EXAMPLES] for kind, items in found.items()}


def markdown(results: Mapping[str, Any]) -> Iterator[str]:
    """The table, and what it was made with."""
    part: Part = "noun" if results["experiment"].endswith("nouns") else "verb"
    types = list(results["data"]["test"])
    items = sum(results["data"]["test"].values())
    yield (
        f"{results['experiment']}: test accuracy in per cent, the mean over {len(types)} types ({items} items), "
        f"± the standard deviation over seeds. noisychannel {results['noisychannel']}, torch {results['torch']}, "
        f"{results['date']}, {results['device']}. Weights tuned {results['tuned']}."
    )
    yield ""
    yield "| setting | system | accuracy | p against direct (bi) | dev | paper | weights: direct, channel, LM, length |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | --- |"
    for row in results["rows"]:
        spread = "" if row["deviation"] is None else f" ± {row['deviation']:.2f}"
        p = "" if row["p"] is None else f"{row['p']:.4f}"
        dev = f"{row['dev']['accuracy']:.2f}" if "dev" in row else ""
        paper = PAPER.get(row["name"], {}).get(part) if row["setting"] == "paper" else None
        weights = ", ".join(f"{value:.3g}" for value in row["weights"].values())
        yield (
            f"| {row['setting']} | {row['name']} | {row['accuracy']:.2f}{spread} | {p} | {dev} "
            f"| {'' if paper is None else paper} | {weights} |"
        )
    for name, figures in CITED.items():
        yield f"| cited | {name} | {figures[part]:.2f} | | | | |"
    yield f"| cited | longest-suffix rules | {RULES[part]:.2f} | | | | |"
    yield ""
    yield "Seconds: " + ", ".join(f"{name} {value:.0f}" for name, value in results["seconds"].items()) + "."
    for kind, items_ in results["examples"].items():
        if items_:
            yield ""
            does = "help" if kind == "helps" else "hurt"
            yield f"Where the channel and the language model {does} ({FULL_BETTER.name}, strict, first seed):"
            yield ""
            yield "| type | lemma | form | direct | full |\n| --- | --- | --- | --- | --- |"
            for item in items_:
                yield f"| {' | '.join(item)} |"
