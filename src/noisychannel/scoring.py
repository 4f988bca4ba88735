"""Log-probabilities and best alignments of given pairs under every model of a run.

Shapes: B batch, I input positions, J output positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch

from noisychannel.data.batches import make_batch, plan_batches
from noisychannel.data.corpus import Corpus, Sequences
from noisychannel.data.rows import Row
from noisychannel.errors import BadInputError
from noisychannel.ids import UNK
from noisychannel.models import SSNT
from noisychannel.models.registry import ROLES, Role
from noisychannel.runs import RunDirectory

ROWS_AT_ONCE = 4096
"""Rows read before any is scored: enough to batch by length, few enough for any stream."""


class PairScorer:
    """Scores pairs by the models of a run."""

    def __init__(
        self, run: RunDirectory, device: torch.device, roles: Sequence[Role] = (), batch_size: int = 64
    ) -> None:
        self.input_codec, self.output_codec = run.codecs()
        roles = roles or [role for role in ROLES if run.has_model(role)]
        if not roles:
            raise BadInputError(f"{run.path}: holds no trained model; train one with noisychannel train")
        self.models = {role: run.load_model(role, device) for role in roles}
        self.device = device
        self.batch_size = batch_size
        self.unknown = 0
        """Unknown symbols met so far."""

    def score(self, rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
        """One record a row, in order: the symbols as the models see them, each model's log-probability, alignments."""
        stream = iter(rows)
        while chunk := list(islice(stream, ROWS_AT_ONCE)):
            yield from self._score_chunk(chunk)

    def _score_chunk(self, rows: list[Row]) -> list[dict[str, Any]]:
        tagged_inputs = [self.input_codec.encode(row.input, row.features) for row in rows]
        tagged_outputs = [self.output_codec.encode(row.output, row.features) for row in rows]
        outputs = [self.output_codec.encode(row.output) for row in rows]
        records: list[dict[str, Any]] = []
        for row, input_ids, output_ids in zip(rows, tagged_inputs, outputs, strict=True):
            self.unknown += input_ids.count(UNK) + output_ids.count(UNK)
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

    @torch.no_grad()
    def _add_scores(self, role: Role, corpus: Corpus, records: list[dict[str, Any]]) -> None:
        model: Any = self.models[role]
        for rows in plan_batches(corpus, self.batch_size, batch_symbols=None, order=None):
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
