"""The n-gram models of a run: made when its data is prepared, and loaded as terms of the objective."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from noisychannel.data.prepare import DataConfig, DataSource, Prepared, open_corpus
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.models.ngram import NGram
from noisychannel.run_records import NGramMetadata
from noisychannel.runs import RunDirectory
from noisychannel.schemas import parse_metadata
from noisychannel.tensors import load_metadata, load_tensors, save_tensors


def make_ngram(name: str, order: int, data: Prepared, config: DataConfig) -> NGram:
    """From the encoded data of a run; ``name``: pairs (each pair of train once) or outputs (those of the lm)."""
    vocab_size = len(data.output_codec)
    if name == "pairs":
        outputs = open_corpus(data.directory, "pairs", "train").outputs
        return NGram.of(*outputs, vocab_size, order, rows=data.real_pairs())
    outputs = open_corpus(data.directory, "outputs", "train").outputs
    return NGram.of(*outputs, vocab_size, order, DataSource(config).lm_reads_features)


def write_ngram(run: RunDirectory, name: str, model: NGram) -> None:
    tensors = {"keys": model.grams.keys, "log_probs": model.log_probs, "log_backoffs": model.log_backoffs}
    metadata = {
        "symbols": str(model.grams.vocab_size),
        "order": str(model.order),
        "features": str(model.reads_features).lower(),
    }
    save_tensors(run.ngram_file(name), tensors, metadata)


def missing_ngrams(run: RunDirectory, orders: Mapping[str, int]) -> dict[str, int]:
    """Those of some orders, by name, that a run without groups does not have, or has of another order or damaged."""
    return {name: order for name, order in orders.items() if order and not _has(run, name, order)}


def load_ngram(run: RunDirectory, name: str, device: torch.device | str = "cpu") -> NGram:
    """An n-gram model of a run as a term of the objective."""
    file = run.ngram_file(name)
    again = run.counting_again(file)
    if not run.was_counted(file):
        raise BadInputError(f"{run.path}: has no n-gram model of its {name}; {run.adding_ngram(name)}")
    if not file.exists():
        run.verify(file, again)
    tensors, metadata = load_tensors(file, again)
    stored = parse_metadata(metadata, NGramMetadata, file, again)
    try:
        if stored.symbols != (symbols := len(run.codecs()[1])):
            raise ValueError(f"{stored.symbols} symbols instead of {symbols}")
        keys, log_probs, log_backoffs = (tensors[part] for part in ("keys", "log_probs", "log_backoffs"))
        model = NGram.restored(stored.symbols, stored.order, keys, log_probs, log_backoffs, stored.features)
    except (KeyError, ValueError) as error:
        raise NoisyChannelError(
            f"{file}: not an n-gram model of this run ({error}); restore it from a copy, or {again}"
        ) from error
    run.verify(file, again)
    return model.to(device)


def _has(run: RunDirectory, name: str, order: int) -> bool:
    file = run.ngram_file(name)
    if not run.is_intact(file):
        return False
    again = run.counting_again(file)
    return parse_metadata(load_metadata(file, again), NGramMetadata, file, again).order == order
