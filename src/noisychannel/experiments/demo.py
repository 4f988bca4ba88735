"""The demonstration: the whole way from nothing, on German nouns, in a few minutes on two cores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from noisychannel.alignment import draw_alignment
from noisychannel.arguments import Count, Seed, check_bounds
from noisychannel.data.german_nouns import NounFiles, write_dative_plurals
from noisychannel.data.rows import Row
from noisychannel.decoded_line import DecodedLine
from noisychannel.devices import choose_device
from noisychannel.errors import BadInputError
from noisychannel.evaluation.run import EvaluateOptions, evaluate_run
from noisychannel.evaluation.table import EvaluationTable
from noisychannel.explanation import explain
from noisychannel.fitting.fit import FitResult, check_begun, fit
from noisychannel.fitting.options import FitOptions
from noisychannel.fitting.progress import FitReporter
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.reporting import Reporter
from noisychannel.runs import RunDirectory
from noisychannel.scoring import PairScorer

MINUTES = 2.5
"""What ``fit`` may plan for. Installing, evaluating and the examples come on top."""
BASELINES_SHOWN = ("identity", "rules")
EXAMPLES = {"right where the direct model is wrong": 2, "wrong where the direct model is right": 1}
PAIRS_SHOWN = (("Haus", "Häusern"), ("Apfelbaum", "Apfelbäumen"), ("Lehrerin", "Lehrerinnen"))


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Options of demo.

    Args:
        run_dir: Where the models go; the data go beside it.
        pairs: Training pairs; all other forms are unpaired outputs.
        seed: Decides the choice of the pairs and the training.
        jobs: Processes that work at the same time; if not set, as many as fit.
        overwrite: Start over.
    """

    run_dir: str = "runs/demo"
    pairs: Count = 500
    seed: Seed = 1
    jobs: Count | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        check_bounds(self)

    def fit_options(self, nouns: NounFiles) -> FitOptions:
        """What ``fit`` is asked to do."""
        return FitOptions(
            pairs=str(nouns.train),
            words=[str(nouns.unpaired)],
            run_dir=self.run_dir,
            seed=self.seed,
            jobs=self.jobs,
            minutes=MINUTES,
            inputs=0,  # a reverse model would take half of the time
            overwrite=self.overwrite,
        )


def fit_demo(options: DemoOptions, reporter: FitReporter) -> tuple[NounFiles, FitResult]:
    """Write the data and fit the models, or resume."""
    run_dir = Path(options.run_dir)
    if not run_dir.name:
        raise BadInputError(f"--run-dir: {options.run_dir} has no name; name a new directory, such as runs/demo")
    data = run_dir.with_name(run_dir.name + "-data")
    with TemporaryDirectory() as place:
        _check_places(options, data, write_dative_plurals(Path(place), options.pairs, seed=options.seed))
    nouns = write_dative_plurals(data, options.pairs, seed=options.seed)
    return nouns, fit(options.fit_options(nouns), reporter)


def _check_places(options: DemoOptions, data: Path, nouns: NounFiles) -> None:
    """Refuse to change any file that is there. ``nouns``: a copy of what goes into ``data``."""
    if nouns.unpaired.stat().st_size == 0:
        most = len(nouns.train.read_bytes().splitlines()) - 1
        raise BadInputError(f"--pairs: must be at most {most}, so that some forms are unpaired, but is {options.pairs}")
    check_begun(options.fit_options(nouns))
    another = "name another directory, such as runs/demo2"
    if data.exists() and not data.is_dir():
        raise BadInputError(f"--run-dir: the data would go to {data}, which is a file; {another}")
    names = {file.name for file in data.iterdir()} if data.exists() else set()
    own = {file.name: file for file in nouns}
    changed = [name for name in sorted(names & own.keys()) if (data / name).read_bytes() != own[name].read_bytes()]
    if changed or (names and names.isdisjoint(own)):
        raise BadInputError(
            f"--run-dir: the data would go to {data}, but {changed[0] if changed else min(names)} there is not of this "
            f"demo; {another}"
        )


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


def compare_systems(result: FitResult, nouns: NounFiles, reporter: Reporter) -> Iterator[str]:
    """Evaluate on the held-out nouns: the table of systems, and nouns on which they differ."""
    run = RunDirectory.open(result.run_dir)
    table = evaluate_run(
        run,
        EvaluateOptions(
            file=str(nouns.test),
            systems=list(dict.fromkeys([result.done.begun.plan.systems[0], result.done.default])),
            baselines=list(BASELINES_SHOWN),
            metrics=["accuracy", "edit_distance"],
        ),
        reporter,
    )
    yield "\n" + table.table()
    yield from _examples(run, table, result.done.default)


def _examples(run: RunDirectory, table: EvaluationTable, system: str) -> Iterator[str]:
    """Nouns on which the system that decodes and the direct model differ, explained."""
    model = NoisyChannel.load(run.path, system, device="cpu")
    full = table.result(system)
    direct = table.result(full.compared_with or "direct").outputs
    answers = zip(table.held_out.references, direct, full.outputs, strict=True)
    verdicts = [(alone in right, best in right) for right, alone, best in answers]
    for (label, count), wanted in zip(EXAMPLES.items(), ((False, True), (True, False)), strict=True):
        for n in [n for n, verdict in enumerate(verdicts) if verdict == wanted][:count]:
            noun, (reference,) = table.held_out.inputs[n], table.held_out.references[n]
            yield f"\n{system} is {label}: {noun} → {reference} (direct alone: {direct[n]})"
            outputs = model(noun, n_best=3)
            unknown = model.input_codec.unknown(noun)
            yield explain(DecodedLine(noun, outputs, unknown, model.input_symbols(noun)), model)
