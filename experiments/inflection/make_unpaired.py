"""A list of unpaired German noun forms from the PyPI package german-nouns, as the inflection experiment reads it.

    pip install --no-deps german-nouns
    python experiments/inflection/make_unpaired.py data/morphology/unpaired/de_noun.tsv

Columns: attributes, form, source. It is the clean part of the list that the recorded results were made with, which also
had forms of german-pos-dict and words attested on the web.
"""

from __future__ import annotations

import sys
from pathlib import Path

from noisychannel.atomic import write_text
from noisychannel.data.german_nouns import read_nouns

CASES = {"nominativ": "nominative", "genitiv": "genitive", "dativ": "dative", "akkusativ": "accusative"}
NUMBERS = ("singular", "plural")


def main() -> None:
    target = Path(sys.argv[1])
    forms: dict[str, set[str]] = {}
    for row in read_nouns("the list of unpaired forms"):
        for column, form in row.items():
            case, number = (*column.replace("*", "").split(), "", "")[:2]
            # Some cells hold remarks, articles, or several words.
            if case in CASES and number in NUMBERS and form.replace("-", "").isalpha():
                forms.setdefault(f"case={CASES[case]}:number={number}", set()).add(form)
    target.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        f"{attributes}\t{form}\tgerman-nouns\n" for attributes in sorted(forms) for form in sorted(forms[attributes])
    ]
    write_text(target, "".join(lines))
    for attributes in sorted(forms):
        print(f"{attributes}: {len(forms[attributes])} forms")


if __name__ == "__main__":
    main()
