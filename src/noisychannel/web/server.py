"""A server in this process, from its socket to its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.processes import Interruption, interruption
from noisychannel.web.messages import HEAD_BYTES, ASGIApp
from noisychannel.web.protocol import PatientProtocol

KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than clients and proxies keep theirs, so that they close first. A
request that is sent while the server closes is lost."""


class Server(uvicorn.Server):
    """Ends when it is asked to: what was accepted is answered within some seconds."""

    asked: Interruption | None = None

    def __init__(self, app: ASGIApp, shutdown_seconds: float, ready: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            http=PatientProtocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE,
            h11_max_incomplete_event_size=HEAD_BYTES,
            timeout_graceful_shutdown=round(shutdown_seconds),
        )
        super().__init__(config)
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()

    async def on_tick(self, counter: int) -> bool:
        if self.asked is not None and self.asked.is_set():
            self.should_exit = True
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the caller does that

    def finish(self) -> None:
        """Called when nothing is answered any more, whatever ended it."""


def bind(host: str, port: int) -> socket.socket:
    """A socket that is bound, so that nobody else takes the port while models are loaded."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise BadInputError(f"--host: {host!r} is not a host of this machine; try 127.0.0.1") from error
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise _refused(host, port, error) from error
    return bound


def _refused(host: str, port: int, error: OSError) -> NoisyChannelError:
    match error.errno:
        case errno.EADDRINUSE:
            return NoisyChannelError(f"--port: {port} is in use on {host}; choose another one, or 0 for any free port")
        case errno.EACCES:
            return BadInputError(f"--port: {port} needs more rights; choose one above 1023")
        case errno.EADDRNOTAVAIL:
            return BadInputError(f"--host: {host} is not an address of this machine; try 127.0.0.1")
    return NoisyChannelError(f"cannot listen on {host}, port {port}: {error.strerror}")


def address_of(bound: socket.socket) -> str:
    """The address of a bound socket, for a browser."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def answer_requests(server: Server, bound: socket.socket) -> None:
    """Answer requests until a signal asks to stop; the signal then goes on to whom it was meant for."""
    host, port = bound.getsockname()[:2]
    try:
        bound.listen(2048)
    except OSError as error:
        raise _refused(host, port, error) from error
    logging.getLogger("uvicorn.error").addHandler(logging.NullHandler())
    logging.getLogger("uvicorn.error").propagate = False
    with interruption() as asked:
        server.asked = asked
        run: Any = server.serve(sockets=[bound])
        try:
            asyncio.run(run)
        finally:
            server.finish()
        if asked.is_set():
            asked.leave()
