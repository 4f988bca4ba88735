"""From a configuration to vocabularies and corpora, in two passes over the files, with bounded memory.

The first pass counts the symbols of each group (or trains subwords); the second writes ids. The vocabularies of both
sides contain the features. The direct model reads them before x. The channel reads them before y and writes them before
x: it writes the input as the direct model reads it, because the search scores the input position by position. The
language model reads them before y, unless there are unpaired outputs without features.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from noisychannel.atomic import cannot_write
from noisychannel.data.augment import AugmentConfig, Augmented, augment
from noisychannel.data.codec import Codec
from noisychannel.data.corpus import Corpus, LengthArray, SequenceName, Sequences, SequenceWriter
from noisychannel.data.encoding import Counts, RowEncoder
from noisychannel.data.rows import Columns, Row, read_pairs, read_parallel, read_unpaired
from noisychannel.errors import BadInputError
from noisychannel.models.registry import CorpusKind
from noisychannel.text import TextConfig, make_splitter, normalise

Split = Literal["train", "dev", "unpaired", "further", "made_up", "copies"]
SPLITS: tuple[Split, ...] = get_args(Split)
ALWAYS_COUNTED: tuple[Split, ...] = ("train", "dev", "unpaired")
LEARNT: tuple[Split, ...] = ("train", "further", "made_up", "copies")
"""What direct model and channel are trained on."""
CORPORA: tuple[Literal["train", "dev"], ...] = ("train", "dev")
SEQUENCES: tuple[SequenceName, ...] = get_args(SequenceName)


@dataclass(kw_only=True)
class DataConfig:
    """The files and their columns.

    Args:
        train: Training pairs: files, directories, globs or hf:NAME:SPLIT.
        dev: Held-out pairs, for early stopping and tuning.
        columns: What the columns are: a list of input, output, features, group, - and -NAME, or a preset.
        train_outputs: For two parallel files: the output side of train (train is then the input side).
        dev_outputs: For two parallel files: the output side of dev.
        further: More training pairs, made by a model, in columns like those of train. Only direct model and channel
            learn from them.
        unpaired: More outputs without inputs, for the language model.
        unpaired_columns: What the columns of unpaired are. A plain list has one, output. With a features column, the
            language model reads the features too.
        lm_data: What the language model and the word list are trained on: the outputs of train and the unpaired ones,
            or the unpaired ones alone.
        feature_separator: The text between two features.
        input: How the input text becomes symbols.
        output: How the output text becomes symbols.
        too_long: What to do with an item of train, dev or unpaired that is longer than max_length.
        vocabularies: A run whose vocabularies to use, so that models of both runs can be mixed. If not set, they are
            built from the data.
        augment: Further training pairs of the direct model and the channel.
    """

    train: list[str] = field(default_factory=list)
    dev: list[str] = field(default_factory=list)
    columns: str = "pairs"
    train_outputs: list[str] = field(default_factory=list)
    dev_outputs: list[str] = field(default_factory=list)
    further: list[str] = field(default_factory=list)
    unpaired: list[str] = field(default_factory=list)
    unpaired_columns: str = "output"
    lm_data: Literal["all", "unpaired"] = "all"
    feature_separator: str = ";"
    input: TextConfig = field(default_factory=TextConfig)
    output: TextConfig = field(default_factory=TextConfig)
    too_long: Literal["drop", "truncate"] = "drop"
    vocabularies: str | None = None
    augment: AugmentConfig = field(default_factory=AugmentConfig)


@dataclass
class Prepared:
    """The data of one group: its vocabularies, the directory of its sequences, and counts of its lines."""

    input_codec: Codec
    output_codec: Codec
    directory: Path
    counts: dict[Split, Counts]

    def real_pairs(self) -> LengthArray:
        """Where the pairs of data.train are in the training corpus, without their repetitions.

        They come first, see ``SPLITS``; pairs that were made follow.
        """
        counts = self.counts["train"]
        return counts.repeat * np.arange(counts.lines - counts.dropped)

    def summary(self) -> str:
        """The counts in one line."""
        shown = [s for s, counts in self.counts.items() if s in ALWAYS_COUNTED or counts.lines or counts.wanted]
        return "; ".join(f"{split.replace('_', '-')} {self.counts[split].summary()}" for split in shown)


def open_corpus(directory: Path, kind: CorpusKind, split: Literal["train", "dev"]) -> Corpus:
    """The prepared corpus of one kind (``models.registry`` says which kind each role is trained on)."""
    return Corpus.of(kind, lambda name: Sequences.open(directory / f"{split}.{name}"))


class DataSource:
    """The rows of a configuration; each call reads the files again. Pairs that are made stay in memory."""

    def __init__(self, config: DataConfig) -> None:
        self.config = config
        self.columns = Columns.parse(config.columns, "data.columns", ("input", "output"))
        self.unpaired_columns = Columns.parse(config.unpaired_columns, "data.unpaired_columns", ("output",))
        if config.train_outputs or config.dev_outputs:
            if bool(config.train_outputs) != bool(config.dev_outputs):
                raise BadInputError("data.train_outputs and data.dev_outputs go together: set both or neither")
            if self.columns.roles != ("input", "output"):
                raise BadInputError(
                    "data.columns: parallel files (train_outputs, dev_outputs) have no columns; remove it"
                )
        if not config.feature_separator:
            raise BadInputError("data.feature_separator: is empty; set it to the text between two features, such as ;")
        if config.unpaired and self.grouped and "group" not in self.unpaired_columns.roles:
            raise BadInputError(
                "data.unpaired_columns: needs a group column, because data.columns has one: "
                "each unpaired output belongs to the models of one group"
            )
        for key in ("train", "dev"):
            if not getattr(config, key):
                raise BadInputError(f"data.{key}: no file given; set it in the configuration")
        if config.lm_data == "unpaired" and not config.unpaired:
            raise BadInputError("data.lm_data: is unpaired, but data.unpaired names no file; name one or set it to all")
        config.augment.check(config.input, config.output, config.unpaired)

    @property
    def grouped(self) -> bool:
        return "group" in self.columns.roles

    @property
    def lm_reads_features(self) -> bool:
        """Whether the language model reads features before its outputs: if all its outputs have them."""
        unpaired = "features" in self.unpaired_columns.roles or not self.config.unpaired
        return "features" in self.columns.roles and unpaired

    def rows(self, split: Split) -> Iterator[Row]:
        """The rows of a split, in file order. An empty file is an error."""
        config = self.config
        match split:
            case "made_up" | "copies":
                yield from getattr(self._augmented, split)
                return
            case "unpaired":
                rows = read_unpaired(config.unpaired, self.unpaired_columns, config.feature_separator)
            case "train" if config.train_outputs:
                rows = read_parallel(config.train, config.train_outputs)
            case "dev" if config.dev_outputs:
                rows = read_parallel(config.dev, config.dev_outputs)
            case "further":
                rows = read_pairs(config.further, self.columns, config.feature_separator)
            case "train":
                rows = read_pairs(config.train, self.columns, config.feature_separator)
            case "dev":
                rows = read_pairs(config.dev, self.columns, config.feature_separator)
        empty = True
        for row in rows:
            empty = False
            if self.grouped and not row.group.strip():
                raise BadInputError(f"{row.where}: the group is empty; fill it in or remove the line")
            yield row if self.grouped else row._replace(group="")
        if empty and getattr(config, split):
            raise BadInputError(
                f"{', '.join(getattr(config, split))}: empty, so there is nothing to train on (data.{split})"
            )

    @cached_property
    def _augmented(self) -> Augmented:
        config = self.config
        if not config.augment.makes_pairs:
            return Augmented([], [])
        return augment(config.augment, self.rows("train"), self.rows("unpaired"), config.input, config.output)


def prepare(
    config: DataConfig, directory_of: Callable[[str], Path], codecs: dict[str, tuple[Codec, Codec]] | None = None
) -> dict[str, Prepared]:
    """Vocabularies and encoded corpora of every group; without groups there is one with an empty name.

    ``codecs`` are the vocabularies of a run that is resumed, or of another run. If not given, they are built.
    """
    source = DataSource(config)
    prepared = {
        group: Prepared(*pair, directory_of(group), _no_counts(config))
        for group, pair in (codecs or _build_codecs(source)).items()
    }
    _encode(source, prepared)
    return prepared


def _no_counts(config: DataConfig) -> dict[Split, Counts]:
    counts = {split: Counts() for split in SPLITS}
    counts["train"].repeat = config.augment.repeat
    counts["made_up"].wanted = config.augment.made_up
    counts["copies"].wanted = config.augment.copies
    return counts


def _build_codecs(source: DataSource) -> dict[str, tuple[Codec, Codec]]:
    """The first pass: the vocabularies of every group. That of the output includes unpaired outputs."""
    config = source.config
    input_texts = (normalise(row.input, config.input) for split in LEARNT for row in source.rows(split))
    input_splitter = make_splitter(config.input, input_texts, "data.input")
    written: tuple[Split, ...] = (*LEARNT, "unpaired")
    output_texts = (normalise(row.output, config.output) for split in written for row in source.rows(split))
    output_splitter = make_splitter(config.output, output_texts, "data.output")

    input_counts: dict[str, Counter[str]] = defaultdict(Counter)
    output_counts: dict[str, Counter[str]] = defaultdict(Counter)
    input_features: dict[str, set[str]] = defaultdict(set)
    output_features: dict[str, set[str]] = defaultdict(set)
    for split in written:
        for row in source.rows(split):
            if split != "train" and row.group not in input_counts:
                continue
            output_counts[row.group].update(output_splitter.split(normalise(row.output, config.output)))
            if split != "unpaired":
                input_counts[row.group].update(input_splitter.split(normalise(row.input, config.input)))
                input_features[row.group].update(row.features)
            if split != "unpaired" or source.lm_reads_features:
                output_features[row.group].update(row.features)
    return {
        group: (
            Codec.build(config.input, input_splitter, input_counts[group], input_features[group]),
            Codec.build(config.output, output_splitter, output_counts[group], output_features[group]),
        )
        for group in input_counts
    }


def _encode(source: DataSource, prepared: dict[str, Prepared]) -> None:
    """The second pass: every row as ids, into its group's files."""
    config = source.config
    writers: dict[tuple[str, str], SequenceWriter] = {}
    for group, target in prepared.items():
        try:
            target.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(target.directory, error) from error
        for corpus in CORPORA:
            for name in SEQUENCES:
                writers[group, f"{corpus}.{name}"] = SequenceWriter(target.directory / f"{corpus}.{name}")
    encoders = {
        group: RowEncoder(target.input_codec, target.output_codec, config.too_long, source.lm_reads_features)
        for group, target in prepared.items()
    }

    for split in SPLITS:
        corpus = "dev" if split == "dev" else "train"
        times = {name: _times(split, name, config) for name in SEQUENCES}
        for row in source.rows(split):
            if row.group not in prepared:
                if split == "unpaired":
                    for target in prepared.values():
                        target.counts[split].foreign += 1
                    continue
                known = config.vocabularies if split == "train" else "data.train"
                raise BadInputError(f"{row.where}: the group {row.group!r} does not occur in {known}")
            encoded = encoders[row.group].encode(row, prepared[row.group].counts[split])
            for name, ids in encoded.items() if encoded is not None else ():
                for _ in range(times[name]):
                    writers[row.group, f"{corpus}.{name}"].append(ids)

    for writer in writers.values():
        writer.close()
    needed: tuple[Split, ...] = (*CORPORA, *(("unpaired",) if config.lm_data == "unpaired" else ()))
    for group, target in prepared.items():
        for split in needed:
            kept = target.counts[split].lines - target.counts[split].dropped
            if kept == 0:
                of_group = f" of the group {group!r}" if group else ""
                raise BadInputError(
                    f"data.{split}: no line{of_group} is left (too long, or none given); increase max_length"
                )


def _times(split: Split, name: SequenceName, config: DataConfig) -> int:
    """How often a row of a split is written to a sequence of its corpus."""
    if name == "all_outputs":
        return int(split in ("dev", "unpaired") or (split == "train" and config.lm_data == "all"))
    if split == "unpaired":
        return 0
    return config.augment.repeat if split == "train" else 1
