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
from itertools import chain
from pathlib import Path
from typing import Literal, get_args

from noisychannel.atomic import cannot_write
from noisychannel.data.codec import Codec
from noisychannel.data.corpus import Corpus, SequenceName, Sequences, SequenceWriter
from noisychannel.data.rows import Columns, Row, read_pairs, read_parallel, read_unpaired
from noisychannel.errors import BadInputError
from noisychannel.ids import UNK
from noisychannel.models.registry import CorpusKind
from noisychannel.text import TextConfig, make_splitter, normalise

Split = Literal["train", "dev", "unpaired"]
SPLITS: tuple[Split, ...] = ("train", "dev", "unpaired")
PAIRED: tuple[Split, ...] = ("train", "dev")
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
        unpaired: More outputs without inputs, for the language model.
        unpaired_columns: What the columns of unpaired are. A plain list has one, output. With a features column, the
            language model reads the features too.
        feature_separator: The text between two features.
        input: How the input text becomes symbols.
        output: How the output text becomes symbols.
        too_long: What to do with an item of train, dev or unpaired that is longer than max_length.
        vocabularies: A run whose vocabularies to use, so that models of both runs can be mixed. If not set, they are
            built from the data.
    """

    train: list[str] = field(default_factory=list)
    dev: list[str] = field(default_factory=list)
    columns: str = "pairs"
    train_outputs: list[str] = field(default_factory=list)
    dev_outputs: list[str] = field(default_factory=list)
    unpaired: list[str] = field(default_factory=list)
    unpaired_columns: str = "output"
    feature_separator: str = ";"
    input: TextConfig = field(default_factory=TextConfig)
    output: TextConfig = field(default_factory=TextConfig)
    too_long: Literal["drop", "truncate"] = "drop"
    vocabularies: str | None = None


@dataclass
class Counts:
    """How many lines of one split were read, dropped and truncated."""

    lines: int = 0
    dropped: int = 0
    truncated: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    foreign: int = 0
    """Skipped: unpaired lines of groups that are not in train."""

    def summary(self) -> str:
        parts = [f"{self.lines - self.dropped:,} lines"]
        if self.dropped:
            parts.append(f"{self.dropped:,} dropped as too long")
        if self.truncated:
            parts.append(f"{self.truncated:,} truncated")
        if self.foreign:
            parts.append(f"{self.foreign:,} of groups without pairs skipped")
        if self.unknown:
            shown = ", ".join(f"{symbol!r} ×{n}" for symbol, n in self.unknown.most_common(5))
            parts.append(f"{self.unknown.total():,} unknown symbols ({shown}{', …' if len(self.unknown) > 5 else ''})")
        return ", ".join(parts)


@dataclass
class Prepared:
    """The data of one group: its vocabularies, the directory of its sequences, and counts of its lines."""

    input_codec: Codec
    output_codec: Codec
    directory: Path
    counts: dict[Split, Counts]


def open_corpus(directory: Path, kind: CorpusKind, split: Literal["train", "dev"]) -> Corpus:
    """The prepared corpus of one kind (``models.registry`` says which kind each role is trained on)."""
    return Corpus.of(kind, lambda name: Sequences.open(directory / f"{split}.{name}"))


class DataSource:
    """The rows of a configuration; each call reads the files again."""

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

    @property
    def grouped(self) -> bool:
        return "group" in self.columns.roles

    @property
    def lm_reads_features(self) -> bool:
        """Whether the language model reads features before its outputs: if all its outputs have them."""
        unpaired = "features" in self.unpaired_columns.roles or not self.config.unpaired
        return "features" in self.columns.roles and unpaired

    def rows(self, split: Split) -> Iterator[Row]:
        """The rows of a split, in file order. An empty split is an error."""
        config = self.config
        match split:
            case "unpaired":
                rows = read_unpaired(config.unpaired, self.unpaired_columns, config.feature_separator)
            case "train" if config.train_outputs:
                rows = read_parallel(config.train, config.train_outputs)
            case "dev" if config.dev_outputs:
                rows = read_parallel(config.dev, config.dev_outputs)
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


def prepare(
    config: DataConfig, directory_of: Callable[[str], Path], codecs: dict[str, tuple[Codec, Codec]] | None = None
) -> dict[str, Prepared]:
    """Vocabularies and encoded corpora of every group; without groups there is one with an empty name.

    ``codecs`` are the vocabularies of a run that is resumed, or of another run. If not given, they are built.
    """
    source = DataSource(config)
    prepared = {
        group: Prepared(*pair, directory_of(group), {split: Counts() for split in SPLITS})
        for group, pair in (codecs or _build_codecs(source)).items()
    }
    _encode(source, prepared)
    return prepared


def _build_codecs(source: DataSource) -> dict[str, tuple[Codec, Codec]]:
    """The first pass: the vocabularies of every group. That of the output includes unpaired outputs."""
    config = source.config
    input_texts = (normalise(row.input, config.input) for row in source.rows("train"))
    input_splitter = make_splitter(config.input, input_texts, "data.input")
    output_texts = (
        normalise(row.output, config.output) for row in chain(source.rows("train"), source.rows("unpaired"))
    )
    output_splitter = make_splitter(config.output, output_texts, "data.output")

    input_counts: dict[str, Counter[str]] = defaultdict(Counter)
    output_counts: dict[str, Counter[str]] = defaultdict(Counter)
    input_features: dict[str, set[str]] = defaultdict(set)
    output_features: dict[str, set[str]] = defaultdict(set)
    for row in source.rows("train"):
        input_counts[row.group].update(input_splitter.split(normalise(row.input, config.input)))
        input_features[row.group].update(row.features)
        output_features[row.group].update(row.features)
    for row in chain(source.rows("train"), source.rows("unpaired")):
        if row.group in input_counts:
            output_counts[row.group].update(output_splitter.split(normalise(row.output, config.output)))
            output_features[row.group].update(row.features if source.lm_reads_features else ())
    return {
        group: (
            Codec.build(config.input, input_splitter, input_counts[group], input_features[group]),
            Codec.build(config.output, output_splitter, output_counts[group], output_features[group]),
        )
        for group in input_counts
    }


def _encode(source: DataSource, prepared: dict[str, Prepared]) -> None:
    """The second pass: every row as ids, into its group's files."""
    writers: dict[tuple[str, str], SequenceWriter] = {}
    for group, target in prepared.items():
        try:
            target.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(target.directory, error) from error
        for split in PAIRED:
            for name in SEQUENCES:
                writers[group, f"{split}.{name}"] = SequenceWriter(target.directory / f"{split}.{name}")

    for split in SPLITS:
        for row in source.rows(split):
            if row.group not in prepared:
                if split == "unpaired":
                    for target in prepared.values():
                        target.counts[split].foreign += 1
                    continue
                known = source.config.vocabularies if split == "train" else "data.train"
                raise BadInputError(f"{row.where}: the group {row.group!r} does not occur in {known}")
            counts = prepared[row.group].counts[split]
            counts.lines += 1
            encoded = _encode_row(row, prepared[row.group], source, counts)
            if encoded is None:
                counts.dropped += 1
                continue
            names: tuple[SequenceName, ...] = ("all_outputs",) if split == "unpaired" else SEQUENCES
            for name in names:
                writers[row.group, f"{'dev' if split == 'dev' else 'train'}.{name}"].append(encoded[name])

    for writer in writers.values():
        writer.close()
    for group, target in prepared.items():
        for split in PAIRED:
            kept = target.counts[split].lines - target.counts[split].dropped
            if kept == 0:
                of_group = f" of the group {group!r}" if group else ""
                raise BadInputError(
                    f"data.{split}: no line{of_group} is left (too long, or none given); increase max_length"
                )


def _encode_row(
    row: Row, prepared: Prepared, source: DataSource, counts: Counts
) -> dict[SequenceName, list[int]] | None:
    """The ids of a row by sequence name; None if the row is dropped."""
    sides: dict[str, list[str]] = {}
    truncated = False
    for side, codec in (("input", prepared.input_codec), ("output", prepared.output_codec)):
        symbols = codec.split(getattr(row, side))
        limit = codec.config.max_length
        if limit is not None and len(symbols) > limit:
            if source.config.too_long == "drop":
                return None
            truncated = True
            symbols = symbols[:limit]
        sides[side] = symbols
    counts.truncated += truncated
    inputs, outputs = prepared.input_codec.ids(sides["input"]), prepared.output_codec.ids(sides["output"])
    input_tags = prepared.input_codec.ids((), row.features)[:-1]
    output_tags = prepared.output_codec.ids((), row.features)[:-1]
    # Only the language model can read the features of an unpaired output.
    seen_tags = input_tags if row.input else output_tags if source.lm_reads_features else []
    for names, ids in ((sides["input"], inputs), (sides["output"], outputs), (row.features, seen_tags)):
        if UNK in ids:
            counts.unknown.update(name for name, i in zip(names, ids, strict=False) if i == UNK)
    return {
        "outputs": outputs,
        "all_outputs": output_tags + outputs if source.lm_reads_features else outputs,
        "tagged_inputs": input_tags + inputs,
        "tagged_outputs": output_tags + outputs,
    }
