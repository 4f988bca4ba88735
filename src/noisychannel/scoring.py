"""Log-probabilities and best alignments of given pairs under every model of a run.

Shapes: B batch, I input positions, J output positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from noisychannel.arguments import Count, check_bounds
from noisychannel.data.batches import Rows, make_batch, plan_batches
from noisychannel.data.corpus import Corpus, Sequences
from noisychannel.data.files import BadLine
from noisychannel.data.rows import Row
from noisychannel.decode.memory import gib, pair_bytes, parts, room_of, widest_layer
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError
from noisychannel.models import SSNT
from noisychannel.models.registry import ROLES, Role
from noisychannel.refused_lines import RefusedLines
from noisychannel.remarks import Remarks
from noisychannel.runs import RunDirectory

MAX_SYMBOLS = 1000
"""Longer pairs are not scored unless the caller allows it."""
ROWS_AT_ONCE = 4096
"""Rows read before any is scored: enough to batch by length, few enough for any stream."""


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """How to score pairs.

    Args:
        max_symbols: Pairs with a longer side than this are not scored, but reported.
        batch_size: Pairs scored together.
    """

    max_symbols: Count = MAX_SYMBOLS
    batch_size: Count = 64

    def __post_init__(self) -> None:
        check_bounds(self)


class PairScorer:
    """Scores pairs by the models of a run."""

    def __init__(
        self,
        run: RunDirectory,
        device: torch.device,
        roles: Sequence[Role] = (),
        options: ScoreOptions = ScoreOptions(),  # noqa: B008 (frozen)
        report: Callable[[str], None] = print,
    ) -> None:
        self.input_codec, self.output_codec = run.codecs()
        roles = roles or [role for role in ROLES if run.has_model(role)]
        if not roles:
            raise BadInputError(f"{run.path}: holds no trained model; train one with noisychannel train")
        self.models = {role: run.load_model(role, device) for role in roles}
        self.device = device
        self.layers = {role: widest_layer(model) for role, model in self.models.items()}
        self.room = room_of(SearchSettings(), device)
        """The bytes that scoring may use."""
        self.options = options
        self.remarks = Remarks()
        self.refused = RefusedLines("scored", report)
        self.blank = 0
        """Blank lines so far, which are skipped."""

    def score(self, rows: Iterable[Row | BadLine | None]) -> Iterator[dict[str, Any]]:
        """One record a row, in order: the symbols as the models see them, each model's log-probability, alignments.

        A line that cannot be scored is reported, and has nulls in its record. None is a blank line.
        """
        stream = self._without_blanks(rows)
        while chunk := list(islice(stream, ROWS_AT_ONCE)):
            problems = [self._problem(row) for row in chunk]
            good = [row for row, problem in zip(chunk, problems, strict=True) if isinstance(row, Row) and not problem]
            scored = iter(self._score_chunk(good) if good else ())
            for row, problem in zip(chunk, problems, strict=True):
                yield self._refused(row, problem) if problem else next(scored)

    def _without_blanks(self, rows: Iterable[Row | BadLine | None]) -> Iterator[Row | BadLine]:
        for row in rows:
            if row is None:
                self.blank += 1
            else:
                yield row

    def _problem(self, row: Row | BadLine) -> str:
        """Why a line cannot be scored; empty if it can."""
        if isinstance(row, BadLine):
            return row.reason
        inputs, outputs = len(self.input_codec.split(row.input)), len(self.output_codec.split(row.output))
        if max(inputs, outputs) > self.options.max_symbols:
            return f"{row.where}: more symbols than --max-symbols {self.options.max_symbols}"
        lengths = inputs + len(row.features) + 1, outputs + len(row.features) + 1
        needed = max(pair_bytes(layer, *lengths) for layer in self.layers.values())
        if needed > self.room:
            return (
                f"{row.where}: scoring {outputs} symbols given {inputs} needs about {gib(needed)} GiB, more than the "
                f"{gib(self.room)} GiB that there are; split the pair"
            )
        return ""

    def _refused(self, row: Row | BadLine, problem: str) -> dict[str, Any]:
        """The record of a line that cannot be scored."""
        self.refused.add(problem)
        text = (
            {"input": None, "output": None} if isinstance(row, BadLine) else {"input": row.input, "output": row.output}
        )
        return text | dict.fromkeys(self.models)

    def _score_chunk(self, rows: list[Row]) -> list[dict[str, Any]]:
        tagged_inputs = [self.input_codec.encode(row.input, row.features) for row in rows]
        tagged_outputs = [self.output_codec.encode(row.output, row.features) for row in rows]
        outputs = [self.output_codec.encode(row.output) for row in rows]
        records: list[dict[str, Any]] = []
        for row, input_ids, output_ids in zip(rows, tagged_inputs, outputs, strict=True):
            self.remarks.add(row.where, self.input_codec.unknown(row.input, row.features))
            self.remarks.add(row.where, self.output_codec.unknown(row.output))
            records.append(
                {
                    "input": row.input,
                    "output": row.output,
                    "features": list(row.features),
                    "input_symbols": [self.input_codec.names[i] for i in input_ids],
                    "output_symbols": [self.output_codec.names[i] for i in output_ids],
                }
            )
        lm: Any = self.models.get("lm")
        ids = {
            "tagged_inputs": tagged_inputs,
            "outputs": outputs,
            "tagged_outputs": tagged_outputs,
            "all_outputs": tagged_outputs if lm is not None and lm.reads_features else outputs,
        }
        for role in self.models:
            corpus = Corpus.of(ROLES[role].trained_on, lambda name: Sequences.of(ids[name]))
            self._add_scores(role, corpus, records)
        return records

    def _plan(self, role: Role, corpus: Corpus) -> Iterator[Rows]:
        """Batches that fit."""
        outputs = corpus.outputs.lengths
        inputs = outputs if corpus.inputs is None else corpus.inputs.lengths
        for rows in plan_batches(corpus, self.options.batch_size, batch_symbols=None, order=None):
            sizes = [pair_bytes(self.layers[role], int(inputs[n]), int(outputs[n])) for n in rows]
            yield from (rows[part] for part in parts(sizes, self.room))

    @torch.no_grad()
    def _add_scores(self, role: Role, corpus: Corpus, records: list[dict[str, Any]]) -> None:
        model: Any = self.models[role]
        for rows in self._plan(role, corpus):
            batch = make_batch(corpus, rows).to(self.device)
            scores = model.log_prob(*batch.arguments).tolist()
            for n, score in zip(rows, scores, strict=True):
                records[n][role] = score
            if isinstance(model, SSNT):
                best_B, positions_BJ = model.viterbi(*batch.arguments)
                key = "alignment" if role == "direct" else "channel_alignment"
                for n, best, positions in zip(rows, best_B.tolist(), positions_BJ.tolist(), strict=True):
                    records[n][f"{role}_viterbi"] = best
                    records[n][key] = [i for i in positions if i >= 0]
