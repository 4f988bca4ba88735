"""Historical spelling, one experiment for each text.

    normalisation-anselm     German, 14th to 16th century
    normalisation-bohoric    Slovene, 18th and 19th century

The parts are test and dev; both are decoded with the same models, each distinct input once. The models are planned as
``fit`` plans them for the tokens of a sample and the words. Weights are tuned for each number of tokens, on tokens that
are spread over dev, with the models of the first sample. All samples and sizes of a text share the language model and
the word list of a setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from noisychannel.experiments.design import Design, Plot
from noisychannel.experiments.few_pairs.experiment import FewPairs
from noisychannel.experiments.few_pairs.specs import RunSpec
from noisychannel.experiments.few_pairs.tasks import Task, Word
from noisychannel.experiments.items import Item, Part
from noisychannel.experiments.normalisation import cited
from noisychannel.experiments.normalisation.cited import Text
from noisychannel.experiments.normalisation.data import (
    FILES,
    OPEN,
    NormalisationData,
    counted_items,
    make_task,
    memorised_accuracies,
    read_data,
    sampled_inputs,
)
from noisychannel.experiments.normalisation.rows import (
    BLOCKS,
    DIRECT,
    FULL,
    MEMORISED,
    NO_CHANNEL,
    with_tokens,
)
from noisychannel.experiments.normalisation.scale import QUICK, NormalisationScale
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.settings import Setup

EXAMPLES_AT = 1_000
"""Tokens of the systems whose outputs are shown."""
RESAMPLES = 1_000


def _design(text: Text, about: str) -> Design:
    lines = {of.name: of.name for of in (FULL, NO_CHANNEL, DIRECT, MEMORISED)}
    shown = [with_tokens(of, EXAMPLES_AT).label for of in (NO_CHANNEL, FULL)]
    return Design(
        name=f"normalisation-{text}",
        about=about,
        blocks=BLOCKS,
        quick_blocks=("open",),
        average="separate",
        part_noun="set",
        seed_noun="sample",
        seen_apart=True,
        resamples=RESAMPLES,
        baselines={"memorised": MEMORISED.name, "no channel": NO_CHANNEL.name},
        cited=cited.cited_rows(text),
        examples=(shown[0], shown[1]),
        plots=(Plot("tokens", "pairs", "training tokens", lines, OPEN, cited=cited.curves(text)),),
    )


DESIGNS: dict[Text, Design] = {
    "anselm": _design("anselm", "historical German spelling to modern, 100 to 10,000 tokens, and a list of words"),
    "bohoric": _design("bohoric", "historical Slovene spelling to modern, 100 to 10,000 tokens, and a list of words"),
}


class Normalisation(FewPairs):
    """The experiment of one text."""

    scale: NormalisationScale

    def __init__(
        self,
        design: Design,
        task: Task,
        dev: tuple[Item, ...],
        setup: Setup,
        scale: NormalisationScale,
        memorised: Mapping[int, list[float]],
    ) -> None:
        """``dev``: all dev items, counted; those of the task are single tokens, to tune on.

        ``memorised``: by size, the test accuracy of memorised outputs with each sample of the publication.
        """
        super().__init__(design, [task], setup, replace(scale, words=None))
        (self._task,) = self.tasks.values()
        self.parts = Part("test", self._task.dev, self._task.test), Part("dev", (), dev)
        self.tuning_parts = self.parts[:1]
        self._memorised = memorised

    def task(self, part: Part) -> Task:
        return self._task

    def rows(self, block: str) -> list[SystemRow]:
        return [row for row in self.design.blocks[block] if row.pairs in self.scale.sizes]

    def run_name(self, row: SystemRow, role: str, seed: int) -> str:
        """A language model and its word list depend on no sample."""
        spec = RunSpec.parse(super().run_name(row, role, seed))
        if spec.role == "lm":
            spec = spec._replace(seed=self.scale.seeds[0])
        return spec.name

    def spelt_words(self, part: str) -> list[Word]:
        """The first word with each symbol: all words take long to read."""
        words = self._task.all_words()
        first = {symbol: word for word in reversed(words) for symbol in word.output}
        return [word for word in words if any(first[symbol] is word for symbol in word.output)]

    def data_record(self) -> dict[str, Any]:
        held_out = {part.name: part.test for part in self.parts}
        return {
            **super().data_record(),
            "tokens": {name: sum(item.count for item in items) for name, items in held_out.items()},
            "memorised outputs, test, samples of the publication": {
                f"{size} tokens": {"samples": len(accuracies), "mean": round(fmean(accuracies), 2)}
                for size, accuracies in self._memorised.items()
            },
            "distinct inputs": {name: len({item.input for item in items}) for name, items in held_out.items()},
        }

    def settings_record(self) -> dict[str, Any]:
        """With the plan of each size, for the first sample."""
        first = self.scale.seeds[0]
        specs = {size: RunSpec("direct", "rule", size, None, OPEN, first) for size in self.scale.sizes}
        plans = {str(size): self.plan(spec, self._task.name).reasons for size, spec in specs.items()}
        return {**super().settings_record(), "plans": plans}

    @property
    def tuning_record(self) -> str:
        return (
            f"on {len(self._task.dev):,} tokens spread evenly over dev, for each number of training tokens, with the "
            "models of the first sample, and shared by all samples"
        )


def make_normalisation(text: Text, setup: Setup, quick: bool) -> Normalisation:
    scale = QUICK if quick else NormalisationScale()
    train = max(scale.sizes) * max(scale.seeds)
    return of_data(text, read_data(setup.data, text, train, scale.tokens, scale.words), setup, scale)


def of_data(text: Text, data: NormalisationData, setup: Setup, scale: NormalisationScale) -> Normalisation:
    inputs = sampled_inputs(data.train, scale.sizes, scale.seeds)
    task, dev = make_task(FILES[text], data, inputs, scale.dev), counted_items(data.dev, inputs)
    memorised = {size: memorised_accuracies(data, size) for size in scale.sizes}
    return Normalisation(DESIGNS[text], task, dev, setup, scale, memorised)
