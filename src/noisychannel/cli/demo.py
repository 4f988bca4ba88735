"""``noisychannel demo``: the whole way from nothing, on German nouns."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from noisychannel.alignment import draw_alignment
from noisychannel.cli.options import parse_options
from noisychannel.cli.progress import make_display
from noisychannel.cli.train import PERPLEXITY_NOTE
from noisychannel.data.german_nouns import write_dative_plurals
from noisychannel.data.prepare import DataConfig
from noisychannel.data.rows import Row
from noisychannel.errors import BadInputError
from noisychannel.runs import RunDirectory
from noisychannel.scoring import Scorer
from noisychannel.training.config import ModelConfig, RunConfig, TrainingConfig
from noisychannel.training.run import train_run
from noisychannel.training.world import choose_device

USAGE = """usage: noisychannel demo [--run_dir runs/demo] [--pairs 3000] [--overwrite]

Train a small direct model, channel model and language model that turn German nouns into their dative plurals
(Haus → Häusern): a few thousand pairs, and all other dative plurals of the package german-nouns as unpaired
outputs. Prints their perplexities and a few alignments. Repeated, it resumes, or shows the finished models.

example:
  noisychannel demo --run_dir runs/demo
"""

SHOWN = (("Haus", "Häusern"), ("Apfelbaum", "Apfelbäumen"), ("Lehrerin", "Lehrerinnen"))


@dataclass(kw_only=True)
class DemoOptions:
    """Options of demo.

    Args:
        run_dir: Where the models and the data go.
        pairs: Training pairs; all other forms are unpaired outputs.
        seed: Decides the choice of the pairs and the training.
        overwrite: Start anew.
    """

    run_dir: str = "runs/demo"
    pairs: int = 3000
    seed: int = 1
    overwrite: bool = False


def run(words: list[str]) -> int:
    options = parse_options(DemoOptions, words, (), USAGE)
    run_dir = Path(options.run_dir)
    if not run_dir.name:
        raise BadInputError(f"--run_dir: {options.run_dir} has no name; name a new directory, such as runs/demo")
    nouns = write_dative_plurals(run_dir.with_name(run_dir.name + "-data"), options.pairs, seed=options.seed)
    config = demo_config(options)
    config.data = DataConfig(train=[str(nouns.train)], dev=[str(nouns.dev)], unpaired=[str(nouns.unpaired)])
    config.check()
    with make_display() as display:
        train_run(config, display, display.say, options.overwrite)
    _show(RunDirectory.open(run_dir))
    return 0


def demo_config(options: DemoOptions) -> RunConfig:
    """Small models: minutes on two cores."""
    model = ModelConfig(hidden_size=128, dropout=0.3)
    return RunConfig(
        run_dir=options.run_dir,
        seed=options.seed,
        direct=replace(model, bidirectional=True),
        channel=model,
        lm=ModelConfig(hidden_size=192, num_layers=1, dropout=0.1, batch_size=128, max_epochs=3, learning_rate=3e-3),
        training=TrainingConfig(batch_size=32, max_epochs=16, learning_rate=2e-3, patience=4, decay_patience=1),
    )


def _show(directory: RunDirectory) -> None:
    scorer = Scorer(directory, choose_device("cpu"))
    print(
        "dev perplexity per symbol: "
        + ", ".join(f"{role} {directory.dev_perplexity(role):.3f}" for role in scorer.models)
    )
    rows = [Row(lemma, form, (), "", "") for lemma, form in SHOWN]
    for record in scorer.score(rows):
        terms = "  ".join(f"{role} {record[role]:.2f}" for role in scorer.models)
        print(f"\n{record['input']} → {record['output']}    log-probabilities: {terms}")
        print("the direct model's alignment (● where an output letter, above, is emitted; ␄ ends a word)")
        print(draw_alignment(record["input_symbols"][:-1], record["output_symbols"][:-1], record["alignment"]))
    print(f"\nThe models are in {directory.path}. Ask them about a pair of your own:")
    program = shutil.which("noisychannel") or f"{Path(sys.prefix, 'bin', 'noisychannel')}"
    print(f"  printf 'Baum\\tBäumen\\n' | {program} score {directory.path}")
    print(PERPLEXITY_NOTE, file=sys.stderr)
