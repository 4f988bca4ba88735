"""Few pairs in the inflection experiments: models as ``fit`` plans them, and copying beside all pairs.

    work/runs/copy-1               as bi-1, with copying
    work/runs/fit-100-strict-1     100 pairs, planned by ``fit``: copying, made-up pairs, words given inputs
    work/runs/fit-all-strict-1     the same with all pairs
    work/runs/reverse-100-strict-1 the direct models that read forms and write lemmas

Words are the unpaired forms of a setting.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from noisychannel.data.prepare import DataConfig
from noisychannel.data.rows import Row
from noisychannel.experiments.few_pairs.parallel import in_processes
from noisychannel.experiments.inflection.data import TaggedPair
from noisychannel.experiments.inflection.rows import DIRECT, FULL_BETTER, PAPER, RULES, STRICT, with_term
from noisychannel.experiments.items import sample
from noisychannel.experiments.rows import SystemRow
from noisychannel.fitting.configs import reverse_config, run_config
from noisychannel.fitting.facts import count_facts
from noisychannel.fitting.inputs import InputTask, choose_words, collect, make_tasks
from noisychannel.fitting.plan import Plan, make_plan
from noisychannel.models.registry import Role
from noisychannel.runs import RunDirectory
from noisychannel.training.config import RunConfig

if TYPE_CHECKING:
    from noisychannel.experiments.inflection.experiment import Inflection

MODELS: tuple[Role, ...] = ("direct", "channel")
ALL_PAIRS = "all"


def few_rows(pairs: Sequence[int]) -> tuple[SystemRow, ...]:
    """Copying with all pairs; what ``fit`` chooses with all and with few; rules beside the few."""
    settings = (PAPER, STRICT)
    rows = [_with_models(DIRECT, "copying", "copy", PAPER)]
    rows += [_copying(setting) for setting in settings]
    chosen = "as fit chooses"
    for setting in settings:
        runs = f"fit-{ALL_PAIRS}-{setting}"
        rows += [replace(_with_models(row, chosen, runs, setting), seeds=1) for row in (DIRECT, FULL_BETTER)]
    for n in pairs:
        rows.append(RULES.restricted(pairs=n))
        for setting in settings:
            runs = f"fit-{n}-{setting}"
            few = [_with_models(row, chosen, runs, setting) for row in (DIRECT, FULL_BETTER)]
            if setting == PAPER:
                few.append(with_term(few[-1], f"{few[-1].name}, and the word list", "word_list", "lm-better"))
            rows += [row.restricted(pairs=n, seeds=1) for row in few]
    return tuple(rows)


def ensemble_rows() -> tuple[SystemRow, ...]:
    """The seeds of copying with all pairs as one system: a block of its own, because other rows take much longer."""
    copying = _copying(PAPER)
    name = f"{copying.name}, ensemble of the seeds"
    return (replace(copying, name=name, choose="ensemble", weights_of=copying.name),)


def _copying(setting: str) -> SystemRow:
    return _with_models(FULL_BETTER, "copying", "copy", setting)


def _with_models(row: SystemRow, name: str, runs: str, setting: str) -> SystemRow:
    """A row whose direct model and channel are of these runs."""
    models = {**row.models, "direct": runs, "channel": runs}
    return replace(row, name=f"{row.name}, {name}", models=models, setting=setting)


def give_inputs(experiment: Inflection, runs: Collection[str]) -> None:
    """Train the reverse runs of those that ``fit`` plans, and write the words with their inputs."""
    planned = [run for run in runs if run.startswith("fit-") and not further_file(experiment, run).exists()]
    planned = [run for run in planned if plan_of(experiment, run).words_given_inputs]
    experiment.train_now([reverse_name(run) for run in planned])
    tasks: dict[str, dict[str, list[InputTask]]] = {}
    for run in planned:
        pairs, words, plan = pairs_of(experiment, run), words_of(experiment, run), plan_of(experiment, run)
        place = further_file(experiment, run).with_suffix("")
        reverse = RunDirectory(experiment.runs / reverse_name(run))
        tasks[run] = {}
        for n, part in enumerate(experiment.parts):
            rows, listed = [_row(x) for x in pairs[part.name]], [_word(x) for x in words.get(part.name, ())]
            chosen = choose_words(listed, rows, plan.words_given_inputs, False, seed=1)
            folder = place / str(n)
            tasks[run][part.name] = make_tasks(
                reverse.group(part.name).path, chosen, folder, False, experiment.setup.device
            )
    waiting = [task for parts in tasks.values() for of_part in parts.values() for task in of_part if not task.done]
    in_processes(experiment.setup, _do, waiting)
    for run, parts in tasks.items():
        given = {
            name: [TaggedPair(row.input, row.output, name) for row in collect(of_part, experiment.input_codec())]
            for name, of_part in parts.items()
        }
        experiment.setup.say(f"{run}: {sum(map(len, given.values())):,} words have inputs")
        experiment.write_rows(further_file(experiment, run), given)


def few_config(experiment: Inflection, run: str) -> RunConfig:
    """The configuration of a run that ``fit`` plans, or of its reverse run."""
    kind, n, _, seed = run.split("-")
    plan, pairs = plan_of(experiment, run), pairs_of(experiment, run)
    files = experiment.write_pairs(f"-{n}" if n != ALL_PAIRS else "", pairs)
    words = words_of(experiment, run)
    data = DataConfig(
        train=[files["train"]],
        dev=[files["dev"]],
        columns="input,output,group",
        unpaired=[experiment.write_unpaired(_setting(run), words)],
        unpaired_columns="group,output",
    )
    place = experiment.runs / run
    if kind == "reverse":
        config = reverse_config(plan, data, place, seed=int(seed))
    else:
        file = further_file(experiment, run)
        data.further = [str(file)] if file.exists() and file.stat().st_size else []
        data.vocabularies = str(experiment.runs / experiment.vocabularies)
        config = run_config(plan, data, place, MODELS, seed=int(seed))
    return replace(config, device=experiment.setup.device, jobs=experiment.setup.jobs)


def plan_of(experiment: Inflection, run: str) -> Plan:
    """From the pairs and words of the first type; all types have as many pairs, of the same lemmas."""
    first = experiment.parts[0].name
    rows = [_row(x) for x in pairs_of(experiment, run)[first]]
    plan = make_plan(count_facts(rows, [_word(x) for x in words_of(experiment, run).get(first, ())]))
    return experiment.scale.limited(plan)


def pairs_of(experiment: Inflection, run: str) -> dict[str, list[TaggedPair]]:
    n = run.split("-")[1]
    number = None if n == ALL_PAIRS else int(n)
    return {type_: sample(pairs.train, number, seed=1) for type_, pairs in experiment.tables.items()}


def words_of(experiment: Inflection, run: str) -> Mapping[str, list[str]]:
    return experiment.unpaired[_setting(run)]


def reverse_name(run: str) -> str:
    return f"reverse-{run.removeprefix('fit-')}"


def further_file(experiment: Inflection, run: str) -> Path:
    return experiment.setup.work / "data" / f"inputs-{run}.tsv"


def _setting(run: str) -> str:
    return run.split("-")[2]


def _row(pair: TaggedPair) -> Row:
    return Row(pair.lemma, pair.form, (), "", "")


def _word(form: str) -> Row:
    return Row("", form, (), "", "")


def _do(task: InputTask) -> str:
    task.work()
    return f"inputs: {Path(task.file).parent}"
