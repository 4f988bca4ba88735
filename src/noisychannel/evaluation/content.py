"""What outputs keep of their inputs: dropped content, and copying against paraphrase. Texts are split at whitespace.

Content words are the words of an input that are no function words. **Function words** are the most frequent types of
all inputs, and types without a letter, a digit or ``#`` (which stands for digits): a rule that needs no list for a
language. A content word is *missing* if the output does not contain it, and *dropped* if no word of the output is
aligned to it by the direct model's best alignment. A word that was paraphrased is missing, but not dropped.

An output *copies* a word, or a bigram, that its input contains. It is an *extract* if all of it is one piece of its
input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

from noisychannel.data.codec import Codec
from noisychannel.decode.scorers import best_alignments
from noisychannel.decode.terms import Ids
from noisychannel.ids import EOS
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.text import Characters, Subwords

Aligned = tuple[int, ...]
"""For each symbol of an output, the number of the input's word at which it was emitted, from 1; 0 if there is none."""


def function_words(inputs: Iterable[str], number: int) -> frozenset[str]:
    """The most frequent types of some texts, and those that are punctuation. Of equally frequent ones the first."""
    counts = Counter(word for text in inputs for word in text.split())
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:number]
    return frozenset([*frequent, *(word for word in counts if not any(c.isalnum() or c == "#" for c in word))])


@dataclass(frozen=True)
class ContentCounts:
    """Counts of some outputs; those of several sets of outputs can be added."""

    outputs: int = 0
    words: int = 0
    copied_words: int = 0
    bigrams: int = 0
    copied_bigrams: int = 0
    extracts: int = 0
    content: int = 0
    """Content words of the inputs."""
    missing: int = 0
    aligned_content: int = 0
    """Content words of the inputs whose outputs are aligned."""
    dropped: int = 0

    @staticmethod
    def of(text: str, output: str, function: Collection[str], aligned: Sequence[int] | None = None) -> ContentCounts:
        """Of one output of an input. ``function``: the function words; ``aligned``: if the output was aligned."""
        source, words = text.split(), output.split()
        known, pairs = set(source), set(pairwise(source))
        content = [n for n, word in enumerate(source, start=1) if word not in function]
        said, reached = set(words), set(aligned or ())
        return ContentCounts(
            outputs=1,
            words=len(words),
            copied_words=sum(word in known for word in words),
            bigrams=max(0, len(words) - 1),
            copied_bigrams=sum(pair in pairs for pair in pairwise(words)),
            extracts=_is_piece(words, source),
            content=len(content),
            missing=sum(source[n - 1] not in said for n in content),
            aligned_content=0 if aligned is None else len(content),
            dropped=0 if aligned is None else sum(n not in reached for n in content),
        )

    def __add__(self, other: ContentCounts) -> ContentCounts:
        return ContentCounts(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def times(self, number: int) -> ContentCounts:
        """Of an item that counts so often."""
        return ContentCounts(*(number * getattr(self, one.name) for one in fields(self)))

    def shares(self) -> dict[str, float | None]:
        """In percent, by name; None if there is nothing to count."""
        return {
            "copied words": _percent(self.copied_words, self.words),
            "copied bigrams": _percent(self.copied_bigrams, self.bigrams),
            "extracts": _percent(self.extracts, self.outputs),
            "missing content": _percent(self.missing, self.content),
            "dropped content": _percent(self.dropped, self.aligned_content),
        }


def _is_piece(words: Sequence[str], source: Sequence[str]) -> bool:
    size = len(words)
    return bool(size) and any(source[n : n + size] == words for n in range(len(source) - size + 1))


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def aligned_words(
    model: NoisyChannel, texts: Sequence[str], features: Sequence[Sequence[str]], outputs: Sequence[Ids]
) -> list[Aligned | None]:
    """An output (ids without EOS) of each text, aligned to the words of the text by the proposing model; None if that
    has no alignments. An output that did not end is aligned as if it had.
    """
    proposer = model.models[model.proposer]
    if not hasattr(proposer, "viterbi"):
        return [None] * len(texts)
    tagged = list(zip(texts, features, strict=True))
    inputs = [model.input_codec.encode(*item) for item in tagged]
    order = sorted(range(len(texts)), key=lambda n: len(inputs[n]))
    ended = [(*outputs[n], EOS) for n in order]
    found: list[Aligned | None] = [None] * len(texts)
    alignments = best_alignments(proposer, [inputs[n] for n in order], ended, model.settings)
    for n, alignment in zip(order, alignments, strict=True):
        words = word_numbers(model.input_codec, *tagged[n])
        found[n] = tuple(words[i] for i in alignment[:-1])
    return found


def word_numbers(codec: Codec, text: str, features: Sequence[str] = ()) -> list[int]:
    """For each symbol that a model reads of a text, the number of its word, from 1; 0 for features and EOS."""
    if codec.config.remove_spaces and isinstance(codec.splitter, Characters):
        joined = [number for number, word in enumerate(text.split(), 1) for _ in codec.split(word)]
        return [*[0] * len(features), *joined, 0]
    symbols, numbers = codec.split(text), list[int]()
    for symbol in symbols:
        before = numbers[-1] if numbers else 0
        match codec.splitter:
            case Characters():
                begins = symbol != " " and (not numbers or symbols[len(numbers) - 1] == " ")
            case Subwords():
                begins = symbol.startswith("▁") or not numbers
            case _:
                begins = True
        numbers.append(before + begins)
    return [*[0] * len(features), *numbers, 0]
