"""``noisychannel tune RUN``."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from noisychannel.arguments import check_at_least, parse_options
from noisychannel.cli.progress import counting
from noisychannel.cli.warn import finish, warn, warn_unfinished
from noisychannel.data.prepare import DataSource
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError
from noisychannel.evaluation.held_out import HeldOut, decode_held_out, rows_of_groups, with_all_terms
from noisychannel.evaluation.metrics import make_metric
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.runs import RunDirectory
from noisychannel.training.config import parse_config
from noisychannel.training.world import choose_device
from noisychannel.tuning import SYSTEMS, CandidatePool, System, TuningResult, tune
from noisychannel.weights import TunedSystem, write_systems

USAGE = """usage: noisychannel tune RUN [--systems direct+channel+lm] [--metric accuracy] [--k1 20] [--k2 10]

Choose the weights of the objective on the run's dev data and write them to its weights.json, where decode and evaluate
find them. The n-best lists are decoded once and kept with their terms; the search over weights runs on them, decodes
again with what it found, merges the lists, and repeats until nothing moves. The direct model alone is always compared,
so a system with it is never below it on dev. A run with groups is tuned as a whole, on the dev data of all of them,
which then share the weights; to tune one group alone, name its directory. Each system is written when it is tuned, and
when all are, decode uses the largest.

systems: direct+length, direct+lm, channel+lm, direct+channel+lm; all for which the run has models where not given.
metrics: accuracy, edit_distance, bleu, chrf, rouge1, rouge2, rougeL.

example:
  noisychannel tune runs/demo --metric accuracy --k1 60 --k2 30
"""

FEW = 100
"""Dev pairs; weights tuned on fewer fit these pairs rather than the task."""


@dataclass(kw_only=True)
class TuneOptions:
    """Options of tune.

    Args:
        run: The run directory.
        systems: Which systems to tune.
        metric: What to make as good as possible.
        tokenize: sacrebleu's tokenizer for bleu.
        n_best: Length of the lists.
        k1: Proposals of the direct model for each cell.
        k2: Survivors of each cell.
        max_length: Longest output in symbols, EOS included; at least 2.
        max_growth: How many symbols longer than its input an output may be; where neither is given, the longest output
            is twice as long as its input and ten more.
        search: viterbi (the paper) or marginal.
        lm_proposals: Further proposals for each cell, by the language model.
        iterations: Most rounds of decoding.
        limit: Use only so many dev pairs (of each group).
        seed: Of the search over weights.
        batch_size: Inputs decoded together.
        device: auto takes a GPU where there is one.
    """

    run: str = ""
    systems: list[str] = field(default_factory=list)
    metric: str = "accuracy"
    tokenize: str | None = None
    n_best: int = 10
    k1: int = 20
    k2: int = 10
    max_length: int | None = None
    max_growth: int | None = None
    search: Literal["viterbi", "marginal"] = "viterbi"
    lm_proposals: int = 0
    iterations: int = 5
    limit: int | None = None
    seed: int = 1
    batch_size: int = 32
    device: str = "auto"


def run(words: list[str]) -> int:
    options = parse_options(TuneOptions, words, ("run",), USAGE)
    if not options.run:
        raise BadInputError("tune needs a run directory: noisychannel tune runs/demo")
    tuned = tune_run(options)
    width = max(len(system.system) for system in tuned)
    for system in tuned:
        weights = "  ".join(f"{name} {value:.3g}" for name, value in system.weights.by_name().items())
        print(f"{system.system:<{width}}  dev {system.metric} {system.dev_score:.2f}  weights: {weights}")
    return 0


def tune_run(options: TuneOptions) -> list[TuningResult]:
    """Tune every system asked for, and write weights.json. When all are tuned, the largest is the run's default.

    All groups of a run share the weights.
    """
    check_at_least(1, options, "n_best", "limit", "batch_size")
    check_at_least(0, options, "iterations", "seed")
    # EOS counts: of length 1 there would be no outputs to choose among.
    check_at_least(2, options, "max_length")
    directory = RunDirectory.open(Path(options.run))
    systems = choose_systems(directory, options.systems)
    search = SearchSettings(
        k1=options.k1,
        k2=options.k2,
        max_length=options.max_length,
        max_growth=options.max_growth,
        search=options.search,
        lm_proposals=options.lm_proposals,
    )
    dev = rows_of_groups(directory, DataSource(parse_config(directory.config_file).data).rows("dev"))
    parts = [
        _Part(model, HeldOut.read("dev", rows[: options.limit], (), model))
        for group, rows in dev.items()
        for model in [load_all(directory.group(group), systems, search, options.device)]
    ]
    if not any(part.held_out.inputs for part in parts):
        raise BadInputError(f"{directory.path}: there are no dev pairs to tune on; see --limit")
    references = [texts for part in parts for texts in part.held_out.references]
    if len(references) < FEW:
        warn(
            f"{directory.path}: tuning on {len(references)} dev pairs; weights that fit fewer than {FEW} may do worse "
            "on other inputs than the direct model alone: give more dev pairs (data.dev, or a larger --limit)"
        )
    codecs = [part.model.output_codec for part in parts for _ in part.held_out.references]
    metric = make_metric(options.metric, options.tokenize, parts[0].model.output_codec.config)
    pool = CandidatePool(metric, references, [codec.decode for codec in codecs])
    tuned: list[TuningResult] = []
    with counting("tune") as progress:

        @cache
        def decode(weights: Weights) -> list[list[Hypothesis]]:
            found: list[list[Hypothesis]] = []
            for model, held_out in parts:
                decoded = decode_held_out(
                    model.reweighted(weights), held_out, options.n_best, options.batch_size, progress, align=False
                )
                found += with_all_terms(model, held_out, decoded)
            return found

        for system in systems:
            # A larger system can do whatever a smaller one does.
            known = [smaller.weights for smaller in tuned if system.contains(SYSTEMS[smaller.system])]
            tuned.append(tune(system, decode, pool, options.iterations, options.seed, known=known))
            for run in directory.groups():
                write_systems(run, [_tuned_system(tuned[-1], search, len(references))])
    for run in directory.groups():
        write_systems(run, [], default=systems[-1].name)
    return tuned


class _Part(NamedTuple):
    """The models of one group and its dev data."""

    model: NoisyChannel
    held_out: HeldOut


def choose_systems(directory: RunDirectory, names: list[str]) -> list[System]:
    """The systems named, or all that the run has models for, smallest first: a larger one starts from the smaller."""
    for name in names:
        if name not in SYSTEMS:
            raise BadInputError(f"unknown system {name!r}; the systems are {', '.join(SYSTEMS)}")
    chosen = [system for name, system in SYSTEMS.items() if name in (names or SYSTEMS) and name != "direct"]
    if not chosen:
        raise BadInputError("direct has no weights to tune; name a larger system, or none for all")
    lacking = {
        system: (run, role)
        for system in chosen
        for run in directory.groups()
        for role in system.roles
        if not run.has_model(role)
    }
    if names and lacking:
        system, (run, role) = next(iter(lacking.items()))
        hint = finish(run) if run.state_file(role).exists() else f"train it with --models {role}"
        raise BadInputError(f"{run.path}: {system.name} needs the model {role}, which the run does not hold; {hint}")
    possible = [system for system in chosen if system not in lacking]
    for run, role in dict.fromkeys(lacking.values()):
        warn_unfinished(run, [role])
    if not possible:
        raise BadInputError(f"{directory.path}: there is nothing to tune; train a direct model first")
    return possible


def load_all(directory: RunDirectory, systems: list[System], search: SearchSettings, device: str) -> NoisyChannel:
    """Every model that some system needs, loaded once."""
    roles = dict.fromkeys(role for system in systems for role in system.roles)
    try:
        models = {role: directory.load_model(role, choose_device(device)) for role in roles}
        warn_unfinished(directory, roles)
        return NoisyChannel(*directory.codecs(), models, Weights(), search)
    except ValueError as error:
        raise BadInputError(str(error)) from error


def _tuned_system(tuned: TuningResult, search: SearchSettings, sentences: int) -> TunedSystem:
    record = {
        "metric": tuned.metric,
        "signature": tuned.signature,
        "dev_score": tuned.dev_score,
        "dev_sentences": sentences,
        "history": [asdict(step) for step in tuned.history],
    }
    return TunedSystem(tuned.system, tuned.weights, search, record)
