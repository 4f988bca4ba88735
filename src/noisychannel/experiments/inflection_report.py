"""What the inflection experiment found, as JSON to keep and Markdown to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from typing import Any, NamedTuple

import torch

from noisychannel.experiments.inflection import Inflection
from noisychannel.experiments.inflection_data import TaggedPair
from noisychannel.experiments.inflection_systems import BASELINE, FULL_BETTER
from noisychannel.experiments.measured import Measured
from noisychannel.experiments.outputs import Outputs, judge, outputs_table
from noisychannel.experiments.reranking import CHOSEN_WEIGHTS, DEV_ACCURACY
from noisychannel.provenance import provenance
from noisychannel.training.world import choose_device

PAPER: dict[str, dict[str, str]] = {
    "inflection-nouns": {
        "direct (uni)": "82.25",
        "direct (bi)": "87.68",
        "channel + LM + bias (uni)": "78.38",
        "channel + LM + bias (bi)": "78.13",
        "direct + LM + bias (bi)": "90.31",
        "direct + channel + LM + bias (uni)": "88.44",
        "direct + channel + LM + bias (bi)": "90.94",
    },
    "inflection-verbs": {
        "direct (uni)": "87.85",
        "direct (bi)": "94.83",
        "channel + LM + bias (uni)": "84.42",
        "channel + LM + bias (bi)": "92.13",
        "direct + LM + bias (bi)": "94.83",
        "direct + channel + LM + bias (uni)": "92.20",
        "direct + channel + LM + bias (bi)": "97.15",
    },
}
"""By experiment, test accuracies of its rows in Yu et al. (2017), as they are printed."""
CITED: dict[str, dict[str, str]] = {
    "inflection-nouns": {
        "NCK15 (Nicolai et al., 2015)": "88.60",
        "FTND16 (Faruqui et al., 2016)": "88.12",
        "NCK15+, with unpaired forms": "89.90",
        "FTND16+, with unpaired forms": "89.31",
        "longest-suffix rules, the shared task's": "87.75",
    },
    "inflection-verbs": {
        "NCK15 (Nicolai et al., 2015)": "97.50",
        "FTND16 (Faruqui et al., 2016)": "97.92",
        "NCK15+, with unpaired forms": "97.90",
        "FTND16+, with unpaired forms": "97.11",
        "longest-suffix rules, the shared task's": "96.41",
    },
    "inflection-sigmorphon2017": {
        "longest-suffix rules, the shared task's": "72.1",
        "best released output (ensemble of imitation-learning transducers)": "80.4",
    },
    "inflection-sigmorphon2023": {"longest-suffix rules, the shared task's": "79.8"},
}
"""By experiment, test accuracies of other systems: those in the paper, the rule baseline of the SIGMORPHON 2023 shared
task on the same data, and the best output released with the task of 2017."""
EXAMPLES = 12
"""Of each kind."""


class Results(NamedTuple):
    """What an experiment leaves behind."""

    figures: dict[str, Any]
    """Everything that is known about the figures, as JSON."""
    outputs: list[str]
    """``outputs_table``."""


def report(experiment: Inflection, measured: Sequence[Measured], seconds: Mapping[str, float]) -> Results:
    """Everything that is known about the figures, and the outputs that they come from."""
    figures, outputs = _figures(experiment, measured, seconds), outputs_table(experiment, measured)
    judge(figures["rows"], Outputs(outputs))
    return Results(figures, outputs)


def _figures(experiment: Inflection, measured: Sequence[Measured], seconds: Mapping[str, float]) -> dict[str, Any]:
    scale, device = experiment.scale, choose_device(experiment.device)
    unpaired = experiment.unpaired()
    of_types = f" of {scale.tuned_types or 'all'} types together" if len(experiment.types) > 1 else ""
    return {
        "experiment": experiment.name,
        **provenance(),
        "date": date.today().isoformat(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "data": {
            "pairs": {name: len(splits.train) for name, splits in experiment.tables.items()},
            "test": {name: len(splits.test) for name, splits in experiment.tables.items()},
            "unpaired": {
                setting: {name: len(forms) for name, forms in lists.items()} for setting, lists in unpaired.items()
            },
            "test forms among the unpaired, %": {
                setting: {name: _covered(lists, splits.test) for name, splits in experiment.tables.items()}
                for setting, lists in unpaired.items()
            },
        },
        "scale": asdict(scale),
        "tuned": f"on the dev items{of_types}, with the models of the first seed, "
        f"and shared by all {'types and ' if of_types else ''}seeds",
        "seconds": dict(seconds),
        "rows": [_row(experiment, m) for m in measured],
        "examples": _examples(experiment, measured),
    }


def _covered(lists: Mapping[str, Sequence[str]], test: Sequence[TaggedPair]) -> float:
    known = {tags: set(forms) for tags, forms in lists.items()}
    return 100 * sum(pair.form in known.get(pair.tags, ()) for pair in test) / len(test)


def _row(experiment: Inflection, measured: Measured) -> dict[str, Any]:
    notes = dict(measured.notes)
    row: dict[str, Any] = {
        "name": measured.row.name,
        "setting": measured.setting,
        "system": measured.row.system,
        "models": {"direct": measured.row.direct, "channel": measured.row.channel, "lm": measured.row.lm},
        "word list": measured.row.word_list,
        "search": measured.row.search,
        "accuracy": measured.mean,
        "deviation": measured.deviation,
        "seeds": measured.accuracies,
        "types": {name: measured.of_type(n) for n, name in enumerate(experiment.types)},
        "weights": measured.weights.by_name() | {key: notes[key] for key in CHOSEN_WEIGHTS if key in notes},
    }
    if notes:
        row["notes"] = notes
    if measured.tuned is not None:
        accuracy = notes.get(DEV_ACCURACY, measured.tuned.dev_score)
        row["dev"] = {"accuracy": accuracy, "decodings": len(measured.tuned.history)}
    return row


def _examples(experiment: Inflection, measured: Sequence[Measured]) -> dict[str, list[list[str]]]:
    """Test items, of the first seed, on which the full model in the strict setting and the direct model differ."""
    direct = next(m for m in measured if m.row.name == BASELINE)
    full = next(m for m in measured if m.setting == "strict" and m.row == FULL_BETTER)
    found: dict[str, list[list[str]]] = {"helps": [], "hurts": []}
    seed = experiment.scale.seeds[0]
    for n, splits in enumerate(experiment.tables.values()):
        for k, pair in enumerate(splits.test):
            before, after = direct.outputs[seed][n][k], full.outputs[seed][n][k]
            if (before == pair.form) != (after == pair.form):
                kind = "helps" if after == pair.form else "hurts"
                found[kind].append([pair.tags, pair.lemma, pair.form, before, after])
    # Spread over types: every so many of them.
    return {kind: items[:: max(1, len(items) // EXAMPLES)][:EXAMPLES] for kind, items in found.items()}


def markdown(results: Mapping[str, Any]) -> Iterator[str]:
    """The table, and what it was made with."""
    paper = PAPER.get(results["experiment"], {})
    types = list(results["data"]["test"])
    items = sum(results["data"]["test"].values())
    mean = f"the mean over {len(types)} types ({items} items)" if len(types) > 1 else f"over {items} items"
    yield (
        f"{results['experiment']}: test accuracy in per cent, {mean}, "
        f"± the standard deviation over seeds. noisychannel {results['noisychannel']} (commit {results['commit']}), "
        f"torch {results['torch']}, {results['date']}, {results['device']}. Weights tuned {results['tuned']}."
    )
    yield ""

    def line(*cells: str) -> str:
        """Without the column of the paper where it has no figures."""
        shown = cells if paper else (*cells[:7], *cells[8:])
        return f"| {' | '.join(shown)} |"

    named = (
        "setting",
        "system",
        "accuracy",
        "95 % interval",
        "p against direct (bi)",
        "p against rules",
        "dev",
        "paper",
    )
    yield line(*named, "weights: direct, channel, LM, length")
    yield line("---", "---", "---:", "---:", "---:", "---:", "---:", "---:", "---")
    for row in results["rows"]:
        spread = "" if row["deviation"] is None else f" ± {row['deviation']:.2f}"
        p = ["" if row[key] is None else f"{row[key]:.4f}" for key in ("p", "p against rules")]
        dev = f"{row['dev']['accuracy']:.2f}" if "dev" in row else ""
        figure = paper.get(row["name"], "") if row["setting"] == "paper" else ""
        weights = ", ".join(f"{value:.3g}" for value in row["weights"].values()) if row["system"] != "rules" else ""
        interval = f"{row['interval'][0]:.1f} to {row['interval'][1]:.1f}"
        yield line(row["setting"], row["name"], f"{row['accuracy']:.2f}{spread}", interval, *p, dev, figure, weights)
    for name, figure in CITED[results["experiment"]].items():
        yield line("cited", name, figure, "", "", "", "", "", "")
    yield ""
    yield (
        "Intervals (of the mean over seeds) and p-values are by a bootstrap over lemmas, all of whose items are drawn "
        "together. Rows with fewer pairs are compared with direct (bi) and rules of as few."
    )
    yield ""
    laps = ", ".join(f"{name} {value:.0f}" for name, value in results["seconds"].items())
    yield f"Seconds of the last command, which left alone what was finished before: {laps}."
    for kind, items_ in results["examples"].items():
        if items_:
            yield ""
            does = "help" if kind == "helps" else "hurt"
            yield f"Where the channel and the language model {does} ({FULL_BETTER.name}, strict, first seed):"
            yield ""
            yield "| type | lemma | form | direct | full |\n| --- | --- | --- | --- | --- |"
            for item in items_:
                yield f"| {' | '.join(item)} |"
