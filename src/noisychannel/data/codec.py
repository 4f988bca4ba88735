"""The vocabulary of one side together with the way its text is split: text -> ids and back. A run stores it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from noisychannel.atomic import write_bytes, write_text
from noisychannel.ids import EOS, SPECIAL_SYMBOLS, UNK
from noisychannel.models.registry import Vocabulary
from noisychannel.schemas import ClosedRecord, read_content, read_record
from noisychannel.text import Characters, Splitter, Subwords, TextConfig, Words, normalise

SIDES: tuple[Vocabulary, ...] = ("input", "output")
PLACEHOLDERS = ("UNK", "_UNK_", SPECIAL_SYMBOLS[UNK])
"""How texts that others have prepared write a word that they do not know. No model should learn to write it."""


@dataclass(frozen=True)
class VocabularyRecord(ClosedRecord):
    """SIDE.vocabulary.json."""

    text: TextConfig
    features: tuple[str, ...]
    symbols: tuple[str, ...]

    def __post_init__(self) -> None:
        for name, values in (("features", self.features), ("symbols", self.symbols)):
            if len(set(values)) < len(values):
                raise ValueError(f"{name}: one of them is repeated")


class Unknown(NamedTuple):
    """Symbols and features that are not in a vocabulary, each as often as it occurs."""

    symbols: list[str]
    features: list[str]


class Codec:
    """Ids 0..3 are PAD, BOS, EOS, UNK; then the features (as ``<tag>``), then the symbols, most frequent first."""

    def __init__(self, config: TextConfig, splitter: Splitter, symbols: Sequence[str], features: Sequence[str]) -> None:
        self.config = config
        self.splitter = splitter
        self.features = tuple(features)
        self.symbols = tuple(symbols)
        self.names = (*SPECIAL_SYMBOLS, *(f"<{tag}>" for tag in features), *symbols)
        self._feature_ids = {tag: len(SPECIAL_SYMBOLS) + n for n, tag in enumerate(self.features)}
        first = len(SPECIAL_SYMBOLS) + len(self.features)
        self._symbol_ids = {symbol: first + n for n, symbol in enumerate(self.symbols)}

    @staticmethod
    def build(config: TextConfig, splitter: Splitter, counts: Counter[str], features: Iterable[str]) -> Codec:
        """Choose the vocabulary from symbol counts. Ties are broken by the symbol, so the result is reproducible.

        A word that is a placeholder for unknown words is itself unknown.
        """
        unknown = placeholders(config)
        known = (symbol for symbol, n in counts.items() if n >= config.min_count and symbol not in unknown)
        kept = sorted(known, key=lambda symbol: (-counts[symbol], symbol))
        return Codec(config, splitter, kept[: config.max_size], sorted(set(features)))

    @property
    def feature_ids(self) -> list[int]:
        return list(self._feature_ids.values())

    def __len__(self) -> int:
        return len(self.names)

    def split(self, text: str) -> list[str]:
        """The symbols of a text, known or not."""
        return self.splitter.split(normalise(text, self.config))

    def ids(self, symbols: Iterable[str], features: Iterable[str] = ()) -> list[int]:
        """Features, symbols and EOS as ids; unknown ones become UNK."""
        tags = [self._feature_ids.get(tag, UNK) for tag in features]
        return [*tags, *(self._symbol_ids.get(symbol, UNK) for symbol in symbols), EOS]

    def encode(self, text: str, features: Iterable[str] = ()) -> list[int]:
        """``ids`` of a text."""
        return self.ids(self.split(text), features)

    def counterparts(self, other: Codec, with_features: bool = False, unknown: bool = False) -> list[int]:
        """For each of our ids, that of the same symbol in another vocabulary; -1 if there is none.

        EOS has one, features only ``with_features``, UNK only if ``unknown``, PAD and BOS never.
        """
        there = other._symbol_ids
        tags = [other._feature_ids.get(tag, -1) if with_features else -1 for tag in self.features]
        special = {EOS: EOS, UNK: UNK if unknown else -1}
        first = [special.get(i, -1) for i in range(len(SPECIAL_SYMBOLS))]
        return [*first, *tags, *(there.get(symbol, -1) for symbol in self.symbols)]

    def unknown(self, text: str, features: Iterable[str] = ()) -> Unknown:
        """The symbols and features that ``encode`` turns into UNK."""
        return Unknown(
            [symbol for symbol in self.split(text) if symbol not in self._symbol_ids],
            [tag for tag in features if tag not in self._feature_ids],
        )

    def decode(self, ids: Iterable[int], copied: Mapping[int, str] = MappingProxyType({})) -> str:
        """The text of output ids, without special symbols and features. ``copied``: symbols for some positions."""
        first = len(SPECIAL_SYMBOLS) + len(self.features)
        return self.splitter.join(
            [copied.get(j, self.names[i]) for j, i in enumerate(ids) if i >= first or j in copied]
        )

    @property
    def fingerprint(self) -> str:
        """A short hash of everything that gives ids their meaning; checkpoints store it."""
        config = self.config
        meaning: list[object] = [self.features, self.symbols, config.units, config.lowercase, config.digits_to_hash]
        # What earlier versions do not know is left out if it is off.
        meaning += ["remove_spaces"] if config.remove_spaces else []
        digest = hashlib.sha256(json.dumps(meaning).encode())
        if isinstance(self.splitter, Subwords):
            digest.update(self.splitter.model)
        return digest.hexdigest()[:16]

    def save(self, directory: Path, side: Vocabulary) -> None:
        record = {"text": asdict(self.config), "features": self.features, "symbols": self.symbols}
        if isinstance(self.splitter, Subwords):
            write_bytes(directory / f"{side}.sentencepiece", self.splitter.model)
        write_text(directory / f"{side}.vocabulary.json", json.dumps(record, ensure_ascii=False, indent=0) + "\n")

    @staticmethod
    def load(directory: Path, side: Vocabulary, again: str = "train again") -> Codec:
        """From the directory in which it was saved; ``again``: how to get another one, for errors."""
        file = directory / f"{side}.vocabulary.json"
        record = read_record(file, VocabularyRecord, again)
        splitter: Splitter
        match record.text.units:
            case "characters":
                splitter = Characters()
            case "words":
                splitter = Words()
            case "subwords":
                model = directory / f"{side}.sentencepiece"
                splitter = Subwords(read_content(model, again), str(model))
        return Codec(record.text, splitter, record.symbols, record.features)


def placeholders(config: TextConfig) -> frozenset[str]:
    """The words of a side that stand for unknown words; none if its units are no words."""
    return frozenset(normalise(word, config) for word in PLACEHOLDERS if config.units == "words")
