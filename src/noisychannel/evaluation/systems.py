"""Which systems of a run are evaluated, with which search, and with what each is compared.

A fair comparison uses the same search. The direct model is therefore decoded with the search of the system that it is
compared with; if the systems were tuned with different searches, once with each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError
from noisychannel.runs import RunDirectory
from noisychannel.weights import TunedSystem, read_system

DIRECT = "direct"
Searches: TypeAlias = tuple[SearchSettings, ...]
"""One for each group."""


@dataclass(frozen=True)
class ComparedSystem:
    """A system to decode with."""

    label: str
    """Its name, and for one of several direct models its search."""
    tuned: tuple[TunedSystem, ...]
    """One for each group; a run without groups is one."""
    compared_with: str | None
    """The label of a direct model; None for a direct model itself."""


def compared_systems(
    runs: Sequence[RunDirectory], names: Sequence[str], k1: int | None, k2: int | None
) -> list[ComparedSystem]:
    """The systems of these names, after the direct models that they are compared with, if the runs have any."""
    has_direct = all(run.has_model(DIRECT) for run in runs)
    wanted = dict.fromkeys([*([DIRECT] if has_direct else []), *(read_system(runs[0], name).name for name in names)])
    tuned = {name: tuple(_widened(read_system(run, name), k1, k2) for run in runs) for name in wanted}
    if not has_direct:
        return [ComparedSystem(name, systems, None) for name, systems in tuned.items()]
    direct = tuned.pop(DIRECT)
    searches = {name: tuple(system.settings.for_direct() for system in systems) for name, systems in tuned.items()}
    labels = _labels(list(dict.fromkeys(searches.values())) or [tuple(system.settings for system in direct)])
    alone = [
        ComparedSystem(label, tuple(d.searching(s) for d, s in zip(direct, search, strict=True)), None)
        for search, label in labels.items()
    ]
    return alone + [ComparedSystem(name, systems, labels[searches[name]]) for name, systems in tuned.items()]


def _widened(system: TunedSystem, k1: int | None, k2: int | None) -> TunedSystem:
    """The system with another width of its search; a width that is not given follows the other if it must."""
    given = {name: value for name, value in (("k1", k1), ("k2", k2)) if value is not None}
    try:
        return system.searching(system.settings.changed(**given))
    except ValueError as error:
        raise BadInputError(f"{system.name}: {error}") from error


def _labels(distinct: Sequence[Searches]) -> Mapping[Searches, str]:
    """The name of the direct model for each search; if there are several, with the settings that differ."""
    if len(distinct) == 1:
        return {distinct[0]: DIRECT}
    shown = [{name: _shown(searches, name) for name in asdict(searches[0])} for searches in distinct]
    telling = [name for name in shown[0] if len({each[name] for each in shown}) > 1]
    return {
        searches: f"{DIRECT} ({', '.join(f'{name} {each[name]}' for name in telling)})"
        for searches, each in zip(distinct, shown, strict=True)
    }


def _shown(searches: Searches, name: str) -> str:
    """A setting, once if all groups have the same."""
    values = dict.fromkeys(str(getattr(search, name)) for search in searches)
    return "/".join(values)
