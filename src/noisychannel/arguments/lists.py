"""Lists as people write them: names or files with commas between them."""

from __future__ import annotations

import glob
import os

from noisychannel.errors import BadInputError, shortened


def split_list(text: str, where: str) -> list[str]:
    """The items of ``a,b``. If there is a file of that name, or a glob finds one, the text is that one item.

    ``where``: the option or key, for messages.
    """
    if "," not in text or _names_a_file(text):
        return [text]
    items = [item.strip() for item in text.split(",")]
    if "" in items:
        raise BadInputError(f"{where}: something is missing beside a comma in {shortened(text)}; write a,b")
    return items


def option_name(key: str) -> str:
    """The option of a key as ``--help`` shows it: with dashes, although underscores are the same."""
    return f"--{key.replace('_', '-')}"


def _names_a_file(text: str) -> bool:
    try:
        path = os.path.expanduser(text)
        return os.path.exists(path) or (glob.has_magic(path) and bool(glob.glob(path, recursive=True)))
    except (OSError, ValueError):  # too long, or with a NUL character: another check says so
        return False
