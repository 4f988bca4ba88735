"""The list of words that a trained language model is to know by heart, and how much it counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from noisychannel.data.batches import Rows, make_batch
from noisychannel.data.corpus import Corpus
from noisychannel.models import LanguageModel
from noisychannel.models.word_list import Trie, WithWordList, best_share
from noisychannel.runs import RunDirectory
from noisychannel.training.events import Fitted


@torch.no_grad()
def add_word_list(
    files: RunDirectory, train: Corpus, dev: Corpus, batches: Sequence[Rows], device: torch.device
) -> Fitted:
    """Keep the training outputs beside the language model, with the share under which dev is most probable."""
    network = files.load_model("lm", device, word_list=False)
    assert isinstance(network, LanguageModel)
    words = Trie.of(train.outputs, network.word.out_features)
    model = WithWordList(network, words.to(device), share=0.5)
    by_network, by_list = [], []
    for rows in batches:
        batch = make_batch(dev, rows).to(device)
        by_network.append(network.log_prob(*batch.arguments))
        by_list.append(model.by_list(*batch.arguments))
    log_network, log_list = torch.cat(by_network).double().cpu(), torch.cat(by_list).double().cpu()
    share = best_share(log_network, log_list)
    files.write_word_list(words, share)
    logs = torch.tensor([1 - share, share], dtype=torch.float64).log()
    mixed = torch.logaddexp(logs[0] + log_network, logs[1] + log_list)
    return Fitted(share, math.exp(-float(mixed.sum()) / int(dev.outputs.starts[-1])))
