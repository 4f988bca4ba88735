"""Serving a page until the process is asked to stop."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from pathlib import Path

from noisychannel.errors import BadInputError, NoisyChannelError, missing_extra
from noisychannel.prefer.page import read_page
from noisychannel.prefer.ratings_file import RatingsFile

MOST_CONNECTIONS = 200
"""At a time; more are answered with 503, and the page tries again."""


def ratings_file(page: Path) -> Path:
    """Where the ratings of a page go if nothing else is asked for."""
    return page.with_suffix(".ratings.jsonl")


def serve_page(page: Path, ratings: Path | None, host: str, port: int, say: Callable[[str], None]) -> None:
    """Show the page at this address and store what raters say. ``port`` 0: any that is free."""
    record = read_page(page)
    try:
        import fastapi  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise missing_extra(error.name or "fastapi", "serve", "prefer serve") from None
    from noisychannel.prefer.app import make_app

    class Server(uvicorn.Server):
        """Says where it is when it listens, and when a signal stops it in order."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            announce()

    with RatingsFile(ratings or ratings_file(page), record) as store, _listening(host, port) as listening:
        config = uvicorn.Config(
            make_app(store),
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=5,
            server_header=False,
        )

        def announce() -> None:
            address = f"[{host}]" if ":" in host else host
            say(f"{len(record.items)} items at http://{address}:{listening.getsockname()[1]}/ (ctrl-C stops)")
            say(f"{store.count} ratings so far in {store.file}; new ones are added to it")
            if not _is_loopback(host):
                say("everyone who can reach this address can rate, under any name")

        Server(config).run(sockets=[listening])


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise BadInputError(f"--host: {host} is no address of this machine ({error.strerror})") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise NoisyChannelError(
                f"--port: {port} is in use; stop the other program, or give another port"
            ) from error
        if error.errno == errno.EACCES:
            raise BadInputError(f"--port: {port} is not allowed; give one above 1023") from error
        raise BadInputError(f"--host: cannot listen at {host}, port {port} ({error.strerror})") from error
    return listening


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")
