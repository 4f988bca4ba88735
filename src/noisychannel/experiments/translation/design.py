"""The designs of both translation experiments: rows, metrics, what they are compared with, and claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from noisychannel.experiments.design import Design, Plot, SearchErrors, SearchPlot
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.sentences.rows import in_setting
from noisychannel.experiments.translation.cited import APPENDIX_PART, CEILINGS, TABLE_4, TUTORIALS
from noisychannel.experiments.translation.claims import (
    BETTER_FULL,
    CHINESE_SMALL_CLAIMS,
    CLAIMS,
    MULTI30K_CLAIMS,
    SMALL_CLAIMS,
)
from noisychannel.experiments.translation.data import CAPTIONS, ENGLISH, MULTI30K_TESTS
from noisychannel.experiments.translation.rows import (
    ALL,
    ATTENTION,
    BEAM_ROWS,
    BETTER_LM,
    BLOCKS,
    CHINESE_SMALL_BLOCKS,
    DIRECT,
    FEW,
    FEW_PAIRS,
    FULL,
    MULTI30K_BLOCKS,
    NOISY,
    PLAIN,
    REFERENCES,
    SEQ2SEQ,
    SMALL_BEAMS,
    SMALL_BLOCKS,
    SMALL_REFERENCES,
    WIDEST,
    WITH_BIAS,
    WITH_LM,
)

RESAMPLES = 1_000
FUNCTION_WORDS = 100
"""The most frequent words of the test inputs, which are no content."""
METRICS = ("bleu", "chrf", "length_ratio")
TOKENIZE = "none"
"""Texts are tokenised, and lower-cased, as the models write them; BLEU is of these tokens."""
LENGTHS = (3, 6, 10, 15, 25)
"""The longest sources of each group of lengths, in words; a last group has longer ones."""

CHINESE = Design(
    name="translation",
    about="Chinese to English: the paper's second experiment, with 184k pairs and 2m English sentences",
    blocks=BLOCKS,
    quick_blocks=("table", "attention", "seq2seq"),
    metrics=METRICS,
    tokenize=TOKENIZE,
    text=ENGLISH,
    average="separate",
    part_noun="set",
    unit_noun="sentence",
    speeds=True,
    resamples=RESAMPLES,
    baselines={"direct (bi)": DIRECT.name, "direct + bias": WITH_BIAS.name, "attention": ATTENTION.name},
    published=TABLE_4,
    cited=CEILINGS,
    cited_of="tvsub.test",
    examples=(DIRECT.label, FULL.label),
    examples_of_each=10,
    claims=CLAIMS,
    function_words=FUNCTION_WORDS,
    shown_parts=(APPENDIX_PART,),
    lengths=LENGTHS,
    search_errors=(
        SearchErrors("references", PLAIN.label, REFERENCES.label),
        SearchErrors("references", WIDEST.label, REFERENCES.label),
        SearchErrors(f"outputs of {WIDEST.name}", PLAIN.label, WIDEST.label),
    ),
    plots=(
        Plot(
            "unpaired",
            "unpaired",
            "unpaired English sentences",
            {of.name: of.name for of in (FULL, NOISY, WITH_LM, DIRECT, ATTENTION)},
            "",
            "symlog",
        ),
    ),
    search_plots=(SearchPlot("beams", "k1", "K1 (K2 is half of it)", tuple(row.label for row in BEAM_ROWS)),),
)

CHINESE_SMALL = replace(
    CHINESE,
    name="translation-small",
    about="Chinese to English with models of half the size, for two CPU cores; the held-out episodes alone",
    blocks=CHINESE_SMALL_BLOCKS,
    published={
        **{row.label: TABLE_4[row.label] for row in (SEQ2SEQ, ATTENTION, DIRECT)},
        **{row.label: TABLE_4[of.label] for row, of in zip(BETTER_LM, (WITH_LM, NOISY, FULL), strict=True)},
    },
    cited={},
    cited_of="",
    examples=(DIRECT.label, BETTER_FULL.label),
    claims=CHINESE_SMALL_CLAIMS,
    search_errors=(
        SearchErrors("references", SMALL_BEAMS[1].label, SMALL_REFERENCES.label),
        SearchErrors(f"outputs of {SMALL_BEAMS[-1].name}", SMALL_BEAMS[1].label, SMALL_BEAMS[-1].label),
    ),
    plots=(
        Plot(
            "unpaired",
            "unpaired",
            "unpaired English sentences",
            {label: row.name for label, row in zip(("direct + LM", "channel + LM", "full"), BETTER_LM, strict=True)},
            "",
            "symlog",
        ),
    ),
    search_plots=(SearchPlot("beams", "k1", "K1 (K2 is half of it)", tuple(row.label for row in SMALL_BEAMS)),),
)
"""The paper's figures stand beside our rows with a better language model."""

_OF_PAIRS = {
    "full, better LM": BETTER_FULL,
    "full": FULL,
    "attention": ATTENTION,
    "direct + bias": WITH_BIAS,
    "direct": DIRECT,
}
"""The lines of Multi30k's plot."""
_EXAMPLES = in_setting((DIRECT, FULL), ALL, None)
_SMALL_EXAMPLES = in_setting((DIRECT, BETTER_FULL), FEW, FEW_PAIRS)


def _pairs_plot(blocks: Mapping[str, tuple[SystemRow, ...]]) -> Plot:
    """Score against pairs, with the lines that these blocks have rows for."""
    names = {row.name for rows in blocks.values() for row in rows}
    lines = {label: of.name for label, of in _OF_PAIRS.items() if of.name in names}
    return Plot("pairs", "pairs", "pairs", lines, ALL)


MULTI30K = Design(
    name="translation-multi30k",
    about="German to English captions (Multi30k): 29,000 pairs, or 5,000 with the other captions unpaired",
    blocks=MULTI30K_BLOCKS,
    quick_blocks=("all",),
    metrics=METRICS,
    tokenize=TOKENIZE,
    text=CAPTIONS,
    average="separate",
    part_noun="set",
    unit_noun="sentence",
    speeds=True,
    resamples=RESAMPLES,
    baselines={"direct (bi)": DIRECT.name, "direct + bias": WITH_BIAS.name, "attention": ATTENTION.name},
    cited={f"tutorials, test_2016_flickr: {name}": figures for name, figures in TUTORIALS.items()},
    cited_of=MULTI30K_TESTS[0],
    examples=(_EXAMPLES[0].label, _EXAMPLES[1].label),
    examples_of_each=10,
    claims=MULTI30K_CLAIMS,
    function_words=FUNCTION_WORDS,
    lengths=LENGTHS,
    plots=(_pairs_plot(MULTI30K_BLOCKS),),
)

SMALL = replace(
    MULTI30K,
    name="translation-multi30k-small",
    about="German to English captions with models of half the size, for two CPU cores; the test set of 2016 alone",
    blocks=SMALL_BLOCKS,
    quick_blocks=("few",),
    examples=(_SMALL_EXAMPLES[0].label, _SMALL_EXAMPLES[1].label),
    claims=SMALL_CLAIMS,
    plots=(_pairs_plot(SMALL_BLOCKS),),
)
