"""The data of summarisation: first sentences with their headlines, and unpaired headlines. These layouts are known:

    summarisation/newsapi.{train,valid,test}.{src,tgt}   news of today, with newsapi.extra_headlines.txt, and beside
    summarisation/giga.test1951.{src,tgt}                them the test sets of Gigaword and
    summarisation/duc2003.{src,ref0,…,ref3}              DUC-2003

    train.article.txt, train.title.txt                   Gigaword, as everyone prepares it (perhaps in train/), with
    valid.article.filter.txt, valid.title.filter.txt     (or without .filter) and the test sets, as far as they are
    giga/input.txt, giga/task1_ref0.txt                  there: Gigaword's (or test.article.txt, test.title.txt) and
    duc2003/input.txt, duc2003/task1_ref{0,…,3}.txt      DUC's

    {train,dev,test}.{src,tgt}.txt                       the same, as in the archive of the hub (perhaps in org_data/)

    hf:NAME                                              a dataset of the hub with the columns document and summary

Every file may be plain or end in .xz. Gigaword has no unpaired headlines unless there is an extra_headlines.txt.

Training pairs, and pairs for early stopping, of more than 50 or 25 words are dropped before anything is sampled. Test
inputs are never dropped. Of a test set with more than 2,000 pairs, as many are drawn at random, as in the paper.
"""

from __future__ import annotations

from pathlib import Path

from noisychannel.data.rows import HUB, Columns, read_pairs
from noisychannel.errors import BadInputError, missing_extra
from noisychannel.experiments.items import Item, at_most
from noisychannel.experiments.sentences.pairs import (
    Pair,
    PairReader,
    SentenceData,
    is_there,
    items_of,
    sentence_data,
)
from noisychannel.experiments.tables import DATA_OPTION
from noisychannel.text import TextConfig

TEXT = TextConfig(units="words", lowercase=True, digits_to_hash=True)
"""How inputs and headlines are written: as in the paper's data."""
MOST_INPUT_WORDS, MOST_OUTPUT_WORDS = 50, 25
"""Of a training pair."""
TEST_PAIRS = 2_000
HUB_COLUMNS = "input=document,output=summary"
READER = PairReader(TEXT, TEXT, f"it is part of the data of summarisation; {DATA_OPTION}")


def read_data(data: Path, most: int | None = None) -> SentenceData:
    """``data``: the folder of the data, or the name of a dataset of the hub (``hf:NAME``).

    ``most``: the first so many training pairs, and as many unpaired headlines, for a quick try.
    """
    if str(data).startswith(HUB):
        return _read_hub(str(data), most)
    if is_there(data / "summarisation" / "newsapi.train.src"):
        return _read_newsapi(data / "summarisation", most)
    for folder in (data, data / "train"):
        if is_there(folder / "train.article.txt"):
            return _read_gigaword(data, folder, most)
    for folder in (data, data / "org_data"):
        if is_there(folder / "train.src.txt"):
            return _read_archive(folder, most)
    raise BadInputError(
        f"{data}: neither summarisation/newsapi.train.src nor train.article.txt (or train.src.txt) is there, plain or "
        f".xz; {DATA_OPTION}, or a dataset of the hub (--data hf:NAME)"
    )


def _read_newsapi(folder: Path, most: int | None) -> SentenceData:
    def read(name: str, most: int | None = None) -> list[Pair]:
        return READER.parallel(folder / f"{name}.src", folder / f"{name}.tgt", most)

    headlines = READER.outputs(folder / "newsapi.extra_headlines.txt", most)
    duc = [folder / f"duc2003.ref{n}" for n in range(4)]
    tests = {
        "newsapi.test": items_of(read("newsapi.test")),
        "giga.test1951": items_of(read("giga.test1951")),
        "duc2003": READER.test_set(folder / "duc2003.src", duc, prepare_reference=_tokenised),
    }
    return _data(read("newsapi.train", most), read("newsapi.valid"), tests, headlines)


def _read_gigaword(root: Path, folder: Path, most: int | None) -> SentenceData:
    train = READER.parallel(folder / "train.article.txt", folder / "train.title.txt", most)
    middle = ".filter" if is_there(folder / "valid.article.filter.txt") else ""
    valid = READER.parallel(folder / f"valid.article{middle}.txt", folder / f"valid.title{middle}.txt")
    tests = {}
    for place in dict.fromkeys((folder, root)):
        if "test" not in tests and is_there(place / "test.article.txt"):
            tests["test"] = items_of(READER.parallel(place / "test.article.txt", place / "test.title.txt"))
    # The folders are called Giga, DUC2003 and DUC2004 by some.
    folders = {place.name.lower(): place for place in sorted(root.iterdir()) if place.is_dir()}
    for name, number in (("giga", 1), ("duc2003", 4), ("duc2004", 4)):
        place = folders.get(name, root / name)
        if is_there(place / "input.txt"):
            files = [place / f"task1_ref{n}.txt" for n in range(number)]
            prepare = _tokenised if name.startswith("duc") else str
            tests[name] = READER.test_set(place / "input.txt", files, prepare_reference=prepare)
    if not tests:
        raise BadInputError(
            f"{root}: no test set: give test.article.txt and test.title.txt, or giga/input.txt and giga/task1_ref0.txt"
        )
    return _data(train, valid, tests, _extra_headlines(root, most))


def _read_archive(folder: Path, most: int | None) -> SentenceData:
    """Unknown words are ``<unk>`` in training and UNK in the test set; here they are the same."""

    def read(name: str, most: int | None = None) -> list[Pair]:
        pairs = READER.parallel(folder / f"{name}.src.txt", folder / f"{name}.tgt.txt", most)
        return [Pair(*(text.replace("<unk>", "unk") for text in pair)) for pair in pairs]

    tests = {"test": items_of(read("test"))}
    return _data(read("train", most), read("dev"), tests, _extra_headlines(folder, most))


def _extra_headlines(folder: Path, most: int | None) -> list[str]:
    file = folder / "extra_headlines.txt"
    return READER.outputs(file, most) if is_there(file) else []


def _read_hub(name: str, most: int | None) -> SentenceData:
    columns = Columns.parse(HUB_COLUMNS, "columns", ("input", "output"))

    def read(split: str, most: int | None = None) -> list[Pair]:
        return READER.pairs(read_pairs([f"{name}:{split}"], columns, ";"), most)

    return _data(read("train", most), read("validation"), {"test": items_of(read("test"))}, [])


def _data(
    train: list[Pair], valid: list[Pair], tests: dict[str, tuple[Item, ...]], headlines: list[str]
) -> SentenceData:
    drawn = {name: tuple(at_most(items, TEST_PAIRS, seed=1)) for name, items in tests.items()}
    return sentence_data(train, valid, drawn, headlines, (MOST_INPUT_WORDS, MOST_OUTPUT_WORDS))


def _tokenised(text: str) -> str:
    """Words, punctuation and -LRB- for brackets, apart from each other: the Penn Treebank's way.

    The references of DUC are as people wrote them.
    """
    try:
        from nltk.tokenize import TreebankWordTokenizer
    except ImportError:
        raise missing_extra("rouge-score", "metrics", "the references of DUC") from None
    return " ".join(TreebankWordTokenizer().tokenize(text, convert_parentheses=True))
