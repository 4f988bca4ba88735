"""The published learning curves of Bollmann (NAACL 2019), Table 6: accuracies, means over ten samples of each size.

The source does not say whether they are on dev or on test.
"""

from __future__ import annotations

from typing import Literal

from noisychannel.experiments.design import Figures

Text = Literal["anselm", "bohoric"]

SYSTEMS = ("Norma", "cSMTiser + LM", "NMT-1", "NMT-2")
ACCURACIES: dict[Text, dict[int, tuple[float, float, float, float]]] = {
    "anselm": {
        100: (56.25, 49.32, 24.51, 33.54),
        250: (58.44, 53.42, 38.22, 46.61),
        500: (59.06, 55.81, 46.83, 50.56),
        1_000: (61.27, 58.60, 52.74, 55.72),
        5_000: (70.06, 71.37, 68.40, 66.49),
        10_000: (72.29, 72.81, 70.34, 70.26),
    },
    "bohoric": {
        100: (71.59, 67.72, 23.09, 41.18),
        250: (74.28, 75.75, 54.02, 63.95),
        500: (77.00, 79.65, 65.85, 72.75),
        1_000: (78.97, 82.90, 73.83, 78.14),
        5_000: (82.55, 88.09, 83.78, 84.32),
        10_000: (84.33, 89.59, 86.41, 87.03),
    },
}
"""By number of training tokens, in the order of the systems."""


def curves(text: Text) -> dict[str, dict[int, float]]:
    """Of each system: accuracy by number of tokens."""
    return {
        system: {tokens: figures[n] for tokens, figures in ACCURACIES[text].items()} for n, system in enumerate(SYSTEMS)
    }


def cited_rows(text: Text) -> dict[str, Figures]:
    """A row for each number of tokens and system."""
    return {
        f"{system}, {tokens:,} tokens": {"accuracy": f"{figure:.2f}"}
        for tokens, figures in ACCURACIES[text].items()
        for system, figure in zip(SYSTEMS, figures, strict=True)
    }
