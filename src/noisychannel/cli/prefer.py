"""``noisychannel prefer``: a page for raters (A B), its server (serve), and the count of the ratings (tally)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from noisychannel.arguments import asks_for_help, describe_keys, parse_options
from noisychannel.atomic import write_text
from noisychannel.data.files import find_files
from noisychannel.errors import BadInputError, command_line
from noisychannel.prefer.options import PageOptions, ServeOptions, TallyOptions

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
    from noisychannel.cli.progress import TerminalReporter
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
    ratings = read_ratings(options.ratings, key, options.allow_artificial, TerminalReporter().warn)
    tally = Tally.of(key, ratings)
    if options.json != "-":
        print(tally.text(options.paper))
    if options.json is not None:
        content = json.dumps(tally.record(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
        sys.stdout.write(content) if options.json == "-" else write_text(Path(options.json), content)
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
