"""The whole way from pairs and words to a tuned run.

    1  read, count, plan                               options, facts, plan, timing
    2  divide the pairs into folds, or split dev off   folds
    3  reverse models, and inputs for words            inputs
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
from noisychannel.atomic import write_bytes
from noisychannel.data.prepare import DataConfig
from noisychannel.data.rows import Columns, Row
from noisychannel.errors import BadInputError
from noisychannel.evaluation.metrics import Metric, make_metric
from noisychannel.evaluation.run import EvaluateOptions, evaluate_run
from noisychannel.evaluation.table import EvaluationTable
from noisychannel.fitting.estimate import Estimate, baseline_texts, baselines_of, estimate, what_helps
from noisychannel.fitting.facts import Facts, count_facts
from noisychannel.fitting.folds import ALL, Part, assign_folds, make_parts
from noisychannel.fitting.inputs import choose_words, collect, do_tasks, make_tasks
from noisychannel.fitting.options import FitOptions, UserData, write_rows
from noisychannel.fitting.plan import SMALL_INVENTORY, Plan, dev_size, make_plan, reverse_config, run_config
from noisychannel.fitting.progress import FitReporter, Stages, TrainingShare, duration
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
from noisychannel.runs import RunDirectory
from noisychannel.training.config import RunConfig
from noisychannel.training.removal import remove
from noisychannel.training.run import prepare_run, train_runs
from noisychannel.tuning.run import tuned_system
from noisychannel.weights import own_terms, write_systems

MATERIAL = 20_000
"""So many words are material enough for made-up pairs."""
WORD_COLUMNS = Columns(("output", "features"), ("", ""))
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
    check_place(options, work)
    files = checksums_of(data)
    done = None if options.overwrite else work.done()
    if done is not None:
        check_same(done.begun, options, files, options.place)
        reporter.say(f"{options.place}: finished before; --overwrite starts over")
    else:
        with work.locked():
            done = _Fit(options, data, work, reporter).run()
    if not options.keep_work:
        remove(work.path)
    return FitResult(options.place, done, data.pairs[0], _test(options, done.begun.plan, reporter))


class _Fit:
    """One fit that is not finished."""

    def __init__(self, options: FitOptions, data: UserData, work: Work, reporter: FitReporter) -> None:
        self.options, self.data, self.work, self.reporter = options, data, work, reporter
        self.began = time.monotonic()

    def run(self) -> Done:
        options, work, files = self.options, self.work, checksums_of(self.data)
        before = None if options.overwrite else work.begun()
        if before is not None:
            check_same(before, options, files, options.place)
            self.reporter.say(f"{options.place}: resuming")
        facts = count_facts(self.data.pairs, self.data.words)
        plan, speed = self._plan(facts, None if before is None else before.plan)
        stages = estimate_stages(plan, facts, speed)
        self._announce(facts, plan, sum(stages.values()))
        if before is None:
            work.clear()
            work.begin(begun_now(options, files, facts, plan))
        self.plan, self.facts, self.speed = plan, facts, speed
        self.words = self._words()
        self.stages = Stages(stages, self.reporter.progress)
        self.parts = make_parts(self.data.pairs, plan.folds, plan.dev_pairs, options.seed)
        with self.stages.stage(PREPARE):
            self._prepare()
        made = self._give_inputs() if plan.words_given_inputs else {}
        self._train(made)
        with self.stages.stage(TUNE) as advance:
            done = self._tune(advance, made)
        self._settle(made)
        work.finish(done)
        return done

    # The plan.

    def _plan(self, facts: Facts, before: Plan | None) -> tuple[Plan, Speed]:
        options = self.options
        if options.folds == 0 and 2 * dev_size(facts.pairs) > facts.pairs:
            raise BadInputError(
                f"--folds: {facts.pairs:,} pairs are too few to hold out {dev_size(facts.pairs):,} for good; "
                "leave it out"
            )
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
        self.reporter.say(facts.describe())
        for reason in plan.reasons:
            self.reporter.say(f"- {reason}")
        self.reporter.say(f"estimated time: {duration(seconds)} on this machine")

    # Data.

    def _words(self) -> tuple[Row, ...]:
        """The words, or those that are not outputs of pairs if the plan leaves these out."""
        if not self.plan.without_outputs:
            return self.data.words
        return tuple(choose_words(self.data.words, self.data.pairs, len(self.data.words), self.facts.tagged_words, 1))

    def _prepare(self) -> None:
        """The pairs of each part, and vocabularies that all runs share."""
        for part in self.parts:
            write_rows(self.work.train_file(part.name), part.train, self.data.columns)
            if part.held_out:
                write_rows(self.work.held_out_file(part.name), part.held_out, self.data.columns)
        tagged = self.facts.tagged_words
        words = choose_words(self.words, (), self.plan.words_given_inputs, tagged, self.options.seed)
        some = self.data.pairs[0].input
        write_rows(
            self.work.symbols_file,
            [word._replace(input=word.output if self.plan.copy else some, further=()) for word in words],
            self.data.columns,
        )
        if self.plan.without_outputs:
            write_rows(self.work.unlisted_file, self.words, WORD_COLUMNS)
        if len(self.words) > MATERIAL:
            material = choose_words(self.words, (), MATERIAL, tagged, self.options.seed)
            write_rows(self.work.words_file, material, WORD_COLUMNS)
        # All pairs: a symbol of a held-out pair is in the vocabulary, but its models have not seen it.
        everything = replace(
            self._data(self.parts[-1], {}), vocabularies=None, further=[str(self.work.symbols_file)] if words else []
        )
        if self.parts[-1].held_out:
            everything.train.append(str(self.work.held_out_file(ALL)))
        if not RunDirectory(self.work.vocabulary).header_file.exists():
            prepare_run(self._config(everything, self.work.vocabulary, ("direct", "channel", "lm")), _quiet)
        if words and not RunDirectory(self.work.reverse_vocabulary).header_file.exists():
            prepare_run(self._reverse_config(self._without_lm(everything), self.work.reverse_vocabulary), _quiet)

    def _data(self, part: Part, made: dict[str, int]) -> DataConfig:
        train = str(self.work.train_file(part.name))
        words = self.data.config
        if self.plan.without_outputs:
            columns = ",".join(WORD_COLUMNS.roles)
            words = replace(words, unpaired=[str(self.work.unlisted_file)], unpaired_columns=columns)
            words = words if self.words else replace(words, unpaired=[], unpaired_columns="output")
        return replace(
            words,
            train=[train],
            dev=[str(self.work.held_out_file(part.name)) if part.held_out else train],
            further=[str(self.work.further_file(part.name))] if made.get(part.name) else [],
            vocabularies=str(self.work.vocabulary),
        )

    def _without_lm(self, data: DataConfig) -> DataConfig:
        """The data of a run without a language model: words are only material for made-up pairs; some are enough."""
        if not self.plan.made_up or not data.unpaired:
            return replace(data, unpaired=[], unpaired_columns="output")
        if len(self.words) <= MATERIAL:
            return data
        return replace(data, unpaired=[str(self.work.words_file)], unpaired_columns=",".join(WORD_COLUMNS.roles))

    def _config(self, data: DataConfig, run_dir: Path, models: tuple[Role, ...]) -> RunConfig:
        options = self.options
        return run_config(self.plan, data, run_dir, models, seed=options.seed, device=options.device, jobs=options.jobs)

    def _reverse_config(self, data: DataConfig, run_dir: Path) -> RunConfig:
        options = self.options
        return reverse_config(self.plan, data, run_dir, seed=options.seed, device=options.device, jobs=options.jobs)

    # Training.

    def _give_inputs(self) -> dict[str, int]:
        """Train the reverse models, and write the further pairs of each part; how many there are."""
        options, tagged = self.options, self.facts.tagged_words
        with self.stages.stage(REVERSE) as advance:
            configs = [
                self._reverse_config(
                    self._without_lm(replace(self._data(part, {}), vocabularies=str(self.work.reverse_vocabulary))),
                    self.work.reverse(part.name),
                )
                for part in self.parts
            ]
            self._train_runs(configs, advance)
        with self.stages.stage(INPUTS) as advance:
            tasks = {
                part.name: make_tasks(
                    self.work.reverse(part.name),
                    choose_words(self.words, part.train, self.plan.words_given_inputs, tagged, options.seed),
                    self.work.inputs(part.name),
                    tagged,
                    options.device,
                )
                for part in self.parts
            }
            do_tasks([task for some in tasks.values() for task in some], options.jobs, advance)
            codec = RunDirectory.open(self.work.vocabulary).codecs()[0]
            made = {}
            for name, some in tasks.items():
                pairs = collect(some, codec)
                made[name] = len(pairs)
                write_rows(self.work.further_file(name), pairs, self.data.columns)
        if not made[ALL]:
            self.reporter.warn("the reverse model gave no word a likely input; the models see the pairs alone")
        return made

    def _train(self, made: dict[str, int]) -> None:
        """All models of all parts at once, so that no core waits."""
        with self.stages.stage(TRAIN) as advance:
            configs = []
            for part in self.parts:
                with_lm = part.name == ALL or not self.plan.lm_words_alone
                models: tuple[Role, ...] = ("direct", "channel", "lm") if with_lm else ("direct", "channel")
                data = self._data(part, made) if with_lm else self._without_lm(self._data(part, made))
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
        default = choose_default(found[1:], metric)
        terms = own_terms(run)
        systems = [
            tuned_system(result, plan.settings, len(rows), {name: terms[name] for name in system.extra})
            for result, system in zip(results, tuning.systems, strict=True)
        ]
        write_systems(run, systems, default)
        right = _right(texts, default, rows)
        return Done(
            begun_now(self.options, checksums_of(self.data), self.facts, plan),
            default,
            metric.name,
            len(rows),
            (*self._baselines(parts, rows, metric), *found),
            tuple(what_helps(self.facts, parts, right, self.words)),
            made.get(ALL, 0),
            round(time.monotonic() - self.began, 1),
        )

    def _held_out(self, part: Part) -> HeldOutPart:
        home = self.work.run(part.name)
        return HeldOutPart(home, self.work.run(ALL) if self.plan.lm_words_alone else home, part.held_out)

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

    # The end.

    def _settle(self, made: dict[str, int]) -> None:
        """Let the run have its own copies of what the work directory holds, so that nothing else is needed."""
        part, home = self.parts[-1], self.work.run_dir / "data"
        home.mkdir(exist_ok=True)

        def keep(file: Path, name: str) -> str:
            if file.exists():
                write_bytes(home / name, file.read_bytes())
            return str(home / name)

        train = keep(self.work.train_file(ALL), "train.tsv")
        data = replace(
            self._data(part, made),
            train=[train],
            dev=[keep(self.work.held_out_file(ALL), "dev.tsv") if part.held_out else train],
            further=[keep(self.work.further_file(ALL), "inputs.tsv")] if made.get(ALL) else [],
            vocabularies=None,
        )
        if self.plan.without_outputs and data.unpaired:
            data.unpaired = [keep(self.work.unlisted_file, "words.tsv")]
        run = RunDirectory.open(self.work.run_dir)
        run.write_config(dump_config(self._config(data, run.path, ("direct", "channel", "lm"))))


def choose_default(found: Sequence[Estimate], metric: Metric) -> str:
    """The largest of the systems whose estimate is the best. They are given smallest first."""
    sign = 1 if metric.higher_is_better else -1
    best = max(sign * one.score for one in found)
    return [one.system for one in found if sign * one.score >= best][-1]


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
    baselines = [name for name in baselines_of(plan) if name != "memorised"]
    chosen = EvaluateOptions(file=options.test, baselines=baselines, device=options.device)
    return evaluate_run(RunDirectory.open(options.place), chosen, reporter)


def _quiet(line: str) -> None:
    return None
