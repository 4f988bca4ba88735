"""The data of historical spelling: tokens of running text with their modern forms, and a modern word list.

    normalisation/de-anselm.train.tsv     token, modern token, in the order of the text; also dev and test
    normalisation/de.words.txt            modern words, one a line

Every file may be plain or end in .xz. Training sample k of n tokens is lines (k - 1) n + 1 to k n of train, as in
Bollmann (2019). Held-out tokens repeat: an item is an input with one of its outputs, and counts as often as they occur.

In the setting ``open`` the word list is as it is. ``strict-n`` is for models with n training tokens: it lacks every
right output of a dev or test token whose input one of the samples of n tokens does not contain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from noisychannel.experiments.few_pairs.tasks import Pair, Task, Word
from noisychannel.experiments.items import Item, at_most, sample_name
from noisychannel.experiments.normalisation.cited import Text
from noisychannel.experiments.tables import DATA_OPTION, existing_file, read_table

OPEN, STRICT = "open", "strict"
FILES: dict[Text, str] = {"anselm": "de-anselm", "bohoric": "sl-bohoric"}
COLUMNS = ("token", "modern token")


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


def read_data(directory: Path, text: Text, words: int | None = None, tokens: int | None = None) -> NormalisationData:
    """``directory``: the folder of the data; at most so many words, and so many tokens of dev and of test."""
    name, folder = FILES[text], directory / "normalisation"
    fix = f"make it with the script of the public repository coastalcph/histnorm, or {DATA_OPTION}"
    train, dev, test = (
        [Token(*row) for row in read_table(existing_file(folder / f"{name}.{split}.tsv", fix), COLUMNS)]
        for split in ("train", "dev", "test")
    )
    file = existing_file(folder / f"{name[:2]}.words.txt", f"it has the modern words, one a line; {DATA_OPTION}")
    listed = list(dict.fromkeys(word for (word,) in read_table(file, ("word",))))
    return NormalisationData(train, dev[:tokens], test[:tokens], at_most(listed, words, seed=1))


def make_task(name: str, data: NormalisationData, sizes: Sequence[int], strict: Iterable[int], samples: int) -> Task:
    """The task of one text, with ``samples`` samples of each size.

    Its dev items are single tokens, in their order, to tune on; its test items are counted.
    """
    train = data.train[: max(sizes) * samples]
    pairs = tuple(Pair(token.text, token.modern) for token in train)
    unlisted = {size: set(hidden_outputs(data, size, samples)) for size in strict}
    words = {f"{STRICT}-{size}": [x for x in data.words if x not in hidden] for size, hidden in unlisted.items()}
    inputs = sampled_inputs(data.train, sizes, samples)
    return Task(
        name,
        pairs,
        tuple(Item(token.text, (token.modern,)) for token in data.dev),
        counted_items(data.test, inputs),
        {setting: tuple(map(Word, listed)) for setting, listed in {OPEN: data.words, **words}.items()},
        running_text=True,
    )


def sampled_inputs(train: Sequence[Token], sizes: Iterable[int], samples: int) -> dict[str, set[str]]:
    """The inputs of each training sample, by its name."""
    return {
        sample_name(size, k): {token.text for token in train[(k - 1) * size : k * size]}
        for size in sizes
        for k in range(1, samples + 1)
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


def hidden_outputs(data: NormalisationData, size: int, samples: int) -> dict[str, None]:
    """The right outputs of dev and test tokens that some sample of this size has not seen."""
    inputs = sampled_inputs(data.train, [size], samples).values()
    held_out = (*data.dev, *data.test)
    return dict.fromkeys(token.modern for token in held_out if any(token.text not in known for known in inputs))
