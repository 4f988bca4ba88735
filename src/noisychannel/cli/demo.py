"""``noisychannel demo``."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from noisychannel.arguments import parse_options
from noisychannel.cli.progress import TerminalReporter, make_display
from noisychannel.cli.train import PERPLEXITY_NOTE
from noisychannel.experiments.demo import DemoOptions, compare_systems, describe_models, train_demo
from noisychannel.runs import RunDirectory

USAGE = """usage: noisychannel demo [--run-dir runs/demo] [--pairs 1000] [--overwrite]

Train a small direct model, channel model and language model that turn German nouns into their dative plurals
(Haus → Häusern) from a thousand pairs. All other dative plurals of the package german-nouns, without those of held-out
nouns, are unpaired outputs. Tune the weights, evaluate on held-out nouns, and show perplexities, alignments, the table
of systems beside two simple baselines (the noun as it is, suffix rules), and nouns on which the systems differ. If the
command is repeated, it resumes, or shows the finished models.

example:
  noisychannel demo --run-dir runs/demo
"""


def run(words: list[str]) -> int:
    options = parse_options(DemoOptions, words, (), USAGE)
    with make_display() as display:
        nouns = train_demo(options, display, display.say)
    directory = RunDirectory.open(Path(options.run_dir))
    for text in describe_models(directory):
        print(text)
    print(PERPLEXITY_NOTE, file=sys.stderr)
    for text in compare_systems(directory, nouns, TerminalReporter(), lambda line: print(line, flush=True)):
        print(text)
    program = shutil.which("noisychannel") or str(Path(sys.prefix, "bin", "noisychannel"))
    print(f"\nThe models are in {directory.path}. Ask them about a noun, or a pair, of your own:")
    program, path = shlex.quote(program), shlex.quote(str(directory.path))
    print(f"  echo Baum | {program} decode {path} --n-best 5 --explain")
    print(f"  printf 'Baum\\tBäumen\\n' | {program} score {path}")
    return 0
