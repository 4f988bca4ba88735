"""Systems of a run, ready to decode: as they were tuned, or several at once for tuning and evaluating."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from noisychannel.decode.objective import Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError, command_line
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.reporting import Reporter
from noisychannel.runs import RunDirectory
from noisychannel.systems import System
from noisychannel.weights import TermSource, own_terms, read_system, stale_systems, stale_warning


def load_tuned(
    run: RunDirectory,
    system: str | None,
    weights: Weights | None,
    overrides: Mapping[str, Any],
    device: str,
    reporter: Reporter,
) -> NoisyChannel:
    """A system of a run as it was tuned, but for weights and settings that the caller gives."""
    tuned = read_system(run, system)
    try:
        settings = tuned.settings.changed(**overrides)
        model = NoisyChannel.load(
            run, tuned.name if weights is None else system, weights or tuned.weights, settings, device
        )
    except ValueError as error:
        raise BadInputError(str(error)) from error
    if not tuned.record and weights is None and system is None:
        reporter.warn(
            f"{run.path}: not tuned, so the {tuned.name} model decodes alone; "
            f"for the others, first run {command_line('tune', run.path)}"
        )
    for warning in run.unfinished(model.models):
        reporter.warn(warning)
    if weights is None and (stale := stale_systems(run, [tuned])):
        reporter.warn(stale_warning(run, stale))
    return model


def load_systems(
    run: RunDirectory,
    systems: Sequence[System],
    settings: SearchSettings,
    device: str,
    terms: Mapping[str, TermSource],
    reporter: Reporter,
) -> NoisyChannel:
    """Every model and every further term that some of the systems (of one proposing model) need, loaded once."""
    roles = list(dict.fromkeys(role for system in systems for role in system.roles))
    known = {**own_terms(run), **terms}
    sources = {name: known[name] for system in systems for name in system.extra}
    weights = Weights(extra=dict.fromkeys(sources, 1.0))
    for warning in run.unfinished(roles):
        reporter.warn(warning)
    try:
        return NoisyChannel.load(run, None, weights, settings, device, roles, sources).reweighted(Weights())
    except ValueError as error:
        raise BadInputError(str(error)) from error
