"""Reading the body of a request within limits of size and time, before anything parses it."""

from __future__ import annotations

import asyncio

from noisychannel.web.messages import Message, Receive, Scope, header


class RefusedBodyError(Exception):
    """A body that is not read to its end."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class ClientLeftError(Exception):
    """The client has closed the connection."""


def has_body(scope: Scope) -> bool:
    """Whether the head of a request announces a body."""
    return bool(header(scope, b"transfer-encoding") or header(scope, b"content-length").strip("0"))


async def read_body(scope: Scope, receive: Receive, most: int, seconds: float) -> bytes:
    """The whole body. The size is checked while it arrives: a chunked body does not say how long it is."""
    too_large = RefusedBodyError(413, f"the request has more than {most:,} bytes; send less at once")
    announced = header(scope, b"content-length")
    if announced.isdigit() and int(announced) > most:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientLeftError
                body += message.get("body", b"")
                if len(body) > most:
                    raise too_large
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        reason = f"the request did not arrive within {seconds:g} s"
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
