"""``OnlineDecoder``: the chart search while the input arrives, for a unidirectional direct model.

Each symbol read fills one column of the chart, all output lengths in turn: ``online_table`` says why that is enough,
``online_cell`` fills one cell. After each column hypotheses of all lengths are compared, and those that have fallen
behind by more than the margin are dropped.

Shapes: P prefixes of a table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from noisychannel.decode.decoder import NoisyChannelDecoder
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.online_cell import fill_cell, partial_channel
from noisychannel.decode.online_table import (
    OnlineModels,
    Prefixes,
    Reading,
    Table,
    first_table,
    lengthened,
    picked,
    read_on,
)
from noisychannel.decode.proposals import Listed
from noisychannel.decode.table import Settings
from noisychannel.ids import BOS, EOS, PAD


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known of the output when some of the input has been read."""

    tokens: tuple[int, ...]
    """The best output prefix now."""
    stable: int
    """How many of its first tokens can no longer change."""
    score: float
    """What the best prefix is worth now."""


class OnlineDecoder:
    """Searches for the output of one input that arrives symbol by symbol.

    Without a margin and with a given ``max_length`` the search is that of ``NoisyChannelDecoder``, and ``finish``
    returns what its ``decode`` returns. The length of the input is not known while it is read: where no ``max_length``
    is given, outputs in each column are bounded by twice the symbols read so far, the current one included, plus ten.

    When x_i has been read, hypotheses of all lengths are compared. A prefix u that survived in some cell is worth

        w_direct·(⊕_{k≤i} (D(u,k) - S_u(k)) + S_u(i+1)) + w_channel·log p(x_1..x_i, z_i ≤ |u| | u)
            + w_lm·log p(u) + w_length·|u|

    with D its direct column: u has been emitted, and x_i was passed without another symbol. A hypothesis worth less
    than the best by more than ``margin`` is dropped: it proposes nothing any more. A shorter one that is still alive
    may propose the same prefix again in a later column, because the direct model may only have said it too early.

    The first ``stable`` tokens of a ``Progress`` are those that all live hypotheses, of all lengths, share. Whatever
    comes later extends one of these, so the stable tokens stand at the beginning of every later ``Progress`` and of
    every output of ``finish``. Without a margin the empty prefix stays alive, and nothing is stable before the end.

    To the channel an empty output explains nothing: with a channel the empty prefix is worth -inf. It is not dropped
    for that, but together with the last live hypothesis of one symbol.

    Args:
        decoder: Whose models, weights and settings are used. ``lm_proposals`` must be 0, and the direct model must be
            unidirectional.
        margin: In nats; infinite for none. A small one makes tokens stable early and the search fast, but may lose the
            output that would have won. Without one all survivors are kept, and each symbol takes more time and memory
            than the one before.
    """

    def __init__(self, decoder: NoisyChannelDecoder, margin: float = math.inf) -> None:
        direct, channel, lm = decoder.models.direct, decoder.models.channel, decoder.models.lm
        if direct.bidirectional:
            raise ValueError(
                "online decoding needs a unidirectional direct model: a bidirectional one reads the whole input first; "
                "train one with bidirectional=False"
            )
        if not margin >= 0:
            raise ValueError(f"margin must not be negative, but is {margin}")
        if decoder.settings.lm_proposals:
            raise ValueError("lm_proposals must be 0 for online decoding: only the direct model proposes there")
        if lm is not None and lm.reads_features:
            raise ValueError(
                "the language model reads features before an output, and online decoding has none; "
                "train one without features"
            )
        self.margin, self._decoder = margin, decoder
        self._models = OnlineModels(direct, channel, lm)
        self._settings = self._decoder._settings
        self._reading: Reading | None = None
        self._tables: list[Table] = []
        self._finished = False

    @torch.no_grad()
    def read(self, symbol: int) -> Progress:
        """Read one more input symbol (an id; EOS is read by ``finish``)."""
        self._check_open()
        if symbol in (PAD, BOS, EOS):
            raise ValueError(f"read takes the symbols of the input without PAD, BOS and EOS, but got id {symbol}")
        self._fill_column(symbol, last=False)
        return self._progress()

    @torch.no_grad()
    def finish(self, n_best: int = 1) -> list[Hypothesis]:
        """Read EOS: the best outputs. Where none reached EOS there is one, partial, with ``complete=False``."""
        self._check_open()
        if n_best < 1:
            raise ValueError(f"n_best must be at least 1, but is {n_best}")
        self._finished = True
        found = sorted(self._fill_column(EOS, last=True), key=lambda hypothesis: -hypothesis.score)[:n_best]
        if not found:
            return [self._best_partial()]
        assert self._reading is not None
        (asked,) = self._decoder.score([self._reading.symbols.tolist()], [[hypothesis.tokens for hypothesis in found]])
        return [
            replace(hypothesis, alignment=aligned.alignment, channel_alignment=aligned.channel_alignment)
            for hypothesis, aligned in zip(found, asked, strict=True)
        ]

    def _check_open(self) -> None:
        if self._finished:
            raise ValueError("the input has ended: finish was called; each input needs an OnlineDecoder of its own")

    def _fill_column(self, symbol: int, last: bool) -> list[Hypothesis]:
        """Read a symbol and fill its column; the complete outputs, which only the last column has."""
        models, settings, tables = self._models, self._settings, self._tables
        reading = self._reading = read_on(models, self._reading, symbol)
        longest = self._decoder.settings.longest_output(len(reading.symbols))
        proposable_V = settings.proposable(reading.direct.scores[-1])
        if not last:
            proposable_V[EOS] = -torch.inf
        proposable_11V = Listed.of(proposable_V[None, None])
        found: list[Hypothesis] = []
        if tables:
            tables[0] = lengthened(models, settings, reading, None, tables[0])
        else:
            tables.append(first_table(models, settings, reading))
        # An output of the greatest length ends in EOS.
        for length in range(1, longest + 1 if last else longest):
            if length > len(tables):
                break
            before, after = tables[length - 1], None
            if length < len(tables):
                after = tables[length] = lengthened(models, settings, reading, before, tables[length])
            if not bool(before.live.any()):
                continue
            cell = fill_cell(models, settings, reading, proposable_11V, before, after, length, last)
            tables[length - 1] = cell.before
            if last:
                found += self._complete(cell.candidates, length)
            if cell.after is not None and length < longest:
                tables[length:] = [cell.after, *tables[length + 1 :]]
        return found

    def _complete(self, candidates: Prefixes, length: int) -> list[Hypothesis]:
        """The candidates that end in EOS, with their exact scores."""
        ended: Prefixes = picked(candidates, (candidates.symbol == EOS).nonzero().squeeze(1))
        direct = ended.direct[:, -1]
        channel = None if ended.leave is None else ended.leave[:, 0]
        score = self._settings.weights.combine(direct, channel, ended.lm, length)
        return [
            Hypothesis(
                tokens=self._spell(length - 1, int(ended.parent[n])),
                score=float(score[n]),
                direct=float(direct[n]),
                channel=None if channel is None else float(channel[n]),
                lm=None if ended.lm is None else float(ended.lm[n]),
                length=length,
                alignment=None,
                channel_alignment=None,
                complete=True,
            )
            for n in range(len(score))
        ]

    def _best_partial(self) -> Hypothesis:
        """The best of the longest prefixes, all of which are live: there are none that extend them."""
        length, table = len(self._tables) - 1, self._tables[-1]
        I = table.objective.shape[1]
        row, i = divmod(int(table.objective.argmax()), I)
        prefixes = table.prefixes
        channel = partial_channel(prefixes, i, last=i == I - 1)
        return Hypothesis(
            tokens=self._spell(length, row),
            score=float(table.objective[row, i]),
            direct=float(prefixes.direct[row, i]),
            channel=None if channel is None else float(channel[row]),
            lm=None if prefixes.lm is None else float(prefixes.lm[row]),
            length=length,
            alignment=None,
            channel_alignment=None,
            complete=False,
        )

    def _progress(self) -> Progress:
        """Compare hypotheses of all lengths, drop those that have fallen behind, and see what the others share."""
        worth = [_worth(self._settings, table, length) for length, table in enumerate(self._tables)]
        best_of = [float(scores.max()) for scores in worth]
        best = max(best_of)
        length = best_of.index(best)
        tokens = self._spell(length, int(worth[length].argmax()))
        if self.margin < math.inf:
            tables = self._tables
            live = [table.live & (scores >= best - self.margin) for table, scores in zip(tables, worth, strict=True)]
            if len(tables) > 1 and self._models.channel is not None:
                live[0] = tables[0].live & live[1].any()
            self._tables = _cleared(tables, live)
        return Progress(tokens, self._shared(), best)

    def _shared(self) -> int:
        """The length of the longest common prefix of all live hypotheses, dropped ones having been cleared away."""
        length = 0
        while not bool(self._tables[length].live.any()) and len(self._tables[length + 1].objective) == 1:
            length += 1
        return length

    def _spell(self, length: int, row: int) -> tuple[int, ...]:
        tokens: list[int] = []
        for table in reversed(self._tables[1 : length + 1]):
            tokens.append(int(table.prefixes.symbol[row]))
            row = int(table.prefixes.parent[row])
        return tuple(reversed(tokens))


def _worth(settings: Settings, table: Table, length: int) -> Tensor:
    """What live hypotheses are worth when the newest position has been passed; -inf of the others: [P]."""
    prefixes = table.prefixes
    channel = partial_channel(prefixes, prefixes.direct.shape[1] - 1, last=False)
    score = settings.weights.combine(table.past, channel, prefixes.lm, length)
    # Whatever the sign of its weight, a channel that says -inf recommends nothing.
    impossible = ~table.live if channel is None else ~table.live | (channel == -torch.inf)
    return score.masked_fill(impossible, -torch.inf)


def _cleared(tables: list[Table], live: list[Tensor]) -> list[Table]:
    """The tables with nothing but live prefixes and the beginnings of these, whose columns they go on from."""
    keep = [alive.clone() for alive in live]
    for length in range(len(tables) - 1, 0, -1):
        keep[length - 1][tables[length].prefixes.parent[keep[length]]] = True
    cleared: list[Table] = []
    for length, (table, alive) in enumerate(zip(tables, live, strict=True)):
        if not bool(keep[length].any()):
            break
        table = table._replace(reach_objective=table.reach_objective.masked_fill(~alive[:, None], -torch.inf))
        if length:
            place = keep[length - 1].cumsum(0) - 1
            table = table._replace(prefixes=table.prefixes._replace(parent=place[table.prefixes.parent]))
        cleared.append(picked(table, keep[length].nonzero().squeeze(1)))
    return cleared
