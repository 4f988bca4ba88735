"""A character transformer as an opponent: that of Wu, Cotterell and Hulden (2021), trained on the same pairs.

Encoder and decoder of four layers, pre-norm. Tags are symbols of the input with an embedding of their own type and
without a position, so that their order does not count. Training is Adam with a warm-up and an inverse square root
schedule, label smoothing, and large batches; the model with the best dev accuracy is kept. Decoding is greedy. On a
GPU, training computes products with TF32.

Shapes: B items, I input symbols (tags first), J output symbols, D units, V symbols.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noisychannel.arguments import Bounds, Count, Positive, Seed, check_bounds
from noisychannel.devices import choose_device
from noisychannel.experiments.few_pairs.tasks import Pair
from noisychannel.ids import BOS, EOS, PAD, UNK
from noisychannel.precision import float32_products

FIRST = max(PAD, BOS, EOS, UNK) + 1
LONGEST = 256
"""Positions that the model knows."""


@dataclass(frozen=True, kw_only=True)
class TransformerSettings:
    """Sizes and training. The defaults are those of the paper, with fewer updates."""

    size: Count = 256
    feed_forward: Count = 1024
    layers: Count = 4
    heads: Count = 4
    dropout: Annotated[float, Bounds(least=0, below=1)] = 0.3
    label_smoothing: Annotated[float, Bounds(least=0, below=1)] = 0.1
    learning_rate: Positive = 1e-3
    warmup: Count = 1_000
    """Of 4,000 in the paper, which has 20,000 updates."""
    updates: Count = 6_000
    batch_size: Count = 400
    evaluate_every: Count = 250
    seed: Seed = 1

    def __post_init__(self) -> None:
        check_bounds(self)


class Symbols:
    """The ids of symbols; those of tags are apart from those of letters."""

    def __init__(self, examples: Iterable[Pair]) -> None:
        seen: dict[tuple[str, bool], None] = {}
        for example in examples:
            seen |= dict.fromkeys((tag, True) for tag in example.tags)
            seen |= dict.fromkeys((letter, False) for letter in example.input + example.output)
        self._ids = {symbol: FIRST + n for n, symbol in enumerate(sorted(seen))}
        self._letters = {i: symbol for (symbol, is_tag), i in self._ids.items() if not is_tag}

    def __len__(self) -> int:
        return FIRST + len(self._ids)

    def source(self, example: Pair) -> tuple[list[int], int]:
        """The ids of an input, tags first, and the number of its tags."""
        tags = [self._ids.get((tag, True), UNK) for tag in example.tags]
        return [*tags, *self.letters(example.input)], len(tags)

    def letters(self, text: str) -> list[int]:
        """With EOS."""
        return [*(self._ids.get((letter, False), UNK) for letter in text), EOS]

    def text(self, ids: Iterable[int]) -> str:
        """Up to EOS; what is no letter is left out."""
        letters = []
        for i in ids:
            if i == EOS:
                break
            letters.append(self._letters.get(i, ""))
        return "".join(letters)


class Transformer(nn.Module):
    """p(output | input, tags)."""

    def __init__(self, symbols: int, settings: TransformerSettings) -> None:
        super().__init__()
        size = settings.size
        self.symbols = nn.Embedding(symbols, size, padding_idx=PAD)
        self.types = nn.Embedding(2, size)
        self.register_buffer("positions_LD", _sinusoids(LONGEST, size), persistent=False)
        self.dropout = nn.Dropout(settings.dropout)
        shape = (size, settings.heads, settings.feed_forward, settings.dropout)
        reader = nn.TransformerEncoderLayer(*shape, batch_first=True, norm_first=True)
        writer = nn.TransformerDecoderLayer(*shape, batch_first=True, norm_first=True)
        self.reader = nn.TransformerEncoder(reader, settings.layers, nn.LayerNorm(size), enable_nested_tensor=False)
        self.writer = nn.TransformerDecoder(writer, settings.layers, nn.LayerNorm(size))
        self.output = nn.Linear(size, symbols)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        nn.init.normal_(self.symbols.weight, std=size**-0.5)

    def read(self, inputs_BI: Tensor, tags_B: Tensor) -> tuple[Tensor, Tensor]:
        """The states [B,I,D] of the inputs, and where they are padding [B,I]."""
        places_BI = torch.arange(inputs_BI.shape[1], device=inputs_BI.device)[None] - tags_B[:, None]
        is_tag_BI = places_BI < 0
        positions_BID = self.positions_LD[places_BI.clamp(0, LONGEST - 1)] * ~is_tag_BI[..., None]  # type: ignore[index]
        x_BID = self._embed(inputs_BI) + self.types(is_tag_BI.long()) + positions_BID
        padding_BI = inputs_BI == PAD
        return self.reader(self.dropout(x_BID), src_key_padding_mask=padding_BI), padding_BI

    def write(self, outputs_BJ: Tensor, states_BID: Tensor, padding_BI: Tensor) -> Tensor:
        """The logits [B,J,V] of what follows each beginning of the outputs, which start with BOS."""
        length = outputs_BJ.shape[1]
        x_BJD = self.dropout(self._embed(outputs_BJ) + self.positions_LD[:length])  # type: ignore[index]
        later_JJ = torch.ones(length, length, dtype=torch.bool, device=outputs_BJ.device).triu(1)
        logits: Tensor = self.output(
            self.writer(x_BJD, states_BID, tgt_mask=later_JJ, memory_key_padding_mask=padding_BI, tgt_is_causal=True)
        )
        return logits

    def _embed(self, ids: Tensor) -> Tensor:
        embedded: Tensor = self.symbols(ids) * math.sqrt(self.symbols.embedding_dim)
        return embedded


def train_transformer(
    train: Sequence[Pair], dev: Sequence[Pair], settings: TransformerSettings, device: str = "auto"
) -> TrainedTransformer:
    """The model with the best dev accuracy. Of equal ones the first."""
    where = choose_device(device)
    torch.manual_seed(settings.seed)
    rng = random.Random(settings.seed)
    symbols = Symbols(train)
    model = Transformer(len(symbols), settings).to(where)
    trained = TrainedTransformer(model, symbols, where)
    optimiser = torch.optim.Adam(model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step + 1, settings.warmup))
    waiting: list[Pair] = []
    best: dict[str, Tensor] = {}
    for step in range(1, settings.updates + 1):
        model.train()
        while len(waiting) < settings.batch_size:
            waiting += rng.sample(train, len(train))
        batch, waiting = waiting[: settings.batch_size], waiting[settings.batch_size :]
        inputs_BI, tags_B = trained.sources(batch)
        outputs_BJ = _padded([symbols.letters(example.output) for example in batch], where)
        before_BJ = F.pad(outputs_BJ[:, :-1], (1, 0), value=BOS)
        optimiser.zero_grad(set_to_none=True)
        with float32_products("tf32", where):
            logits_BJV = model.write(before_BJ, *model.read(inputs_BI, tags_B))
            loss = F.cross_entropy(
                logits_BJV.flatten(0, 1),
                outputs_BJ.flatten(),
                ignore_index=PAD,
                label_smoothing=settings.label_smoothing,
            )
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % settings.evaluate_every == 0 or step == settings.updates:
            accuracy = trained.accuracy(dev)
            if not best or accuracy > trained.dev_accuracy:
                trained.dev_accuracy, trained.best_step = accuracy, step
                best = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(best)
    return trained


class TrainedTransformer:
    """A model with its symbols."""

    def __init__(self, model: Transformer, symbols: Symbols, device: torch.device) -> None:
        self.model, self.symbols, self.device = model, symbols, device
        self.dev_accuracy, self.best_step = 0.0, 0

    def sources(self, examples: Sequence[Pair]) -> tuple[Tensor, Tensor]:
        """The inputs [B,I], and how many tags each has [B]."""
        encoded = [self.symbols.source(example) for example in examples]
        return _padded([ids for ids, _ in encoded], self.device), torch.tensor([n for _, n in encoded]).to(self.device)

    @torch.no_grad()
    def decode(self, examples: Sequence[Pair], batch_size: int = 512, longer: int = 20) -> list[str]:
        """The greedy output of each input; at most ``longer`` symbols longer than the input with its tags."""
        self.model.eval()
        texts: list[str] = []
        for start in range(0, len(examples), batch_size):
            inputs_BI, tags_B = self.sources(examples[start : start + batch_size])
            states_BID, padding_BI = self.model.read(inputs_BI, tags_B)
            outputs_BJ = torch.full((len(inputs_BI), 1), BOS, device=self.device)
            ended_B = torch.zeros(len(inputs_BI), dtype=torch.bool, device=self.device)
            for _ in range(min(LONGEST, inputs_BI.shape[1] + longer) - 1):
                logits_BV = self.model.write(outputs_BJ, states_BID, padding_BI)[:, -1]
                logits_BV[:, [PAD, BOS, UNK]] = -math.inf
                outputs_BJ = torch.cat([outputs_BJ, logits_BV.argmax(-1, keepdim=True)], 1)
                ended_B |= outputs_BJ[:, -1] == EOS
                if ended_B.all():
                    break
            limits = (inputs_BI != PAD).sum(1) + longer - 1
            texts += [self.symbols.text(ids[:n]) for ids, n in zip(outputs_BJ[:, 1:].tolist(), limits, strict=True)]
        return texts

    def accuracy(self, examples: Sequence[Pair]) -> float:
        """In per cent."""
        texts = self.decode(examples)
        return 100 * sum(text == x.output for text, x in zip(texts, examples, strict=True)) / len(examples)


def _padded(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    tensors = [torch.tensor(row[:LONGEST]) for row in rows]
    return nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD).to(device)


def _rate(step: int, warmup: int) -> float:
    """A factor of the learning rate: a linear warm-up, then the inverse square root of the step."""
    return min(step / warmup, math.sqrt(warmup / step))


def _sinusoids(length: int, size: int) -> Tensor:
    """The positions [L,D] of Vaswani et al. (2017)."""
    angles = torch.arange(length)[:, None] * torch.exp(torch.arange(0, size, 2) * (-math.log(1e4) / size))[None]
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
