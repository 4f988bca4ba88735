"""The messages between a server and an application (ASGI): their types, headers, and an answer in one line."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from ipaddress import IPv6Address, ip_address
from typing import Any, TypeAlias

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Scope: TypeAlias = MutableMapping[str, Any]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

HEAD_BYTES = 16 * 1024
"""Most bytes of the head of a request."""

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9A-Za-z._~-]+))(?::[0-9]{0,5})?")


def header(scope: Scope, name: bytes) -> str:
    """The value of a header; empty if there is none."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def head_bytes(scope: Scope) -> int:
    """About how long the head of a request was: its target and headers, without spaces that mean nothing."""
    target = len(scope.get("raw_path") or b"") + len(scope.get("query_string", b""))
    return target + sum(len(name) + len(value) + len(": \r\n") for name, value in scope["headers"])


def host_name(host: str) -> str:
    """The name or the address in a Host header, without its port, in one spelling; empty if it is neither."""
    found = _HOST.fullmatch(host)
    if found is None:
        return ""
    address, name = found.groups()
    if name is not None:
        return str(name).lower()
    try:
        return str(IPv6Address(address))
    except ValueError:
        return ""


def is_loopback(address: str) -> bool:
    """Whether an address is this machine alone."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback


async def refuse(send: Send, status: int, reason: str, headers: Mapping[str, str] = {}) -> None:
    """Answer with one line of JSON."""
    body = json.dumps({"error": reason}).encode("utf-8")
    given = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    start = [(name.encode("ascii"), value.encode("latin-1")) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})
