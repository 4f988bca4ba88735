"""``noisychannel demo``."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from noisychannel.arguments import parse_options
from noisychannel.cli.fit import FitDisplay
from noisychannel.cli.progress import TerminalReporter
from noisychannel.cli.stopping import leaving
from noisychannel.cli.train import PERPLEXITY_NOTE
from noisychannel.experiments.demo import DemoOptions, compare_systems, describe_models, fit_demo
from noisychannel.fitting.report import describe
from noisychannel.fitting.work import Work
from noisychannel.runs import RunDirectory

USAGE = """usage: noisychannel demo [--run-dir runs/demo] [--pairs 500] [--overwrite]

Fit models that turn German nouns into their dative plurals (Haus → Häusern) from 500 pairs. All other dative
plurals of the package german-nouns, without those of held-out nouns, are unpaired outputs. It is what noisychannel fit
does with any pairs and words, in a few minutes; then come perplexities, alignments, the table of systems on held-out
nouns beside two simple baselines (the noun as it is, suffix rules), and nouns on which the systems differ. If the
command is repeated, it resumes, or shows the finished models.

example:
  noisychannel demo --run-dir runs/demo
"""


def run(words: list[str]) -> int:
    options = parse_options(DemoOptions, words, (), USAGE)
    with leaving(lambda: Work(Path(options.run_dir)).exists), FitDisplay() as display:
        nouns, result = fit_demo(options, display)
    print("\n".join(describe(result)))
    print()
    directory = RunDirectory.open(Path(options.run_dir))
    for text in describe_models(directory):
        print(text)
    print(PERPLEXITY_NOTE, file=sys.stderr)
    for text in compare_systems(result, nouns, TerminalReporter()):
        print(text)
    program = shutil.which("noisychannel") or str(Path(sys.prefix, "bin", "noisychannel"))
    print(f"\nThe models are in {directory.path}. Ask them about a noun, or a pair, of your own:")
    program, path = shlex.quote(program), shlex.quote(str(directory.path))
    print(f"  echo Baum | {program} decode {path} --n-best 5 --explain")
    print(f"  printf 'Baum\\tBäumen\\n' | {program} score {path}")
    return 0
