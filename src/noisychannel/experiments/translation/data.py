"""The data of translation: sentence pairs, and unpaired English. Three layouts are known:

    translation/tvsub.train184k.{zh,en}        subtitles (TVsub), with
    translation/tvsub.rest.en                  the English of other episodes,
    translation/tvsub.{hdev,htest}.{zh,en}     held-out episodes, and
    translation/tvsub.test.zh, .en.ref{0,1,2}  the official test set

    train.zh, train.en                         your own data, such as FBIS with NIST's sets:
    dev.zh, dev.en                             (or dev.en.ref0 and so on; then the first reference counts)
    NAME.zh, NAME.en                           any number of test sets; or NAME.en.ref0, NAME.en.ref1, … or
                                               NAME.ref0, NAME.ref1, …
    unpaired.en                                more English, if there is

    translation/multi30k.task1.tok.tar.xz      Multi30k: captions, German to English

Every file may be plain or end in .xz. The English of the first two is lower-cased, and digits of both sides become #,
as in the paper. Multi30k is lower-cased, and keeps its digits, as tutorials have it.
"""

from __future__ import annotations

import io
import lzma
import re
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from noisychannel.errors import BadInputError
from noisychannel.experiments.items import Item
from noisychannel.experiments.sentences.pairs import (
    Pair,
    PairReader,
    SentenceData,
    is_there,
    items_of,
    one_line,
    sentence_data,
)
from noisychannel.experiments.tables import DATA_OPTION
from noisychannel.experiments.translation.punctuation import without_punctuation
from noisychannel.text import TextConfig

CHINESE = TextConfig(units="words", digits_to_hash=True)
ENGLISH = TextConfig(units="words", lowercase=True, digits_to_hash=True)
CAPTIONS = TextConfig(units="words", lowercase=True)
LONGEST = 50, 50
"""Words of a training pair; no pair of TVsub or Multi30k is longer."""
OWN_LONGEST, OWN_LONGEST_CHARACTERS = (100, 100), (200, 100)
"""Of your own data: hardly a sentence is longer."""
READER = PairReader(CHINESE, ENGLISH, f"it is part of the data of translation; {DATA_OPTION}")
MULTI30K = "multi30k.task1.tok.tar.xz"
MULTI30K_TESTS = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco", "test_2018_flickr")
SOURCE, TARGET = "zh", "en"


def read_chinese(data: Path, most: int | None = None) -> SentenceData:
    """``most``: the first so many training pairs and unpaired sentences, for a quick try."""
    folder = data / "translation"
    if is_there(folder / "tvsub.train184k.zh"):
        return _read_tvsub(folder, most)
    if is_there(data / f"train.{SOURCE}"):
        return _read_own(data, most)
    raise BadInputError(
        f"{data}: neither translation/tvsub.train184k.zh nor train.zh is there, plain or .xz; {DATA_OPTION}"
    )


def _read_tvsub(folder: Path, most: int | None) -> SentenceData:
    def read(name: str, most: int | None = None) -> list[Pair]:
        return READER.parallel(folder / f"tvsub.{name}.zh", folder / f"tvsub.{name}.en", most)

    references = [folder / f"tvsub.test.en.ref{n}" for n in range(3)]
    tests = {
        "tvsub.htest": items_of(read("htest")),
        "tvsub.test": READER.test_set(folder / "tvsub.test.zh", references, prepare_source=without_punctuation),
    }
    unpaired = READER.outputs(folder / "tvsub.rest.en", most)
    return sentence_data(read("train184k", most), read("hdev"), tests, unpaired, LONGEST)


def _read_own(folder: Path, most: int | None) -> SentenceData:
    train = READER.parallel(folder / "train.zh", folder / "train.en", most)
    dev = [Pair(item.input, item.references[0]) for item in _test_set(folder, "dev")]
    names = sorted({re.sub(r"\.zh(\.xz)?$", "", file.name) for file in folder.glob("*.zh*")} - {"train", "dev"})
    tests = {name: _test_set(folder, name) for name in names if is_there(folder / f"{name}.zh")}
    if not tests:
        raise BadInputError(f"{folder}: no test set: give test.zh with test.en, or with test.en.ref0, test.en.ref1, …")
    more = folder / "unpaired.en"
    unpaired = READER.outputs(more, most) if is_there(more) else []
    if not _not_segmented([pair.source for pair in train]):
        for name, items in {"dev": items_of(dev), **tests}.items():
            if _not_segmented([item.input for item in items]):
                raise BadInputError(
                    f"{folder / name}.zh: it is not segmented into words, but train.zh is; segment both alike, or none"
                )
        return sentence_data(train, dev, tests, unpaired, OWN_LONGEST, keep_valid=True)
    train, dev = ([Pair(_apart(pair.source), pair.target) for pair in pairs] for pairs in (train, dev))
    tests = {name: tuple(replace(x, input=_apart(x.input)) for x in items) for name, items in tests.items()}
    data = sentence_data(train, dev, tests, unpaired, OWN_LONGEST_CHARACTERS, keep_valid=True)
    return replace(data, characters=True)


def _not_segmented(sources: Sequence[str]) -> bool:
    """Whether at least half of the sources are one token of several characters: then no spaces divide their words."""
    lengths = [(len(text.split()), len(text)) for text in sources]
    return bool(lengths) and 2 * sum(tokens == 1 < characters for tokens, characters in lengths) >= len(lengths)


def _apart(text: str) -> str:
    """With a space between any two characters, so that lengths and baselines count characters."""
    return " ".join("".join(text.split()))


def _test_set(folder: Path, name: str) -> tuple[Item, ...]:
    """With one reference, or with several in files that are numbered from 0."""
    sources = folder / f"{name}.zh"
    for stem in (f"{name}.en.ref", f"{name}.ref"):
        if is_there(folder / f"{stem}0"):
            numbered: list[Path] = []
            while is_there(folder / f"{stem}{len(numbered)}"):
                numbered.append(folder / f"{stem}{len(numbered)}")
            return READER.test_set(sources, numbered)
    return READER.test_set(sources, [folder / f"{name}.en"])


def read_multi30k(data: Path, most: int | None = None) -> SentenceData:
    """German to English, from the archive. ``most``: the first so many training pairs, for a quick try."""
    file = data / "translation" / MULTI30K
    if not file.is_file():
        raise BadInputError(f"{file}: no such file; it is part of the data of translation; {DATA_OPTION}")
    texts = _archive(file)

    def read(name: str, most: int | None = None) -> list[Pair]:
        sides = []
        for language in ("de", "en"):
            if f"{name}.{language}" not in texts:
                raise BadInputError(f"{file}: has no {name}.{language}; get the archive again")
            sides.append([one_line(line, CAPTIONS) for line in texts[f"{name}.{language}"].split("\n")[:-1]])
        if len(sides[0]) != len(sides[1]):
            raise BadInputError(f"{file}: {name}.de and {name}.en are not parallel; get the archive again")
        return [Pair(*pair) for pair in zip(*sides, strict=True)][:most]

    tests = {name: items_of(read(name)) for name in MULTI30K_TESTS if f"{name}.de" in texts}
    if MULTI30K_TESTS[0] not in tests:
        raise BadInputError(f"{file}: has no {MULTI30K_TESTS[0]}.de; get the archive again")
    return sentence_data(read("train", most), read("val"), tests, [], LONGEST)


def _archive(file: Path) -> dict[str, str]:
    """The texts of a tar archive by the names of its files, without folders."""
    try:
        with tarfile.open(file) as archive:
            found = [(Path(member.name).name, archive.extractfile(member)) for member in archive if member.isfile()]
            return {name: io.TextIOWrapper(stream, "utf-8").read() for name, stream in found if stream is not None}
    except (tarfile.TarError, lzma.LZMAError, EOFError, OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{file}: not a tar archive of text files ({error}); get it again") from error
