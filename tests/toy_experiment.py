"""A small experiment: two toy transductions as parts, scored by chrF, which has 18 statistics for each item."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from noisychannel.decode.settings import SearchSettings
from noisychannel.experiments.design import Design, Plot
from noisychannel.experiments.experiment import Experiment, TrainingPair
from noisychannel.experiments.items import Item, Part
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.settings import MeasuringSettings, Setup
from noisychannel.runs import RunDirectory
from noisychannel.training.config import RunConfig
from toys import LETTERS, copy, double_vowels, toy_config

TASKS = {"copied": copy, "doubled": double_vowels}
DIRECT = SystemRow(name="direct", system="direct", models={"direct": "toy"})
WITH_LM = SystemRow(name="direct + LM", system="direct+lm", models={"direct": "toy", "lm": "toy"}, seeds=1)
FULL = SystemRow(
    name="full", system="direct+channel+lm", models={"direct": "toy", "channel": "toy", "lm": "toy"}, seeds=1
)
COPY = SystemRow(name="copy", baseline="identity")
DESIGN = Design(
    name="toy",
    about="Two toy transductions",
    blocks={
        "plain": (COPY, DIRECT),
        "larger": (
            WITH_LM,
            FULL,
            replace(FULL, name="full, marginal", search={"search": "marginal"}, weights_of="full"),
            replace(FULL, name="full, ensemble", choose="ensemble", weights_of="full", seeds=None),
            replace(FULL, name="full, pool", choose="pool", weights_of="full"),
        ),
        "few": (DIRECT.restricted(pairs=50, seeds=1, models={"direct": "few"}), COPY.restricted(pairs=50)),
    },
    metrics=("chrf", "accuracy"),
    average="parts",
    baselines={"direct": "direct", "copying": "copy"},
    published={"direct": {"chrf": "50.0"}},
    cited={"another system": {"accuracy": "12.3"}},
    examples=("copy", "direct"),
    plots=(Plot("pairs", "pairs", "pairs", {"direct": "direct"}),),
)
SETTINGS = MeasuringSettings(
    seeds=(1, 2), search=SearchSettings(k1=4, k2=2), tuning=SearchSettings(k1=4, k2=2), iterations=1, n_best=3
)


def items(task: str, seed: int, size: int) -> tuple[Item, ...]:
    """Items whose unit is their first letter; every other item has a second reference."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(LETTERS, k=rng.randint(2, 6))) for _ in range(size)]
    right = [(TASKS[task](x), *([x] if n % 2 else [])) for n, x in enumerate(words)]
    return tuple(Item(x, references, unit=x[0]) for x, references in zip(words, right, strict=True))


class Toy(Experiment):
    """The runs toy-1, toy-2 and few-1 have a group for each part, and a vocabulary of its own for each group."""

    def __init__(self, work: Path, design: Design = DESIGN) -> None:
        parts = [
            Part(task, items(task, 3, 16), items(task, 4, size)) for task, size in (("copied", 14), ("doubled", 20))
        ]
        self.said: list[str] = []
        super().__init__(design, parts, Setup(Path(), work, "cpu", 1, self.said.append), SETTINGS)

    def run_name(self, row: SystemRow, role: str, seed: int) -> str:
        return f"{row.models[role]}-{seed}"

    def run(self, name: str, part: Part) -> RunDirectory:
        return RunDirectory(self.runs / name).group(part.name)

    def training_pairs(self, part: Part, pairs: int | None, seed: int) -> Iterable[TrainingPair]:
        return []

    def data_record(self) -> dict[str, object]:
        return {**super().data_record(), "pairs": {part.name: 100 for part in self.parts}}

    def configs(self, runs: Collection[str]) -> list[list[RunConfig]]:
        return [[self._config(run) for run in sorted(runs)]]

    def _config(self, run: str) -> RunConfig:
        directory = self.setup.work / "data" / run
        roles = ("direct", "channel", "lm") if run.startswith("toy") else ("direct",)
        rows = 100 if run.startswith("toy") else 50
        config = toy_config(directory, rows=rows, models=roles, max_updates=12, evaluate_every=6)  # type: ignore[arg-type]
        for split, files in (("train", config.data.train), ("dev", config.data.dev)):
            file = directory / f"{split}.tsv"
            words = [line.split("\t")[0] for line in file.read_text(encoding="utf-8").splitlines()]
            # The copied part knows no letter u: the two vocabularies differ.
            lines = [
                f"{x}\t{task(x)}\t{name}\n"
                for name, task in TASKS.items()
                for x in (word.replace("u", "o") if name == "copied" else word for word in words)
            ]
            file.write_text("".join(lines), encoding="utf-8")
            assert files == [str(file)]
        config.data.columns = "input,output,group"
        config.run_dir, config.seed = str(self.runs / run), int(run[-1])
        return config
