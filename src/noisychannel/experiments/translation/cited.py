"""Published figures of BLEU, and the examples of the paper (Yu et al., 2017).

The paper's are of other training and test data (FBIS; news), and of an unknown variant of BLEU: they show its
differences, and are not comparable with ours line by line.
"""

from __future__ import annotations

from noisychannel.experiments.design import Figures
from noisychannel.experiments.items import Item
from noisychannel.experiments.translation.punctuation import without_punctuation

TABLE_4: dict[str, Figures] = {
    "seq2seq without attention": {"bleu": "11.19"},
    "seq2seq with attention": {"bleu": "25.27"},
    "direct (bi)": {"bleu": "23.33"},
    "direct + LM + bias": {"bleu": "23.33"},
    "channel + LM + bias": {"bleu": "26.28"},
    "direct + channel + LM + bias": {"bleu": "26.44"},
}
"""The paper's Table 4, by the label of our row."""

CEILINGS: dict[str, Figures] = {
    "tvsub.test alone, with all 2.2m pairs: Transformer-big": {"bleu": "29.4"},
}
"""Of TVsub's own test set, with twelve times our pairs; not comparable with tvsub.htest."""

TUTORIALS: dict[str, Figures] = {
    "LSTM": {"bleu": "13.8"},
    "GRU + attention": {"bleu": "28.3"},
    "Transformer": {"bleu": "36.5"},
}
"""German to English on Multi30k, as tutorials report it: lower-cased, tokenised, test_2016_flickr."""
MULTI30K_GOAL = 28.3

APPENDIX_SOURCES = (
    (
        "欧盟 和 美国 都 表示 可以 接受 这 一 妥协 方案 。",
        "both the eu and the us indicated that they can accept this plan for a compromise .",
    ),
    ("那么 这些 这个 方面 呢 是 现在 警方 调查 重点 。", "well , this is the current focus of police investigation ."),
    ("双方 有可能 就此 问题 在 下周 进行 磋商 。", "the two sides may conduct negotiations on this issue next week ."),
    (
        "那么 在 这个 问题 上 , 伊朗 现在 态度 比较 强硬 , 而 美国 的 态度 更为 强硬 。",
        "well , iran 's attitude is now quite firm on this issue , while the us takes an even firmer attitude .",
    ),
)
"""The four sentences of the paper's Appendix B (news), with their references, segmented as they are printed there."""
APPENDIX_PART = "the paper's appendix"

APPENDIX = tuple(Item(without_punctuation(source), (reference,)) for source, reference in APPENDIX_SOURCES)
"""The sentences without punctuation, as the training text is."""
