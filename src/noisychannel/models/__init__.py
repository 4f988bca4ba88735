"""The sequence models: SSNT (direct and channel), the language model, and the sequence-to-sequence baselines."""

from noisychannel.models.lm import LanguageModel
from noisychannel.models.seq2seq import Seq2Seq
from noisychannel.models.ssnt import SSNT

__all__ = ["SSNT", "LanguageModel", "Seq2Seq"]
