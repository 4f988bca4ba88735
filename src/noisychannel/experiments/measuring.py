"""Measuring many rows of the inflection table at once, and nothing twice."""

from __future__ import annotations

import hashlib
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from noisychannel import __version__
from noisychannel.decode.objective import Weights
from noisychannel.experiments.inflection import Inflection, Setting
from noisychannel.experiments.inflection_systems import decode_seed, paired_lms, rerank_row, tasks, tune_row
from noisychannel.experiments.measured import Measured, Row, Split
from noisychannel.experiments.reranking import BONUSES, RATIOS
from noisychannel.experiments.tasks import LISTED_LM
from noisychannel.runs import RunDirectory
from noisychannel.training.jobs import choose_processes, cores
from noisychannel.training.world import choose_device
from noisychannel.tuning import TuningResult


def measure(experiment: Inflection, rows: Sequence[tuple[Row, Setting]], split: Split = "test") -> list[Measured]:
    """Tune what must be tuned, and decode a split with every row and seed.

    A system that contains a smaller one, or has a word list, starts from the weights of the one without, too; and a row
    with the marginal search, or one that reranks, has the weights of the plain one: such a row waits for the other.
    What is left of an earlier time is not measured again, if the models are still the same.
    """
    waiting: dict[tuple[Row, Setting], Future[Measured]] = {}
    with _processes(experiment) as pool, ThreadPoolExecutor(1 if experiment.jobs == 1 else len(rows)) as threads:
        for row, setting in sorted(rows, key=lambda key: _stage(key[0])):
            before = [
                future
                for (other, its), future in waiting.items()
                if (other.models, its) == (row.models, setting) and _stage(other) < _stage(row)
            ]
            waiting[row, setting] = threads.submit(_measure_row, pool, experiment, row, setting, split, before)
        try:
            return [waiting[key].result() for key in rows]
        except BaseException:
            for executor in (threads, pool):
                executor.shutdown(wait=False, cancel_futures=True)
            raise


def _stage(row: Row) -> int:
    """Rows wait for those of earlier stages only."""
    if row.search == "marginal" or row.rerank or row.word_list:
        return 2
    return int(row.system == "direct+channel+lm")


def _measure_row(
    pool: Executor,
    experiment: Inflection,
    row: Row,
    setting: Setting,
    split: Split,
    before: Sequence[Future[Measured]],
) -> Measured:
    known = [measured.tuned for future in before if (measured := future.result()).tuned]
    file = experiment.work / "measured" / f"{_fingerprint(experiment, row, setting, split, known)}.json"
    gold = [[pair.form for pair in getattr(splits, split)] for splits in experiment.tables.values()]
    if file.exists():
        measured = Measured.read(file, row, setting, gold)
    else:
        tuned = pool.submit(tune_row, experiment, row, setting, known).result()
        if row.rerank and tuned is not None:
            outputs, notes = pool.submit(rerank_row, experiment, row, setting, split, tuned).result()
        else:
            weights, notes = Weights(1.0) if tuned is None else tuned.weights, {}
            decoding = {
                seed: pool.submit(decode_seed, experiment, row, setting, split, seed, weights)
                for seed in experiment.scale.seeds[: row.seeds]
            }
            outputs = {seed: future.result() for seed, future in decoding.items()}
        measured = Measured(row, setting, tuned, notes, outputs, gold)
        measured.write(file)
    spread = "" if measured.deviation is None else f" ± {measured.deviation:.2f}"
    experiment.say(f"{setting}: {row.name}: {split} {measured.mean:.2f}{spread}")
    return measured


def _fingerprint(
    experiment: Inflection, row: Row, setting: Setting, split: Split, known: Sequence[TuningResult | None]
) -> str:
    """Of what decides what is measured: the models (the times at which they were written), the items, the settings.

    Not of the code, but for its version: who changes that removes what was measured.
    """
    files: set[Path] = set()
    for seed in experiment.scale.seeds[: row.seeds] if row.system != "rules" else ():
        for task in tasks(experiment, row, setting, seed, split, Weights(1.0), experiment.scale.search):
            files.update(
                RunDirectory(path).word_list_file if role == LISTED_LM else RunDirectory(path).model_file(role)
                for role, path in task.models
            )
    if row.rerank == "density ratio":
        files.update(RunDirectory(path).model_file("lm") for path in paired_lms(experiment, setting))
    times = [(str(file.relative_to(experiment.work)), file.stat().st_mtime_ns) for file in sorted(files)]
    settings = (row, setting, split, experiment.scale, experiment.device, known, RATIOS, BONUSES, __version__)
    said = repr((settings, times, experiment.tables))
    return hashlib.blake2b(said.encode(), digest_size=8).hexdigest()


@contextmanager
def _processes(experiment: Inflection) -> Iterator[Executor]:
    """One for each core, at most eight on a GPU; this one alone where the experiment has one job."""
    if experiment.jobs == 1:
        yield _Here()
        return
    number = experiment.jobs or choose_processes(cores(), choose_device(experiment.device))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(number, context, torch.set_num_threads, (max(1, cores() // number),)) as pool:
        yield pool


class _Here(Executor):
    """Does what it is given at once."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future
