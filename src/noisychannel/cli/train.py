"""``noisychannel train CONFIG``."""

from __future__ import annotations

import sys
from pathlib import Path

from noisychannel.cli.options import key_help
from noisychannel.cli.progress import make_display
from noisychannel.errors import BadInputError
from noisychannel.training.parse import make_parser, parse_config
from noisychannel.training.run import train_run

USAGE = """usage: noisychannel train CONFIG [--overwrite] [--KEY VALUE …]

Train the models a configuration file names into one run directory. Any key of the file can be
overridden on the command line. Repeating the command resumes what was interrupted; finished
models are left alone, unless their limit (max_updates, max_epochs) ended them and is larger now.
--overwrite starts over.

example:
  noisychannel train configs/inflection.yaml --run_dir runs/nouns --direct.hidden_size 256

On several GPUs or machines:
  torchrun --nproc_per_node 4 -m noisychannel train configs/translation.yaml
"""

PERPLEXITY_NOTE = (
    "Perplexity is per output symbol, EOS included. An SSNT's probabilities sum to less than one over all outputs,\n"
    "so the perplexities of direct and channel are not comparable with those of a sequence-to-sequence model."
)


def run(words: list[str]) -> int:
    if "-h" in words or "--help" in words:
        print(USAGE)
        print("keys:\n" + key_help(make_parser()))
        return 0
    overwrite = "--overwrite" in words
    words = [word for word in words if word != "--overwrite"]
    if not words or words[0].startswith("-"):
        raise BadInputError("train needs a configuration file: noisychannel train configs/inflection.yaml")
    config = parse_config(Path(words[0]), words[1:])
    with make_display() as display:
        finished = train_run(config, display, display.say, overwrite)
    width = max((len(model.label) for model in finished), default=0)
    for model in sorted(finished, key=lambda model: model.label):
        limit = ", stopped at its limit" if model.at_limit else ""
        print(f"{model.label:<{width}}  dev perplexity {model.dev_perplexity:.4f}  (step {model.best_step}{limit})")
    if finished:
        print(PERPLEXITY_NOTE, file=sys.stderr)
    return 0
