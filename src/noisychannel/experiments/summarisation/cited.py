"""Published figures of ROUGE-1, -2 and -L, and the examples of the paper (Yu et al., 2017).

All are of Gigaword, with other training and test data: they show the paper's differences, and are not comparable with
our figures line by line. The paper's 3.8m and 1.0m pairs stand beside all pairs and 100k pairs, and its LM on 3.8m and
on 1.0m headlines beside all headlines and the paired headlines.
"""

from __future__ import annotations

from noisychannel.experiments.design import Figures
from noisychannel.experiments.items import Item

ALL, FEW = "all pairs, all headlines", "100k pairs, all headlines"
ALL_PAIRED, FEW_PAIRED = "all pairs, paired headlines", "100k pairs, paired headlines"
"""The settings: how many pairs, and which headlines the language model has read."""


def _rouge(figures: str) -> Figures:
    """From ``R1 R2 RL``."""
    return dict(zip(("rouge1", "rouge2", "rougeL"), figures.split(), strict=True))


TABLE_1: dict[str, Figures] = {
    label: _rouge(figures)
    for label, figures in {
        f"{FEW}: direct (uni)": "30.94 14.20 28.72",
        f"{FEW}: direct (bi)": "31.25 14.52 29.03",
        f"{ALL}: direct (bi)": "33.82 16.66 31.50",
        f"{FEW_PAIRED}: channel + LM + bias (uni)": "31.92 14.75 29.58",
        f"{FEW_PAIRED}: channel + LM + bias (bi)": "31.96 14.89 29.51",
        f"{FEW_PAIRED}: direct + channel + LM + bias (uni)": "33.07 15.21 30.29",
        f"{FEW_PAIRED}: direct + channel + LM + bias (bi)": "33.18 15.65 30.45",
        f"{FEW}: channel + LM + bias (uni)": "32.59 15.05 30.06",
        f"{FEW}: channel + LM + bias (bi)": "32.65 14.95 30.23",
        f"{FEW}: direct + LM + bias": "31.25 14.52 29.03",
        f"{FEW}: direct + channel + LM + bias (uni)": "33.16 15.63 30.53",
        f"{FEW}: direct + channel + LM + bias (bi)": "33.21 15.65 30.60",
        f"{ALL}: channel + LM + bias (bi)": "34.12 16.41 31.38",
        f"{ALL}: direct + LM + bias": "33.82 16.66 31.50",
        f"{ALL}: direct + channel + LM + bias (bi)": "34.41 16.86 31.83",
    }.items()
}
"""The paper's Table 1, by the label of our row."""

TABLE_2: dict[str, Figures] = {
    name: _rouge(figures)
    for name, figures in {
        "Gigaword: ABS+ (3.8m pairs)": "29.55 11.32 26.42",
        "Gigaword: RAS-LSTM (3.8m pairs)": "32.55 14.70 30.03",
        "Gigaword: RAS-Elman (3.8m pairs)": "33.78 15.97 31.15",
        "Gigaword: pointing unknown words (3.8m pairs)": "35.19 16.66 32.51",
        "Gigaword: ASC+FSC (1.0m pairs, 3.8m headlines)": "31.09 12.79 28.97",
        "Gigaword: ASC+FSC (3.8m pairs, 3.8m headlines)": "34.17 15.94 31.92",
    }.items()
}
"""The paper's Table 2: systems that it cites."""

APPENDIX = (
    Item(
        "the european commission on health and consumers protection -lrb- _unk_ -rrb- has offered cooperation to "
        "indonesia in coping with the spread of avian influenza in the country , official news agency antara said "
        "wednesday .",
        ("eu offers indonesia cooperation in avian flu eradication",),
    ),
    Item(
        "vietnam will accelerate the export of industrial goods mainly by developing auxiliary industries , and "
        "helping enterprises sharpen competitive edges , according to the ministry of industry on thursday .",
        ("vietnam to boost industrial goods export",),
    ),
    Item(
        "japan 's toyota team europe were banned from the world rally championship for one year here on friday in a "
        "crushing ruling by the world council of the international automobile federation -lrb- fia -",
        ("toyota are banned for a year",),
    ),
    Item(
        "oil prices roared higher towards ## dollars on monday as equity markets surged on government action aimed at "
        "tackling a severe economic downturn .",
        ("oil prices soar towards ## dollars",),
    ),
)
"""The four sentences of the paper's Appendix B (from Gigaword), with their headlines."""
APPENDIX_PART = "the paper's appendix"
