"""``noisychannel demo``: the whole way from nothing, on German nouns."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from noisychannel.alignment import draw_alignment
from noisychannel.arguments import parse_options
from noisychannel.cli.decode import Decoded, explain, seen_symbols
from noisychannel.cli.evaluate import EvaluateOptions, evaluate_run
from noisychannel.cli.progress import make_display
from noisychannel.cli.train import PERPLEXITY_NOTE
from noisychannel.cli.tune import TuneOptions, tune_run
from noisychannel.data.german_nouns import NounFiles, write_dative_plurals
from noisychannel.data.prepare import DataConfig
from noisychannel.data.rows import Row
from noisychannel.errors import BadInputError
from noisychannel.evaluation.table import Evaluated
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.runs import RunDirectory
from noisychannel.scoring import Scorer
from noisychannel.training.config import ModelConfig, RunConfig, TrainingConfig
from noisychannel.training.run import train_run
from noisychannel.training.world import choose_device
from noisychannel.weights import read_systems

USAGE = """usage: noisychannel demo [--run_dir runs/demo] [--pairs 1000] [--overwrite]

Train a small direct model, channel model and language model that turn German nouns into their dative plurals
(Haus → Häusern): a thousand pairs, and all other dative plurals of the package german-nouns as unpaired outputs, but
for those of the held-out nouns. Tune the weights, evaluate on held-out nouns, and show perplexities, alignments, the
table of systems beside two simple baselines (the noun as it is, suffix rules), and nouns on which they differ.
Repeated, it resumes, or shows the finished models.

example:
  noisychannel demo --run_dir runs/demo
"""

FULL = "direct+channel+lm"
SYSTEMS_SHOWN = ("direct+lm", FULL)
BASELINES_SHOWN = ("identity", "rules")
TUNED_ON = 300
EXAMPLES = {"right where the direct model is wrong": 2, "wrong where the direct model is right": 1}
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
    pairs: int = 1000
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
    _show_models(RunDirectory.open(run_dir))
    _show_systems(RunDirectory.open(run_dir), nouns)
    return 0


def demo_config(options: DemoOptions) -> RunConfig:
    """Small models: minutes on two cores."""
    model = ModelConfig(hidden_size=128, dropout=0.3)
    return RunConfig(
        run_dir=options.run_dir,
        seed=options.seed,
        direct=replace(model, bidirectional=True),
        channel=model,
        lm=ModelConfig(hidden_size=256, num_layers=1, dropout=0.1, batch_size=128, max_epochs=3, learning_rate=3e-3),
        training=TrainingConfig(batch_size=32, max_updates=1200, learning_rate=2e-3, patience=4, decay_patience=1),
    )


def _show_systems(directory: RunDirectory, nouns: NounFiles) -> None:
    """Tune, once, and evaluate on the held-out nouns."""
    if set(read_systems(directory)) < {"direct", *SYSTEMS_SHOWN}:
        print(f"\ntuning the weights of {' and '.join(SYSTEMS_SHOWN)} on {TUNED_ON} dev nouns …", flush=True)
        tune_run(
            TuneOptions(run=str(directory.path), systems=list(SYSTEMS_SHOWN), limit=TUNED_ON, iterations=3, k1=10, k2=5)
        )
    options = EvaluateOptions(
        run=str(directory.path),
        file=str(nouns.test),
        systems=list(SYSTEMS_SHOWN),
        baselines=list(BASELINES_SHOWN),
        metrics=["accuracy", "edit_distance"],
    )
    evaluated = evaluate_run(directory, options)
    print("\n" + evaluated.table())
    _show_examples(directory, evaluated)
    program = shutil.which("noisychannel") or str(Path(sys.prefix, "bin", "noisychannel"))
    print(f"\nThe models are in {directory.path}. Ask them about a noun, or a pair, of your own:")
    print(f"  echo Baum | {program} decode {directory.path} --n_best 5 --explain")
    print(f"  printf 'Baum\\tBäumen\\n' | {program} score {directory.path}")


def _show_examples(directory: RunDirectory, evaluated: Evaluated) -> None:
    """Nouns on which the full system and the direct model differ, explained."""
    full = NoisyChannel.load(directory.path, FULL, device="cpu")
    ours = evaluated.result(FULL)
    alone = evaluated.result(ours.compared_with or "direct").outputs
    answers = zip(evaluated.held_out.references, alone, ours.outputs, strict=True)
    verdicts = [(direct in right, best in right) for right, direct, best in answers]
    for (label, count), wanted in zip(EXAMPLES.items(), ((False, True), (True, False)), strict=True):
        chosen = [n for n, verdict in enumerate(verdicts) if verdict == wanted][:count]
        for n in chosen:
            noun, (reference,) = evaluated.held_out.inputs[n], evaluated.held_out.references[n]
            print(f"\n{FULL} is {label}: {noun} → {reference} (direct alone: {alone[n]})")
            explain(noun, Decoded(full(noun, n_best=3), full.input_codec.unknown(noun), seen_symbols(full, noun)), full)


def _show_models(directory: RunDirectory) -> None:
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
    print(PERPLEXITY_NOTE, file=sys.stderr)
