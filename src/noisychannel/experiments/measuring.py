"""Measuring the rows of an experiment: tune what must be tuned, decode with every seed, and nothing twice.

The weights of a row with free weights are tuned once for its system, data and models. A system that contains a
smaller one of the same models starts from the weights of the smaller one, too; so the smaller one is tuned first, even
if its own row is not measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from noisychannel.decode.objective import Weights
from noisychannel.devices import choose_device
from noisychannel.errors import NoisyChannelError
from noisychannel.experiments.cache import Cache
from noisychannel.experiments.choosing import N_BEST, RERANKED, Choice, PoolTask, ensemble, score_references
from noisychannel.experiments.decoding import DecodingTask, NBestEntry, PartLists
from noisychannel.experiments.experiment import Experiment
from noisychannel.experiments.items import HeldOutName
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.scores import RowScorer
from noisychannel.experiments.shares import join
from noisychannel.experiments.tuning import N_BEST as TUNED_ON
from noisychannel.experiments.tuning import Found, TuningTask
from noisychannel.processes import BOUND, kill_children
from noisychannel.training.jobs import choose_processes, cores
from noisychannel.tuning import TuningResult

TuningKey = tuple[
    str, bool, tuple[str, int | None, int | None], tuple[tuple[str, str], ...], tuple[tuple[str, Any], ...]
]
"""System, bias, data, models and search: rows that have them in common share their weights."""
KEEP_EVERY = 30.0
"""Seconds between two times at which the rows measured so far are kept, if there are more than before."""
ALL_SEEDS = 0
"""In the place of a seed: what all seeds chose together."""


@dataclass(frozen=True)
class RowResult:
    """What was measured of a row."""

    row: SystemRow
    tuned: TuningResult | None
    """None if the row has no weights to tune."""
    choices: dict[int, Choice]
    """By seed: the n-best lists, and the weights that chose."""
    scores: dict[str, dict[str, Any]]
    """By metric; see ``RowScorer.scores``."""

    @property
    def weights(self) -> Weights:
        return next(iter(self.choices.values())).weights

    @property
    def dev_score(self) -> float | None:
        """What the weights reach on dev; None if they are those of another row, but raised or in another search."""
        chosen = next(iter(self.choices.values())).dev_score
        if chosen is not None or self.tuned is None:
            return chosen
        borrowed = self.row.weights_of and (self.row.raised or self.row.search)
        return None if borrowed else self.tuned.dev_score


def measure(
    experiment: Experiment,
    rows: Sequence[SystemRow],
    held_out: HeldOutName = "test",
    keep: Callable[[list[RowResult]], object] | None = None,
) -> list[RowResult]:
    """Measure these rows on dev or test. What an earlier command measured with the same models is used again.

    ``keep`` is called with the rows that are measured: at most a minute after each, and when an error ends the others.
    """
    scorer = RowScorer(experiment.design, [(part.name, part.held_out(held_out)) for part in experiment.parts])
    every = all_rows(experiment, rows)
    wanted = rows_to_tune(rows, every)
    # On one thread everything is done in the order of submission, in which nothing waits for what comes later.
    number = 1 if experiment.setup.jobs == 1 else len(wanted) + sum(1 + len(experiment.seeds(row)) for row in rows)
    tasks = len(wanted) + sum(len(_seeds(experiment, row)) for row in rows)
    processes = experiment.setup.jobs or choose_processes(cores(), choose_device(experiment.setup.device))
    with (
        experiment.setup.reporter.counting("tune and decode, tasks", tasks) as advance,
        _processes(processes, experiment.setup.jobs == 1) as pool,
        ThreadPoolExecutor(max(1, number)) as threads,
    ):
        measuring = _Measuring(experiment, pool, processes, Cache(experiment.setup.work), scorer, held_out)
        tuned: dict[TuningKey, Future[TuningResult]] = {}
        for key, row in wanted.items():
            smaller = [tuned[other] for other, its in wanted.items() if other in tuned and is_smaller(its, row)]
            tuned[key] = threads.submit(measuring.tune, row, smaller)
            tuned[key].add_done_callback(lambda _: advance(1))
        waiting: list[Future[RowResult]] = []
        for row in rows:
            tuning = tuned.get(tuning_key(source_of_weights(row, every)))
            choices = {seed: threads.submit(measuring.choose, row, seed, tuning) for seed in _seeds(experiment, row)}
            for choice in choices.values():
                choice.add_done_callback(lambda _: advance(1))
            waiting.append(threads.submit(measuring.collect, row, tuning, choices))
        try:
            _wait_for_all(waiting, keep or _nothing)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                kill_children()
            for executor in (threads, pool):
                executor.shutdown(wait=False, cancel_futures=True)
            if keep is not None and (measured := _measured(waiting)):
                keep(measured)
            if isinstance(error, BrokenProcessPool):
                raise NoisyChannelError(
                    "a process that decodes was killed, perhaps because memory ran out; repeat with a smaller --jobs"
                ) from error
            raise
        return _measured(waiting)


def _wait_for_all(rows: Sequence[Future[RowResult]], keep: Callable[[list[RowResult]], object]) -> None:
    """Until every row is measured, or one has failed. Rows are kept soon after they are measured."""
    began, left, kept = time.monotonic(), set(rows), 0
    while left:
        done, left = wait(left, KEEP_EVERY, FIRST_COMPLETED)
        for future in done:
            future.result()
        measured = _measured(rows)
        if left and len(measured) > kept and time.monotonic() - began >= KEEP_EVERY:
            keep(measured)
            began, kept = time.monotonic(), len(measured)


def _nothing(results: object) -> None:
    """Does not keep results."""


def _measured(rows: Sequence[Future[RowResult]]) -> list[RowResult]:
    """Those of the rows that are measured, in their order."""
    return [row.result() for row in rows if row.done() and not row.cancelled() and row.exception() is None]


def all_rows(experiment: Experiment, rows: Sequence[SystemRow]) -> dict[tuple[str, str], SystemRow]:
    """The rows of all blocks, and these, by setting and name."""
    return {row.key: row for row in (*(x for b in experiment.design.blocks for x in experiment.rows(b)), *rows)}


def source_of_weights(row: SystemRow, every: Mapping[tuple[str, str], SystemRow]) -> SystemRow:
    """The row whose tuned weights a row uses: itself, or that of ``weights_of``."""
    return every[row.setting, row.weights_of] if row.weights_of else row


def rows_to_tune(rows: Sequence[SystemRow], every: Mapping[tuple[str, str], SystemRow]) -> dict[TuningKey, SystemRow]:
    """What must be tuned to measure these rows, smaller systems first: by key, a row to tune it with."""
    tuned = [row for row in every.values() if row.is_tuned and not row.weights_of]
    needed: dict[TuningKey, SystemRow] = {}

    def need(row: SystemRow) -> None:
        if tuning_key(row) not in needed:
            for other in tuned:
                if is_smaller(other, row):
                    need(other)
            needed[tuning_key(row)] = row

    for row in rows:
        if row.is_tuned:
            need(source_of_weights(row, every))
    return needed


def tuning_key(row: SystemRow) -> TuningKey:
    models, search = sorted(row.used_models().items()), sorted(row.search.items())
    return row.system, row.bias, _data(row), tuple(models), tuple(search)


def _data(row: SystemRow) -> tuple[str, int | None, int | None]:
    """What the models of a row are trained on."""
    return row.setting, row.pairs, row.unpaired


def is_smaller(row: SystemRow, than: SystemRow) -> bool:
    """Whether the system of a row is contained in another of the same data and models.

    Rows without the bias are apart from those with it: a table must not wait for them.
    """
    system, larger = row.make_system(), than.make_system()
    return (
        _data(row) == _data(than)
        and row.bias == than.bias
        and system.free != larger.free
        and larger.contains(system)
        and row.used_models().items() <= than.used_models().items()
    )


def raised(weights: Weights, more: Mapping[str, float]) -> Weights:
    """Weights with something added to some of them."""
    by_name = weights.by_name()
    return Weights.of({name: value + more.get(name, 0.0) for name, value in by_name.items()}) if more else weights


@dataclass(frozen=True)
class _Measuring:
    """One call of ``measure``. Its methods run in threads, and their work in the processes of the pool."""

    experiment: Experiment
    pool: Executor
    processes: int
    """Of the pool."""
    cache: Cache
    scorer: RowScorer
    held_out: HeldOutName

    def tune(self, row: SystemRow, smaller: Sequence[Future[TuningResult]]) -> TuningResult:
        experiment, settings = self.experiment, self.experiment.settings
        known = [future.result().weights for future in smaller]
        parts, system = experiment.tuning_parts, row.make_system()
        dev = DecodingTask(
            models=tuple(experiment.models(row, settings.seeds[0], part) for part in parts),
            items=tuple(part.dev for part in parts),
            weights=system.start,
            settings=replace(settings.tuning, **row.search),
            n_best=TUNED_ON,
            batch_size=settings.decoding_batch,
            device=experiment.setup.device,
            loaded_for=system.start,
        )
        task = TuningTask(system, dev, self.scorer.metrics[experiment.design.metrics[0]], settings.iterations)
        asked = ("tune", system, dev.items, dev.settings, task.iterations, dev.device)
        key = self.cache.key(dev.models, *asked, task.metric.signature, known)
        return self.cache.tuning(key, row.label, lambda: task.tune(known, self._outputs))

    def choose(self, row: SystemRow, seed: int, tuning: Future[TuningResult] | None) -> Choice:
        if row.baseline:
            return self._baseline(row, seed)
        tuned = None if tuning is None else tuning.result()
        weights = row.make_system().fixed if tuned is None else raised(tuned.weights, row.raised)
        match row.choose:
            case "ensemble":
                return self._ensemble(row, weights)
            case "references":
                return self._references(row, seed, weights)
            case "pool" | "rerank" if tuned is not None:
                return self._pool(row, tuned)
            case _:
                return self._decode(row, seed, weights)

    def collect(
        self, row: SystemRow, tuning: Future[TuningResult] | None, choices: Mapping[int, Future[Choice]]
    ) -> RowResult:
        done = {seed: choice.result() for seed, choice in choices.items()}
        outputs = {seed: choice.lists.best_texts() for seed, choice in done.items()}
        scores = self.scorer.scores(outputs, row.pairs)
        first = scores[self.experiment.design.metrics[0]]
        spread = "" if first["deviation"] is None else f" ± {first['deviation']:.2f}"
        self.experiment.setup.say(f"{row.label}: {self.held_out} {first['score']:.2f}{spread}")
        return RowResult(row, None if tuning is None else tuning.result(), done, scores)

    def _task(self, row: SystemRow, seed: int, weights: Weights, n_best: int, held_out: HeldOutName) -> DecodingTask:
        experiment = self.experiment
        return DecodingTask(
            models=tuple(experiment.models(row, seed, part) for part in experiment.parts),
            items=tuple(part.held_out(held_out) for part in experiment.parts),
            weights=weights,
            settings=experiment.search(row),
            n_best=n_best,
            batch_size=experiment.settings.decoding_batch,
            device=experiment.setup.device,
            keep_terms=experiment.settings.keep_terms,
            keep_alignments=experiment.settings.keep_alignments,
        )

    def _baseline(self, row: SystemRow, seed: int) -> Choice:
        parts = []
        for part in self.experiment.parts:
            answer = self.experiment.baseline(row, part, seed)
            items = part.held_out(self.held_out)
            parts.append([[NBestEntry(answer(item.input, item.features), {})] for item in items])
        return Choice(PartLists(parts, 0.0), Weights())

    def _decode(self, row: SystemRow, seed: int, weights: Weights) -> Choice:
        n_best = self.experiment.settings.n_best if seed == self.experiment.settings.seeds[0] else 1
        task = self._task(row, seed, weights, n_best, self.held_out)
        return self.cache.choice(self._key("decode", task), row.label, lambda: Choice(self._lists(task), weights))

    def _lists(self, task: DecodingTask) -> PartLists:
        """Decoded by all processes together."""
        divided = task.divided(self.processes)
        waiting = [self.pool.submit(one.decode) for _, one in divided]
        lists = [future.result() for future in waiting]
        parts = join([share for share, _ in divided], [one.parts for one in lists])
        return PartLists(parts, sum(one.seconds for one in lists))

    def _outputs(self, task: DecodingTask) -> Found:
        """The same, with ids."""
        divided = task.divided(self.processes)
        waiting = [self.pool.submit(one.decode_outputs) for _, one in divided]
        return join([share for share, _ in divided], [future.result().parts for future in waiting])

    def _ensemble(self, row: SystemRow, weights: Weights) -> Choice:
        tasks = [self._task(row, seed, weights, 1, self.held_out) for seed in self.experiment.seeds(row)]
        key = self._key("ensemble", *tasks)
        return self.cache.choice(key, row.label, lambda: self.pool.submit(ensemble, tasks).result())

    def _references(self, row: SystemRow, seed: int, weights: Weights) -> Choice:
        task = self._task(row, seed, weights, 1, self.held_out)
        key = self._key("references", task)
        return self.cache.choice(key, row.label, lambda: self.pool.submit(score_references, task).result())

    def _pool(self, row: SystemRow, tuned: TuningResult) -> Choice:
        seed = self.experiment.settings.seeds[0]
        dev, test = (self._task(row, seed, tuned.weights, 1, name) for name in ("dev", self.held_out))
        metric = self.scorer.metrics[self.experiment.design.metrics[0]]
        tried, n_best = tuple(dict.fromkeys([tuned.weights, *(step.weights for step in tuned.history)])), N_BEST
        if row.choose == "rerank":
            tried, n_best = (row.make_system().fixed,), RERANKED
        task = PoolTask(row.make_system(), metric, tried, dev, test, n_best, tuned.weights)
        key = self._key("pool", dev, test, more=(task.system, metric.signature, tried, task.start, n_best))
        return self.cache.choice(key, row.label, lambda: self.pool.submit(task.choose).result())

    def _key(self, kind: str, *tasks: DecodingTask, more: object = None) -> str:
        settings = [(task.items, task.weights, task.settings, task.n_best, task.device) for task in tasks]
        more = more if all(task.keep_terms for task in tasks) else (more, "without terms")
        more = (more, "with alignments") if any(task.keep_alignments for task in tasks) else more
        return self.cache.key([models for task in tasks for models in task.models], kind, settings, more)


def _seeds(experiment: Experiment, row: SystemRow) -> tuple[int, ...]:
    """By which the choices of a row are told apart."""
    if row.choose == "ensemble":
        return (ALL_SEEDS,)
    first_only = (row.baseline and not experiment.samples) or row.choose in ("pool", "rerank", "references")
    return experiment.settings.seeds[:1] if first_only else experiment.seeds(row)


@contextmanager
def _processes(number: int, here: bool) -> Iterator[Executor]:
    """So many processes, or this one."""
    if here:
        yield _SameProcess()
        return
    with ProcessPoolExecutor(number, BOUND, torch.set_num_threads, (max(1, cores() // number),)) as pool:
        yield pool


class _SameProcess(Executor):
    """Runs what is submitted at once."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future
