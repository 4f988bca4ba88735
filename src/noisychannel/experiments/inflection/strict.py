"""The strict setting: unpaired lists without any form of a dev or test lemma.

gold = held_out_paradigms(tables)
strict = without_lemmas(unpaired, gold, gold, german_noun_paradigms())
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from noisychannel.data.german_nouns import read_nouns
from noisychannel.evaluation.baselines import SuffixRules
from noisychannel.experiments.inflection.data import Pair, TaggedPair, TrainDevTest, read_wiktionary

CASES = ("nominativ", "genitiv", "dativ", "akkusativ")
"""The columns of german-nouns that are forms begin with one of these."""


def held_out_paradigms(
    tables: Mapping[str, TrainDevTest[Pair]] | Mapping[str, TrainDevTest[TaggedPair]],
) -> dict[str, set[str]]:
    """Lemma to forms of all types, for the dev and test lemmas of the gold tables."""
    paradigms: dict[str, set[str]] = {}
    for splits in tables.values():
        for pair in (*splits.dev, *splits.test):
            paradigms.setdefault(pair.lemma, set()).add(pair.form)
    return paradigms


def german_noun_paradigms() -> dict[str, set[str]]:
    """Lemma to all its attested forms in the PyPI package german-nouns: every case, number and variant.

    Entries of the same spelling (der and die Kiefer) are one paradigm. There is no such list for verbs.
    """
    paradigms: dict[str, set[str]] = {}
    for row in read_nouns("the strict setting"):
        forms = {form.strip() for column, form in row.items() if form and column.split()[0] in CASES}
        paradigms.setdefault(row["lemma"], set()).update(forms - {""})
    return paradigms


def verb_paradigms(morphology: Path, lemmas: Iterable[str]) -> dict[str, set[str]]:
    """The forms of verbs: those of the Wiktionary tables, or if they lack the verb, those that their rules predict."""
    known: dict[str, set[str]] = {}
    rules: dict[str, SuffixRules] = {}
    for type_, splits in read_wiktionary(morphology, "verb").items():
        pairs = [TaggedPair(*pair, type_) for split in splits for pair in split]
        rules[type_] = SuffixRules(pairs)
        for pair in pairs:
            known.setdefault(pair.lemma, set()).add(pair.form)
    return {
        lemma: known.get(lemma) or {of_type.inflect(lemma, type_) for type_, of_type in rules.items()}
        for lemma in lemmas
    }


def without_lemmas(
    unpaired: Mapping[str, Sequence[str]], lemmas: Iterable[str], *paradigms: Mapping[str, AbstractSet[str]]
) -> dict[str, list[str]]:
    """The lists without the ``lemmas`` and without every form that a paradigm has for them.

    A form is removed from the lists of all types, whatever its source, even if it is also a form of another lemma. So
    is its copy with a capital (Berechnete for berechnete; the verb lists often have both). A compound stays. Of verbs,
    only the forms in the gold tables are known: a short imperative (sink!) can stay.
    """
    hidden: set[str] = set()
    for lemma in lemmas:
        hidden.add(_uncapitalised(lemma))
        for paradigm in paradigms:
            hidden.update(map(_uncapitalised, paradigm.get(lemma, ())))
    return {
        attributes: [form for form in forms if _uncapitalised(form) not in hidden]
        for attributes, forms in unpaired.items()
    }


def _uncapitalised(word: str) -> str:
    return word[:1].lower() + word[1:]
