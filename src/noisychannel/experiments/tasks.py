"""Decoding with models of different runs: an experiment mixes them freely, as long as they share their vocabularies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from noisychannel.decode.beam import beam_search
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.evaluation.held_out import Decoded, HeldOut, with_all_terms
from noisychannel.evaluation.metrics import make_metric
from noisychannel.models import SSNT
from noisychannel.noisy_channel import NoisyChannel, Output
from noisychannel.runs import RunDirectory
from noisychannel.training.world import choose_device
from noisychannel.tuning import CandidatePool

LISTED_LM = "lm with its word list"
"""The role of such a language model here; plain lm is the network alone."""
BATCH = 256
SAMPLED_AT_ONCE = 4096
TRIES = 5
"""A sample that did not become an output is drawn again, so often at most."""


@dataclass(frozen=True)
class Task:
    """Inputs to be decoded by the same models."""

    models: tuple[tuple[str, Path], ...]
    """Role and run directory of each model; a baseline (seq2seq, attention) stands alone."""
    inputs: tuple[str, ...]
    weights: Weights
    search: SearchSettings
    n_best: int = 1
    features: tuple[tuple[str, ...], ...] = ()
    """Of each input; empty where the models know none."""
    all_terms: bool = False
    """Score every output by every model of the task, even by those whose weight is zero."""

    def do(self, device: str) -> list[list[Output]]:
        """For each input, its best outputs."""
        try:
            return self._do(device)
        finally:
            torch.cuda.empty_cache()  # for the other processes of the same GPU

    def _do(self, device: str) -> list[list[Output]]:
        if self.models[0][0] != "direct":
            return self._do_baseline(device)
        model, features = self._model(device), [tags for _, tags in self._tagged()]
        outputs = model.batch(self.inputs, self.n_best, features, BATCH, align=False)
        if not self.all_terms:
            return outputs
        held_out = HeldOut("", list(self.inputs), features, [])
        lists = with_all_terms(model, held_out, Decoded(outputs, 0.0))
        return [[Output(model.output_codec.decode(h.tokens), h) for h in best] for best in lists]

    def score(
        self, outputs: Sequence[Sequence[tuple[int, ...]]], device: str
    ) -> list[dict[tuple[int, ...], Hypothesis]]:
        """The scores of given outputs of each input, by their tokens."""
        model = self._model(device)
        inputs = [model.input_codec.encode(text, tags) for text, tags in self._tagged()]
        contexts = [model.context(tags) for _, tags in self._tagged()]
        scored = model.decoder.rerank(inputs, outputs, contexts, align=False)
        return [{hypothesis.tokens: hypothesis for hypothesis in hypotheses} for hypotheses in scored]

    def _model(self, device: str) -> NoisyChannel:
        models = {"lm" if role == LISTED_LM else role: _load(path, role, device) for role, path in self.models}
        return NoisyChannel(*RunDirectory(self.models[0][1]).codecs(), models, self.weights, self.search)

    def _do_baseline(self, device: str) -> list[list[Output]]:
        ((role, path),) = self.models
        input_codec, output_codec = RunDirectory(path).codecs()
        inputs = [input_codec.encode(text, tags) for text, tags in self._tagged()]
        found = beam_search(
            _load(path, role, device), inputs, SearchSettings(k1=self.search.k1, k2=self.search.k2), self.n_best
        )
        return [[Output(output_codec.decode(h.tokens), h) for h in best] for best in found]

    def _tagged(self) -> list[tuple[str, tuple[str, ...]]]:
        return list(zip(self.inputs, self.features or ((),) * len(self.inputs), strict=True))


def by_letters(output: Output) -> Hypothesis:
    """An output's hypothesis with letters for tokens: pools hold outputs of types with vocabularies of their own."""
    return replace(output.hypothesis, tokens=tuple(map(ord, output.text)))


def letter_pool(forms: Sequence[str]) -> CandidatePool:
    """Where outputs ``by_letters`` are gathered, to be compared with these forms."""
    return CandidatePool(make_metric("accuracy"), [[x] for x in forms], lambda _, letters: "".join(map(chr, letters)))


def back_translate(run: Path, forms: Sequence[str], device: str, seed: int = 1) -> list[tuple[str, str]]:
    """Pairs of forms with inputs drawn from the channel model of a run, p(input | form).

    A form is left out if all its samples fail: they do not end as they should, are empty, or hold symbols that are no
    letters.
    """
    directory = RunDirectory(run)
    input_codec, output_codec = directory.codecs()
    where = choose_device(device)
    channel = directory.load_model("channel", where)
    assert isinstance(channel, SSNT)
    first_letter = len(input_codec) - len(input_codec.symbols)
    torch.manual_seed(seed)
    pairs: list[tuple[str, str]] = []
    for start in range(0, len(forms), SAMPLED_AT_ONCE):
        waiting = list(forms[start : start + SAMPLED_AT_ONCE])
        for _ in range(TRIES):
            ids = [torch.tensor(output_codec.encode(form)) for form in waiting]
            padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True).to(where)
            lengths = torch.tensor([len(x) for x in ids])
            drawn, sizes = channel.sample(padded, lengths, max_length=padded.shape[1] + 8)
            failed = []
            for form, tokens, size in zip(waiting, drawn.tolist(), sizes.tolist(), strict=True):
                letters = tokens[: size - 1] if size else []
                if letters and min(letters) >= first_letter:
                    pairs.append((input_codec.decode(letters), form))
                else:
                    failed.append(form)
            waiting = failed
            if not waiting:
                break
    return pairs


@lru_cache(maxsize=512)
def _load(path: Path, role: str, device: str) -> Any:
    with_list = role == LISTED_LM
    return RunDirectory(path).load_model("lm" if with_list else role, choose_device(device), word_list=with_list)
