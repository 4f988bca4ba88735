"""YAML files of configurations: small, flat and plain, and refused at once if they are not.

Anchors and aliases may be used, also in merge keys. What a file would contain with every alias written out counts as
its size, so a few lines of aliases of aliases cannot become gigabytes. All of this is checked on the stream of events,
before anything is constructed.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from noisychannel.errors import BadInputError, cut, shortened

MOST_BYTES = 2**20
"""Of a file."""
MOST_NODES = 20_000
"""Keys, values and lists of a file, with aliases written out."""
DEEPEST = 20
"""Lists and sections inside each other."""


def load_yaml(file: Path) -> dict[str, Any]:
    """The keys and values of a YAML file."""
    text = _read(file)
    try:
        check_structure(text)
        loaded = yaml.load(text, _PlainLoader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise BadInputError(f"{file}:{line}: not valid YAML (a control character; is it a text file?)") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark else str(file)
        problem = cut(getattr(error, "problem", None) or "unreadable")
        raise BadInputError(f"{where}: not valid YAML ({problem})") from error
    if loaded is None:
        raise BadInputError(f"{file}: empty; copy one of the samples in configs/")
    if not isinstance(loaded, dict):
        raise BadInputError(f"{file}: must contain keys and values, like the samples in configs/")
    return loaded


def check_structure(text: str) -> None:
    """Refuse YAML that is large or deep once its aliases are written out, or that has tags."""
    sizes: dict[str, int] = {}
    heights: dict[str, int] = {}
    opened: list[_Opened] = []
    nodes = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise _refusal(event, f"the alias *{event.anchor} is in its own anchor, or has none before it")
            nodes += sizes[event.anchor]
            _nest(opened, heights[event.anchor], event)
        elif isinstance(event, yaml.NodeEvent):
            tag = getattr(event, "tag", None)
            if tag not in (None, "!"):
                raise _refusal(event, f"the tag {tag} is not used in configurations; remove it")
            if isinstance(event, yaml.CollectionStartEvent):
                opened.append(_Opened(event.anchor, nodes))
                _nest(opened, 0, event)
            elif event.anchor is not None:
                sizes[event.anchor], heights[event.anchor] = 1, 0
            nodes += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            ended = opened.pop()
            if ended.anchor is not None:
                sizes[ended.anchor], heights[ended.anchor] = nodes - ended.before, ended.height
            _nest(opened, ended.height, event)
        if nodes > MOST_NODES:
            raise _refusal(event, f"more than {MOST_NODES:,} keys and values, with aliases written out")


@dataclass
class _Opened:
    """A list or section that has not ended."""

    anchor: str | None
    before: int
    """Nodes before it."""
    height: int = 1
    """Lists and sections inside each other, this one included."""


def _nest(opened: Sequence[_Opened], height: int, event: Any) -> None:
    """Put something of that height into the innermost list or section."""
    if opened:
        opened[-1].height = max(opened[-1].height, 1 + height)
    if len(opened) + height > DEEPEST:
        raise _refusal(event, f"nested more than {DEEPEST} deep")


def _refusal(event: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def _read(file: Path) -> str:
    """The text of a file. One that is no regular file could block, or never end."""
    try:
        about = file.stat()
        text = "" if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_BYTES else file.read_text("utf-8")
    except OSError as error:
        raise BadInputError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{file}: not UTF-8") from error
    except ValueError as error:
        raise BadInputError(f"{cut(str(file))}: not the name of a file ({error})") from error
    if stat.S_ISDIR(about.st_mode):
        raise BadInputError(f"{file}: Is a directory; name the configuration file inside it")
    if not stat.S_ISREG(about.st_mode):
        raise BadInputError(f"{file}: not a regular file; write the configuration into one")
    if about.st_size > MOST_BYTES:
        raise BadInputError(
            f"{file}: larger than {MOST_BYTES / 2**20:.0f} MiB, so it is no configuration; see the samples in configs/"
        )
    return text


class _PlainLoader(yaml.SafeLoader):
    """YAML in which a duplicate key is an error and a date is text.

    The standard loader keeps the last value of a duplicate key and says nothing.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 (as PyYAML declares it)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError) as error:  # such as 0x_, or a whole number of 5,000 digits
            problem = f"{shortened(node.value)} is not a number that can be used"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                problem = "a key is a list or a section; a key must be a name"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            if key_node.value in seen:
                problem = f"duplicate key {key_node.value}"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)
