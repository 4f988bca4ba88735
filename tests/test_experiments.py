"""The experiment framework on a toy experiment: what is measured, kept, resumed, merged and compared."""

from __future__ import annotations

import json
import lzma
import math
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu

from noisychannel.cli.main import main
from noisychannel.decode.objective import Weights
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.experiments import choosing, decoding, measuring, scores, shares, training
from noisychannel.experiments.blocks import Block, outputs_file, read_blocks
from noisychannel.experiments.cache import Cache
from noisychannel.experiments.decoding import DecodingTask, EntryRecord, NBestEntry, load
from noisychannel.experiments.design import Design, Plot
from noisychannel.experiments.items import Item
from noisychannel.experiments.measuring import all_rows, measure, rows_to_tune
from noisychannel.experiments.plots import curves, write_plots
from noisychannel.experiments.report import markdown
from noisychannel.experiments.results import merge
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.running import needed_runs, run_block, run_blocks
from noisychannel.experiments.scores import RowScorer
from noisychannel.experiments.training import groups_at_once, recorded_trainings, train_groups
from noisychannel.runs import RunDirectory
from noisychannel.schemas import parse_record
from noisychannel.training.events import Finished
from noisychannel.tuning import TuningResult
from toy_experiment import COPY, DESIGN, DIRECT, FULL, WITH_LM, Toy


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return Toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def directory(toy: Toy) -> Path:
    """All blocks, run one after another."""
    results = toy.setup.work / "results"
    run_blocks(toy, list(DESIGN.blocks), results, "toy")
    return results


@pytest.fixture(scope="module")
def blocks(directory: Path) -> dict[str, Block]:
    return {block.name: block for block in read_blocks(directory, "toy")}


@pytest.fixture(scope="module")
def results(blocks: dict[str, Block]) -> dict:
    return merge(DESIGN, list(blocks.values()))


def row_of(results: dict, name: str) -> dict:
    (row,) = (row for row in results["rows"] if row["name"] == name)
    return row


def outputs_of(blocks: dict[str, Block], name: str) -> dict[int, list[str]]:
    ((block, n),) = ((b, n) for b in blocks.values() for n, row in enumerate(b.rows) if row["name"] == name)
    return block.outputs(n)


# --- scores, against sacrebleu and a bootstrap that draws units one by one


def chrf(texts: Sequence[str], items: Sequence[Item]) -> float:
    """By sacrebleu itself; an item without a second reference repeats its first."""
    references = [[item.references[min(n, len(item.references) - 1)] for item in items] for n in range(2)]
    return sacrebleu.corpus_chrf(list(texts), references).score


def test_scores_are_those_of_sacrebleu_averaged_over_parts_and_seeds(toy: Toy, blocks: dict, results: dict) -> None:
    for row in results["rows"]:
        by_seed = outputs_of(blocks, row["name"])
        first, rest = toy.parts[0].test, toy.parts[1].test
        expected = {str(seed): (chrf(texts[:14], first), chrf(texts[14:], rest)) for seed, texts in by_seed.items()}
        recorded = row["scores"]["chrf"]
        assert recorded["seeds"] == {seed: pytest.approx(sum(both) / 2) for seed, both in expected.items()}
        assert recorded["score"] == pytest.approx(np.mean(list(expected.values())))
        assert recorded["parts"]["doubled"] == pytest.approx(np.mean([both[1] for both in expected.values()]))
        exact = [t in item.references for texts in by_seed.values() for t, item in zip(texts[14:], rest, strict=True)]
        assert row["scores"]["accuracy"]["parts"]["doubled"] == pytest.approx(100 * np.mean(exact))
    assert len(row_of(results, "direct")["scores"]["chrf"]["seeds"]) == 2
    assert row_of(results, "direct")["scores"]["chrf"]["deviation"] is not None
    assert row_of(results, "full")["scores"]["chrf"]["deviation"] is None


@pytest.mark.parametrize(("average", "expected"), [("parts", 55.0), ("items", 25.0), ("separate", 100.0)])
def test_three_ways_to_average(average: str, expected: float) -> None:
    """Two items, all right, in one part; ten items, one right, in the other."""
    design = replace(DESIGN, metrics=("accuracy",), average=average)  # type: ignore[arg-type]
    scorer = RowScorer(design, [("a", [Item("x", ("yes",))] * 2), ("b", [Item("x", ("yes",))] * 10)])
    found = scorer.scores({1: ["yes"] * 3 + ["no"] * 9})["accuracy"]
    assert found["score"] == pytest.approx(expected)
    parts = found["parts"]
    assert [parts[x]["score"] if average == "separate" else parts[x] for x in "ab"] == [100.0, pytest.approx(10.0)]


def slow_bootstrap(
    items: Sequence[Item], systems: Sequence[dict[int, list[str]]], samples: int, seed: int
) -> list[list[float]]:
    """chrF of resamples of units, from counted statistics, for each system; the same draws for all."""
    units = list(dict.fromkeys(item.unit for item in items))
    rng = np.random.default_rng(seed)
    metric = sacrebleu.CHRF()
    scored: list[list[float]] = [[] for _ in systems]
    for _ in range(samples):
        drawn = Counter(rng.choice(len(units), len(units)).tolist())
        for by_seed, found in zip(systems, scored, strict=True):
            total = np.zeros(18)
            for texts in by_seed.values():
                for text, item in zip(texts, items, strict=True):
                    row = metric._extract_corpus_statistics([text], [[x] for x in item.references])[0]
                    total += drawn[units.index(item.unit)] * np.array(row, float) / len(by_seed)
            found.append(metric._compute_f_score(total.tolist()))
    return scored


def test_intervals_and_p_values_are_those_of_a_plain_bootstrap_over_units(
    toy: Toy, blocks: dict, results: dict
) -> None:
    """The draws differ, so the two agree as well as two runs of a bootstrap do."""
    items = [item for part in toy.parts for item in part.test]
    rows = [outputs_of(blocks, name) for name in ("full", "direct")]
    full, direct = (np.array(x) for x in slow_bootstrap(items, rows, 400, seed=5))
    recorded = row_of(results, "full")["scores"]["chrf"]
    low, high = np.quantile(full, [0.025, 0.975])
    width = high - low
    assert recorded["interval"] == [pytest.approx(low, abs=0.15 * width), pytest.approx(high, abs=0.15 * width)]
    (whole,), (base,) = slow_whole(items, rows)
    differences = full - direct
    p = (1 + np.sum(np.abs(differences - (whole - base)) >= abs(whole - base))) / 401
    assert recorded["p"]["direct"] == pytest.approx(p, abs=0.1)


def slow_whole(items: Sequence[Item], systems: Sequence[dict[int, list[str]]]) -> list[list[float]]:
    """The score without resampling."""
    metric = sacrebleu.CHRF()
    found = []
    for by_seed in systems:
        total = np.zeros(18)
        for texts in by_seed.values():
            for text, item in zip(texts, items, strict=True):
                row = metric._extract_corpus_statistics([text], [[x] for x in item.references])[0]
                total += np.array(row, float) / len(by_seed)
        found.append([metric._compute_f_score(total.tolist())])
    return found


def test_units_are_drawn_whole() -> None:
    """Eight items of one lemma are one draw: the same gain is less certain than of as many lemmas."""
    gain = np.repeat(np.random.default_rng(1).random(40) < 0.15, 8)
    better, base = {1: ["yes" if x else "no" for x in gain]}, {1: ["no"] * 320}
    design = replace(DESIGN, metrics=("accuracy",), average="items")
    by_lemma = RowScorer(design, [("a", [Item(str(n // 8), ("yes",)) for n in range(320)])])
    by_item = RowScorer(design, [("a", [Item(str(n), ("yes",)) for n in range(320)])])
    assert by_lemma.p_value("accuracy", better, base) > by_item.p_value("accuracy", better, base)
    assert by_item.p_value("accuracy", better, base) < 0.01
    wide, narrow = (np.diff(scorer.interval("accuracy", better)) for scorer in (by_lemma, by_item))
    assert wide > 2 * narrow


# --- measuring


def test_a_larger_system_starts_from_the_weights_of_the_smaller(blocks: dict) -> None:
    dev = {row["name"]: row["dev"] for row in blocks["larger"].rows}
    assert dev["full"]["metric"] == "chrf", "weights are tuned on the first metric"
    assert dev["full"]["score"] >= dev["direct + LM"]["score"]


def test_smaller_systems_are_tuned_first_even_if_they_are_not_measured(toy: Toy) -> None:
    rows = [row for row in toy.rows("larger") if row.name == "full, marginal"]
    wanted = rows_to_tune(rows, all_rows(toy, rows))
    assert [row.name for row in wanted.values()] == ["direct + LM", "full"]


def test_the_results_say_what_was_tuned_on(toy: Toy) -> None:
    shared = "with the models of the first seed, and shared by all parts and seeds"
    assert toy.tuning_record == f"on the dev items of all parts together, {shared}"
    one = Toy(toy.setup.work)
    one.tuning_parts = one.tuning_parts[:1]
    assert one.tuning_record == f"on the dev items of copied, {shared}"
    alone = Toy(toy.setup.work)
    alone.parts = alone.tuning_parts = alone.parts[:1]
    assert alone.tuning_record == "on the dev items, with the models of the first seed, and shared by all seeds"


def test_a_block_needs_the_runs_of_its_rows_and_of_what_it_tunes(toy: Toy) -> None:
    assert needed_runs(toy, toy.rows("plain")) == {"toy-1": ["direct"], "toy-2": ["direct"]}
    assert needed_runs(toy, toy.rows("few")) == {"few-1": ["direct"]}
    (ensemble,) = (row for row in toy.rows("larger") if row.choose == "ensemble")
    assert {run: set(roles) for run, roles in needed_runs(toy, [ensemble]).items()} == {
        "toy-1": {"direct", "channel", "lm"},
        "toy-2": {"direct", "channel", "lm"},
    }


def test_rows_that_share_weights_say_so(blocks: dict) -> None:
    rows = {row["name"]: row for row in blocks["larger"].rows}
    assert rows["full, marginal"]["weights"] == rows["full"]["weights"] == rows["full, ensemble"]["weights"]
    assert rows["full, marginal"]["search"]["search"] == "marginal"
    assert rows["full"]["search"]["search"] == "viterbi"
    assert rows["full"]["models"] == {"direct": "toy-1", "channel": "toy-1", "lm": "toy-1"}


def test_nothing_is_measured_twice(toy: Toy, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (directory / "toy.larger.json").read_text(encoding="utf-8")
    monkeypatch.setattr(training, "_train", lambda group: pytest.fail("everything is trained"))
    monkeypatch.setattr(decoding, "load", lambda *arguments: pytest.fail("everything is decoded"))
    again = run_block(toy, "larger")
    assert again.rows == json.loads(before)["rows"]


def test_an_interrupted_block_continues(toy: Toy, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third decoding fails; the next time only that one and those after it are decoded."""
    rows = [replace(DIRECT, name=str(k1), seeds=1, search={"k1": k1, "k2": 2}) for k1 in (5, 6, 7, 8)]
    asked, ended = list[int](), [True]
    decode = DecodingTask.decode

    def failing(self: DecodingTask) -> decoding.PartLists:
        asked.append(self.settings.k1)
        if ended and self.settings.k1 == 7:
            raise NoisyChannelError("the lease has ended")
        return decode(self)

    monkeypatch.setattr(DecodingTask, "decode", failing)
    with pytest.raises(NoisyChannelError, match="the lease has ended"):
        measure(toy, rows)
    first = set(asked)
    assert {5, 6, 7} <= first
    asked.clear()
    ended.clear()
    assert [result.row.name for result in measure(toy, rows)] == ["5", "6", "7", "8"]
    assert set(asked) == {7, 8} - (first - {5, 6, 7})


def test_a_stopped_block_keeps_its_rows_and_a_finished_one_replaces_them(
    toy: Toy, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = copy(toy)
    other.setup = replace(toy.setup, jobs=1)
    rows = [replace(DIRECT, name=name, seeds=1, search={"k1": k1, "k2": 2}) for name, k1 in (("a", 9), ("b", 10))]
    other.rows = lambda block: rows if block == "plain" else []  # type: ignore[method-assign]
    decode, ended = DecodingTask.decode, [True]

    def failing(self: DecodingTask) -> decoding.PartLists:
        if ended and self.settings.k1 == 10:
            raise NoisyChannelError("the lease has ended")
        return decode(self)

    monkeypatch.setattr(DecodingTask, "decode", failing)
    with pytest.raises(NoisyChannelError, match="the lease has ended"):
        run_blocks(other, ["plain"], tmp_path, "toy")
    design = replace(DESIGN, blocks={"plain": tuple(rows)}, examples=("", ""), baselines={}, published={})
    (unfinished,) = read_blocks(tmp_path, "toy")
    merged = merge(design, [unfinished])
    assert unfinished.name == "plain (unfinished)"
    assert [row["name"] for row in merged["rows"]] == ["a"]
    assert merged["not measured"] == {"plain": ["b"]}
    assert "| plain (unfinished) | 1 |" in "\n".join(markdown(merged))

    ended.clear()
    run_blocks(other, ["plain"], tmp_path, "toy")
    (finished,) = read_blocks(tmp_path, "toy")
    assert finished.name == "plain"
    assert [row["name"] for row in finished.rows] == ["a", "b"]
    assert finished.rows[0] == unfinished.rows[0]
    assert finished.outputs(0) == unfinished.outputs(0)
    assert not list(tmp_path.glob("*unfinished*"))


def test_rows_are_kept_while_others_are_measured(toy: Toy, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is never the whole: that is the result."""
    monkeypatch.setattr(measuring, "KEEP_EVERY", 0.01)
    kept: list[list[str]] = []
    rows = [replace(DIRECT, name=str(k1), seeds=1, search={"k1": k1, "k2": 2}) for k1 in (11, 12, 13)]
    single = copy(toy)
    single.setup = replace(toy.setup, jobs=1)
    decode = DecodingTask.decode

    def slow(self: DecodingTask) -> decoding.PartLists:
        time.sleep(0.1)
        return decode(self)

    monkeypatch.setattr(DecodingTask, "decode", slow)
    results = measure(single, rows, keep=lambda results: kept.append([result.row.name for result in results]))
    assert [result.row.name for result in results] == ["11", "12", "13"]
    assert kept
    assert all(0 < len(names) < 3 for names in kept)
    assert all(len(names) < len(more) for names, more in pairwise(kept))


def test_a_row_is_kept_though_no_other_ends_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "KEEP_EVERY", 0.05)
    rows: list[Future[Any]] = [Future(), Future()]
    rows[1].set_result("b")
    kept: list[list[Any]] = []

    def keep(results: list[Any]) -> None:
        kept.append(results)
        rows[0].set_result("a")

    measuring._wait_for_all(rows, keep)
    assert kept == [["b"]]


def test_a_killed_process_is_one_line(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(self: DecodingTask) -> decoding.PartLists:
        raise BrokenProcessPool("A process in the process pool was terminated abruptly")

    monkeypatch.setattr(DecodingTask, "decode", killed)
    single = copy(toy)
    single.setup = replace(toy.setup, jobs=1)
    with pytest.raises(NoisyChannelError, match="killed, perhaps because memory ran out"):
        measure(single, [replace(DIRECT, name="killed", seeds=1, search={"k1": 14, "k2": 2})])


def test_unfinished_blocks_lose_nothing_and_hide_nothing(
    blocks: dict[str, Block], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = blocks["plain"]

    def some(rows: int) -> Block:
        record = whole.record | {"rows": whole.rows[:rows], "unfinished": True}
        return Block(record, whole.items, whole.n_best[:rows])

    assert len(whole.rows) >= 2
    for rows in (2, 1):
        file = some(rows).write(tmp_path, "toy")
    (kept,) = read_blocks(tmp_path, "toy")
    assert len(kept.rows) == 2, "an earlier command had measured more"

    outputs_file(file).unlink()
    assert read_blocks(tmp_path, "toy") == []
    assert f"left out, because another command may be writing it: {outputs_file(file)}" in capsys.readouterr().out

    whole.write(tmp_path, "toy")
    later = some(1)
    later.record["date"] = "2999-01-01T00:00:00+00:00"
    later.write(tmp_path, "toy")
    (read,) = read_blocks(tmp_path, "toy")
    assert read.name == "plain", "a measured block is not mixed with what is measured of it again"


def test_parts_have_vocabularies_of_their_own(toy: Toy, directory: Path) -> None:
    copied, doubled = (toy.run("toy-1", part).codecs()[1].symbols for part in toy.parts)
    assert set(doubled) - set(copied) == {"u"}


def test_shares_of_the_items_give_what_all_items_give(
    toy: Toy, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three processes, which take turns in this one."""
    rows = toy.rows("larger")[:2]
    expected = measure(toy, rows)
    three, asked, turn = Toy(toy.setup.work), list[int](), threading.Lock()
    three.setup = replace(three.setup, jobs=3)
    decode_items = decoding.decode_items

    def counting(model: object, texts: Sequence[str], *arguments: object) -> object:
        asked.append(len(texts))
        return decode_items(model, texts, *arguments)  # type: ignore[arg-type]

    class Turns(measuring._SameProcess):
        def submit(self, fn: object, /, *args: object, **kwargs: object) -> object:  # type: ignore[override]
            with turn:
                return super().submit(fn, *args, **kwargs)

    monkeypatch.setattr(measuring, "_processes", lambda number, here: nullcontext(Turns()))
    monkeypatch.setattr(decoding, "decode_items", counting)
    monkeypatch.setattr(shares, "FEWEST", 1)
    monkeypatch.setattr(Cache, "_file", lambda self, key: tmp_path / key)
    results = measure(three, rows)
    for one, other in zip(results, expected, strict=True):
        assert one.scores == other.scores
        assert [choice.lists.best_texts() for choice in one.choices.values()] == [
            choice.lists.best_texts() for choice in other.choices.values()
        ]
        if one.tuned and other.tuned:  # the terms may differ in their last digits: the batches were others
            assert one.tuned.dev_score == other.tuned.dev_score
            assert one.tuned.weights.by_name() == pytest.approx(other.tuned.weights.by_name(), rel=1e-3)
    assert asked
    assert max(asked) < 20, "no share has all items of a part"


@pytest.mark.long  # processes that import torch
def test_processes_measure_what_one_process_does(
    toy: Toy, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = toy.rows("larger")
    monkeypatch.setattr(shares, "FEWEST", 1)
    expected = [result.scores for result in measure(toy, rows)]
    two = Toy(toy.setup.work)
    two.setup = replace(two.setup, jobs=2)
    monkeypatch.setattr(Cache, "_file", lambda self, key: tmp_path / key)
    assert [result.scores for result in measure(two, rows)] == expected
    assert any(tmp_path.iterdir())


def test_other_models_are_measured_again(toy: Toy, directory: Path) -> None:
    row = replace(DIRECT, seeds=1)
    (before,) = measure(toy, [row])
    kept = set((toy.setup.work / "measured").iterdir())
    model = toy.run("toy-1", toy.parts[0]).model_file("direct")
    times = model.stat().st_atime_ns, model.stat().st_mtime_ns
    os.utime(model, ns=(0, 0))
    try:
        (after,) = measure(toy, [row])
    finally:
        os.utime(model, ns=times)
    assert after.scores == before.scores
    assert len(set((toy.setup.work / "measured").iterdir()) - kept) == 1
    assert measure(toy, [row])[0].choices == before.choices


def test_a_dev_measurement_is_not_a_test_measurement(toy: Toy, directory: Path) -> None:
    (on_dev,) = measure(toy, [COPY], "dev")
    assert [len(lists) for lists in on_dev.choices[1].lists.parts] == [16, 16]
    assert on_dev.scores["accuracy"]["parts"]["copied"] == 100.0


def test_n_best_lists_have_every_term_and_their_order(toy: Toy, blocks: dict) -> None:
    block = blocks["larger"]
    (n,) = (n for n, row in enumerate(block.rows) if row["name"] == "full")
    weights = Weights.of(block.rows[n]["weights"])
    lists = block.n_best[n][1]
    assert lists.keys() == block.items.keys()
    assert max(map(len, lists.values())) > 1
    for entries in lists.values():
        complete = [entry for entry in entries if entry.complete]
        for entry in complete:
            assert set(entry.terms) == {"direct", "channel", "lm", "length"}
            assert entry.terms["length"] == len(entry.text) + 1
        objectives = [sum(w * entry.terms[name] for name, w in weights.by_name().items()) for entry in complete]
        assert all(a >= b - 1e-2 for a, b in pairwise(objectives))


def test_equal_inputs_are_decoded_once(toy: Toy, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = toy.parts[0]
    task = DecodingTask(
        (toy.models(FULL, 1, part),), ((part.test[0], part.test[1], part.test[0]),), Weights(1.0, 0.3, 0.3, 0.1),
        toy.settings.search, 2, 8, "cpu",
    )  # fmt: skip
    asked: list[str] = []
    batch = decoding.NoisyChannel.batch

    def counted(self: object, texts: Sequence[str], *arguments: object, **keywords: object) -> object:
        asked.extend(texts)
        return batch(self, texts, *arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(decoding.NoisyChannel, "batch", counted)
    (lists,) = task.decode().parts
    assert asked == [part.test[0].input, part.test[1].input]
    assert lists[0] == lists[2]


# --- choosing


def test_an_ensemble_of_one_is_that_one(toy: Toy, directory: Path) -> None:
    task = ensemble_task(toy, 1)
    alone = task.decode().best_texts()
    for members in ([task], [task, task]):
        assert choosing.ensemble(members).lists.best_texts() == alone


def test_an_ensemble_chooses_by_the_sum(toy: Toy, directory: Path) -> None:
    tasks = [ensemble_task(toy, seed) for seed in (1, 2)]
    lists = [replace(task, n_best=10).decode().parts for task in tasks]
    chosen = choosing.ensemble(tasks).lists.parts
    for part in range(2):
        models = [load(task.models[part], task.weights, task.settings, "cpu") for task in tasks]
        for n, item in enumerate(tasks[0].items[part]):
            texts = {entry.text for of_task in lists for entry in of_task[part][n]}
            sums = {
                text: sum(model.rerank_batch([item.input], [[text]])[0][0].hypothesis.score for model in models)
                for text in texts
            }
            assert sums[chosen[part][n][0].text] == pytest.approx(max(sums.values()), abs=1e-4)


def test_a_pool_chooses_the_best_of_all_searches(toy: Toy, directory: Path) -> None:
    task = ensemble_task(toy, 1)
    tried = (Weights(1.0), Weights(1.0, 0.5, 0.5, 0.1))
    metric = RowScorer(DESIGN, []).metrics["chrf"]
    choice = choosing.PoolTask(FULL.make_system(), metric, tried, task, task).choose()
    searches = [replace(task, weights=weights, n_best=10).decode().parts for weights in tried]
    for part, lists in enumerate(choice.lists.parts):
        for n, best in enumerate(lists):
            entries = [entry for search in searches for entry in search[part][n] if entry.complete]
            objective = {
                x.text: sum(w * x.terms[name] for name, w in choice.weights.by_name().items()) for x in entries
            }
            assert objective[best[0].text] == pytest.approx(max(objective.values()), abs=1e-2)
    items = [item for part in task.items for item in part]
    assert choice.dev_score == pytest.approx(chrf(choice.lists.best_texts(), items))


def ensemble_task(toy: Toy, seed: int) -> DecodingTask:
    models = tuple(toy.models(FULL, seed, part) for part in toy.parts)
    items = tuple(part.test[:3] for part in toy.parts)
    return DecodingTask(models, items, Weights(1.0, 0.5, 0.5, 0.1), toy.settings.search, 3, 64, "cpu")


# --- blocks and merging


def test_a_block_is_read_as_it_was_written(blocks: dict[str, Block], tmp_path: Path) -> None:
    for block in blocks.values():
        block.write(tmp_path, "toy")
    assert {block.name: block for block in read_blocks(tmp_path, "toy")} == blocks


def test_a_block_says_where_it_comes_from(blocks: dict[str, Block], toy: Toy) -> None:
    record = blocks["plain"].record
    assert {
        "noisychannel",
        "commit",
        "torch",
        "date",
        "device",
        "data",
        "settings",
        "tuned",
        "seconds",
    } <= record.keys()
    assert record["ended by their limit"] == [
        f"toy-{seed}/{part.name} direct" for seed in (1, 2) for part in toy.parts
    ], "twelve updates end every training"
    assert record["metrics"]["chrf"].startswith("case:mixed|eff:yes|nc:6")


def test_blocks_merge_in_the_order_of_the_design(results: dict, blocks: dict[str, Block]) -> None:
    assert [row["name"] for row in results["rows"]] == [row.name for row in DESIGN.rows]
    assert {row["name"]: row["block"] for row in results["rows"]}["direct, 50 pairs"] == "few"
    for row in results["rows"]:
        assert row["date"] == blocks[row["block"]].record["date"]
        assert row["commit"] == blocks[row["block"]].record["commit"]
    assert results["not measured"] == {}


def test_a_later_block_replaces_rows_and_others_stay(blocks: dict[str, Block]) -> None:
    plain = blocks["plain"]
    record = {**plain.record, "block": "again", "date": "2999-01-01", "commit": "later", "rows": plain.rows[1:]}
    other = Block(record, plain.items, [{1: plain.n_best[0][1]}])
    other.rows[0] = {**plain.rows[1], "scores": plain.rows[0]["scores"]}
    for given in ([plain, other], [other, plain]):
        merged = merge(DESIGN, given)
        assert [(row["name"], row["commit"]) for row in merged["rows"]] == [
            ("copy", plain.record["commit"]),
            ("direct", "later"),
        ]
        assert merged["rows"][1]["scores"]["chrf"]["score"] == merged["rows"][0]["scores"]["chrf"]["score"]
    assert set(merged["not measured"]) == {"larger", "few"}
    assert "`noisychannel reproduce toy --blocks few`): direct, 50 pairs; copy, 50 pairs." in "\n".join(
        markdown(merged)
    )


def test_blocks_of_other_items_are_not_merged(blocks: dict[str, Block]) -> None:
    items = {key: replace(item, references=("other",)) for key, item in blocks["few"].items.items()}
    other = Block(blocks["few"].record, items, blocks["few"].n_best)
    with pytest.raises(BadInputError, match="the blocks plain and few have different test items"):
        merge(DESIGN, [blocks["plain"], other])


def test_scores_that_do_not_follow_from_the_outputs_are_refused(blocks: dict[str, Block], tmp_path: Path) -> None:
    blocks["plain"].write(tmp_path, "toy")
    file = tmp_path / "toy.plain.json"
    record = json.loads(file.read_text(encoding="utf-8"))
    record["rows"][0]["scores"]["chrf"]["score"] += 0.01
    file.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(NoisyChannelError, match="copy: the score of chrf is recorded as"):
        merge(DESIGN, read_blocks(tmp_path, "toy"))


def test_metrics_can_be_added_and_removed_after_measuring(blocks: dict[str, Block], results: dict) -> None:
    merged = merge(replace(DESIGN, metrics=("accuracy", "edit_distance")), [blocks["plain"]])
    for row in merged["rows"]:
        assert list(row["scores"]) == ["accuracy", "edit_distance"]
        assert row["scores"]["accuracy"]["seeds"] == row_of(results, row["name"])["scores"]["accuracy"]["seeds"]
        assert row["scores"]["edit_distance"]["interval"][0] >= 0
    assert "| system | accuracy | edit_distance |" in "\n".join(markdown(merged))


def test_damaged_blocks_are_one_line(blocks: dict[str, Block], tmp_path: Path) -> None:
    blocks["plain"].write(tmp_path, "toy")
    file = tmp_path / "toy.plain.json"
    with lzma.open(outputs_file(file), "rt", encoding="utf-8") as stream:
        lines = stream.readlines()
    line = json.loads(lines[3])
    line["outputs"].pop()
    broken = "".join([*lines[:3], json.dumps(line) + "\n", *lines[4:]])
    outputs_file(file).write_bytes(lzma.compress(broken.encode()))
    with pytest.raises(NoisyChannelError, match="not every item has an output of 'direct'"):
        Block.read(file)
    outputs_file(file).write_bytes(b"nothing")
    with pytest.raises(NoisyChannelError, match=r"toy\.plain\.outputs\.jsonl\.xz: damaged \(Input format not"):
        Block.read(file)
    line["outputs"][0]["n_best"][0]["text"] = 3
    outputs_file(file).write_bytes(lzma.compress(json.dumps(line).encode()))
    with pytest.raises(NoisyChannelError, match=r"damaged \(outputs\.0\.n_best\.0\.text: must be a valid string\)"):
        Block.read(file)
    file.write_text('{"format": 1}', encoding="utf-8")
    with pytest.raises(NoisyChannelError, match=r"format 1, written by .* reads format 2: use the other version"):
        Block.read(file)
    with pytest.raises(BadInputError, match="toy: no block has been measured"):
        merge(DESIGN, [])


def made_up_block(design: Design, right: dict[str, float]) -> Block:
    """A block without models: so large a part of the outputs of each row, by its label, is right."""
    items = {("a", n): Item(str(n), ("yes",)) for n in range(64)}
    n_best, records = [], []
    for row in design.rows:
        texts = ["yes" if n < 64 * right[row.label] else "no" for n in range(64)]
        n_best.append({1: {key: [NBestEntry(text, {})] for key, text in zip(items, texts, strict=True)}})
        scorer = RowScorer(design, [("a", list(items.values()))])
        records.append({**row.record(), "scores": scorer.scores({1: texts})})
    about = {"block": "a", "noisychannel": "0", "commit": None, "date": "2020", "data": {}, "tuned": ""}
    return Block({"format": 2, **about, "rows": records}, items, n_best)


def test_rows_are_compared_with_baselines_of_as_many_pairs_and_of_their_setting() -> None:
    """The baselines with all pairs are right, those with few are not, and one setting has a bad one of its own."""
    other = replace(DIRECT, name="other")
    rows = (DIRECT, COPY, other, *(row.restricted(pairs=9) for row in (DIRECT, COPY, other)))
    rows += (replace(DIRECT, setting="odd"), replace(other, setting="odd"), replace(other, setting="even"))
    design = Design(name="x", about="", blocks={"a": rows}, baselines={"direct": "direct", "copying": "copy"})
    bad = {row.label for row in rows if row.pairs or row.setting}
    merged = merge(design, [made_up_block(design, {row.label: 0.0 if row.label in bad else 1.0 for row in rows})])
    p = [row["scores"]["accuracy"]["p"] for row in merged["rows"]]
    clear = pytest.approx(1 / 10_001)
    assert [x["direct"] for x in p] == [None, 1.0, 1.0, None, 1.0, 1.0, None, 1.0, clear]
    assert [x["copying"] for x in p] == [1.0, None, 1.0, 1.0, None, 1.0, clear, clear, clear]
    exact = 100 * 0.025 ** (1 / 64)  # of a proportion: all resamples of 64 right outputs are alike
    assert merged["rows"][0]["scores"]["accuracy"]["interval"] == pytest.approx([exact, 100.0])


def test_rows_of_three_seeds_are_compared_with_the_baseline_of_three_seeds() -> None:
    other = replace(DIRECT, name="other")
    rows = (DIRECT, other, *(replace(row, name=f"{row.name}, three seeds") for row in (DIRECT, other)))
    design = Design(name="x", about="", blocks={"a": rows}, baselines={"direct": "direct"})
    right = {row.label: float(row is not DIRECT) for row in rows}
    found = [row["scores"]["accuracy"]["p"]["direct"] for row in merge(design, [made_up_block(design, right)])["rows"]]
    assert found == [None, pytest.approx(1 / 10_001), None, 1.0]
    design = Design(name="x", about="", blocks={"a": (*rows[:2], rows[3])}, baselines={"direct": "direct"})
    merged = merge(design, [made_up_block(design, right)])["rows"]
    assert merged[2]["scores"]["accuracy"]["p"]["direct"] == pytest.approx(1 / 10_001), "if it is not measured: of one"


def test_tables_have_speeds_if_the_design_asks_for_them(results: dict) -> None:
    lines = list(markdown({**results, "speeds": True}))
    (title,) = (line for line in lines if line.startswith("| system | chrf |"))
    place = title.split(" | ").index("inputs/s")
    row = row_of(results, "direct")
    (line,) = (line for line in lines if line.startswith("| direct | "))
    assert line.split(" | ")[place] == f"{34 / row['seconds']['1']:.1f}"
    (copied,) = (line for line in lines if line.startswith("| copy | "))
    assert copied.split(" | ")[place] == "", "a baseline is not decoded"
    assert any(line.startswith("Inputs/s: ") and "share the device" in line for line in lines)
    assert not any("inputs/s" in line for line in markdown(results))
    without = [{**row, "seconds": {}} for row in results["rows"]]
    assert not any("inputs/s" in line for line in markdown({**results, "speeds": True, "rows": without}))


def test_blocks_without_rows_are_not_measured(toy: Toy, tmp_path: Path) -> None:
    other = copy(toy)
    said: list[str] = []
    other.setup = replace(toy.setup, say=said.append)
    other.rows = lambda block: [COPY] if block == "plain" else []  # type: ignore[method-assign]
    other.left_out = lambda block: "" if block == "plain" else "full (there are 3 pairs)"  # type: ignore[method-assign]
    assert [block.name for block in run_blocks(other, ["larger", "plain"], tmp_path, "toy")] == ["plain"]
    assert said[0] == "block larger: nothing is left to measure; left out: full (there are 3 pairs)"
    with pytest.raises(BadInputError, match="no row of larger, few applies to this data"):
        run_blocks(other, ["larger", "few"], tmp_path, "toy")


def test_seconds_are_those_of_decoding_alone(toy: Toy, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading takes a second more here, and is in no row's seconds."""
    clock, real = [0.0], load

    def slow(*arguments: object) -> object:
        clock[0] += 1.0
        return real(*arguments)  # type: ignore[arg-type]

    for module in (choosing, decoding):
        monkeypatch.setattr(module, "load", slow)
        monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(Cache, "_read", lambda self, key, kind: None)
    names = ("full, ensemble", "full, pool", "full")
    rows = [row for row in toy.rows("larger") if row.name in names]
    for result in measure(toy, [*rows, replace(FULL, name="r", choose="references", weights_of="full")]):
        assert [choice.lists.seconds for choice in result.choices.values()] == [0.0], result.row.name
    assert clock[0] > 0


def test_a_missing_baseline_leaves_no_p_value() -> None:
    design = Design(name="x", about="", blocks={"a": (COPY,)}, baselines={"direct": "direct"})
    (row,) = merge(design, [made_up_block(design, {"copy": 0.5})])["rows"]
    assert row["scores"]["accuracy"]["p"] == {"direct": None}


def test_examples_are_items_on_which_the_two_systems_differ(toy: Toy, results: dict, blocks: dict) -> None:
    items = [(part.name, item) for part in toy.parts for item in part.test]
    before, after = outputs_of(blocks, "copy")[1], outputs_of(blocks, "direct")[1]
    by_kind = {
        kind: [
            [part, item.input, item.references[0], one, other]
            for (part, item), one, other in zip(items, before, after, strict=True)
            if sign * (chrf([other], [item]) - chrf([one], [item])) > 1e-9
        ]
        for kind, sign in (("helps", 1), ("hurts", -1))
    }
    for kind, found in results["examples"].items():
        step = max(1, len(by_kind[kind]) // 12)
        assert found == by_kind[kind][::step][:12]
    assert results["examples"]["hurts"], "twelve updates do not learn to copy"


def test_the_table(results: dict) -> None:
    lines = list(markdown(json.loads(json.dumps(results))))
    table = [line for line in lines[2:] if line.startswith("|")]
    assert table[0].startswith(
        "| system | chrf | accuracy | 95 % interval | p against direct | p against copying | dev |"
    )
    assert "| paper's chrf | weights: direct, channel, LM, length |" in table[0]
    direct = row_of(results, "direct")["scores"]
    start = f"| direct | {direct['chrf']['score']:.2f} ± {direct['chrf']['deviation']:.2f} | "
    start += f"{direct['accuracy']['score']:.2f}"
    assert sum(line.startswith(start) for line in table) == 1
    assert any(line.startswith("| direct | ") and " 50.0 |" in line for line in table)
    assert any(line.startswith("| cited: another system |  | 12.3 |") for line in table)
    rows = table[: 2 + len(DESIGN.rows) + 1]
    assert len({line.count(" | ") for line in rows if "---" not in line}) == 1
    assert "mean over 2 parts (34 items)" in lines[0]
    (plain,) = (line for line in lines if line.startswith("| plain | "))
    assert plain.split(" | ")[2] == str(len(results["blocks"]["plain"]["ended by their limit"])) != "0"
    assert any(line.startswith("| block | rows | models that may still improve |") for line in lines)


def test_parts_reported_separately_have_a_table_each(blocks: dict[str, Block], toy: Toy) -> None:
    design = replace(DESIGN, average="separate")
    plain = json.loads(json.dumps(blocks["plain"].record))
    scorer = RowScorer(design, blocks["plain"].parts())
    for n, row in enumerate(plain["rows"]):
        row["scores"] = scorer.scores(blocks["plain"].outputs(n))
    merged = merge(design, [Block(plain, blocks["plain"].items, blocks["plain"].n_best)])
    text = "\n".join(markdown(merged))
    assert text.count("| system | chrf |") == 2
    assert "**doubled** (20 items, up to 2 references for each)" in text
    for row in merged["rows"]:
        part = row["scores"]["chrf"]["parts"]["doubled"]
        assert f"| {row['name']} | {part['score']:.2f}" in text
        assert row["scores"]["chrf"]["score"] == row["scores"]["chrf"]["parts"]["copied"]["score"]
        low, high = part["interval"]
        assert low <= part["score"] <= high


def test_learning_curves(results: dict, tmp_path: Path) -> None:
    (plot,) = DESIGN.plots
    score = {row["name"]: row["scores"]["chrf"]["score"] for row in results["rows"]}
    assert curves(plot, results) == {"direct": {50.0: score["direct, 50 pairs"], 100.0: score["direct"]}}
    flat = Plot("pairs", "pairs", "pairs", {"direct": "direct", "full": "full"})
    assert curves(flat, results)["full"] == {100.0: score["full"]}, "what depends on the pairs is no flat line"
    assert "absent" not in curves(Plot("pairs", "pairs", "pairs", {"direct": "direct", "absent": "absent"}), results)
    lists = {**results, "data": {**results["data"], "unpaired": {"": {"all": 9}}}}
    more = [{**row, "name": "full, 5 unpaired", "unpaired": 5} for row in results["rows"] if row["name"] == "full"]
    lines = {name: name for name in ("full", "direct", "direct + LM")}
    drawn = curves(Plot("u", "unpaired", "u", lines), {**lists, "rows": [*results["rows"], *more]})
    assert drawn["direct"] == dict.fromkeys((5.0, 9.0), score["direct"])
    assert {label: list(curve) for label, curve in drawn.items() if label != "direct"} == {
        "full": [5.0, 9.0],
        "direct + LM": [9.0],
    }
    pytest.importorskip("matplotlib")
    said: list[str] = []
    empty = Plot("empty", "pairs", "pairs", {"full": "full"})
    (file,) = write_plots(replace(DESIGN, plots=(empty, *DESIGN.plots)), results, tmp_path, said.append)
    assert said == ["not drawn, because no line has two points yet: toy-empty.svg"]
    assert file.name == "toy-pairs.svg"
    assert "<svg" in file.read_text(encoding="utf-8")


def test_a_missing_package_for_plots_is_said_before_the_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    words = ["reproduce", "inflection-nouns", "--merge", "--results", str(tmp_path), "--plots", str(tmp_path / "plots")]
    assert main(words) == 2  # and not that the folder has no results
    assert "a plot needs the package matplotlib" in capsys.readouterr().err


# --- rows and designs


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"system": "direct", "baseline": "rules", "models": {"direct": "x"}}, "either a system or a baseline"),
        ({}, "either a system or a baseline"),
        ({"system": "direct+lm", "models": {"direct": "x"}}, "does not say which runs have lm"),
        ({"system": "direct+word_list", "models": {"direct": "x"}}, "does not say which runs have word_list"),
        ({"system": "direct", "models": {"direct": "x"}, "choose": "pool"}, "needs weights_of"),
    ],
)
def test_impossible_rows_are_refused(fields: dict, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        SystemRow(name="x", **fields)


def test_designs_refuse_rows_that_cannot_be_told_apart_or_found() -> None:
    for blocks in ({"a": (COPY, COPY)}, {"a": (COPY,), "b": (replace(COPY, pairs=3),)}):
        with pytest.raises(ValueError, match="two rows are called 'copy'"):
            Design(name="x", about="", blocks=blocks)
    assert Design(name="x", about="", blocks={"a": (COPY,), "b": (COPY, FULL)}).rows == [COPY, FULL]
    with pytest.raises(ValueError, match="uses the weights of 'absent'"):
        Design(name="x", about="", blocks={"a": (replace(FULL, weights_of="absent"),)})


def test_further_terms_have_the_kind_of_their_name_unless_told() -> None:
    models = {"direct": "x", "lm": "y", "word_list": "y", "news": "z"}
    row = SystemRow(name="x", system="direct+lm+word_list+news", models=models, term_kinds={"news": "lm"})
    assert row.terms == {"word_list": "word_list", "news": "lm"}
    assert row.make_system().terms == ("direct", "channel", "lm", "length", "word_list", "news")
    assert row.used_models() == models


def test_a_restricted_row_says_what_it_restricts() -> None:
    few = WITH_LM.restricted(pairs=100, unpaired=0, seeds=1)
    assert (few.name, few.base, few.pairs, few.unpaired) == (
        "direct + LM, 100 pairs, 0 unpaired",
        "direct + LM",
        100,
        0,
    )
    assert WITH_LM.base == WITH_LM.name


# --- training


def test_groups_wait_for_a_place_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, cpu = (type("Device", (), {"type": kind})() for kind in ("cuda", "cpu"))
    monkeypatch.setattr(training, "choose_processes", lambda groups, device: min(groups, 8))
    monkeypatch.setattr(training.torch.cuda, "mem_get_info", lambda device: (45 * 2**30, 80 * 2**30))
    assert groups_at_once(22, gpu, None) == math.floor(45 / training.GROUP_GIB)
    assert groups_at_once(2, gpu, None) == 2
    assert groups_at_once(22, gpu, 6) == 6
    assert groups_at_once(22, cpu, 6) == 1
    monkeypatch.setattr(training.torch.cuda, "mem_get_info", lambda device: (2**30, 80 * 2**30))
    assert groups_at_once(22, gpu, None) == 1


def test_finished_groups_are_not_trained_again(toy: Toy, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[list[str]] = []
    monkeypatch.setattr(
        training, "_train", lambda group: trained.append([Path(config.run_dir).name for config in group]) or []
    )
    groups = [toy.configs([run])[0] for run in ("toy-1", "toy-2")]
    train_groups(groups, toy.setup)
    assert trained == []
    state = RunDirectory(toy.runs / "toy-2").group("copied").state_file("lm")
    state.touch()
    try:
        train_groups(groups, toy.setup)
    finally:
        state.unlink()
    assert trained == [["toy-2"]]


@pytest.mark.long  # processes that import torch
def test_groups_are_trained_by_a_queue_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Toy(tmp_path)
    monkeypatch.setattr(training, "groups_at_once", lambda groups, device, jobs: 2)
    groups = [toy.configs([run])[0] for run in ("few-1", "few-2", "few-3")]
    train_groups(groups, toy.setup)
    assert all(map(training.is_finished, (config for group in groups for config in group)))
    assert len(toy.said) == 3
    bad = toy.configs(["few-4"])[0]
    bad[0].data.train = [str(tmp_path / "absent.tsv")]
    with pytest.raises(BadInputError, match=r"absent\.tsv"):
        train_groups([bad, *groups], toy.setup)


def test_messages_say_what_was_measured(toy: Toy, directory: Path, results: dict) -> None:
    direct = row_of(results, "direct")["scores"]["chrf"]
    assert f"direct: test {direct['score']:.2f} ± {direct['deviation']:.2f}" in toy.said
    assert any("copied direct: dev perplexity" in line and "(its limit)" in line for line in toy.said)


def test_models_that_do_not_align_are_told_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Toy(tmp_path)
    bad, good = (Finished("direct", 9, 9, 2.0, 1.0, at_one_place=share) for share in (0.95, 0.02))
    lm = Finished("lm", 9, 9, 2.0, 1.0)
    monkeypatch.setattr(training, "_train", lambda group: [bad, good, lm])
    train_groups([toy.configs(["few-1"])[0]], toy.setup)
    assert [line for line in toy.said if "align" in line] == [f"few-1 direct: {bad.fault}"]
    shares = [
        record.get("whole output at one input symbol") for record in recorded_trainings(toy.setup.work, ["few-1"])
    ]
    assert shares == [0.95, 0.02, None]


def test_tuning_records_are_read_as_they_were_written() -> None:
    from noisychannel.experiments.tuning import TuningRecord, tuning_record
    from noisychannel.tuning import TuningStep

    weights = Weights(1.0, 0.5, 0.25, -1.0, {"word_list": 3.0})
    result = TuningResult("x", weights, 50.0, "chrf", "sig", (TuningStep(Weights(), None, 40.0, 3),))
    assert parse_record(json.dumps(tuning_record(result)), TuningRecord, Path(), "").result() == result


def test_a_damaged_measurement_is_made_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    made: list[choosing.Choice] = []

    def choose() -> choosing.Choice:
        made.append(choosing.Choice(decoding.PartLists([[[NBestEntry("ab", {"direct": -1.0})]]], 2.0), Weights(), 50.0))
        return made[-1]

    cache.choice("key", "row", choose)
    (file,) = cache.directory.iterdir()
    whole = file.read_bytes()
    record = json.loads(lzma.decompress(whole))
    assert cache.choice("key", "row", choose) == made[0]
    assert len(made) == 1
    for content in (b"", whole[:-9], b"nothing", lzma.compress(b"[]"), lzma.compress(b'{"parts": [[[{"text": 3}]]]}')):
        file.write_bytes(content)
        made.clear()
        assert cache.choice("key", "row", choose) == made[0]
    assert json.loads(lzma.decompress(file.read_bytes())) == record


def test_an_entry_keeps_what_a_partial_output_is() -> None:
    entry = NBestEntry("ab", {"direct": -1.0}, complete=False)
    assert parse_record(json.dumps(entry.record()), EntryRecord, Path(), "").entry() == entry
    assert scores.SAMPLES == 10_000


def test_alignments_are_kept_if_asked_for_and_counted(toy: Toy, directory: Path, tmp_path: Path) -> None:
    plain = toy.settings
    toy.settings = replace(plain, keep_alignments=True)
    try:
        ensemble = replace(FULL, name="full, ensemble", choose="ensemble", weights_of="full", seeds=None)
        block = run_block(_with_rows(toy, COPY, DIRECT, ensemble), "plain")
    finally:
        toy.settings = plain
    models = {part.name: load(toy.models(DIRECT, 2, part), Weights(), plain.search, "cpu") for part in toy.parts}
    aligned = block.alignments(1)[2]
    assert len(aligned) == len(block.items)
    for (part, _), item, text, positions in zip(
        block.items, block.items.values(), block.outputs(1)[2], aligned, strict=True
    ):
        (output,) = models[part](item.input)
        assert output.text == text
        assert positions == tuple(int(i < len(item.input)) for i in (output.hypothesis.alignment or ())[:-1])
    assert set(block.alignments(0)[1]) == {None}, "a baseline has none"
    assert None not in block.alignments(2)[0]
    assert any(entry.aligned is None for entry in block.n_best[1][1][next(iter(block.items))][1:])
    block.write(tmp_path, "toy")
    (again,) = read_blocks(tmp_path, "toy")
    assert again.n_best == block.n_best
    merged = merge(replace(DESIGN, function_words=1), [again])
    shares = merged["content"]["rows"]["direct"]["copied"]
    dropped = [n for n, item in enumerate(block.items) if item[0] == "copied"]
    assert shares["counts"]["outputs"] == 2 * len(dropped)
    assert 0 <= shares["dropped content"] <= 100
    assert merged["content"]["rows"]["copy"]["copied"]["extracts"] == 100
    assert any("content words dropped" in line for line in markdown(merged))


def _with_rows(toy: Toy, *rows: SystemRow) -> Toy:
    """The same experiment, in which the block ``plain`` has these rows."""
    other = copy(toy)
    other.design = replace(DESIGN, blocks={"plain": rows, "larger": (WITH_LM, FULL)})
    return other
