"""Decoding a held-out set and measuring what comes out: what ``tune`` and ``evaluate`` have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from noisychannel.data.codec import Codec
from noisychannel.data.files import find_files, read_lines
from noisychannel.data.rows import Row
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.errors import BadInputError
from noisychannel.ids import UNK
from noisychannel.noisy_channel import NoisyChannel, Output
from noisychannel.runs import RunDirectory

ROUNDING = 1e-3
"""Objectives of one output, in nats, that differ by less are the same, computed in another order."""


@dataclass(frozen=True)
class HeldOut:
    """Inputs with what should come out."""

    name: str
    inputs: list[str]
    features: list[tuple[str, ...]]
    references: list[list[str]]
    """As the models see text: lower-cased if training was, and so on."""
    groups: list[str] = field(default_factory=list)
    """Empty texts if there are none."""
    columns: dict[str, list[str]] = field(default_factory=dict)
    """The values of columns that are ignored but have a name."""

    @staticmethod
    def read(name: str, rows: Iterable[Row], further: Sequence[str], model: NoisyChannel) -> HeldOut:
        """From pairs; ``further`` are files with more references, parallel to the pairs."""
        listed = list(rows)
        texts = [[row.output] for row in listed]
        for pattern in further:
            lines = [line.text for file in find_files([pattern]) for line in read_lines(file)]
            if len(lines) != len(listed):
                raise BadInputError(f"{pattern}: {len(lines)} references, but there are {len(listed)} inputs")
            for references, line in zip(texts, lines, strict=True):
                references.append(line)
        seen = [[as_seen(text, model.output_codec) for text in references] for references in texts]
        named = [dict(row.further) for row in listed]
        return HeldOut(
            name,
            [row.input for row in listed],
            [row.features for row in listed],
            seen,
            [row.group for row in listed],
            {column: [values[column] for values in named] for column in (named[0] if named else ())},
        )

    @staticmethod
    def of_all(parts: Sequence[HeldOut]) -> HeldOut:
        """The parts of one set, one after another."""
        return HeldOut(
            parts[0].name,
            [text for part in parts for text in part.inputs],
            [tags for part in parts for tags in part.features],
            [texts for part in parts for texts in part.references],
            [group for part in parts for group in part.groups],
            {column: [value for part in parts for value in part.columns[column]] for column in parts[0].columns},
        )

    def units(self, by: str) -> list[Hashable]:
        """What each item is drawn with when a bootstrap resamples: items of one unit are drawn together."""
        known: dict[str, Sequence[Hashable]] = {
            "input": self.inputs,
            "line": range(len(self.inputs)),
            "output": [references[0] for references in self.references],
            **({"features": self.features} if any(self.features) else {}),
            **({"group": self.groups} if any(self.groups) else {}),
            **self.columns,
        }
        if by not in known:
            raise BadInputError(
                f"--resample_by: {self.name} has no {by!r}; there are {', '.join(known)} "
                "(--columns with -NAME names a further column)"
            )
        return list(known[by])


def as_seen(text: str, codec: Codec) -> str:
    """A text as a model that writes it could write it."""
    return codec.splitter.join(codec.split(text))


def rows_of_groups(run: RunDirectory, rows: Iterable[Row]) -> dict[str, list[Row]]:
    """What each group of a run has to decode, by its name.

    All rows are of the one group '' where there are none. A run that is itself a group has the rows of that group, and
    those that name none.
    """
    header = run.header()
    found: dict[str, list[Row]] = {group: [] for group in header["groups"]}
    if found.keys() == {""}:
        own = header.get("group", "")
        return {"": [row for row in rows if not own or row.group in ("", own)]}
    for row in rows:
        if row.group not in found:
            raise BadInputError(f"{row.where}: the run has no group {row.group!r}; it has {', '.join(found)}")
        found[row.group].append(row)
    return found


class Decoded(NamedTuple):
    """A held-out set decoded by one system."""

    outputs: list[list[Output]]
    seconds: float


def decode_held_out(
    model: NoisyChannel,
    held_out: HeldOut,
    n_best: int,
    batch_size: int,
    progress: Callable[[int], None],
    align: bool = True,
) -> Decoded:
    began = time.perf_counter()
    outputs = model.batch(held_out.inputs, n_best, held_out.features, batch_size, progress, align)
    return Decoded(outputs, time.perf_counter() - began)


def with_all_terms(model: NoisyChannel, held_out: HeldOut, decoded: Decoded) -> list[list[Hypothesis]]:
    """The same hypotheses, in the same order, with the terms of every loaded model filled in."""
    weights = Weights(1.0, float("channel" in model.models), float("lm" in model.models))
    asked = model.reweighted(weights)
    lists = [[output.hypothesis for output in best] for best in decoded.outputs]
    missing = [
        n
        for n, hypotheses in enumerate(lists)
        if (weights.channel and any(h.complete and h.channel is None for h in hypotheses))
        or (weights.lm and any(h.complete and h.lm is None for h in hypotheses))
    ]
    scored = asked.decoder.rerank(
        [asked.input_codec.encode(held_out.inputs[n], held_out.features[n]) for n in missing],
        [[h.tokens for h in lists[n]] for n in missing],
        [asked.context(held_out.features[n]) for n in missing],
        align=False,
    )
    for n, hypotheses in zip(missing, scored, strict=True):
        terms = {h.tokens: h for h in hypotheses}
        lists[n] = [replace(h, channel=terms[h.tokens].channel, lm=terms[h.tokens].lm) for h in lists[n]]
    return lists


def search_errors(model: NoisyChannel, held_out: HeldOut, decoded: Decoded) -> int:
    """How many wrong outputs the search is to blame for: the model itself prefers the (first) reference."""
    asked: dict[int, tuple[list[int], list[int]]] = {}
    for n, references in enumerate(held_out.references):
        if decoded.outputs[n][0].text in references:
            continue
        ids = model.input_codec.encode(held_out.inputs[n], held_out.features[n])
        reference = model.output_codec.encode(references[0])
        # What no search may find, however wide, is not its fault.
        longest = model.settings.longest_output(len(ids))
        if UNK not in reference and len(reference) <= longest:
            asked[n] = ids, reference[:-1]
    scored = model.decoder.rerank(
        [ids for ids, _ in asked.values()],
        [[tokens] for _, tokens in asked.values()],
        [model.context(held_out.features[n]) for n in asked],
        align=False,
    )
    found = [decoded.outputs[n][0].hypothesis for n in asked]
    return sum(
        not ours.complete or preferred.score > ours.score + ROUNDING
        for ours, (preferred,) in zip(found, scored, strict=True)
    )


def average_lagging(outputs: Iterable[Output], input_lengths: Iterable[int]) -> float | None:
    """How many input symbols the direct model is behind a writer that keeps pace with the input (Ma et al., 2019).

    g(j) is how much of the input had been read when output j was emitted; EOS counts on both sides. Outputs without an
    alignment do not count; None if there are no others.
    """
    lags = []
    for output, length in zip(outputs, input_lengths, strict=True):
        alignment = output.hypothesis.alignment
        if alignment is None:
            continue
        read = [i + 1 for i in alignment]
        pace = length / len(read)
        until = next(j for j, g in enumerate(read) if g >= length) + 1
        lags.append(sum(g - j * pace for j, g in enumerate(read[:until])) / until)
    return sum(lags) / len(lags) if lags else None
