"""What every request passes first: the host it names, its token, its size, and how many its client has sent.

A page of another site cannot use a server on loopback. It cannot name its own host (which DNS rebinding needs), and a
browser does not send it JSON without asking first (CORS), which is never allowed.
"""

from __future__ import annotations

import hmac
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from ipaddress import ip_address

from noisychannel.serve.bodies import (
    ASGIApp,
    ClientLeftError,
    Message,
    Receive,
    RefusedBodyError,
    Scope,
    Send,
    header,
    read_body,
    replayed,
)
from noisychannel.serve.limits import Limits
from noisychannel.serve.measures import Measures

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
PROTECTED = ("/api/", "/metrics")
"""Paths that need the token, if there is one. The page itself has no data."""
SECURITY = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
CLOSED_POLICY = "default-src 'none'; frame-ancestors 'none'"


class Guard:
    """Refuses requests before the application sees them, and counts all of them."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        measures: Measures,
        token: str | None = None,
        hosts: Collection[str] | None = None,
        paths: Collection[str] = (),
        warn: Callable[[str], None] = lambda line: None,
    ) -> None:
        """``hosts``: names that requests may use for this server; any if not given. ``paths``: those that are counted
        by name, so that a client cannot make up further ones. ``warn`` is told of failures."""
        self.app, self.limits, self.measures, self.paths, self.warn = app, limits, measures, paths, warn
        self.token = None if token is None else token.encode("utf-8")
        self.hosts = None if hosts is None else {host.lower() for host in hosts}
        self._of_client: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _add_security(message)
            await send(message)

        try:
            await self._pass(scope, receive, noted)
        except Exception as error:
            self.warn(f"{scope['path']}: failed ({type(error).__name__}: {error})")
            if not status:
                await refuse(noted, 500, f"internal error ({type(error).__name__})")
        finally:
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.measures.requests.add(path=path, status=str(status or 499))  # 499: the client left
            self.measures.seconds.observe(time.monotonic() - began, path=path)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (refusal := self._refusal(scope)) is not None:
            status, reason, headers = refusal
            await refuse(send, status, reason, headers)
            return
        if scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        client = (scope.get("client") or ("", 0))[0]
        counted = bool(self.limits.client_requests) and not is_loopback(client)
        if counted and self._of_client[client] >= self.limits.client_requests:
            self.measures.refused.add(reason="client")
            most = self.limits.client_requests
            await refuse(send, 429, f"more than {most} requests at a time; wait for answers", {"retry-after": "1"})
            return
        self._of_client[client] += counted
        try:
            body = await read_body(scope, receive, self.limits)
            await self.app(scope, replayed(body, receive), send)
        except RefusedBodyError as error:
            # The rest of the body is not read, so the connection cannot be used again.
            await refuse(send, error.status, error.reason, {"connection": "close"})
        except ClientLeftError:
            pass
        finally:
            self._of_client[client] -= counted
            if not self._of_client[client]:
                del self._of_client[client]

    def _refusal(self, scope: Scope) -> tuple[int, str, Mapping[str, str]] | None:
        """Status, reason and headers if a request is refused for what its head says."""
        if self.hosts is not None and host_name(header(scope, b"host")) not in self.hosts:
            return 421, "this server does not have the name in the Host header; use localhost or 127.0.0.1", {}
        if self.token is not None and scope["path"].startswith(PROTECTED) and not self._has_token(scope):
            return 401, "a token is needed: send the header Authorization: Bearer TOKEN", {"www-authenticate": "Bearer"}
        media = header(scope, b"content-type").partition(";")[0].strip().lower()
        if scope["method"] == "POST" and media != "application/json":
            return 415, "send JSON, with the header Content-Type: application/json", {"connection": "close"}
        return None

    def _has_token(self, scope: Scope) -> bool:
        kind, _, given = header(scope, b"authorization").partition(" ")
        # In constant time: how long it takes must not tell how much of a token is right.
        return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1"), self.token or b"")


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


def _add_security(message: Message) -> None:
    names = {name.lower() for name, _ in message["headers"]}
    for name, value in {**SECURITY, "content-security-policy": CLOSED_POLICY, "cache-control": "no-store"}.items():
        if name.encode("ascii") not in names:
            message["headers"] = [*message["headers"], (name.encode("ascii"), value.encode("ascii"))]
