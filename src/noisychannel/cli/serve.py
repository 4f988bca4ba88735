"""``noisychannel serve [RUN …]``."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import Annotated

from noisychannel.arguments import Bounds, parse_options
from noisychannel.cli.progress import TerminalReporter
from noisychannel.cli.standard_streams import say
from noisychannel.errors import BadInputError, missing_extra
from noisychannel.serve.limits import Limits

TOKEN = "NOISYCHANNEL_TOKEN"
USAGE = f"""usage: noisychannel serve [RUN …] [--host 127.0.0.1] [--port 8000] [--token TEXT]

Serve runs: a page at /, a JSON interface below /api/ (see /docs), /healthz and /metrics. Without RUN it serves the
small run of the package. A run is called by the name of its directory; NAME=RUN calls it otherwise. The first is the
default.

On standard error there is one line with the address when the server is ready. Only this machine can reach it, unless
--host says otherwise. With a token (--token, or {TOKEN} in the environment, which other users do not see),
requests to /api/ and /metrics need the header Authorization: Bearer TOKEN. A signal ends the server: it answers what
it has accepted, and takes nothing new.

example:
  noisychannel serve
  noisychannel serve runs/mine nouns=runs/other --port 0
  curl -H 'Content-Type: application/json' -d '{{"input": "Baum", "n_best": 3}}' http://127.0.0.1:8000/api/decode
"""


@dataclass(frozen=True, kw_only=True)
class ServeCommand(Limits):
    """Options of serve.

    Args:
        runs: Run directories, or NAME=RUN; the run of the package if not given.
        host: The address to listen on.
        port: The port to listen on; 0 takes any that is free.
        token: What clients must know.
        device: auto takes a GPU if there is one.
    """

    runs: list[str] = field(default_factory=list)
    host: str = "127.0.0.1"
    port: Annotated[int, Bounds(least=0, most=65535)] = 8000
    token: str | None = None
    device: str = "auto"


def run(words: list[str]) -> int:
    options = parse_options(ServeCommand, words, ("runs*",), USAGE)
    token = options.token or os.environ.get(TOKEN) or None
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise BadInputError("--token: must be printable ASCII without spaces; it is sent in a header")
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise missing_extra("fastapi and uvicorn", "serve", "serve") from error
    from noisychannel.serve.hosting import Hosting

    limits = Limits(**{one.name: getattr(options, one.name) for one in fields(Limits)})
    hosting = Hosting(options.host, options.port, token, limits, TerminalReporter())
    hosting.serve(options.runs, options.device, lambda address: say(f"noisychannel: serving on {address}"))
    return 0
