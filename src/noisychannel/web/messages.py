"""The messages between a server and an application (ASGI): their types, headers, and an answer in one line."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from ipaddress import ip_address
from typing import Any, TypeAlias

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Scope: TypeAlias = MutableMapping[str, Any]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def header(scope: Scope, name: bytes) -> str:
    """The value of a header; empty if there is none."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def host_name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def is_loopback(address: str) -> bool:
    """Whether an address, or the name of a host, is this machine alone."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address.lower() == "localhost"


async def refuse(send: Send, status: int, reason: str, headers: Mapping[str, str] = {}) -> None:
    """Answer with one line of JSON."""
    body = json.dumps({"error": reason}).encode("utf-8")
    given = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    start = [(name.encode("ascii"), value.encode("latin-1")) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})
