"""The data of historical spelling: tokens of running text with their modern forms, and a modern word list.

    normalisation/de-anselm.train.tsv     token, modern token, in the order of the text; also dev and test
    normalisation/de.words.txt            modern words, one a line

Every file may be plain or end in .xz. Training sample k of n tokens is lines (k - 1) n + 1 to k n of train, as in
Bollmann (2019). Held-out tokens repeat: an item is an input with one of its outputs, and counts as often as they occur.

In the setting ``open`` the word list is as it is. In ``strict`` it lacks every right output of a dev or test token that
one of the samples has not seen: a token whose input is not in the sample. All samples and sizes share it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from noisychannel.evaluation.baselines import memorised
from noisychannel.experiments.few_pairs.tasks import Pair, Task, Word
from noisychannel.experiments.items import Item, at_most, sample_name
from noisychannel.experiments.normalisation.cited import Text
from noisychannel.experiments.tables import DATA_OPTION, existing_file, read_table

OPEN, STRICT = "open", "strict"
FILES: dict[Text, str] = {"anselm": "de-anselm", "bohoric": "sl-bohoric"}
COLUMNS = ("token", "modern token")
PUBLISHED_SAMPLES = 10
"""Over so many samples of a size the published figures are means."""


class Token(NamedTuple):
    """A token of a text, and its modern form."""

    text: str
    modern: str


@dataclass(frozen=True)
class NormalisationData:
    """What was read."""

    train: list[Token]
    dev: list[Token]
    test: list[Token]
    words: list[str]
    published: list[Token]
    """The training tokens of all samples of the publication: more than ``train``."""


def read_data(
    directory: Path, text: Text, train: int | None = None, tokens: int | None = None, words: int | None = None
) -> NormalisationData:
    """``directory``: the folder of the data. The first tokens of train, dev and test, and so many of the words."""
    name, folder = FILES[text], directory / "normalisation"
    fix = f"make it with the script of the public repository coastalcph/histnorm, or {DATA_OPTION}"

    def read(split: str, most: int | None) -> list[Token]:
        file = existing_file(folder / f"{name}.{split}.tsv", fix)
        return [Token(*row) for row in islice(read_table(file, COLUMNS), most)]

    longest = None if train is None else PUBLISHED_SAMPLES * train
    published, dev, test = read("train", longest), read("dev", tokens), read("test", tokens)
    file = existing_file(folder / f"{name[:2]}.words.txt", f"it has the modern words, one a line; {DATA_OPTION}")
    listed = list(dict.fromkeys(word for (word,) in read_table(file, ("word",))))
    return NormalisationData(published[:train], dev, test, at_most(listed, words, seed=1), published)


def make_task(name: str, data: NormalisationData, inputs: Mapping[str, set[str]], dev: int | None = None) -> Task:
    """The task of one text. ``inputs``: of each sample, see ``sampled_inputs``.

    Its dev items are single tokens to tune on, ``dev`` of them, spread over the text; its test items are counted.
    """
    hidden = hidden_outputs(data, inputs)
    return Task(
        name,
        tuple(Pair(token.text, token.modern) for token in data.train),
        tuple(Item(token.text, (token.modern,)) for token in spread(data.dev, dev)),
        counted_items(data.test, inputs),
        {
            OPEN: tuple(map(Word, data.words)),
            STRICT: tuple(Word(word) for word in data.words if word not in hidden),
        },
        running_text=True,
    )


def spread(tokens: Sequence[Token], number: int | None) -> list[Token]:
    """So many tokens at equal distances: the beginning of a text may be of one hand, and like no other."""
    if number is None or number >= len(tokens):
        return list(tokens)
    return [tokens[n * len(tokens) // number] for n in range(number)]


def sampled_inputs(train: Sequence[Token], sizes: Iterable[int], samples: Iterable[int]) -> dict[str, set[str]]:
    """The inputs of each training sample, by its name."""
    return {
        sample_name(size, k): {token.text for token in train[(k - 1) * size : k * size]}
        for size in sizes
        for k in samples
    }


def counted_items(tokens: Iterable[Token], inputs: Mapping[str, set[str]]) -> tuple[Item, ...]:
    """An item for each input and output, in the order of their first occurrence. ``inputs``: of each sample."""
    counts = Counter(tokens)
    return tuple(
        Item(
            token.text,
            (token.modern,),
            count=count,
            seen_in=tuple(name for name, known in inputs.items() if token.text in known),
        )
        for token, count in counts.items()
    )


def memorised_accuracies(data: NormalisationData, size: int) -> list[float]:
    """The test accuracy of memorised outputs with each sample of the publication: how hard ours are."""
    accuracies = []
    for k in range(min(PUBLISHED_SAMPLES, len(data.published) // size)):
        answer = memorised((token.text, token.modern, ()) for token in data.published[k * size : (k + 1) * size])
        accuracies.append(100 * fmean(answer(token.text, ()) == token.modern for token in data.test))
    return accuracies


def hidden_outputs(data: NormalisationData, inputs: Mapping[str, set[str]]) -> set[str]:
    """The right outputs of dev and test tokens that some sample has not seen."""
    always_seen = set.intersection(*inputs.values())
    return {token.modern for token in (*data.dev, *data.test) if token.text not in always_seen}
