"""Outputs with everything behind them: all terms, how probable each alignment point is, the tree of the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.memory import Refuse
from noisychannel.decoded_line import DecodedLine, output_record
from noisychannel.ids import EOS
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.outputs import Output
from noisychannel.serve.posteriors import posteriors, transposed
from noisychannel.serve.tasks import Task
from noisychannel.serve.tree import SearchTrees, tree_record

MOST_POINTS = 100_000
"""Alignment points of one answer; outputs beyond them have none."""


class Explainer:
    """Explains outputs of one system."""

    def __init__(self, model: NoisyChannel, every: NoisyChannel, batch_size: int) -> None:
        """``every``: the same models, with a weight for each term, so that all of them are computed."""
        self.model, self.every, self.batch_size = model, every, batch_size

    def explained(self, tasks: Sequence[Task], n_best: int, refuse: Refuse) -> list[dict[str, Any]]:
        """Decoded inputs."""
        model, trees = self.model, SearchTrees()
        found = model.batch(
            [task.text for task in tasks],
            n_best,
            [task.features for task in tasks],
            self.batch_size,
            refuse=refuse,
            watch=trees if model.proposer == "direct" else None,
        )
        answers = []
        for n, (task, outputs) in enumerate(zip(tasks, found, strict=True)):
            outputs = self._with_all_terms(task, outputs)
            answer = self._answer(task, outputs)
            if model.proposer == "direct":
                tokens = [output.hypothesis.tokens for output in outputs if output.hypothesis.complete]
                answer["tree"] = tree_record(trees.nodes(n), tokens, model.output_codec.names)
            answers.append(answer)
        return answers

    def scored(self, tasks: Sequence[Task], refuse: Refuse) -> list[dict[str, Any]]:
        """Given outputs, in the given order."""
        encode = self.model.output_codec.encode
        ids = [[encode(output)[:-1] for output in task.outputs] for task in tasks]
        texts, features = [task.text for task in tasks], [task.features for task in tasks]
        found = self.model.score_ids(texts, ids, features, align=True, refuse=refuse)
        answers = []
        for task, hypotheses in zip(tasks, found, strict=True):
            outputs = [Output(text, one) for text, one in zip(task.outputs, hypotheses, strict=False)]
            answers.append(self._answer(task, self._with_all_terms(task, outputs)))
        return answers

    def _with_all_terms(self, task: Task, outputs: list[Output]) -> list[Output]:
        """Outputs with the terms that have no weight, too. Scores stay."""
        whole = [output.hypothesis for output in outputs if output.hypothesis.complete]
        if not whole:
            return outputs
        (scored,) = self.every.score_ids([task.text], [[one.tokens for one in whole]], [task.features])
        more = {id(one): other for one, other in zip(whole, scored, strict=True)}
        return [output._replace(hypothesis=_filled(output.hypothesis, more)) for output in outputs]

    def _answer(self, task: Task, outputs: list[Output]) -> dict[str, Any]:
        model = self.model
        unknown = model.input_codec.unknown(task.text, task.features)
        symbols = model.input_symbols(task.text, task.features)
        record = DecodedLine(task.text, outputs, unknown, symbols).record(model)
        context = [model.output_codec.names[i] for i in model.context(task.features)]
        hypotheses = [
            {
                **output_record(output, model),
                "output_symbols": model.output_symbols(output),
                "weighed": output.hypothesis.weighed(),
                "posteriors": points,
            }
            for output, points in zip(outputs, self._posteriors(task, outputs), strict=True)
        ]
        return {
            "input": task.text,
            "features": list(task.features),
            **record,
            "context_symbols": context,
            "hypotheses": hypotheses,
        }

    def _posteriors(self, task: Task, outputs: list[Output]) -> list[dict[str, Any] | None]:
        """Of each output, with a row for each input symbol and a column for each output symbol, both with EOS. The
        channel's columns begin with the context."""
        model, context = self.model, self.model.context(task.features)
        ids = model.input_codec.encode(task.text, task.features)
        ends = [(*output.hypothesis.tokens, EOS) for output in outputs]
        points, shown = 0, 0
        for output, end in zip(outputs, ends, strict=True):
            points += 2 * len(ids) * (len(end) + len(context))
            if points > MOST_POINTS or not output.hypothesis.complete:
                break
            shown += 1
        some = ends[:shown]
        found: list[dict[str, Any] | None] = [{"direct": None, "channel": None} for _ in some]
        direct, channel = model.models[model.proposer], model.models.get("channel")
        if hasattr(direct, "alignments"):
            for n, one in enumerate(posteriors(direct, [ids] * shown, some, model.settings)):
                found[n]["direct"] = one  # type: ignore[index]
        if channel is not None:
            read = [(*context, *end) for end in some]
            for n, one in enumerate(posteriors(channel, read, [ids] * shown, model.settings)):
                found[n]["channel"] = transposed(one)  # type: ignore[index]
        return found + [None] * (len(outputs) - shown)


def _filled(one: Hypothesis, more: dict[int, Hypothesis]) -> Hypothesis:
    """With the terms of another scoring of the same output in place of those that were not computed."""
    if id(one) not in more:
        return one
    other = more[id(one)]
    channel = other.channel if one.channel is None else one.channel
    lm = other.lm if one.lm is None else one.lm
    return replace(one, channel=channel, lm=lm, extra={**other.extra, **one.extra})
