"""An experiment with few pairs: for each part a task, with models of its own, planned as ``fit`` plans them.

    work/data/german/…                files of pairs, words, and words with the inputs that they were given
    work/runs/vocabularies/german     the vocabularies that all models of a part share
    work/runs/direct.rule-1/german    a model of one role, see ``specs``
    work/answers/transformer/german.json   the outputs of a system that is no run of ours, see ``answers``

The models of all parts and seeds are trained together, so that a GPU trains them as one stack. First come the runs that
need nothing else, and the reverse runs; these give inputs to words; then come the runs that are trained on those.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from noisychannel.data.prepare import DataConfig
from noisychannel.evaluation.baselines import Answer
from noisychannel.experiments.design import Design
from noisychannel.experiments.experiment import Experiment, TrainingPair
from noisychannel.experiments.few_pairs.answers import ANSWERED, AnswerTask, read_answers, write_answers
from noisychannel.experiments.few_pairs.parallel import in_processes
from noisychannel.experiments.few_pairs.scale import FewPairsScale
from noisychannel.experiments.few_pairs.specs import RunSpec, plan_of
from noisychannel.experiments.few_pairs.tasks import SEPARATOR, Pair, Task, Word, write_pairs, write_words
from noisychannel.experiments.items import Part, at_most
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.settings import Setup
from noisychannel.fitting.configs import reverse_config, run_config
from noisychannel.fitting.facts import Facts, count_facts
from noisychannel.fitting.inputs import InputTask, choose_words, collect, make_tasks
from noisychannel.fitting.plan import Plan
from noisychannel.runs import RunDirectory
from noisychannel.training.config import RunConfig
from noisychannel.training.run import prepare_run

VOCABULARIES = "vocabularies"
MATERIAL = 20_000
"""The most words from which pairs are made up: more would not change them, and take long to read."""


class FewPairs(Experiment):
    """The data and the runs of one experiment."""

    def __init__(
        self,
        design: Design,
        tasks: Sequence[Task],
        setup: Setup,
        scale: FewPairsScale,
        parts_of: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """``parts_of``: the names of the parts of a block that does not have all."""
        self.scale, self.parts_of = scale, parts_of or {}
        self.samples = any(x.running_text for x in tasks)
        self.tasks = {x.name: x.smaller(scale.dev, scale.test, scale.words) for x in tasks[: scale.tasks]}
        parts = [Part(task.name, task.dev, task.test) for task in self.tasks.values()]
        super().__init__(design, parts, setup, scale)
        self._facts: dict[tuple[str, str, int | None, int | None, int], Facts] = {}

    # --- what the framework asks

    def for_block(self, block: str) -> Experiment:
        """With fewer parts, if the block has fewer; all if none of them is there."""
        wanted = [name for name in self.parts_of.get(block, ()) if name in self.tasks]
        return self.restricted_to(wanted) if wanted else self

    def run_name(self, row: SystemRow, role: str, seed: int) -> str:
        return RunSpec.of(row.model_of(role), row.models[role], row.setting, seed).name

    def run_names(self, row: SystemRow, seeds: Iterable[int]) -> dict[str, list[str]]:
        """A run for each part; parts of one task share it."""
        runs = super().run_names(row, seeds)
        return {f"{run}/{self.task(part).name}": roles for run, roles in runs.items() for part in self.parts}

    def run(self, name: str, part: Part) -> RunDirectory:
        return RunDirectory(self.runs / name / self.task(part).name)

    def task(self, part: Part) -> Task:
        """What a part is about; override it if several parts are about the same."""
        return self.tasks[part.name]

    def training_pairs(self, part: Part, pairs: int | None, seed: int) -> Iterable[TrainingPair]:
        return self.task(part).pairs(pairs, seed)

    def baseline(self, row: SystemRow, part: Part, seed: int) -> Answer:
        if row.baseline in ANSWERED:
            return read_answers(self.answers_file(row.baseline, part.name))
        return super().baseline(row, part, seed)

    def prepare(self, block: str) -> None:
        """Make the answers of systems that are no runs of ours."""
        asked = [row.baseline for row in self.rows(block) if row.baseline in ANSWERED]
        tasks = [
            AnswerTask(
                system,
                self.tasks[part.name],
                self.answers_file(system, part.name),
                self.scale,
                self.plan(RunSpec("direct", "made", None, None, "", 1), part.name).made_up,
                self.setup.device,
            )
            for system in asked
            for part in self.parts
        ]
        in_processes(self.setup, write_answers, [task for task in tasks if not task.file.exists()], most=len(tasks))

    def answers_file(self, system: str, part: str) -> Path:
        return self.setup.work / "answers" / system / f"{part}.json"

    def rows(self, block: str) -> list[SystemRow]:
        """Without rows that have more pairs than there are."""
        most = min(len(task.train) for task in self.tasks.values())
        return [row for row in super().rows(block) if row.pairs is None or row.pairs <= most]

    def data_record(self) -> dict[str, Any]:
        parts = list({self.task(part).name: self.task(part) for part in self.parts}.values())
        return {
            "pairs": {task.name: len(task.train) for task in parts},
            **super().data_record(),
            "dev": {task.name: len(task.dev) for task in parts},
            "unpaired": {
                setting: {task.name: len(task.words[setting]) for task in parts} for setting in parts[0].words
            },
            "test outputs among the words, %": {
                setting: {task.name: covered(task, setting) for task in parts} for setting in parts[0].words
            },
        }

    def settings_record(self) -> dict[str, Any]:
        names = [self.task(part).name for part in self.parts]
        plans = {name: self.plan(RunSpec("direct", "rule", None, None, "", 1), name).reasons for name in names}
        return {**super().settings_record(), "plans": plans}

    # --- training, in two stages

    def train(self, runs: Collection[str]) -> None:
        """Train these runs; those that are trained on words with inputs wait for the reverse runs."""
        later = [run for run in runs if self._needs_inputs(run)]
        reverse = {f"{spec.reverse.name}/{part}": (spec.reverse, part) for spec, part in map(_spec, later)}
        reverse = {run: of for run, of in reverse.items() if not self._inputs_file(*of).exists()}
        parts = {part for _, part in map(_spec, runs)}
        for part in sorted(parts):
            self._prepare_vocabularies(part)
        super().train([*(run for run in runs if run not in later), *reverse])
        self._give_inputs(list(reverse.values()))
        super().train(later)

    def configs(self, runs: Collection[str]) -> list[list[RunConfig]]:
        """The same model of all parts and seeds together. Language models and reverse runs take longest."""
        groups: dict[RunSpec, list[RunConfig]] = {}
        for run in runs:
            spec, part = _spec(run)
            groups.setdefault(spec._replace(seed=0), []).append(self.config(spec, part))
        first = ("reverse", "lm")
        return [groups[spec] for spec in sorted(groups, key=lambda spec: spec.role not in first)]

    def _needs_inputs(self, run: str) -> bool:
        spec, part = _spec(run)
        return spec.role in ("direct", "channel") and self.plan(spec, part).words_given_inputs > 0

    def _prepare_vocabularies(self, part: str) -> None:
        for config in (self._vocabularies(part, False), self._vocabularies(part, True)):
            if not (Path(config.run_dir) / "run.json").exists():
                prepare_run(config, lambda line: None, wait=True)

    def _give_inputs(self, reverse: Sequence[tuple[RunSpec, str]]) -> None:
        """Write the files of words with inputs."""
        tasks: dict[Path, list[InputTask]] = {}
        for spec, part in reverse:
            file, task = self._inputs_file(spec, part), self.tasks[part]
            plan = self.plan(spec, part)
            pairs = [pair.row() for pair in task.pairs(spec.pairs, spec.seed)]
            words = [word.row() for word in self.words(spec, part)]
            chosen = choose_words(words, pairs, plan.words_given_inputs, task.tagged, seed=1)
            run = self.runs / spec.name / part
            place, device = file.with_suffix(""), self.setup.device
            tasks[file] = make_tasks(run, chosen, place, task.tagged, device, plan.inputs_drawn)
        in_processes(self.setup, _do, [x for of_file in tasks.values() for x in of_file if not x.done])
        for file, of_file in tasks.items():
            codec = RunDirectory(self.runs / VOCABULARIES / file.parent.name).codecs()[0]
            rows = collect(of_file, codec)
            asked = sum(len(task.words) for task in of_file)
            self.setup.say(f"{file.parent.name} {file.stem}: {len(rows):,} of {asked:,} words have inputs")
            write_pairs(file, [Pair(row.input, row.output, row.features) for row in rows], _tagged(rows))

    # --- plans, files and configurations

    def words_setting(self, spec: RunSpec, part: str) -> str:
        """The setting of the words that a run may see; the first if it does not say."""
        return spec.setting or next(iter(self.tasks[part].words))

    def words(self, spec: RunSpec, part: str) -> list[Word]:
        return self.tasks[part].listed(self.words_setting(spec, part), spec.words)

    def facts(self, spec: RunSpec, part: str) -> Facts:
        """About the pairs and words of a run."""
        task = self.tasks[part]
        key = part, self.words_setting(spec, part), spec.words, spec.pairs, spec.seed if task.running_text else 1
        if key not in self._facts:
            pairs, words = task.pairs(spec.pairs, spec.seed), self.words(spec, part)
            self._facts[key] = count_facts([x.row() for x in pairs], [x.row() for x in words])
        return self._facts[key]

    def plan(self, spec: RunSpec, part: str) -> Plan:
        """What ``fit`` chooses for the pairs and words of a run, with the ingredients of its kind."""
        return self.scale.limited(plan_of(spec.kind, self.facts(spec, part)))

    def config(self, spec: RunSpec, part: str) -> RunConfig:
        """How a run is trained; its data files are written."""
        plan, data, place = self.plan(spec, part), self._data(spec, part), self.runs / spec.name / part
        if spec.role != "lm":
            data.unpaired = self._material(data.unpaired, spec, part)
        common: dict[str, Any] = {"seed": spec.seed, "device": self.setup.device, "jobs": self.setup.jobs}
        if spec.role == "reverse":
            data.vocabularies = str(self.runs / f"{VOCABULARIES}-reverse" / part)
            return reverse_config(plan, data, place, **common)
        data.vocabularies = str(self.runs / VOCABULARIES / part)
        if plan.words_given_inputs and spec.role != "lm":
            file = self._inputs_file(spec.reverse, part)
            data.further = [str(file)] if file.exists() and file.stat().st_size else []
        return run_config(plan, data, place, (spec.role,), **common)  # type: ignore[arg-type]

    def _data(self, spec: RunSpec, part: str) -> DataConfig:
        task, folder = self.tasks[part], self.setup.work / "data" / part
        few = "" if spec.pairs is None else f"-{spec.pairs}{f'-{spec.seed}' * task.running_text}"
        listed, setting = self.words(spec, part), self.words_setting(spec, part) if spec.setting else ""
        some = f"{f'-{setting}' * bool(setting)}{'' if spec.words is None else f'-{spec.words}'}"
        words = [write_words(folder / f"words{some}.tsv", listed, task.tagged)] if listed else []
        return DataConfig(
            train=[write_pairs(folder / f"train{few}.tsv", task.pairs(spec.pairs, spec.seed), task.tagged)],
            dev=[self._dev_file(part)],
            columns="input,output,features" if task.tagged else "input,output",
            unpaired=words,
            unpaired_columns="features,output" if task.tagged else "output",
            feature_separator=SEPARATOR,
        )

    def _material(self, files: list[str], spec: RunSpec, part: str) -> list[str]:
        """The words of a run without a language model: from them pairs are made up, if any are."""
        plan, words = self.plan(spec, part), self.words(spec, part)
        if not (plan.reverse_made_up if spec.role == "reverse" else plan.made_up):
            return []
        if len(words) <= MATERIAL:
            return files
        file = Path(files[0]).with_suffix(".material.tsv")
        return [write_words(file, at_most(words, MATERIAL, seed=1), self.tasks[part].tagged)]

    def spelt_words(self, part: str) -> list[Word]:
        """Words that have all symbols of words, for the vocabularies."""
        return self.tasks[part].all_words()

    def _dev_file(self, part: str) -> str:
        task = self.tasks[part]
        pairs = [Pair(item.input, item.references[0], item.features) for item in task.dev]
        return write_pairs(self.setup.work / "data" / part / "dev.tsv", pairs, task.tagged)

    def _inputs_file(self, reverse: RunSpec, part: str) -> Path:
        return self.setup.work / "data" / part / f"inputs.{reverse.name}.tsv"

    def _vocabularies(self, part: str, is_reverse: bool) -> RunConfig:
        """Vocabularies of all pairs and words. If outputs copy, the symbols of words are symbols of the inputs too."""
        task, spec = self.tasks[part], RunSpec("direct", "rule", None, None, "", 1)
        plan = replace(self.plan(spec, part), made_up=0, repeat=1)
        data, some = self._data(spec, part), task.train[0].input
        listed = [Pair(x.output if plan.copy else some, x.output, x.tags) for x in self.spelt_words(part)]
        data.unpaired = []
        if listed:
            file = self.setup.work / "data" / part / "symbols.tsv"
            data.train.append(write_pairs(file, listed, task.tagged))
        if is_reverse:
            return reverse_config(plan, data, self.runs / f"{VOCABULARIES}-reverse" / part, device="cpu")
        return run_config(plan, data, self.runs / VOCABULARIES / part, ("direct",), device="cpu")


def covered(task: Task, setting: str) -> float:
    """The percentage of test items with a right output among the words (with its tags, if they have tags)."""
    words = set(task.words[setting])
    right = [item for item in task.test if any((text, item.features) in words for text in item.references)]
    return 100 * sum(item.count for item in right) / sum(item.count for item in task.test)


def _spec(run: str) -> tuple[RunSpec, str]:
    """Of the name of a run and a part: ``direct.rule-1/german``."""
    name, _, part = run.partition("/")
    return RunSpec.parse(name), part


def _do(task: InputTask) -> str:
    task.work()
    return f"inputs: {Path(task.file).parent.name} {Path(task.file).stem}"


def _tagged(rows: Sequence[Any]) -> bool:
    return any(row.features for row in rows)
