"""Intervals and p-values of a results file, computed again from its outputs; the Markdown beside it is written again.

    python experiments/inflection/judge.py experiments/inflection/results/inflection-nouns.json

Refused if an accuracy in the file does not follow from the outputs.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path

from noisychannel.experiments.inflection_report import markdown
from noisychannel.experiments.outputs import Outputs, judge, row_name


def main() -> None:
    for file in map(Path, sys.argv[1:]):
        figures = json.loads(file.read_text(encoding="utf-8"))
        with lzma.open(file.with_suffix(".outputs.tsv.xz"), "rt", encoding="utf-8") as stream:
            outputs = Outputs(stream)
        for row in figures["rows"]:
            if abs(row["accuracy"] - outputs.accuracy(row_name(row))) > 1e-9:
                sys.exit(f"{file}: the accuracy of {row_name(row)} does not follow from the outputs beside it")
        judge(figures["rows"], outputs)
        file.write_text(json.dumps(figures, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        file.with_suffix(".md").write_text("\n".join(markdown(figures)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
