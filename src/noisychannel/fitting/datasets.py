"""The files of a fit: pairs of each part, words, and which run is trained on what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from noisychannel.atomic import write_bytes
from noisychannel.data.prepare import DataConfig
from noisychannel.data.rows import Columns, Row
from noisychannel.data.standard_input import SPOOLED
from noisychannel.fitting.facts import Facts
from noisychannel.fitting.folds import Part
from noisychannel.fitting.inputs import choose_words
from noisychannel.fitting.options import FitOptions, UserData, write_rows
from noisychannel.fitting.plan import Plan
from noisychannel.fitting.work import DATA, Work

MATERIAL = 20_000
"""So many words are enough material for made-up pairs."""
TAGGED_SHARE = 0.5
"""The language model is trained on words with tags if so many of those asked for have got some."""
WORD_COLUMNS = Columns(("output", "features"), ("", ""))
"""Of files of words that we write."""


class Datasets:
    """What the runs of a fit are trained on."""

    def __init__(self, options: FitOptions, data: UserData, plan: Plan, facts: Facts, work: Work) -> None:
        self.options, self.data, self.plan, self.facts, self.work = options, data, plan, facts, work

    @cached_property
    def words(self) -> tuple[Row, ...]:
        """The words, or those that are not outputs of pairs if the plan leaves these out."""
        if not self.plan.without_outputs:
            return self.data.words
        tagged = self.facts.tagged_words
        known = {(row.output, row.features if tagged else ()) for row in self.data.pairs}
        return tuple(row for row in self.data.words if (row.output, row.features if tagged else ()) not in known)

    def write(self, parts: Sequence[Part]) -> None:
        """The pairs of each part, and the words if they are not as the user gave them."""
        for part in parts:
            write_rows(self.work.train_file(part.name), part.train, self.data.columns)
            if part.held_out:
                write_rows(self.work.held_out_file(part.name), part.held_out, self.data.columns)
        if self.plan.without_outputs:
            write_rows(self.work.unlisted_file, self.words, WORD_COLUMNS)
        if len(self.words) > MATERIAL:
            material = choose_words(self.words, (), MATERIAL, self.facts.tagged_words, self.options.seed)
            write_rows(self.work.material_file, material, WORD_COLUMNS)

    def of(self, part: Part, made: Mapping[str, int]) -> DataConfig:
        """The data of the run of a part. ``made``: how many words of each part have been given inputs."""
        train = str(self.work.train_file(part.name))
        data = replace(
            self.data.config,
            train=[train],
            dev=[str(self.work.held_out_file(part.name)) if part.held_out else train],
            vocabularies=str(self.work.vocabulary),
        )
        given = made.get(part.name, 0)
        # If few words have tags, the language model is better off with all words, and without tags.
        if self.plan.words_given_tags and given >= TAGGED_SHARE * self.plan.words_given_inputs > 0:
            data = _with_words(data, self.work.words_file(part.name))
        elif self.plan.without_outputs:
            data = _with_words(data, self.work.unlisted_file if self.words else None)
        return replace(data, further=[str(self.work.further_file(part.name))]) if given else data

    def everything(self, last: Part) -> DataConfig:
        """All pairs and words, for the vocabularies.

        A symbol of a held-out pair is then in the vocabulary, but its models have not seen it.
        """
        data = replace(self.of(last, {}), vocabularies=None)
        held_out = [str(self.work.held_out_file(last.name))] if last.held_out else []
        return replace(data, train=[*data.train, *held_out])

    def without_lm(self, data: DataConfig, made_up: int) -> DataConfig:
        """The data of a run without a language model: words are only material for made-up pairs; some are enough."""
        if not made_up or not data.unpaired:
            return _with_words(data, None)
        return _with_words(data, self.work.material_file) if len(self.words) > MATERIAL else data

    def settled(self, last: Part, made: Mapping[str, int]) -> DataConfig:
        """The data of the finished run, with copies of the files in the run directory."""
        data, home = self.of(last, made), self.work.run_dir / DATA
        home.mkdir(exist_ok=True)

        def kept(files: Sequence[str], name: str) -> list[str]:
            """Ours, and what came from standard input, are copied; the files of the user stay where they are."""
            settled = []
            for file in map(Path, files):
                if file.is_relative_to(self.work.path) or file.name == SPOOLED:
                    write_bytes(home / name, file.read_bytes())
                    file = home / name
                settled.append(str(file))
            return settled

        return replace(
            data,
            train=kept(data.train, "train.tsv"),
            dev=kept(data.dev, "dev.tsv" if last.held_out else "train.tsv"),
            further=kept(data.further, "inputs.tsv"),
            unpaired=kept(data.unpaired, "words.tsv"),
            vocabularies=None,
        )


def _with_words(data: DataConfig, file: Path | None) -> DataConfig:
    """With one file of words that we wrote, or without words."""
    if file is None:
        return replace(data, unpaired=[], unpaired_columns="output")
    return replace(data, unpaired=[str(file)], unpaired_columns=",".join(WORD_COLUMNS.roles))
