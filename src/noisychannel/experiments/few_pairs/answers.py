"""Outputs of systems that are no runs of the experiment: the character transformer, and ``fit`` as a user calls it.

They are made once for each part, and kept as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from noisychannel.atomic import write_text
from noisychannel.data.augment import AugmentConfig, augment
from noisychannel.evaluation.baselines import Answer
from noisychannel.experiments.few_pairs.scale import FewPairsScale
from noisychannel.experiments.few_pairs.tasks import Pair, Task, write_pairs, write_words
from noisychannel.experiments.few_pairs.transformer import train_transformer
from noisychannel.experiments.items import Item
from noisychannel.fitting.fit import fit
from noisychannel.fitting.options import FitOptions
from noisychannel.fitting.progress import Progress
from noisychannel.fitting.rules import MOST_REPEATED
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.reporting import Silent
from noisychannel.text import TextConfig

ANSWERED = ("transformer", "transformer+made_up", "fit")
"""Names of such systems, in the place of a baseline's."""


@dataclass(frozen=True)
class AnswerTask:
    """One system for one part. A process can be told to do it."""

    system: str
    task: Task
    file: Path
    scale: FewPairsScale
    made_up: int
    """Pairs that are made up, if the system is trained on some."""
    device: str


def write_answers(task: AnswerTask) -> str:
    """Train the system and keep its outputs of the dev and test items; a line about it."""
    items = [*task.task.dev, *task.task.test]
    outputs, about = _fit(task, items) if task.system == "fit" else _transformer(task, items)
    record = {
        "about": about,
        "outputs": [[item.input, item.features, text] for item, text in zip(items, outputs, strict=True)],
    }
    task.file.parent.mkdir(parents=True, exist_ok=True)
    write_text(task.file, json.dumps(record, ensure_ascii=False) + "\n")
    shown = ", ".join(f"{name} {value}" for name, value in about.items() if isinstance(value, str | int | float))
    return f"{task.system} {task.task.name}: {shown}"


def read_answers(file: Path) -> Answer:
    """The outputs by input and tags."""
    outputs = json.loads(file.read_text(encoding="utf-8"))["outputs"]
    by_input: dict[tuple[str, Hashable], str] = {(text, tuple(tags)): output for text, tags, output in outputs}
    return lambda text, tags: by_input[text, tags]


def _transformer(task: AnswerTask, items: Sequence[Item]) -> tuple[list[str], dict[str, Any]]:
    pairs, dev = list(task.task.train), [Pair(x.input, x.references[0], x.features) for x in task.task.dev]
    made: list[Pair] = []
    if task.system == "transformer+made_up":
        words = task.task.all_words()
        config = AugmentConfig(made_up=task.made_up)
        rows = augment(config, [x.row() for x in pairs], [x.row() for x in words], TextConfig(), TextConfig()).made_up
        made = [Pair(row.input, row.output, row.features) for row in rows]
        pairs = pairs * max(1, min(MOST_REPEATED, len(made) // len(pairs)))
    trained = train_transformer([*pairs, *made], dev, task.scale.opponent, task.device)
    about = {"dev accuracy": trained.dev_accuracy, "best update": trained.best_step, "made up": len(made)}
    asked = [Pair(item.input, "", item.features) for item in items]
    return trained.decode(asked), {**about, "settings": asdict(task.scale.opponent)}


def _fit(task: AnswerTask, items: Sequence[Item]) -> tuple[list[str], dict[str, Any]]:
    """``fit`` on the pairs and the words alone; the dev items are only decoded, like those of test."""
    about, place, planned = task.task, task.file.parent / task.task.name, task.scale.planned
    place.mkdir(parents=True, exist_ok=True)
    options = FitOptions(
        pairs=write_pairs(place / "pairs.tsv", about.train, about.tagged),
        words=[write_words(place / "words.tsv", about.all_words(), about.tagged)],
        columns="input,output,features" if about.tagged else "input,output",
        word_columns="features,output" if about.tagged else "output",
        run_dir=str(place / "run"),
        device=task.device,
        minutes=task.scale.minutes,
        made_up=planned.get("made_up"),
        inputs=planned.get("words_given_inputs"),
    )
    done = fit(options, _Quiet()).done
    model = NoisyChannel.load(options.place, device=task.device)
    outputs = model.batch([x.input for x in items], 1, [x.features for x in items], task.scale.decoding_batch)
    estimates = {estimate.system: estimate.score for estimate in done.estimates}
    return [best[0].text for best in outputs], {"system": done.default, "estimates": estimates, "seconds": done.seconds}


class _Quiet(Silent):
    """Nobody listens to ``fit``."""

    def say(self, line: str) -> None:
        return None

    def progress(self, progress: Progress) -> None:
        return None
