"""The whole way from pairs and words to a tuned run.

    1  read, count, plan                               options, facts, plan, timing
    2  divide the pairs into folds, or split dev off   folds
    3  reverse models, and inputs for words            reverse, inputs, tagging
    4  direct and channel of every fold and of all pairs, and the language model
    5  tune on what was held out, and estimate         tuning, estimate

Everything but the run itself is in a work directory inside the run directory. A repeated command finds there what is
done, and follows the same plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from noisychannel.arguments import dump_config
from noisychannel.data.prepare import DataConfig
from noisychannel.data.rows import Row
from noisychannel.errors import BadInputError
from noisychannel.errors import shortened as shortened_text
from noisychannel.evaluation.default_metric import SMALL_INVENTORY
from noisychannel.evaluation.metrics import Metric, make_metric
from noisychannel.evaluation.run import EvaluateOptions, evaluate_run
from noisychannel.evaluation.table import EvaluationTable
from noisychannel.fitting import rules
from noisychannel.fitting.configs import run_config
from noisychannel.fitting.datasets import Datasets
from noisychannel.fitting.doubts import doubts_about
from noisychannel.fitting.estimate import Estimate, baseline_texts, baselines_of, choose_default, estimate, what_helps
from noisychannel.fitting.facts import Facts, count_facts
from noisychannel.fitting.folds import ALL, Part, assign_folds, make_parts
from noisychannel.fitting.options import SEPARATOR, FitOptions, UserData
from noisychannel.fitting.plan import Plan, check_choices, make_plan
from noisychannel.fitting.progress import FitReporter, Stages, TrainingShare
from noisychannel.fitting.reverse import ReverseRuns
from noisychannel.fitting.timing import (
    INPUTS,
    PREPARE,
    REVERSE,
    TRAIN,
    TUNE,
    Speed,
    estimate_stages,
    measure_speed,
    shortened,
)
from noisychannel.fitting.tuning import Decoded, FoldTuning, HeldOutPart
from noisychannel.fitting.work import Done, Work, begun_now, check_place, check_same, checksums_of
from noisychannel.models.registry import Role
from noisychannel.reporting import duration
from noisychannel.runs import RunDirectory
from noisychannel.training.config import RunConfig
from noisychannel.training.removal import remove
from noisychannel.training.run import prepare_run, train_runs
from noisychannel.tuning.run import tuned_system
from noisychannel.weights import own_terms, write_systems

DIRECT_CHANNEL_LM: tuple[Role, ...] = ("direct", "channel", "lm")
BLOCKS = 3
"""Without folds, the weights of each third of dev are tuned on the others for the estimate."""
ITERATIONS = 3
"""Most rounds of decoding while weights are tuned."""
DECODINGS = 30
"""About so often the held-out pairs are decoded while weights are tuned."""


@dataclass(frozen=True)
class FitResult:
    """What ``fit`` leaves."""

    run_dir: Path
    done: Done
    example: Row
    """A pair of the user."""
    table: EvaluationTable | None
    """The evaluation of the test pairs, if there are any."""


def fit(options: FitOptions, reporter: FitReporter) -> FitResult:
    """Make a tuned run of a user's pairs and words, or resume it."""
    data = UserData.read(options)
    work = Work(options.place)
    _check_begun(options, data, work)
    done = None if options.overwrite else work.done()
    if done is not None:
        other = done.begun.planned_for(options.minutes)
        kept = f" with {other}, so --minutes {options.minutes:g} changes nothing" if other else ""
        reporter.say(f"{options.place}: finished before{kept}; --overwrite starts over")
    else:
        with work.locked():
            done = _Fit(options, data, work, reporter).run()
    if not options.keep_work:
        remove(work.path)
    return FitResult(options.place, done, data.pairs[0], _test(options, done.begun.plan, reporter))


def check_begun(options: FitOptions) -> None:
    """Refuse what ``fit`` would refuse before it writes anything."""
    _check_begun(options, UserData.read(options), Work(options.place))


def _check_begun(options: FitOptions, data: UserData, work: Work) -> None:
    """Refuse a directory that holds something else, or a fit of other data or options."""
    check_place(options, work)
    done = None if options.overwrite else work.done()
    before = done.begun if done is not None else None if options.overwrite else work.begun()
    if before is not None:
        check_same(before, options, checksums_of(data), options.place)


class _Fit:
    """One fit that is not finished."""

    def __init__(self, options: FitOptions, data: UserData, work: Work, reporter: FitReporter) -> None:
        self.options, self.data, self.work, self.reporter = options, data, work, reporter
        self.began = time.monotonic()

    def run(self) -> Done:
        options, work, files = self.options, self.work, checksums_of(self.data)
        before = None if options.overwrite else work.begun()
        if before is not None:  # checked again: another process may have begun in between
            check_same(before, options, files, options.place)
            other = before.planned_for(options.minutes)
            kept = f" the plan that was made for {other}; --overwrite makes another one" if other else ""
            self.reporter.say(f"{options.place}: resuming{kept}")
        facts = count_facts(self.data.pairs, self.data.words)
        plan, speed = self._plan(facts, None if before is None else before.plan)
        stages = estimate_stages(plan, facts, speed)
        self._announce(facts, plan, sum(stages.values()))
        self.begun = before or begun_now(options, files, facts, plan)
        if before is None:
            work.clear()
            work.begin(self.begun)
        self.plan, self.facts, self.speed = plan, facts, speed
        self.stages = Stages(stages, self.reporter.progress)
        self.parts = make_parts(self.data.pairs, plan.folds, plan.dev_pairs, options.seed)
        self.datasets = Datasets(options, self.data, plan, facts, work)
        self.reverse = ReverseRuns(options, self.data, self.datasets.words, plan, facts, work)
        with self.stages.stage(PREPARE):
            self._prepare()
        made = self._give_inputs() if plan.words_given_inputs else {}
        self._train(made)
        with self.stages.stage(TUNE) as advance:
            done = self._tune(advance, made)
        # The run has its own copies of what the work directory holds, so that nothing else is needed.
        data, run = self.datasets.settled(self.parts[-1], made), RunDirectory.open(work.run_dir)
        run.write_config(dump_config(self._config(data, run.path, DIRECT_CHANNEL_LM)))
        work.finish(done)
        return done

    # The plan.

    def _plan(self, facts: Facts, before: Plan | None) -> tuple[Plan, Speed]:
        options = self.options
        if options.folds == 0 and 2 * rules.dev_size(facts.pairs) > facts.pairs:
            raise BadInputError(
                f"--folds: {facts.pairs:,} pairs are too few to hold out {rules.dev_size(facts.pairs):,} for good; "
                "leave it out"
            )
        check_choices(facts, options.made_up, options.inputs, options.lexicon)
        plan = before or make_plan(
            facts,
            folds=options.folds,
            copy=options.copy,
            made_up=options.made_up,
            inputs=options.inputs,
            lexicon=options.lexicon,
        )
        speed = measure_speed(plan, facts, options.device, options.jobs)
        return (plan if before is not None else shortened(plan, facts, speed, options.minutes)), speed

    def _announce(self, facts: Facts, plan: Plan, seconds: float) -> None:
        first = self.data.pairs[0]
        self.reporter.say(f"first pair: {shortened_text(first.input)} becomes {shortened_text(first.output)}")
        changed = next((pair for pair in self.data.pairs if pair.input != pair.output), first)
        if changed is not first:
            say = f"first that differ: {shortened_text(changed.input)} becomes {shortened_text(changed.output)}"
            self.reporter.say(say)
        if self.data.words:
            word = self.data.words[0]
            tags = f" with the tags {SEPARATOR.join(word.features)}" if facts.tagged_words else ""
            self.reporter.say(f"first word: {shortened_text(word.output)}{tags}")
        self.reporter.say(facts.describe())
        if self.data.blank:
            self.reporter.say(self.data.blank)
        if self.data.words_left_out:
            self.reporter.say(f"lines of the words that are left out: {self.data.words_left_out}")
        if self.data.left_out:
            limits = f"{self.data.config.input.max_length} and {self.data.config.output.max_length} symbols"
            self.reporter.warn(f"{self.data.left_out:,} pairs are left out: a side is longer than {limits}")
        for doubt in doubts_about(self.data):
            self.reporter.warn(doubt)
        for reason in plan.reasons:
            self.reporter.say(f"- {reason}")
        self.reporter.say(f"estimated time: {duration(seconds)} on this machine")

    # Training.

    def _prepare(self) -> None:
        """The pairs of each part, and vocabularies that all runs share."""
        self.datasets.write(self.parts)
        everything = self.datasets.everything(self.parts[-1])
        if self.plan.words_given_inputs:
            self.reverse.write_symbols()
            everything = replace(everything, further=[str(self.work.symbols_file)])
        if not RunDirectory(self.work.vocabulary).header_file.exists():
            prepare_run(self._config(everything, self.work.vocabulary, DIRECT_CHANNEL_LM), _quiet)
        if self.plan.words_given_inputs:
            self.reverse.prepare(self.datasets.without_lm(everything, self.plan.reverse_made_up))

    def _give_inputs(self) -> dict[str, int]:
        """Train the reverse models, and write the further pairs of each part; how many there are."""
        with self.stages.stage(REVERSE) as advance:
            made_up = self.plan.reverse_made_up
            data = [self.datasets.without_lm(self.datasets.of(part, {}), made_up) for part in self.parts]
            self._train_runs([self.reverse.config(*each) for each in zip(self.parts, data, strict=True)], advance)
        with self.stages.stage(INPUTS) as advance:
            made = self.reverse.give_inputs(self.parts, advance)
        if not made[ALL]:
            self.reporter.warn("the reverse model gave no word a likely input; the models see the pairs alone")
        return made

    def _train(self, made: dict[str, int]) -> None:
        """All models of all parts at once, so that no core waits."""
        with self.stages.stage(TRAIN) as advance:
            configs = []
            for part in self.parts:
                with_lm = part.name == ALL or not self.plan.shares_lm
                data = self.datasets.of(part, made)
                if not with_lm:
                    data = self.datasets.without_lm(data, self.plan.made_up)
                models = DIRECT_CHANNEL_LM if with_lm else DIRECT_CHANNEL_LM[:2]
                configs.append(self._config(data, self.work.run(part.name), models))
            self._train_runs(configs, advance)

    def _train_runs(self, configs: Sequence[RunConfig], advance: Callable[[float], None]) -> None:
        waiting = [config for config in configs if not _is_finished(config)]
        if not waiting:
            return
        seconds = {"direct": self.speed.direct, "channel": self.speed.channel, "lm": self.speed.lm}
        costs = {
            f"{Path(config.run_dir).name} {role}" if len(waiting) > 1 else role: seconds[role]
            * config.limits(role).updates
            for config in waiting
            for role in config.models
        }
        train_runs(waiting, TrainingShare(costs, advance), _quiet)

    # Tuning.

    def _tune(self, advance: Callable[[float], None], made: dict[str, int]) -> Done:
        """Tune the systems of the run, and estimate how good they are."""
        plan, parts = self.plan, [part for part in self.parts if part.held_out]
        run = RunDirectory.open(self.work.run_dir)
        metric = self._metric(run)
        decoded = iter(range(1, DECODINGS + 1))
        tuning = FoldTuning(
            [self._held_out(part) for part in parts],
            plan.systems,
            plan.settings,
            metric,
            self.options.device,
            self.options.seed,
            ITERATIONS,
            lambda: advance(next(decoded, DECODINGS) / DECODINGS),
        )
        results = tuning.tune()
        texts = [tuning.direct(), *tuning.cross_fitted(self._blocks(parts))]
        rows = [row for part in parts for row in part.held_out]
        found = [estimate(one.system, one.texts, rows, metric, baseline=False) for one in texts]
        default = choose_default({one.system: one.texts for one in texts[1:]}, rows, metric)
        terms = own_terms(run)
        systems = [
            tuned_system(
                result,
                plan.settings,
                len(rows),
                {name: terms[name] for name in system.extra},
                tuning.confidence(result.weights),
            )
            for result, system in zip(results, tuning.systems, strict=True)
        ]
        write_systems(run, systems, default)
        right = _right(texts, default, rows)
        return Done(
            self.begun,
            default,
            metric.name,
            len(rows),
            (*self._baselines(parts, rows, metric), *found),
            tuple(what_helps(self.facts, parts, right, self.datasets.words, self.begun.trained)),
            made.get(ALL, 0),
            round(time.monotonic() - self.began, 1),
        )

    def _held_out(self, part: Part) -> HeldOutPart:
        home = self.work.run(part.name)
        return HeldOutPart(home, self.work.run(ALL) if self.plan.shares_lm else home, part.held_out)

    def _blocks(self, parts: Sequence[Part]) -> list[list[int]]:
        """The numbers of held-out pairs whose weights are tuned on the other blocks."""
        if len(parts) > 1:
            block_of = [n for n, part in enumerate(parts) for _ in part.held_out]
        else:
            block_of = assign_folds(parts[0].held_out, BLOCKS, self.options.seed)
        blocks = [[n for n, own in enumerate(block_of) if own == block] for block in range(max(block_of) + 1)]
        return [block for block in blocks if block]

    def _baselines(self, parts: Sequence[Part], rows: Sequence[Row], metric: Metric) -> list[Estimate]:
        found: dict[str, Estimate] = {}
        outputs: dict[str, list[str]] = {}
        for name in baselines_of(self.plan):
            outputs[name] = baseline_texts(name, parts)
            if name != "memorised" or outputs[name] != outputs["identity"]:
                found[name] = estimate(name, outputs[name], rows, metric, baseline=True)
        return list(found.values())

    def _metric(self, run: RunDirectory) -> Metric:
        text = self.plan.output_units == "words" and self.facts.output_symbols > SMALL_INVENTORY
        return make_metric("edit_distance" if text else "accuracy", None, run.codecs()[1].config)

    def _config(self, data: DataConfig, run_dir: Path, models: tuple[Role, ...]) -> RunConfig:
        options = self.options
        return run_config(self.plan, data, run_dir, models, seed=options.seed, device=options.device, jobs=options.jobs)


def _right(texts: Sequence[Decoded], system: str, rows: Sequence[Row]) -> list[bool]:
    outputs = next(one.texts for one in texts if one.system == system)
    return [text == row.output for text, row in zip(outputs, rows, strict=True)]


def _is_finished(config: RunConfig) -> bool:
    run = RunDirectory(Path(config.run_dir))
    listed = "lm" not in config.models or not config.lm.word_list or run.word_list_file.exists()
    return run.header_file.exists() and listed and all(run.finished(role) for role in config.models)


def _test(options: FitOptions, plan: Plan, reporter: FitReporter) -> EvaluationTable | None:
    if options.test is None:
        return None
    chosen = EvaluateOptions(
        file=options.test, baselines=baselines_of(plan), metrics=["accuracy"], device=options.device
    )
    return evaluate_run(RunDirectory.open(options.place), chosen, reporter)


def _quiet(line: str) -> None:
    return None
