"""Published test accuracies: the paper's own (Yu et al., 2017, Figure 1), and those of other systems.

Of other systems: those that the paper cites, the rule baseline of the SIGMORPHON 2023 shared task run on the same data,
and the best output released with the task of 2017.
"""

from __future__ import annotations

from noisychannel.experiments.design import Figures


def _accuracies(figures: dict[str, str]) -> dict[str, Figures]:
    return {name: {"accuracy": figure} for name, figure in figures.items()}


PUBLISHED: dict[str, dict[str, Figures]] = {
    "inflection-nouns": _accuracies(
        {
            "paper: direct (uni)": "82.25",
            "paper: direct (bi)": "87.68",
            "paper: channel + LM + bias (uni)": "78.38",
            "paper: channel + LM + bias (bi)": "78.13",
            "paper: direct + LM + bias (bi)": "90.31",
            "paper: direct + channel + LM + bias (uni)": "88.44",
            "paper: direct + channel + LM + bias (bi)": "90.94",
        }
    ),
    "inflection-verbs": _accuracies(
        {
            "paper: direct (uni)": "87.85",
            "paper: direct (bi)": "94.83",
            "paper: channel + LM + bias (uni)": "84.42",
            "paper: channel + LM + bias (bi)": "92.13",
            "paper: direct + LM + bias (bi)": "94.83",
            "paper: direct + channel + LM + bias (uni)": "92.20",
            "paper: direct + channel + LM + bias (bi)": "97.15",
        }
    ),
}
"""By experiment and row label: the paper's figures, as they are printed there."""

CITED: dict[str, dict[str, Figures]] = {
    "inflection-nouns": _accuracies(
        {
            "NCK15 (Nicolai et al., 2015)": "88.60",
            "FTND16 (Faruqui et al., 2016)": "88.12",
            "NCK15+, with unpaired forms": "89.90",
            "FTND16+, with unpaired forms": "89.31",
            "longest-suffix rules, the shared task's": "87.75",
        }
    ),
    "inflection-verbs": _accuracies(
        {
            "NCK15 (Nicolai et al., 2015)": "97.50",
            "FTND16 (Faruqui et al., 2016)": "97.92",
            "NCK15+, with unpaired forms": "97.90",
            "FTND16+, with unpaired forms": "97.11",
            "longest-suffix rules, the shared task's": "96.41",
        }
    ),
    "inflection-sigmorphon2017": _accuracies(
        {
            "longest-suffix rules, the shared task's": "72.1",
            "best released output (ensemble of imitation-learning transducers)": "80.4",
        }
    ),
    "inflection-sigmorphon2023": _accuracies({"longest-suffix rules, the shared task's": "79.8"}),
}
"""By experiment: figures of other systems."""
