"""``noisychannel train CONFIG``."""

from __future__ import annotations

import sys
from pathlib import Path

from noisychannel.arguments import asks_for_help, describe_keys
from noisychannel.cli.progress import make_display
from noisychannel.cli.stopping import leaving
from noisychannel.errors import BadInputError
from noisychannel.models.registry import ROLES
from noisychannel.packaged import refuse_packaged
from noisychannel.runs import RunDirectory
from noisychannel.training.config import RunConfig, parse_config
from noisychannel.training.run import train_run

USAGE = """usage: noisychannel train CONFIG [--overwrite] [--KEY VALUE …]

Train the models of a configuration file into one run directory. Options override keys of the file.
Repeating the command resumes an interrupted training. Finished models stay as they are, unless they
stopped at a limit (max_updates, max_epochs) that is now larger. --overwrite starts over.

example:
  noisychannel train configs/inflection.yaml --run-dir runs/nouns --direct.hidden-size 256

On several GPUs or machines:
  torchrun --nproc_per_node 4 -m noisychannel train configs/translation.yaml
"""

PERPLEXITY_NOTE = (
    "Perplexity is per output symbol, EOS included. An SSNT's probabilities sum to less than one over all outputs,\n"
    "so perplexities of direct and channel are not comparable with those of a sequence-to-sequence model."
)


def run(words: list[str]) -> int:
    if asks_for_help(words):
        print(f"{USAGE}\nkeys:\n{describe_keys(RunConfig)}")
        return 0
    overwrite = "--overwrite" in words
    words = [word for word in words if word != "--overwrite"]
    if not words or words[0].startswith("-"):
        raise BadInputError("train needs a configuration file: noisychannel train configs/inflection.yaml")
    config = parse_config(Path(words[0]), words[1:])
    for place in (Path(words[0]).parent, Path(config.run_dir)):
        refuse_packaged(place, "trained")
    for role in ROLES:
        given = [word for word in words[1:] if word.startswith(f"--{role}.")]
        if given and role not in config.models:
            raise BadInputError(f"{given[0]} would be ignored: {role} is not trained; add it to --models")
    with leaving(RunDirectory(Path(config.run_dir)).header_file.exists), make_display() as display:
        finished = train_run(config, display, display.say, overwrite, estimate=True)
    width = max((len(model.label) for model in finished), default=0)
    for model in sorted(finished, key=lambda model: model.label):
        limit = ", stopped at its limit" if model.at_limit else ""
        print(f"{model.label:<{width}}  dev perplexity {model.dev_perplexity:.4f}  (step {model.best_step}{limit})")
    if finished:
        print(PERPLEXITY_NOTE, file=sys.stderr)
    return 0
