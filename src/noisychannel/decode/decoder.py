"""``NoisyChannelDecoder``: the loop around the chart's steps, from ids to hypotheses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Unpack

import torch
from torch import Tensor, nn

from noisychannel.decode.chart import read_sentences
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.decode.search import search as search_batch
from noisychannel.decode.search import spell
from noisychannel.decode.settings import SearchKeywords, SearchSettings
from noisychannel.decode.table import Answers, Models, Sentences, Settings
from noisychannel.ids import BOS, EOS, PAD, UNK
from noisychannel.models.finite import non_finite_parameter
from noisychannel.models.protocols import ChannelModel, DirectModel, SourceModel

ASKED_AT_ONCE = 128
"""Whole outputs that the models are asked about together."""


class NoisyChannelDecoder:
    """Searches for the outputs that maximise the objective, equation (3).

    Args:
        direct: Proposes, and is a term of the objective.
        channel: Scores the input given the (partial) output; needed if its weight is not zero. Unidirectional.
        lm: Scores the output; needed if its weight is not zero.
        weights: Of the objective.
        settings: How to search.
        barred: Symbols never to be proposed, beside PAD, BOS and UNK (such as features).
        memory_gib: The same as the setting ``memory``.
        keywords: Settings by name, such as ``k1=60``; they replace those of ``settings``.
    """

    def __init__(
        self,
        direct: DirectModel[Any],
        channel: ChannelModel[Any] | None = None,
        lm: SourceModel[Any] | None = None,
        weights: Weights = Weights(),  # noqa: B008 (frozen)
        *,
        settings: SearchSettings = SearchSettings(),  # noqa: B008 (frozen)
        barred: Sequence[int] = (),
        memory_gib: float | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> None:
        if memory_gib is not None:
            keywords["memory"] = memory_gib
        self.settings = settings = replace(settings, **keywords)
        if channel is not None and channel.bidirectional:
            raise ValueError(
                "the channel reads the output while it is being built, so it cannot be bidirectional; "
                "train one with bidirectional=False"
            )
        for name, model in (("channel", channel), ("lm", lm)):
            if getattr(weights, name) and model is None:
                raise ValueError(f"the weight {name} is {getattr(weights, name)}, but no {name} model is given")
        if settings.lm_proposals and lm is None:
            raise ValueError(f"lm_proposals is {settings.lm_proposals}, but no language model (lm) is given")
        speaks = weights.lm or settings.lm_proposals
        self.models = Models(direct, channel if weights.channel else None, lm if speaks else None)
        for name, used in vars(self.models).items():
            if isinstance(used, nn.Module):
                used.eval()  # dropout has no place in a search
                if (parameter := non_finite_parameter(used)) is not None:
                    raise ValueError(
                        f"the {name} model has NaN or infinite weights ({parameter}); its training diverged: train it "
                        "again with a lower learning rate"
                    )
        self.weights = weights
        self._settings = Settings(
            weights=weights,
            k1=settings.k1,
            k2=settings.k2,
            marginal=settings.search == "marginal",
            channel_max=settings.channel_alignment == "viterbi",
            barred=frozenset({PAD, BOS, *barred} | (set() if settings.allow_unk else {UNK})),
            lm_proposals=settings.lm_proposals,
        )

    @torch.no_grad()
    def decode(
        self,
        inputs: Sequence[Sequence[int]],
        n_best: int = 1,
        contexts: Sequence[Sequence[int]] | None = None,
        align: bool = True,
    ) -> list[list[Hypothesis]]:
        """The best outputs of each input (ids ending in EOS), decoded as one batch.

        ``contexts`` are symbols that stand before each output (features): the channel reads them first, and so does a
        language model with ``reads_features``, whose score is then that of both. Where no output reached EOS there is
        one hypothesis, the best partial one, with ``complete=False``. ``align`` asks for the best alignments, which the
        search itself does not need.
        """
        if n_best < 1:
            raise ValueError(f"n_best must be at least 1, but is {n_best}")
        contexts = self._check(inputs, contexts)
        found: list[list[Hypothesis]] = [[] for _ in inputs]
        for size in sorted({len(context) for context in contexts}):
            rows = [n for n, context in enumerate(contexts) if len(context) == size]
            best = self._decode([inputs[n] for n in rows], [contexts[n] for n in rows], n_best, align)
            for n, hypotheses in zip(rows, best, strict=True):
                found[n] = hypotheses
        return found

    def rerank(
        self,
        inputs: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[Sequence[int]]],
        contexts: Sequence[Sequence[int]] | None = None,
        align: bool = True,
    ) -> list[list[Hypothesis]]:
        """Given outputs of each input (ids without EOS), scored by the same objective, best first."""
        scored = self.score(inputs, outputs, contexts, align)
        return [sorted(hypotheses, key=lambda hypothesis: -hypothesis.score) for hypotheses in scored]

    @torch.no_grad()
    def score(
        self,
        inputs: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[Sequence[int]]],
        contexts: Sequence[Sequence[int]] | None = None,
        align: bool = True,
    ) -> list[list[Hypothesis]]:
        """Given outputs of each input (ids without EOS), scored by the same objective, in the given order."""
        contexts = self._check(inputs, contexts)
        asked = [
            _Asked(tuple(ids), tuple(context), tuple(tokens))
            for ids, context, tokens_list in zip(inputs, contexts, outputs, strict=True)
            for tokens in tokens_list
        ]
        found = self._score(asked)
        scored = iter(self._align(asked, found) if align else found)
        return [[next(scored) for _ in tokens_list] for tokens_list in outputs]

    def _decode(
        self, inputs: Sequence[Sequence[int]], contexts: Sequence[Sequence[int]], n_best: int, align: bool
    ) -> list[list[Hypothesis]]:
        """Inputs whose contexts are of one length."""
        sentences = self._read(inputs, contexts)
        rows = torch.arange(len(inputs), device=sentences.inputs.device)
        found: list[list[Hypothesis]] = []
        for part in rows.split(self._sentences_at_once(sentences)):
            some = sentences if len(part) == len(rows) else sentences.select(part)
            found += self._search_what_fits(some, n_best)
        if not align:
            return found
        asked = [
            _Asked(tuple(ids), tuple(context), hypothesis.tokens)
            for ids, context, best in zip(inputs, contexts, found, strict=True)
            for hypothesis in best
            if hypothesis.complete
        ]
        aligned = iter(self._align(asked, [hypothesis for best in found for hypothesis in best if hypothesis.complete]))
        return [[next(aligned) if hypothesis.complete else hypothesis for hypothesis in best] for best in found]

    def _search_what_fits(self, sentences: Sentences, n_best: int) -> list[list[Hypothesis]]:
        """Another process may have taken memory that was free before: what does not fit is searched by halves."""
        try:
            return self._search(sentences, n_best)
        except torch.OutOfMemoryError:
            if len(sentences.inputs) == 1:
                raise
        torch.cuda.empty_cache()
        halves = torch.arange(len(sentences.inputs), device=sentences.inputs.device).chunk(2)
        return [best for half in halves for best in self._search_what_fits(sentences.select(half), n_best)]

    def _search(self, sentences: Sentences, n_best: int) -> list[list[Hypothesis]]:
        found = search_batch(self.models, self._settings, sentences, n_best)
        complete = self._hypotheses(found.answers, spell(found.traces, found.answers), complete=True)
        # A partial output has one symbol more before the end of its trace: no EOS.
        partial_tokens = spell(found.traces, found.partial._replace(length=found.partial.length + 1))
        partial = self._hypotheses(found.partial, partial_tokens, complete=False)
        return [best or rest for best, rest in zip(complete, partial, strict=True)]

    def _sentences_at_once(self, sentences: Sentences) -> int:
        """How many may be searched together, by an estimate of the largest tensors of a step."""
        I, V = sentences.direct.words.scores.shape[1:]
        prefixes, candidates = I * self.settings.k2, I * (self.settings.k1 + self._settings.lm_proposals)
        elements = 4 * prefixes * V + 16 * (prefixes + candidates) * I
        if sentences.channel is not None:
            elements += 3 * candidates * sentences.channel.words.scores.shape[2]
        if self.models.lm is not None:
            elements += 4 * prefixes * V
        room = 4 * 2**30 if self.settings.memory is None else self.settings.memory * 2**30
        device = sentences.inputs.device
        if self.settings.memory is None and device.type == "cuda":
            held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
            room = (torch.cuda.mem_get_info(device)[0] + held) / 2
        return max(1, int(room / 4 / elements))

    def _check(
        self, inputs: Sequence[Sequence[int]], contexts: Sequence[Sequence[int]] | None
    ) -> Sequence[Sequence[int]]:
        for n, ids in enumerate(inputs):
            if not ids or ids[-1] != EOS or EOS in ids[:-1]:
                raise ValueError(f"inputs[{n}] must end in EOS (id {EOS}) and hold no other: {list(ids)}")
        if contexts is None:
            return [()] * len(inputs)
        if len(contexts) != len(inputs):
            raise ValueError(f"there are {len(inputs)} inputs, but {len(contexts)} contexts")
        return contexts

    def _read(self, inputs: Sequence[Sequence[int]], contexts: Sequence[Sequence[int]]) -> Sentences:
        device = self._device()
        padded, lengths = _padded(inputs, device)
        longest = torch.tensor([self.settings.longest_output(len(ids)) for ids in inputs])
        context = torch.tensor([list(ids) for ids in contexts], dtype=torch.long, device=device)
        return read_sentences(self.models, self._settings, padded, lengths.to(device), longest.to(device), context)

    def _hypotheses(
        self, answers: Answers, outputs: list[list[tuple[int, ...]]], complete: bool
    ) -> list[list[Hypothesis]]:
        """The answers of each sentence, best first, not yet aligned."""
        found: list[list[Hypothesis]] = []
        for tokens_list, *rows in zip(outputs, *(x.tolist() for x in answers[:5]), strict=True):
            best = []
            # Those without a score stand last, and have no output.
            for tokens, score, direct, channel, lm, length in zip(tokens_list, *rows, strict=False):
                terms = channel if self.weights.channel else None, lm if self.weights.lm else None
                best.append(Hypothesis(tokens, score, direct, *terms, length, None, None, complete))
            found.append(best)
        return found

    def _align(self, asked: list[_Asked], found: list[Hypothesis]) -> list[Hypothesis]:
        """Add the best alignments."""
        aligned: list[Hypothesis] = []
        for start in range(0, len(asked), ASKED_AT_ONCE):
            pairs = _Pairs.of(asked[start : start + ASKED_AT_ONCE], self._device())
            some = found[start : start + ASKED_AT_ONCE]
            alignments = _positions(self.models.direct.viterbi(*pairs.direct)[1])
            channel_alignments: list[tuple[int, ...]] | list[None] = [None] * len(some)
            if self.models.channel is not None:
                channel_alignments = _positions(self.models.channel.viterbi(*pairs.channel)[1])
            aligned += [
                replace(hypothesis, alignment=alignment, channel_alignment=channel_alignment)
                for hypothesis, alignment, channel_alignment in zip(some, alignments, channel_alignments, strict=True)
            ]
        return aligned

    def _score(self, asked: list[_Asked]) -> list[Hypothesis]:
        """The objective of given outputs, from the models asked about each as a whole."""
        scored = []
        for start in range(0, len(asked), ASKED_AT_ONCE):
            some = asked[start : start + ASKED_AT_ONCE]
            pairs = _Pairs.of(some, self._device())
            direct = self.models.direct.viterbi(*pairs.direct)[0]
            if self.settings.search == "marginal":
                direct = self.models.direct.log_prob(*pairs.direct)
            channel = lm = None
            if self.models.channel is not None:
                channel = self.models.channel.log_prob(*pairs.channel)
                if self.settings.channel_alignment == "viterbi":
                    channel = self.models.channel.viterbi(*pairs.channel)[0]
            if self.models.lm is not None and self.weights.lm:
                outputs = pairs.channel[:2] if self.models.lm.reads_features else pairs.direct[2:]
                lm = self.models.lm.log_prob(*outputs)
            for n, (_, _, tokens) in enumerate(some):
                channel_n, lm_n = (None if x is None else x[n].double() for x in (channel, lm))
                score = self.weights.combine(direct[n].double(), channel_n, lm_n, len(tokens) + 1)
                scored.append(
                    Hypothesis(
                        tokens=tokens,
                        score=float(score),
                        direct=float(direct[n]),
                        channel=None if channel_n is None else float(channel_n),
                        lm=None if lm_n is None else float(lm_n),
                        length=len(tokens) + 1,
                        alignment=None,
                        channel_alignment=None,
                        complete=True,
                    )
                )
        return scored

    def _device(self) -> torch.device:
        return next(self.models.direct.parameters()).device


class _Asked(NamedTuple):
    """An input, what stands before the output, and an output without EOS."""

    ids: tuple[int, ...]
    context: tuple[int, ...]
    tokens: tuple[int, ...]


class _Pairs(NamedTuple):
    """Several of them as arguments of the models' own methods."""

    direct: tuple[Tensor, Tensor, Tensor, Tensor]
    channel: tuple[Tensor, Tensor, Tensor, Tensor]

    @staticmethod
    def of(asked: list[_Asked], device: torch.device) -> _Pairs:
        x = _padded([ids for ids, _, _ in asked], device)
        y = _padded([(*tokens, EOS) for _, _, tokens in asked], device)
        read = _padded([(*context, *tokens, EOS) for _, context, tokens in asked], device)
        return _Pairs((*x, *y), (*read, *x))


def _padded(sequences: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids [B,T] on the device, lengths [B] on the CPU."""
    lengths = torch.tensor([len(ids) for ids in sequences])
    padded = torch.full((len(sequences), int(lengths.max())), PAD)
    for row, ids in zip(padded, sequences, strict=True):
        row[: len(ids)] = torch.tensor(list(ids), dtype=torch.long)
    return padded.to(device), lengths


def _positions(alignment_BJ: Tensor) -> list[tuple[int, ...]]:
    return [tuple(i for i in row if i >= 0) for row in alignment_BJ.tolist()]
