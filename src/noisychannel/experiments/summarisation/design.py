"""The design of the summarisation experiment: rows, metrics, what they are compared with, and claims."""

from __future__ import annotations

from dataclasses import replace

from noisychannel.experiments.design import Design, Figures, Plot, SearchErrors, SearchPlot
from noisychannel.experiments.summarisation.cited import ALL, APPENDIX_PART, FEW, TABLE_1, TABLE_2
from noisychannel.experiments.summarisation.claims import CLAIMS, SMALL_CLAIMS
from noisychannel.experiments.summarisation.data import TEXT
from noisychannel.experiments.summarisation.rows import (
    ATTENTION,
    BEAM_ROWS,
    BETTER,
    BLOCKS,
    DIRECT,
    FEW_PAIRS,
    FULL,
    NOISY,
    PLAIN,
    REFERENCES,
    SMALL_BEAMS,
    SMALL_BLOCKS,
    SMALL_CURVES,
    SMALL_FULL,
    SMALL_REFERENCES,
    WIDEST,
    WITH_BIAS,
    WITH_LM,
    better_lm,
    in_setting,
)

RESAMPLES = 1_000
FUNCTION_WORDS = 100
"""The most frequent words of the test inputs, which are no content."""

OF_PAIRS = {
    "full, better LM": better_lm(FULL),
    "channel + LM, better LM": better_lm(NOISY),
    "direct + bias": WITH_BIAS,
    "direct": DIRECT,
    "full": FULL,
}
"""The lines of the plot of pairs."""

DESIGN = Design(
    name="summarisation",
    about="first sentences to headlines: the paper's first experiment, with half a million pairs",
    blocks=BLOCKS,
    quick_blocks=("table", "attention", "seq2seq"),
    metrics=("rouge1", "rouge2", "rougeL", "rouge1_stem", "rouge2_stem", "rougeL_stem", "length_ratio"),
    text=replace(TEXT),
    average="separate",
    part_noun="set",
    unit_noun="sentence",
    speeds=True,
    resamples=RESAMPLES,
    baselines={"direct (bi)": DIRECT.name, "direct + bias": WITH_BIAS.name, "attention": ATTENTION.name},
    published=TABLE_1,
    cited=TABLE_2,
    examples=(DIRECT.label, better_lm(FULL).label, FULL.label),
    examples_of_each=10,
    claims=CLAIMS,
    function_words=FUNCTION_WORDS,
    shown_parts=(APPENDIX_PART,),
    plots=(
        Plot(
            "unpaired",
            "unpaired",
            "unpaired headlines, all pairs",
            {of.name: of.name for of in (FULL, NOISY, WITH_LM, DIRECT)},
            ALL,
            "symlog",
        ),
        Plot(
            "unpaired-few",
            "unpaired",
            "unpaired headlines, 100k pairs",
            {of.name: of.name for of in (FULL, NOISY, WITH_LM, DIRECT)},
            FEW,
            "symlog",
            pairs=FEW_PAIRS,
        ),
        Plot("pairs", "pairs", "pairs", {label: of.name for label, of in OF_PAIRS.items()}, ALL),
    ),
    search_plots=(SearchPlot("beams", "k1", "K1 (K2 is half of it)", tuple(row.label for row in BEAM_ROWS)),),
    search_errors=(
        SearchErrors("references", PLAIN.label, REFERENCES.label),
        SearchErrors("references", WIDEST.label, REFERENCES.label),
        SearchErrors(f"outputs of {WIDEST.name}", PLAIN.label, WIDEST.label),
    ),
)


_OF_HEADLINES = {row.name: row.name for row in (*map(better_lm, (FULL, NOISY, WITH_LM)), WITH_BIAS, DIRECT)}
"""The lines of the plot of headlines."""


def _small_published() -> dict[str, Figures]:
    """The paper's figures of 1.0m pairs beside our rows, which have fewer pairs and a better language model."""
    labels = [row.label for rows in SMALL_BLOCKS.values() for row in rows]
    of_paper = {label: label.removesuffix(f", {BETTER}") for label in labels}
    return {label: TABLE_1[of] for label, of in of_paper.items() if of in TABLE_1}


SMALL_DESIGN = replace(
    DESIGN,
    name="summarisation-small",
    about="first sentences to headlines with models of half the size, for two CPU cores: 100,000 pairs",
    blocks=SMALL_BLOCKS,
    quick_blocks=("table",),
    published=_small_published(),
    examples=(in_setting([DIRECT], FEW)[0].label, SMALL_FULL.label),
    claims=SMALL_CLAIMS,
    plots=(
        Plot("unpaired", "unpaired", "unpaired headlines", _OF_HEADLINES, FEW, "symlog", pairs=FEW_PAIRS),
        Plot("pairs", "pairs", "pairs", {row.name: row.name for row in SMALL_CURVES}, FEW),
    ),
    search_plots=(SearchPlot("beams", "k1", "K1 (K2 is half of it)", tuple(row.label for row in SMALL_BEAMS)),),
    search_errors=(
        SearchErrors("references", SMALL_BEAMS[1].label, SMALL_REFERENCES.label),
        SearchErrors(f"outputs of {SMALL_BEAMS[-1].name}", SMALL_BEAMS[1].label, SMALL_BEAMS[-1].label),
    ),
)
