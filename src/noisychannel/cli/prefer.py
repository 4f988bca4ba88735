"""``noisychannel prefer``: a page for raters (A B), its server (serve), and the count of the ratings (tally)."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from noisychannel.arguments import Bounds, Count, Seed, asks_for_help, describe_keys, parse_options
from noisychannel.atomic import write_text
from noisychannel.data.files import find_files
from noisychannel.errors import BadInputError, command_line

USAGE = """usage: noisychannel prefer A B --page PAGE.html [--items 100] [--seed 1] [--show-references]
       noisychannel prefer serve PAGE.html [--ratings FILE] [--host 127.0.0.1] [--port 8001]
       noisychannel prefer tally RATINGS… --key PAGE.key.json [--paper] [--json FILE]

Let people compare the outputs of two systems, blindly.

prefer A B    writes one HTML file for raters, and beside it PAGE.key.json, which says which output is of which system.
              Raters get the page alone. A and B are FILE or FILE:SYSTEM: a file of evaluate --outputs and a system, an
              .outputs.jsonl.xz file of reproduce and a row, or plain lines of outputs with --inputs. Items on which the
              outputs are the same are counted, and not shown.
prefer serve  shows the page at an address of this machine, and adds every rating to a file. It needs the extra serve.
prefer tally  counts ratings, of one or several raters, as the paper's Table 3 does: a segment counts with at least two
              raters, at least half of them agreed, and one label in plurality. With agreement and a sign test.

examples:
  noisychannel prefer outputs.tsv:direct outputs.tsv:direct+channel+lm --page page.html
  noisychannel prefer a.txt b.txt --inputs inputs.txt --page page.html --items 50
  noisychannel prefer serve page.html
  noisychannel prefer tally ratings-*.jsonl --key page.key.json
"""


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Options of prefer A B.

    Args:
        a: The outputs of one system, FILE or FILE:SYSTEM.
        b: Those of the other.
        page: The page to write.
        items: At most so many items.
        seed: Which items are drawn. It does not decide which system is first; nobody can guess that.
        parts: Only items of these parts or groups, separated by commas. Default: all.
        question: What raters are asked.
        show_references: Show raters what is right.
        inputs: Of plain lines of outputs, the file of their inputs.
        references: Files of references, parallel to these inputs; shown to the raters.
    """

    a: str = ""
    b: str = ""
    page: str = ""
    items: Count = 100
    seed: Seed = 1
    parts: list[str] = field(default_factory=list)
    question: str = "Which output is better?"
    show_references: bool = False
    inputs: str | None = None
    references: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Options of prefer serve.

    Args:
        page: The page.
        ratings: The file of ratings. Default: PAGE.ratings.jsonl.
        host: The address to listen at; 0.0.0.0 for all of this machine.
        port: The port; 0 takes one that is free.
    """

    page: str = ""
    ratings: str | None = None
    host: str = "127.0.0.1"
    port: Annotated[int, Bounds(least=0, most=65535)] = 8001


@dataclass(frozen=True, kw_only=True)
class TallyOptions:
    """Options of prefer tally.

    Args:
        ratings: Files of ratings.
        key: The key of the rated page.
        paper: Also print the figures of the paper, as a citation.
        allow_artificial: Count ratings that a trial or a test made, and say so.
        json: Also write everything there, with each segment; - is standard output, and the table is left out.
    """

    ratings: list[str] = field(default_factory=list)
    key: str = ""
    paper: bool = False
    allow_artificial: bool = False
    json: str | None = None


def run(words: list[str]) -> int:
    if asks_for_help(words):
        parts = {"A B": PageOptions, "serve": ServeOptions, "tally": TallyOptions}
        shown = [f"options of prefer {name}:\n{describe_keys(cls)}" for name, cls in parts.items()]
        print(USAGE + "\n" + "\n\n".join(shown))
        return 0
    match words[:1]:
        case ["serve"]:
            return _serve(parse_options(ServeOptions, words[1:], ("page",)))
        case ["tally"]:
            return _tally(parse_options(TallyOptions, words[1:], ("ratings*",)))
        case _:
            return _page(parse_options(PageOptions, words, ("a", "b")))


def _page(options: PageOptions) -> int:
    from noisychannel.prefer.key import key_file
    from noisychannel.prefer.outputs import OutputReader, PlainText
    from noisychannel.prefer.page import check_new, make_page, write_page
    from noisychannel.prefer.pairing import compare

    if not (options.a and options.b and options.page):
        raise BadInputError("prefer needs two files of outputs and a page to write: prefer A B --page page.html")
    if options.references and not options.inputs:
        raise BadInputError("--references: parallel to the inputs of plain lines; give --inputs, or --show-references")
    if not options.question.strip():
        raise BadInputError("--question: must not be empty; ask something, or leave it out")
    file = Path(options.page)
    check_new(file)
    reader = OutputReader(PlainText(options.inputs or "", tuple(options.references)))
    a, b = reader.read(options.a), reader.read(options.b)
    comparison = compare(a, b, options.items, options.seed, options.parts or None)
    show = options.show_references or bool(options.references)
    write_page(file, *make_page(comparison, options.question, show))
    print(
        f"{file}: {len(comparison.pairs)} of {comparison.differing} items on which the outputs differ; on "
        f"{comparison.equal} of {comparison.common} they are the same\n"
        f"{key_file(file)}: which output is of which system; raters must not see it\n"
        f"serve it: {command_line('prefer', 'serve', file)}, or send the page to the raters\n"
        f"then count: {command_line('prefer', 'tally', 'RATINGS', '--key', key_file(file))}"
    )
    return 0


def _serve(options: ServeOptions) -> int:
    from noisychannel.prefer.serving import serve_page

    if not options.page:
        raise BadInputError("prefer serve needs a page: noisychannel prefer serve page.html")
    ratings = Path(options.ratings) if options.ratings else None
    serve_page(Path(options.page), ratings, options.host, options.port, _say)
    return 0


def _tally(options: TallyOptions) -> int:
    from noisychannel.prefer.key import Key
    from noisychannel.prefer.ratings import read_ratings
    from noisychannel.prefer.tally import Tally

    if not (options.ratings and options.key):
        raise BadInputError(
            "prefer tally needs ratings and a key: noisychannel prefer tally RATINGS --key page.key.json"
        )
    if options.json not in (None, "-"):
        file = Path(str(options.json))
        if file.is_dir() or not file.parent.is_dir():
            raise BadInputError(f"--json: {file} cannot be a file; name one in an existing directory")
        if file.exists() and any(file.samefile(other) for other in (*find_files(options.ratings), Path(options.key))):
            raise BadInputError(f"--json: {file} is a file that is read; name another file")
    key = Key.read(Path(options.key))
    tally = Tally.of(key, read_ratings(options.ratings, key, options.allow_artificial))
    if options.json != "-":
        print(tally.text(options.paper))
    if options.json is not None:
        content = json.dumps(tally.record(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
        sys.stdout.write(content) if options.json == "-" else write_text(Path(options.json), content)
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
