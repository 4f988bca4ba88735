"""The reverse runs of a fit: their data, their configurations, and the further pairs that come from them.

A reverse run is an ordinary run whose columns are exchanged: its direct model reads an output and writes the input, and
the tags before it if the words have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from noisychannel.data.prepare import DataConfig
from noisychannel.data.rows import Columns, Row, read_pairs
from noisychannel.fitting.configs import reverse_config
from noisychannel.fitting.datasets import WORD_COLUMNS
from noisychannel.fitting.facts import Facts
from noisychannel.fitting.folds import Part
from noisychannel.fitting.inputs import choose_words, collect, do_tasks, make_tasks
from noisychannel.fitting.options import SEPARATOR, FitOptions, UserData, write_rows
from noisychannel.fitting.plan import Plan
from noisychannel.fitting.tagging import TagSymbols
from noisychannel.fitting.work import Work
from noisychannel.runs import RunDirectory
from noisychannel.training.config import RunConfig
from noisychannel.training.run import prepare_run

MARKED = Columns.parse("input,output", "columns", ("input", "output"))
"""Of pairs whose tags stand in front of their inputs."""


class ReverseRuns:
    """The reverse runs of all parts."""

    def __init__(
        self, options: FitOptions, data: UserData, words: Sequence[Row], plan: Plan, facts: Facts, work: Work
    ) -> None:
        self.options, self.data, self.words, self.plan, self.work = options, data, words, plan, work
        self.tagged = facts.tagged_words
        self.tags = TagSymbols(data.pairs) if plan.words_given_tags else None

    def write_symbols(self) -> None:
        """Words as pairs, so that the vocabularies have the symbols and tags of all words that are given inputs."""
        some = self.data.pairs[0].input
        rows = [word._replace(input=word.output if self.plan.copy else some, further=()) for word in self._words(())]
        if self.tags is not None:
            rows = [row._replace(features=self.tags.tag_sets[0]) for row in rows]
        write_rows(self.work.symbols_file, rows, self.data.columns)

    def prepare(self, everything: DataConfig) -> None:
        """The vocabularies that all reverse runs share, from the pairs and words of ``everything``."""
        if not RunDirectory(self.work.reverse_vocabulary).header_file.exists():
            prepare_run(self._config(everything, self.work.reverse_vocabulary), lambda line: None)

    def config(self, part: Part, data: DataConfig) -> RunConfig:
        """The reverse run of a part whose own run is trained on ``data``."""
        return self._config(replace(data, vocabularies=str(self.work.reverse_vocabulary)), self.work.reverse(part.name))

    def give_inputs(self, parts: Sequence[Part], advance: Callable[[float], None]) -> dict[str, int]:
        """Decode the words with the reverse models, and write the further pairs of each part; how many there are."""
        tasks = {
            part.name: make_tasks(
                self.work.reverse(part.name),
                self._words(part.train),
                self.work.inputs(part.name),
                self.tagged,
                self.options.device,
                self.plan.inputs_drawn,
            )
            for part in parts
        }
        do_tasks([task for some in tasks.values() for task in some], self.options.jobs, advance)
        codec = RunDirectory.open(self.work.vocabulary).codecs()[0]
        made = {}
        for name, some in tasks.items():
            pairs = collect(some, codec, self.tags)
            made[name] = len(pairs)
            write_rows(self.work.further_file(name), pairs, self.data.columns)
            if self.tags is not None:
                write_rows(self.work.words_file(name), pairs, WORD_COLUMNS)
        return made

    def _words(self, train: Sequence[Row]) -> list[Row]:
        return choose_words(self.words, train, self.plan.words_given_inputs, self.tagged, self.options.seed)

    def _config(self, data: DataConfig, run_dir: Path) -> RunConfig:
        options = self.options
        if self.tags is not None:
            data = replace(
                data,
                columns=",".join(MARKED.roles),
                train=self._marked(data.train),
                dev=self._marked(data.dev),
                further=self._marked(data.further),
            )
        return reverse_config(self.plan, data, run_dir, seed=options.seed, device=options.device, jobs=options.jobs)

    def _marked(self, files: Sequence[str]) -> list[str]:
        """Copies of files of pairs, with the tags in front of the inputs."""
        assert self.tags is not None
        copies = []
        for file in files:
            rows = read_pairs([file], self.data.columns, SEPARATOR)
            marked = self.work.reverse_file(Path(file))
            write_rows(marked, [self.tags.marked(row) for row in rows], MARKED)
            copies.append(str(marked))
        return copies
