"""The data of the demo: dative plurals of German nouns, from the PyPI package german-nouns (CC BY-SA 4.0)."""

from __future__ import annotations

import csv
import random
import re
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from noisychannel.atomic import write_text
from noisychannel.errors import BadInputError

GERMAN_WORD = re.compile(r"[A-ZÄÖÜ][a-zäöüß]+")


class NounFiles(NamedTuple):
    """The files of one task. No form of a dev or test lemma is among the unpaired outputs."""

    train: Path
    dev: Path
    test: Path
    unpaired: Path


def write_dative_plurals(directory: Path, pairs: int, held_out: int = 300, seed: int = 1) -> NounFiles:
    """Lemma and dative plural: ``pairs`` for training, ``held_out`` each for dev and test; all others are unpaired."""
    nouns = _read_dative_plurals()
    random.Random(seed).shuffle(nouns)
    test, dev, rest = nouns[:held_out], nouns[held_out : 2 * held_out], nouns[2 * held_out :]
    hidden = {form for _, form in test + dev}
    rest = [(lemma, form) for lemma, form in rest if form not in hidden]
    directory.mkdir(parents=True, exist_ok=True)
    written = NounFiles(*(directory / name for name in ("train.tsv", "dev.tsv", "test.tsv", "unpaired.txt")))
    for file, rows in zip(written, (rest[:pairs], dev, test), strict=False):
        write_text(file, "".join(f"{lemma}\t{form}\n" for lemma, form in rows))
    write_text(written.unpaired, "".join(f"{form}\n" for _, form in rest[pairs:]))
    return written


def read_nouns(purpose: str) -> list[dict[str, str]]:
    """The entries of the package, by column. ``purpose`` begins the error message if it is not installed."""
    try:
        table = files("german_nouns") / "nouns.csv"
        with table.open(encoding="utf-8") as stream:
            rows = csv.DictReader(stream)
            if "lemma" not in (rows.fieldnames or ()):
                raise ValueError("no column lemma")
            return list(rows)
    except (ModuleNotFoundError, FileNotFoundError):
        raise BadInputError(
            f"{purpose} needs the word list of german-nouns: pip install --no-deps german-nouns"
        ) from None
    except (ValueError, csv.Error) as error:
        raise BadInputError(
            f"{table}: damaged ({error}); install it again: pip install --no-deps --force-reinstall german-nouns"
        ) from error


def _read_dative_plurals() -> list[tuple[str, str]]:
    """One (lemma, form) for each plain German noun that has the form, sorted."""
    forms: dict[str, str] = {}
    for row in read_nouns("the demo"):
        lemma, form = row["lemma"], row["dativ plural"]
        if GERMAN_WORD.fullmatch(lemma) and GERMAN_WORD.fullmatch(form or ""):
            forms.setdefault(lemma, form)
    return sorted(forms.items())
