"""Mistakes that the data of a user can show: columns in the wrong order, a line with the names of the columns, and
words that are no outputs.

They are no errors: data that is right can look like this, too. So a user is asked, and the work goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from noisychannel.errors import shortened
from noisychannel.fitting.options import UserData

NAMES_OF_COLUMNS = {
    "input", "output", "source", "target", "src", "tgt", "old", "new", "historical", "modern", "lemma", "form", "word",
    "original", "normalised", "normalized", "orig", "norm", "x", "y", "token", "features", "tags", "base", "stem",
    "root", "verb", "noun", "adjective", "singular", "plural", "present", "past", "participle", "infinitive",
    "inflected", "spelling", "pronunciation", "grapheme", "graphemes", "phoneme", "phonemes", "ipa", "transcription",
    "transliteration", "romanised", "romanized", "text", "title", "headline", "summary", "document", "article",
}  # fmt: skip
"""Usual names in the first line of a table."""
LEAST_DIFFERING = 20
"""Different pairs, with an output that is not the input, from which the order of the columns is judged."""
MORE_LISTED = 0.2
"""The share of the inputs on the word list is so much larger than that of the outputs if the columns seem swapped."""

LEAST_SHARED = 0.5
"""Less of the characters of the words is known from outputs if the words seem to be something else."""


def doubts_about(data: UserData) -> Iterator[str]:
    """A line for each."""
    first = data.pairs[0]
    if first.input != first.output and {_name(first.input), _name(first.output)} <= NAMES_OF_COLUMNS:
        yield (
            f"{first.where}: {shortened(first.input)} and {shortened(first.output)} look like names of columns, and "
            "are taken as a pair; files have no such line: remove it"
        )
    known = {symbol for row in data.pairs for symbol in row.output}
    symbols = [symbol for row in data.words for symbol in row.output if not symbol.isspace()]
    if symbols and (share := fmean(symbol in known for symbol in symbols)) < LEAST_SHARED:
        yield (
            f"of the characters of the words, only {100 * share:.0f} % are in outputs of the pairs: are the words "
            "outputs? If not, repeat without --words, or with others, and with --overwrite"
        )
    if any(row.features for row in (*data.pairs[:1], *data.words[:1])):
        return  # the input of an inflection is itself a word, and often a more frequent one
    words = {row.output for row in data.words}
    pairs = {(row.input, row.output) for row in data.pairs if row.input != row.output} if words else set()
    if len(pairs) < LEAST_DIFFERING:
        return
    inputs, outputs = fmean(x in words for x, _ in pairs), fmean(y in words for _, y in pairs)
    if inputs - outputs >= MORE_LISTED:
        columns = data.columns.exchanged("input", "output").written
        yield (
            f"inputs are on the word list more often ({100 * inputs:.0f} %) than outputs ({100 * outputs:.0f} %): are "
            f"the columns swapped? Then repeat with --columns {columns} --overwrite"
        )


def _name(text: str) -> str:
    return text.strip().lower()
