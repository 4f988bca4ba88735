"""A server in this process, from its socket to its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.processes import Interruption, interruption
from noisychannel.serve.app import Guarded
from noisychannel.serve.limits import Limits

HEAD_SECONDS = 10.0
"""How long a client may take to send the head of a request, or to begin."""
HEAD_BYTES = 16 * 1024
KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than clients and proxies keep theirs, so that they close first. A
request that is sent while the server closes is lost."""
MARGIN = 5.0
"""Seconds after the answers within which clients must have read them when the server stops."""


class PatientProtocol(H11Protocol):
    """Closes connections whose next request does not come, or comes too slowly: uvicorn waits for ever."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait_for_head()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Server(uvicorn.Server):
    """Ends when it is asked to: what was accepted is answered, and new requests are refused."""

    def __init__(self, app: Guarded, limits: Limits, ready: Callable[[], None]) -> None:
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
            timeout_graceful_shutdown=round(limits.shutdown_seconds + MARGIN),
        )
        super().__init__(config)
        self.asked: Interruption | None = None
        self.service, self.limits, self.ready = app.service, limits, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()

    async def on_tick(self, counter: int) -> bool:
        if self.asked is not None and self.asked.is_set():
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.stop()
        joined = asyncio.create_task(self._join())
        await super().shutdown(sockets)
        self.left = await joined

    async def _join(self) -> int:
        """Not in a thread: the loop would wait for that although a second signal has come."""
        end = time.monotonic() + self.limits.shutdown_seconds
        while self.service.busy and time.monotonic() < end:
            await asyncio.sleep(0.02)
        return self.service.join(0.0)

    left = 0
    """Inputs that were accepted and not answered."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the caller does that


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


def serve(
    app: Guarded,
    bound: socket.socket,
    limits: Limits,
    ready: Callable[[], None] = lambda: None,
    warn: Callable[[str], None] = lambda line: None,
) -> None:
    """Answer requests until a signal asks to stop; the signal then goes on to whom it was meant for."""
    host, port = bound.getsockname()[:2]
    try:
        bound.listen(2048)
    except OSError as error:
        raise _refused(host, port, error) from error
    logging.getLogger("uvicorn.error").addHandler(logging.NullHandler())
    logging.getLogger("uvicorn.error").propagate = False
    server = Server(app, limits, ready)
    with interruption() as asked:
        server.asked = asked
        run: Any = server.serve(sockets=[bound])
        try:
            asyncio.run(run)
        finally:
            app.service.abandon()
        if server.left:
            warn(f"{server.left} inputs were not answered within {limits.shutdown_seconds:g} s")
        if asked.is_set():
            asked.leave()
