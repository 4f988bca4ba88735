"""``OnlineDecoder``: the chart search while the input arrives, for a unidirectional direct model.

Each symbol read fills one column of the chart, all output lengths in turn. ``online_table`` says why that is enough,
``online_cell`` fills one cell. After each column hypotheses of all lengths are compared, and those that have fallen
behind by more than the margin are dropped.

Shapes: P prefixes of a table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from noisychannel.decode.decoder import NoisyChannelDecoder
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.memory import DOUBLE, SearchTooLargeError, room_of
from noisychannel.decode.online_cell import fill_cell, partial_channel, with_channel
from noisychannel.decode.online_table import (
    OnlineModels,
    OnlineTable,
    Prefixes,
    Reading,
    first_table,
    lengthened,
    read_on,
)
from noisychannel.decode.plan import SearchPlan
from noisychannel.decode.proposals import RankedScores
from noisychannel.decode.rows import picked
from noisychannel.decode.sentences import check_n_best
from noisychannel.ids import BOS, EOS, PAD
from noisychannel.models.protocols import InputTerm, OnlineTransducer, SourceModel


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of the output after some of the input has been read."""

    tokens: tuple[int, ...]
    """The best output prefix now."""
    stable: int
    """How many of its first tokens can no longer change."""
    score: float
    """The value of the best prefix now."""


class OnlineDecoder:
    """Searches for the output of one input that arrives symbol by symbol.

    Without a margin and with a given ``max_length`` the search is that of ``NoisyChannelDecoder``, and ``finish``
    returns what its ``decode`` returns. The length of the input is not known while it is read. If the longest output
    depends on it (no ``max_length``, or ``max_growth``), the symbols read so far count, the current one included.

    After x_i has been read, hypotheses of all lengths are compared. The value of a prefix u that survived in some cell
    is

        w_direct·(⊕_{k≤i} (D(u,k) - S_u(k)) + S_u(i+1)) + w_channel·log p(x_1..x_i, z_i ≤ |u| | u)
            + w_lm·log p(u) + w_length·|u| + further source terms

    with D its direct column: u has been emitted, and x_i was passed without another symbol. A hypothesis whose value is
    below the best by more than ``margin`` is dropped: it proposes nothing any more. A shorter one that is still alive
    may propose the same prefix again in a later column.

    The first ``stable`` tokens of a ``Progress`` are those that all live hypotheses, of all lengths, share. Everything
    that comes later extends one of these, so the stable tokens stand at the beginning of every later ``Progress`` and
    of every output of ``finish``. Without a margin the empty prefix stays alive, and nothing is stable before the end.

    To the channel an empty output explains nothing, so with a channel the value of the empty prefix is -inf. It is not
    dropped for that, but together with the last live hypothesis of one symbol.

    Args:
        decoder: Its models, weights and settings are used. ``lm_proposals`` must be 0, and the direct model must be
            unidirectional.
        margin: In nats; infinite for none. A small margin makes tokens stable early and the search fast, but may lose
            the output that would have won. Without a margin all survivors are kept, and each symbol takes more time and
            memory than the one before.
    """

    def __init__(self, decoder: NoisyChannelDecoder, margin: float = math.inf) -> None:
        direct, channel = decoder.models.direct, decoder.models.channel
        sources: dict[str, SourceModel[Any]] = {}
        if direct.bidirectional:
            raise ValueError(
                "online decoding needs a unidirectional direct model: a bidirectional one reads the whole input first; "
                "train one with bidirectional=False"
            )
        if not margin >= 0:
            raise ValueError(f"margin must not be negative, but is {margin}")
        if decoder.settings.lm_proposals:
            raise ValueError("lm_proposals must be 0 for online decoding: only the direct model proposes there")
        if decoder.settings.channel_words is not None:
            raise ValueError(
                "channel_words must not be set for online decoding: the input's words are not known before"
            )
        if decoder.settings.per_symbol:
            raise ValueError("per_symbol must be off for online decoding: lengths are known at the end of the input")
        for name, model in decoder.models.sources.items():
            if isinstance(model, InputTerm):
                raise ValueError(
                    f"the term {name} reads the whole input first, so online decoding cannot use it; "
                    f"choose a system or weights without {name}"
                )
            sources[name] = model
            if model.reads_features:
                kind = "language model" if name == "lm" else f"term {name}"
                raise ValueError(
                    f"the {kind} reads features before an output, and online decoding has none; "
                    "train one without features"
                )
        self.margin, self._decoder, self._plan = margin, decoder, decoder.plan
        self._models = OnlineModels(
            _stepping("direct model", direct), None if channel is None else _stepping("channel", channel), sources
        )
        self._sizes = decoder.sizes
        self._room = room_of(decoder.settings, decoder.device)
        self._reading: Reading | None = None
        self._tables: list[OnlineTable] = []
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
    def finish(self, n_best: int = 1, align: bool = True) -> list[Hypothesis]:
        """Read EOS: the best outputs. If none reached EOS there is one, partial, with ``complete=False``."""
        self._check_open()
        check_n_best(n_best)
        self._finished = True
        found = sorted(self._fill_column(EOS, last=True), key=lambda hypothesis: -hypothesis.score)
        if not found:
            return [self._best_partial()]
        assert self._reading is not None
        inputs = [self._reading.symbols.tolist()]
        best = self._decoder.with_final_terms(inputs, [()], [found], n_best)
        return (self._decoder.aligned(inputs, [()], best) if align else best)[0]

    def _check_open(self) -> None:
        if self._finished:
            raise ValueError("the input has ended: finish was called; each input needs an OnlineDecoder of its own")

    def _fill_column(self, symbol: int, last: bool) -> list[Hypothesis]:
        """Read a symbol and fill its column; the complete outputs, which only the last column has."""
        models, plan, tables = self._models, self._plan, self._tables
        reading = self._reading = read_on(models, self._reading, symbol)
        longest = plan.settings.longest_output(len(reading.symbols))
        proposable_V = plan.proposable(reading.direct.scores[-1])
        if not last:
            proposable_V[EOS] = -torch.inf
        proposable_11V = RankedScores.of(proposable_V[None, None])
        found: list[Hypothesis] = []
        if tables:
            tables[0] = lengthened(models, plan, reading, None, tables[0])
        else:
            tables.append(first_table(models, plan, reading))
        # An output of the greatest length ends in EOS.
        for length in range(1, longest + 1 if last else longest):
            if length > len(tables):
                break
            self._require_memory(length)
            before, after = tables[length - 1], None
            if length < len(tables):
                after = tables[length] = lengthened(models, plan, reading, before, tables[length])
            if not bool(before.live.any()):
                continue
            cell = fill_cell(models, plan, reading, proposable_11V, before, after, length, last)
            tables[length - 1] = cell.before
            if last:
                found += self._complete(cell.candidates, length)
            if cell.after is not None and length < longest:
                tables[length:] = [cell.after, *tables[length + 1 :]]
        return found

    def _require_memory(self, length: int) -> None:
        """Refuse to go on if the tables do not fit any more. The one that grows is there twice while it does."""
        needed = sum(map(self._bytes, self._tables)) + 2 * self._bytes(self._tables[length - 1])
        if needed > self._room:
            assert self._reading is not None
            what = f"reading symbol {len(self._reading.symbols)} with k2 {self._plan.settings.k2}, margin {self.margin}"
            raise SearchTooLargeError(what, needed, self._room, "use a smaller margin or k2", 2 * needed)

    def _bytes(self, table: OnlineTable) -> int:
        P, I = table.objective.shape
        return P * (self._sizes.prefix + self._sizes.scored + self._sizes.candidate + 8 * I * DOUBLE)

    def _complete(self, candidates: Prefixes, length: int) -> list[Hypothesis]:
        """The candidates that end in EOS, with their exact scores."""
        ended: Prefixes = picked(candidates, (candidates.symbol == EOS).nonzero().squeeze(1))
        direct = ended.direct[:, -1]
        terms = with_channel(ended, None if ended.leave is None else ended.leave[:, 0])
        score = self._plan.weights.combine(direct, terms, length)
        return [
            self._hypothesis(
                self._spell(length - 1, int(ended.parent[n])), score[n], direct[n], terms, n, length, complete=True
            )
            for n in range(len(score))
        ]

    def _best_partial(self) -> Hypothesis:
        """The best of the longest prefixes, all of which are live: nothing extends them."""
        length, table = len(self._tables) - 1, self._tables[-1]
        I = table.objective.shape[1]
        row, i = divmod(int(table.objective.argmax()), I)
        prefixes = table.prefixes
        terms = with_channel(prefixes, partial_channel(prefixes, i, last=i == I - 1))
        score, direct = table.objective[row, i], prefixes.direct[row, i]
        return self._hypothesis(self._spell(length, row), score, direct, terms, row, length, complete=False)

    def _hypothesis(
        self,
        tokens: tuple[int, ...],
        score: Tensor,
        direct: Tensor,
        terms: dict[str, Tensor],
        row: int,
        length: int,
        complete: bool,
    ) -> Hypothesis:
        values = {"direct": float(direct), **{name: float(term[row]) for name, term in terms.items()}}
        return Hypothesis.of(tokens, float(score), values, length, complete)

    def _progress(self) -> Progress:
        """Compare hypotheses of all lengths, drop those that have fallen behind, and see what the others share."""
        values = [_values(self._plan, table, length) for length, table in enumerate(self._tables)]
        best_of = [float(scores.max()) for scores in values]
        best = max(best_of)
        length = best_of.index(best)
        tokens = self._spell(length, int(values[length].argmax()))
        if self.margin < math.inf:
            tables = self._tables
            live = [table.live & (scores >= best - self.margin) for table, scores in zip(tables, values, strict=True)]
            if len(tables) > 1 and self._models.channel is not None:
                live[0] = tables[0].live & live[1].any()
            self._tables = _cleared(tables, live)
        return Progress(tokens, self._shared(), best)

    def _shared(self) -> int:
        """The length of the longest common prefix of all live hypotheses; dropped ones have been cleared away."""
        length = 0
        while not bool(self._tables[length].live.any()) and len(self._tables[length + 1].objective) == 1:
            length += 1
        return length

    def _spell(self, length: int, row: int) -> tuple[int, ...]:
        """A6: follow the back-pointers of a prefix."""
        tokens: list[int] = []
        for table in reversed(self._tables[1 : length + 1]):
            tokens.append(int(table.prefixes.symbol[row]))
            row = int(table.prefixes.parent[row])
        return tuple(reversed(tokens))


def _stepping(name: str, model: object) -> OnlineTransducer[Any]:
    """Refuse a model whose two sides cannot both be built step by step."""
    for method in ("start_inputs", "step_inputs", "start_outputs", "step_outputs"):
        if not hasattr(model, method):
            raise ValueError(
                f"online decoding steps both sides of the {name}, but {type(model).__name__} has no method {method}"
            )
    return cast(OnlineTransducer[Any], model)


def _values(plan: SearchPlan, table: OnlineTable, length: int) -> Tensor:
    """The values of live hypotheses after the newest position has been passed, -inf for the others: [P]."""
    prefixes = table.prefixes
    channel = partial_channel(prefixes, prefixes.direct.shape[1] - 1, last=False)
    score = plan.weights.combine(table.past, with_channel(prefixes, channel), length)
    # A channel score of -inf rules a hypothesis out, whatever the sign of its weight.
    impossible = ~table.live if channel is None else ~table.live | (channel == -torch.inf)
    return score.masked_fill(impossible, -torch.inf)


def _cleared(tables: list[OnlineTable], live: list[Tensor]) -> list[OnlineTable]:
    """The tables with live prefixes and their beginnings only; columns of longer prefixes continue from these."""
    keep = [alive.clone() for alive in live]
    for length in range(len(tables) - 1, 0, -1):
        keep[length - 1][tables[length].prefixes.parent[keep[length]]] = True
    cleared: list[OnlineTable] = []
    for length, (table, alive) in enumerate(zip(tables, live, strict=True)):
        if not bool(keep[length].any()):
            break
        table = table._replace(reach_objective=table.reach_objective.masked_fill(~alive[:, None], -torch.inf))
        if length:
            place = keep[length - 1].cumsum(0) - 1
            table = table._replace(prefixes=table.prefixes._replace(parent=place[table.prefixes.parent]))
        cleared.append(picked(table, keep[length].nonzero().squeeze(1)))
    return cleared
