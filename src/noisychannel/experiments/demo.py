"""The demonstration: the whole way from nothing, on German nouns, in a few minutes on two cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from noisychannel.alignment import draw_alignment
from noisychannel.arguments import Count, Seed, check_bounds
from noisychannel.data.german_nouns import NounFiles, write_dative_plurals
from noisychannel.data.prepare import DataConfig
from noisychannel.data.rows import Row
from noisychannel.data.sources import compare
from noisychannel.decode.settings import SearchSettings
from noisychannel.devices import choose_device
from noisychannel.errors import BadInputError
from noisychannel.evaluation.run import EvaluateOptions, evaluate_run
from noisychannel.evaluation.table import EvaluationTable
from noisychannel.explanation import explain
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.reporting import Reporter
from noisychannel.runs import RunDirectory
from noisychannel.scoring import PairScorer
from noisychannel.streams import DecodedLine
from noisychannel.training.config import ModelConfig, RunConfig, TrainingConfig, parse_config
from noisychannel.training.events import Listener
from noisychannel.training.run import train_run
from noisychannel.tuning.run import TuneOptions, tune_run
from noisychannel.weights import read_systems

FULL = "direct+channel+lm"
SYSTEMS_SHOWN = ("direct+lm", FULL)
BASELINES_SHOWN = ("identity", "rules")
TUNED_ON = 300
"""Dev nouns."""
EXAMPLES = {"right where the direct model is wrong": 2, "wrong where the direct model is right": 1}
PAIRS_SHOWN = (("Haus", "Häusern"), ("Apfelbaum", "Apfelbäumen"), ("Lehrerin", "Lehrerinnen"))


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Options of demo.

    Args:
        run_dir: Where the models and the data go.
        pairs: Training pairs; all other forms are unpaired outputs.
        seed: Decides the choice of the pairs and the training.
        overwrite: Start over.
    """

    run_dir: str = "runs/demo"
    pairs: Count = 1000
    seed: Seed = 1
    overwrite: bool = False

    def __post_init__(self) -> None:
        check_bounds(self)


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


def train_demo(options: DemoOptions, listen: Listener, say: Callable[[str], object]) -> NounFiles:
    """Write the data and train the models, or resume."""
    run_dir = Path(options.run_dir)
    if not run_dir.name:
        raise BadInputError(f"--run_dir: {options.run_dir} has no name; name a new directory, such as runs/demo")
    data = run_dir.with_name(run_dir.name + "-data")
    with TemporaryDirectory() as place:
        _check_places(options, data, write_dative_plurals(Path(place), options.pairs, seed=options.seed))
    nouns = write_dative_plurals(data, options.pairs, seed=options.seed)
    config = demo_config(options)
    config.data = _data_config(nouns)
    config.check()
    train_run(config, listen, say, options.overwrite)
    return nouns


def _data_config(nouns: NounFiles) -> DataConfig:
    return DataConfig(train=[str(nouns.train)], dev=[str(nouns.dev)], unpaired=[str(nouns.unpaired)])


def _check_places(options: DemoOptions, data: Path, nouns: NounFiles) -> None:
    """Refuse to write over anything but what a demo wrote. ``nouns``: a copy of what goes into ``data``."""
    if nouns.unpaired.stat().st_size == 0:
        most = len(nouns.train.read_bytes().splitlines()) - 1
        raise BadInputError(f"--pairs: must be at most {most}, so that some forms are unpaired, but is {options.pairs}")
    run = RunDirectory(Path(options.run_dir))
    another = "name another directory, such as runs/demo2"
    for place in (run.path, data):
        if place.exists() and not place.is_dir():
            raise BadInputError(f"--run_dir: {place} is a file; {another}")
    is_run = run.header_file.exists()
    restarts = is_run and options.overwrite and _is_demo(run, options)
    if is_run and not restarts and compare(_data_config(nouns), run.header().data.sources).changed:
        raise BadInputError(
            f"--run_dir: {run.path} was not trained on the nouns of this demo; give the --pairs and --seed that it "
            f"was trained with, or {another}"
        )
    names = {file.name for file in data.iterdir()} if data.exists() else set()
    own = {file.name: file for file in nouns}
    changed = [name for name in sorted(names & own.keys()) if (data / name).read_bytes() != own[name].read_bytes()]
    if not restarts and (changed or (names and names.isdisjoint(own))):
        raise BadInputError(
            f"--run_dir: the data would go to {data}, but {changed[0] if changed else min(names)} there is not of this "
            f"demo; {another}"
        )
    if not is_run and own.keys() - names and run.path.exists() and any(run.path.iterdir()):
        raise BadInputError(f"--run_dir: {run.path} is not empty, and not the run of a demo; {another}")


def _is_demo(run: RunDirectory, options: DemoOptions) -> bool:
    """Whether a run was trained as a demo, of any nouns."""
    before, now = parse_config(run.existing_config()), demo_config(options)
    return all(getattr(before, part) == getattr(now, part) for part in ("direct", "channel", "lm", "training"))


def describe_models(run: RunDirectory) -> Iterator[str]:
    """Dev perplexities, and log-probabilities and alignments of a few pairs."""
    scorer = PairScorer(run, choose_device("cpu"))
    perplexities = ", ".join(f"{role} {run.dev_perplexity(role):.3f}" for role in scorer.models)
    yield f"dev perplexity per symbol: {perplexities}"
    for record in scorer.score([Row(lemma, form, (), "", "") for lemma, form in PAIRS_SHOWN]):
        terms = "  ".join(f"{role} {record[role]:.2f}" for role in scorer.models)
        yield f"\n{record['input']} → {record['output']}    log-probabilities: {terms}"
        yield "the direct model's alignment (● where an output letter, above, is emitted; ␄ ends a word)"
        yield draw_alignment(record["input_symbols"][:-1], record["output_symbols"][:-1], record["alignment"])


def compare_systems(
    run: RunDirectory, nouns: NounFiles, reporter: Reporter, say: Callable[[str], object]
) -> Iterator[str]:
    """Tune, once, and evaluate on the held-out nouns: the table of systems, and nouns on which they differ."""
    if set(read_systems(run)) < {"direct", *SYSTEMS_SHOWN}:
        say(f"\ntuning the weights of {' and '.join(SYSTEMS_SHOWN)} on {TUNED_ON} dev nouns …")
        options = TuneOptions(systems=list(SYSTEMS_SHOWN), limit=TUNED_ON, iterations=3)
        tune_run(run, options, SearchSettings(k1=10, k2=5), reporter)
    table = evaluate_run(
        run,
        EvaluateOptions(
            file=str(nouns.test),
            systems=list(SYSTEMS_SHOWN),
            baselines=list(BASELINES_SHOWN),
            metrics=["accuracy", "edit_distance"],
        ),
        reporter,
    )
    yield "\n" + table.table()
    yield from _examples(run, table)


def _examples(run: RunDirectory, table: EvaluationTable) -> Iterator[str]:
    """Nouns on which the full system and the direct model differ, explained."""
    model = NoisyChannel.load(run.path, FULL, device="cpu")
    full = table.result(FULL)
    direct = table.result(full.compared_with or "direct").outputs
    answers = zip(table.held_out.references, direct, full.outputs, strict=True)
    verdicts = [(alone in right, best in right) for right, alone, best in answers]
    for (label, count), wanted in zip(EXAMPLES.items(), ((False, True), (True, False)), strict=True):
        for n in [n for n, verdict in enumerate(verdicts) if verdict == wanted][:count]:
            noun, (reference,) = table.held_out.inputs[n], table.held_out.references[n]
            yield f"\n{FULL} is {label}: {noun} → {reference} (direct alone: {direct[n]})"
            outputs = model(noun, n_best=3)
            unknown = model.input_codec.unknown(noun)
            yield explain(DecodedLine(noun, outputs, unknown, model.input_symbols(noun)), model)
