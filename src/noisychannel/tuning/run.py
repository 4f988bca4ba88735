"""Tuning a run directory: the weights of its systems on its dev data, into weights.json."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from noisychannel.arguments import Count, CountOrZero, Seed, check_bounds
from noisychannel.confidence import Confidence
from noisychannel.data.prepare import DataSource
from noisychannel.data.rows import Row
from noisychannel.data.sources import warnings_of
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError, command_line
from noisychannel.evaluation.decoding import with_all_terms
from noisychannel.evaluation.default_metric import default_metric
from noisychannel.evaluation.held_out import HeldOut, rows_of_groups
from noisychannel.evaluation.metrics import Metric, make_metric
from noisychannel.loading import load_systems
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.reporting import Advance, Reporter, Silent
from noisychannel.run_files import FIT
from noisychannel.runs import RunDirectory
from noisychannel.systems import PROPOSERS, SYSTEMS, System, check_used, should_look_ahead, unused_settings
from noisychannel.tuning.confidence import fit_confidence, judged_lists
from noisychannel.tuning.loop import TuningResult, most_decodings, tune
from noisychannel.tuning.pool import CandidatePool
from noisychannel.weights import TermSource, TunedSystem, known_terms, system_of, write_systems

REPEATED = 0.5
"""If this share of the training pairs are repetitions, seen is used unless systems are named."""
FEW_PAIRS = 100
"""Weights tuned on fewer dev pairs fit these pairs rather than the task."""
ENOUGH_PAIRS = 500
"""There are a handful of weights: more dev pairs take longer to decode, and hardly change them."""
DRAWN_WITH = 1
"""The seed with which dev pairs are drawn; not that of the search over weights, so that all tunings of a run use the
same pairs."""


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """How to tune.

    Args:
        systems: Which systems to tune, such as direct+lm; all that the run has models for if not given.
        terms: Further terms, as NAME=KIND:RUN; KIND is lm (a second language model), density_ratio (a language model
            that is subtracted), word_list, seen (counts of the pairs of a run), ngram_pairs or ngram_outputs (its
            n-gram models).
        metric: What to optimise. If not given, accuracy; if outputs are sentences, bleu.
        tokenize: sacrebleu's tokenizer for bleu.
        n_best: Length of the n-best lists.
        iterations: Most rounds of decoding.
        limit: Tune on at most so many dev pairs (of each group), drawn with a fixed seed; 0 for all of them.
        seed: Random seed of the search over weights.
        batch_size: Inputs decoded together.
        device: auto takes a GPU if there is one.
    """

    systems: list[str] = field(default_factory=list)
    terms: list[str] = field(default_factory=list)
    metric: str | None = None
    tokenize: str | None = None
    n_best: Count = 10
    iterations: CountOrZero = 5
    limit: CountOrZero = ENOUGH_PAIRS
    seed: Seed = 1
    batch_size: Count = 32
    device: str = "auto"

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True)
class _Group:
    """The models of one group of a run, and its dev data; a run without groups is one group."""

    model: NoisyChannel
    dev: HeldOut
    texts: list[dict[tuple[int, ...], str]]
    """For each dev input the texts of all outputs so far, by their ids."""

    @staticmethod
    def of(model: NoisyChannel, dev: HeldOut) -> _Group:
        return _Group(model, dev, [{} for _ in dev.inputs])

    def decode(self, weights: Weights, options: TuneOptions, progress: Advance) -> list[list[Hypothesis]]:
        """The n-best lists of the dev inputs, with every term of every model."""
        dev = self.dev
        outputs = self.model.reweighted(weights).batch(
            dev.inputs, options.n_best, dev.features, options.batch_size, progress, align=False
        )
        for texts, best in zip(self.texts, outputs, strict=True):
            texts |= {output.hypothesis.tokens: output.text for output in best}
        return with_all_terms(self.model, dev, outputs)


def tune_run(
    run: RunDirectory,
    options: TuneOptions = TuneOptions(),  # noqa: B008 (frozen)
    settings: SearchSettings = SearchSettings(),  # noqa: B008 (frozen)
    reporter: Reporter = Silent(),  # noqa: B008 (no state)
    needed: Iterable[str] = (),
) -> list[TuningResult]:
    """Tune every system asked for, and write weights.json. When all are tuned, the largest is the run's default.

    All groups of a run share the weights. Each system is written as soon as it is tuned. If the settings leave open
    whether to look ahead, that depends on the units of the inputs. ``needed``: the names of settings that are refused
    if no system uses them.
    """
    if settings.look_ahead is None:
        settings = replace(settings, look_ahead=should_look_ahead(run.groups()[0].codecs()[0].config.units))
    # EOS counts: with a length of 1 there is only the empty output.
    if settings.max_length is not None and settings.max_length < 2:
        raise BadInputError(f"--max-length: must be at least 2, but is {settings.max_length}")
    if dev_is_training(run):
        raise BadInputError(
            f"{run.path}: its dev data are its training pairs, and fit has tuned it on folds; to choose weights "
            "yourself, train a run with data.dev of its own"
        )
    terms = dict(map(TermSource.parse, options.terms))
    if len(terms) < len(options.terms):
        raise BadInputError("--terms: two terms have the same name; give each a name of its own")
    systems = choose_systems(run, options.systems, terms_of(run.groups()[0], terms), reporter)
    for warning in warnings_of(run.data_config, run.header().data.sources, ("dev", "dev_outputs")):
        reporter.warn(warning)
    every = rows_of_groups(run, DataSource(run.data_config).rows("dev"))
    if options.metric is None:
        pairs = [row for of_group in every.values() for row in of_group]
        options = replace(options, metric=default_metric(run, pairs, reporter, "--metric"))
    assert options.metric is not None
    _check_used(options, needed, systems, terms, settings.per_symbol)
    metric = make_metric(options.metric, options.tokenize, run.groups()[0].codecs()[1].config)
    rows = {group: drawn_pairs(of_group, options.limit) for group, of_group in every.items()}
    total, used = (sum(map(len, of_groups.values())) for of_groups in (every, rows))
    if used < total:
        reporter.warn(f"tuning on {used:,} of {total:,} dev pairs, drawn with a fixed seed; for all: --limit 0")
    tuned: list[TuningResult] = []
    for proposer in dict.fromkeys(system.proposer for system in systems):
        some = [system for system in systems if system.proposer == proposer]
        groups = [
            _Group.of(model, HeldOut.read("dev", of_group, (), model.output_codec))
            for group, of_group in rows.items()
            for sources in [terms_of(run.group(group), terms)]
            for model in [load_systems(run.group(group), some, settings, options.device, sources, reporter)]
        ]
        tuned += _tune_systems(run, groups, some, terms, metric, options, settings, reporter, total)
    for of_group in run.groups():
        write_systems(of_group, [], default=systems[-1].name)
    return tuned


def dev_is_training(run: RunDirectory) -> bool:
    """Whether the dev data of a run are its training pairs: ``fit`` has then tuned it on folds."""
    sources = run.header().data.sources
    train, dev = ({file.sha256 for file in sources.get(key, {}).values()} for key in ("train", "dev"))
    return (run.path / FIT).exists() and bool(train) and train == dev


def _check_used(
    options: TuneOptions, needed: Iterable[str], systems: Sequence[System], terms: Iterable[str], per_symbol: bool
) -> None:
    """Refuse what would be ignored: a tokenizer without BLEU, a term or a setting that no system uses."""
    if options.tokenize is not None and options.metric != "bleu":
        raise BadInputError(f"--tokenize is for the metric bleu, but the metric is {options.metric}; leave it out")
    for name in terms:
        if not any(name in system.extra for system in systems):
            raise BadInputError(f"--terms: no system uses {name}; name one that does, such as --systems direct+{name}")
    with_channel = any("channel" in system.roles for system in systems)
    check_used(
        needed, unused_settings({system.proposer: None for system in systems}, with_channel, per_symbol=per_symbol)
    )


def _tune_systems(
    run: RunDirectory,
    groups: Sequence[_Group],
    systems: Sequence[System],
    terms: Mapping[str, TermSource],
    metric: Metric,
    options: TuneOptions,
    settings: SearchSettings,
    reporter: Reporter,
    total: int,
) -> list[TuningResult]:
    """Systems of one proposing model, smallest first, on one pool of candidates. ``total``: all dev pairs, of which the
    groups may have a sample."""
    references = [texts for group in groups for texts in group.dev.references]
    if not references:
        raise BadInputError(f"{run.path}: there are no dev pairs to tune on; add some to data.dev, and train again")
    if len(references) < FEW_PAIRS:
        reporter.warn(
            f"{run.path}: tuning on {len(references)} dev pairs. With fewer than {FEW_PAIRS}, weights may do worse on "
            "other inputs than the direct model alone. Give more dev pairs (data.dev, or a larger --limit)"
        )
    texts = [known.__getitem__ for group in groups for known in group.texts]
    pool = CandidatePool(metric, references, texts)
    results: list[TuningResult] = []
    # The last decoding is for the confidence. Most systems decode less often than they may, and share decodings: what
    # they leave out counts as done.
    most = [
        most_decodings(system, options.iterations, sum(system.contains(smaller) for smaller in systems[:n])) + 1
        for n, system in enumerate(systems)
    ]
    work = f"tune, at most {sum(most)} decodings of {len(references):,} pairs"
    with reporter.counting(work, sum(most) * len(references)) as progress:
        decoded: dict[Weights, list[list[Hypothesis]]] = {}

        def decode(weights: Weights) -> list[list[Hypothesis]]:
            # A further term of weight zero changes nothing: systems with and without it share the decoding.
            weights = replace(weights, extra={name: weight for name, weight in weights.extra.items() if weight})
            if weights in decoded:
                progress(len(references))
            else:
                decoded[weights] = [n for group in groups for n in group.decode(weights, options, progress)]
            return decoded[weights]

        for system, decodings in zip(systems, most, strict=True):
            # A larger system can do whatever a smaller one does.
            known = [
                system.weights(result.weights.by_name())
                for smaller, result in zip(systems, results, strict=False)
                if system.contains(smaller)
            ]
            results.append(tune(system, decode, pool, options.iterations, options.seed, known=known))
            lists = decode(results[-1].weights)
            progress((decodings - 1 - len(results[-1].history)) * len(references))
            known_texts = [known for group in groups for known in group.texts]
            models = [group.model for group in groups]
            judged = judged_lists([group.dev for group in groups], models, known_texts, lists)
            confidence = fit_confidence(judged, results[-1].weights, options.n_best, options.seed)
            for of_group in run.groups():
                available = terms_of(of_group, terms)
                sources = {name: available[name] for name in system.extra}
                system_tuned = tuned_system(results[-1], settings, len(references), sources, confidence, total)
                write_systems(of_group, [system_tuned])
    return results


def drawn_pairs(rows: Sequence[Row], limit: int) -> list[Row]:
    """At most so many dev pairs, in their order; all if ``limit`` is 0. Fewer are a part of more."""
    if not 0 < limit < len(rows):
        return list(rows)
    places = list(range(len(rows)))
    random.Random(DRAWN_WITH).shuffle(places)
    return [rows[n] for n in sorted(places[:limit])]


def choose_systems(
    run: RunDirectory, names: Sequence[str], terms: Mapping[str, TermSource], reporter: Reporter
) -> list[System]:
    """The systems named, or all that the run has models for, smallest first: a larger one starts from the smaller."""
    proposer = next((role for role in PROPOSERS if run.groups()[0].has_model(role)), "direct")
    if len(set(names)) < len(names):
        raise BadInputError(f"--systems: something is named twice in {', '.join(names)}")
    asked = names or _everything(proposer, terms)
    chosen = list({system.name: system for name in asked for system in [system_of(name, terms)]}.values())
    for system in chosen:
        if not system.free:
            raise BadInputError(f"{system.name} has no weights to tune; name a larger system, or none for all")
    lacking = {
        system.name: (of_group, role)
        for system in chosen
        for of_group in run.groups()
        for role in system.roles
        if not of_group.has_model(role)
    }
    if names and lacking:
        name, (of_group, role) = next(iter(lacking.items()))
        fix = of_group.adding(role)
        if of_group.state_file(role).exists():
            fix = f"finish its training: {command_line('train', of_group.path / 'config.yaml')}"
        raise BadInputError(f"{of_group.path}: {name} needs the model {role}, which the run does not have; {fix}")
    for of_group, role in dict.fromkeys(lacking.values()):
        for warning in of_group.unfinished([role]):
            reporter.warn(warning)
    possible = [system for system in chosen if system.name not in lacking]
    if not possible:
        raise BadInputError(f"{run.path}: there is nothing to tune without a direct model; {run.adding('direct')}")
    return sorted(possible, key=lambda system: len(system.free))


def _everything(proposer: str, terms: Mapping[str, TermSource]) -> list[str]:
    """The systems that are tuned if none are named; the last has the further terms."""
    systems = [name.replace("direct", proposer) for name in SYSTEMS if name != "direct"]
    further = [name for name, source in terms.items() if source.kind != "seen" or _repeats(source)]
    return [*systems, "+".join([systems[-1], *further])] if further else systems


def _repeats(source: TermSource) -> bool:
    """Whether the pairs that a term was counted from are running text: then inputs come again."""
    return RunDirectory(source.run).repeated_pairs >= REPEATED


def terms_of(run: RunDirectory, given: Mapping[str, TermSource]) -> dict[str, TermSource]:
    """The further terms of a run without groups, or of one group: those it knows, and its part of the given ones."""
    group = run.header().group
    return {**known_terms(run), **{name: source.of_group(group) for name, source in given.items()}}


def tuned_system(
    result: TuningResult,
    settings: SearchSettings,
    sentences: int,
    terms: Mapping[str, TermSource],
    confidence: Confidence | None = None,
    total: int | None = None,
) -> TunedSystem:
    """What weights.json keeps of a tuning. ``total``: how many dev sentences there are, if not all were used."""
    record = {
        "metric": result.metric,
        "signature": result.signature,
        "dev_score": result.dev_score,
        "dev_sentences": sentences,
        **({} if total in (None, sentences) else {"dev_sentences_of": total}),
        "expected_score": result.expected_score,
        "p_start": result.p_start,
        "history": [{**asdict(step), "weights": step.weights.by_name()} for step in result.history],
    }
    tuned = TunedSystem(result.system, result.weights, settings, record, terms, confidence=confidence)
    system = tuned.system
    unused = unused_settings([system.proposer], "channel" in system.roles, per_symbol=settings.per_symbol)
    return replace(tuned, settings=replace(settings, look_ahead=None)) if "look_ahead" in unused else tuned
