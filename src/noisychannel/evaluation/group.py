"""The part of an evaluation that belongs to one group of a run: its models, and its test items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from noisychannel.data.codec import Codec
from noisychannel.data.rows import Row
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError
from noisychannel.evaluation.baselines import BASELINES
from noisychannel.evaluation.held_out import HeldOut, as_seen
from noisychannel.loading import load_systems
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.reporting import Reporter
from noisychannel.runs import RunDirectory
from noisychannel.weights import TunedSystem


@dataclass(frozen=True)
class EvaluationGroup:
    """The models of one group and its test items; a run without groups is one group."""

    name: str
    models: Sequence[NoisyChannel]
    """For each system."""
    held_out: HeldOut
    output_codec: Codec

    @staticmethod
    def load(
        name: str,
        run: RunDirectory,
        systems: Sequence[tuple[str, TunedSystem]],
        rows: Sequence[Row],
        file: str,
        references: Sequence[str],
        device: str,
        reporter: Reporter,
    ) -> EvaluationGroup:
        """``systems``: labels, and the systems as they were tuned for this group; ``references``: further files."""
        loaded: list[tuple[list[TunedSystem], NoisyChannel]] = []
        for together in _loadable_together([tuned for _, tuned in systems]):
            terms = {term: source for tuned in together for term, source in tuned.terms.items()}
            some = [tuned.system for tuned in together]
            loaded.append((together, load_systems(run, some, SearchSettings(), device, terms, reporter)))
        models = []
        for label, tuned in systems:
            model = next(model for together, model in loaded if tuned in together)
            try:
                models.append(model.reweighted(tuned.weights, tuned.settings, tuned.confidence))
            except ValueError as error:
                raise BadInputError(f"{label}: {error}") from error
        codec = models[0].output_codec
        return EvaluationGroup(name, models, HeldOut.read(file, rows, references, codec), codec)

    def answers(self, baseline: str, rows: Sequence[Row]) -> list[str]:
        """The outputs of a baseline, made from these training pairs; all text is treated as references are."""
        codec = self.output_codec
        answer = BASELINES[baseline](
            (as_seen(row.input, codec), as_seen(row.output, codec), row.features) for row in rows
        )
        questions = zip(self.held_out.inputs, self.held_out.features, strict=True)
        return [answer(as_seen(text, codec), features) for text, features in questions]


def _loadable_together(systems: Sequence[TunedSystem]) -> list[list[TunedSystem]]:
    """Systems of one proposing model in which a further term of one name is the same; they share loaded models."""
    groups: list[list[TunedSystem]] = []
    for tuned in systems:
        for group in groups:
            same = all(
                other.terms.get(name, source) == source for other in group for name, source in tuned.terms.items()
            )
            if same and group[0].system.proposer == tuned.system.proposer:
                group.append(tuned)
                break
        else:
            groups.append([tuned])
    return groups
