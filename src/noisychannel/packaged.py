"""The run that is part of the package: small models of German nouns, for ``noisychannel decode demo``.

``tools/packaged_model.py`` made it from the PyPI package german-nouns (CC BY-SA 4.0).
"""

from __future__ import annotations

from pathlib import Path

from noisychannel.errors import BadInputError

DEMO = "demo"
PLACE = Path(__file__).parent / "packaged_run"
EXAMPLES = ("Baum", "Lehrerin", "Schrulle", "Gebirgsbach", "Aktionismus", "Zeitung", "Stuhl", "Nebelhorn")
"""Inputs to try."""


def find_run(path: Path) -> Path:
    """The directory of a run. ``demo`` is the run of the package, unless there is such a directory."""
    return PLACE if path == Path(DEMO) and not path.exists() else path


def refuse_packaged(path: Path, what: str) -> None:
    """Refuse to change the run of the package."""
    if path.resolve() == PLACE.resolve():
        raise BadInputError(f"{DEMO}: is part of the package, and cannot be {what}; name a run of your own")
