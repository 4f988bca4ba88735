"""What every request passes first: the size of its head, the host it names, its body's type, size and time.

A page of another site cannot use a server on loopback. It cannot name its own host (which DNS rebinding needs), and a
browser does not send it JSON without asking first (CORS), which is never allowed.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from noisychannel.web.bodies import ClientLeftError, RefusedBodyError, has_body, read_body, replayed
from noisychannel.web.messages import (
    HEAD_BYTES,
    ASGIApp,
    Message,
    Receive,
    Scope,
    Send,
    head_bytes,
    header,
    host_name,
    is_loopback,
    refuse,
)

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}
"""Of every answer that does not set them itself."""

Refusal: TypeAlias = tuple[int, str, Mapping[str, str]]
"""Status, reason and headers."""


def allowed_hosts(host: str, bound: socket.socket) -> frozenset[str] | None:
    """Names that requests may use for a server on this socket, which was asked for as ``host``.

    None for any: others know it by names of theirs. What counts is the address, since loopback has many spellings.
    """
    address: str = bound.getsockname()[0]
    if not is_loopback(address):
        return None
    asked = (host_name(f"[{one}]" if ":" in one else one) for one in (host, address))
    return LOOPBACK_NAMES | {one for one in asked if one}


class Guard:
    """Refuses requests before the application sees them. A failure of the application is status 500."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_body: int,
        body_seconds: float,
        hosts: Collection[str] | None = None,
        warn: Callable[[str], None] = lambda line: None,
    ) -> None:
        """``hosts``: names that requests may use for this server; any if not given. ``warn`` is told of failures."""
        self.app, self.max_body, self.body_seconds, self.warn = app, max_body, body_seconds, warn
        self.hosts = None if hosts is None else {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, unread = time.monotonic(), 0, has_body(scope)

        async def read() -> Message:
            nonlocal unread
            message = await receive()
            unread = unread and message.get("more_body", False)
            return message

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # A connection cannot be used again if the rest of a body is not read.
                _add_headers(message, HEADERS | ({"connection": "close"} if unread else {}))
            await send(message)

        try:
            if (refusal := self.refusal(scope)) is not None:
                await refuse(noted, *refusal)
            else:
                await self.admit(scope, read, noted)
        except Exception as error:
            self.warn(f"{scope['path']}: failed ({type(error).__name__}: {error})")
            if not status:
                await refuse(noted, 500, f"internal error ({type(error).__name__})")
        finally:
            self.answered(scope["path"], status, time.monotonic() - began)

    def refusal(self, scope: Scope) -> Refusal | None:
        """Why a request is refused for what its head says; None if it is not."""
        if head_bytes(scope) > HEAD_BYTES:  # the protocol counts only what it waits with, not a head that comes at once
            return 431, f"the head of the request has more than {HEAD_BYTES:,} bytes", {}
        if self.hosts is not None and host_name(header(scope, b"host")) not in self.hosts:
            return 421, "this server does not have the name in the Host header; use localhost or 127.0.0.1", {}
        media = header(scope, b"content-type").partition(";")[0].strip().lower()
        if scope["method"] == "POST" and media != "application/json":
            return 415, "send JSON, with the header Content-Type: application/json", {}
        return None

    async def admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, with its whole body."""
        if scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        try:
            body = await read_body(scope, receive, self.max_body, self.body_seconds)
            await self.app(scope, replayed(body, receive), send)
        except RefusedBodyError as error:
            await refuse(send, error.status, error.reason)
        except ClientLeftError:
            pass

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Called after each request. Status 0: the client left."""


def _add_headers(message: Message, headers: Mapping[str, str]) -> None:
    names = {name.lower() for name, _ in message["headers"]}
    missing = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
    message["headers"] = [*message["headers"], *(one for one in missing if one[0] not in names)]
