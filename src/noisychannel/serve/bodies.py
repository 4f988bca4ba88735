"""Reading the body of a request within limits of size and time, before anything parses it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from noisychannel.serve.limits import Limits

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Scope: TypeAlias = MutableMapping[str, Any]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class RefusedBodyError(Exception):
    """A body that is not read to its end."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class ClientLeftError(Exception):
    """The client has closed the connection."""


async def read_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """The whole body. The size is checked while it arrives: a chunked body does not say how long it is."""
    too_large = RefusedBodyError(413, f"the request has more than {limits.max_body:,} bytes; send less at once")
    announced = header(scope, b"content-length")
    if announced.isdigit() and int(announced) > limits.max_body:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientLeftError
                body += message.get("body", b"")
                if len(body) > limits.max_body:
                    raise too_large
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        reason = f"the request did not arrive within {limits.body_seconds:g} s"
        raise RefusedBodyError(408, reason) from None


def replayed(body: bytes, receive: Receive) -> Receive:
    """A body that was read, as if it were still to come; then what the client does next, such as leaving."""
    first = True

    async def again() -> Message:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again


def header(scope: Scope, name: bytes) -> str:
    """The value of a header; empty if there is none."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")
