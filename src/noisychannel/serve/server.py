"""The server of runs: when it ends, what its runs have accepted is answered."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

from noisychannel.serve.app import Guarded
from noisychannel.serve.limits import Limits
from noisychannel.web.server import Server

MARGIN = 5.0
"""Seconds after the answers within which clients must have read them when the server stops."""


class RunsServer(Server):
    """Ends when it is asked to: what was accepted is answered, and new requests are refused."""

    left = 0
    """Inputs that were accepted and not answered."""

    def __init__(
        self,
        app: Guarded,
        limits: Limits,
        ready: Callable[[], None] = lambda: None,
        warn: Callable[[str], None] = lambda line: None,
    ) -> None:
        super().__init__(app, limits.shutdown_seconds + MARGIN, ready)
        self.service, self.limits, self.warn = app.service, limits, warn

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

    def finish(self) -> None:
        self.service.abandon()
        if self.left:
            self.warn(f"{self.left} inputs were not answered within {self.limits.shutdown_seconds:g} s")
