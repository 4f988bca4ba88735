"""What requests to runs pass beside the common guard: a token, and how many their client has sent. All are counted."""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable, Collection

from noisychannel.serve.limits import Limits
from noisychannel.serve.measures import Measures
from noisychannel.web.guard import Guard, Refusal
from noisychannel.web.messages import ASGIApp, Receive, Scope, Send, header, is_loopback, refuse

PROTECTED = ("/api/", "/metrics")
"""Paths that need the token, if there is one. The page itself has no data."""


class RunsGuard(Guard):
    """The guard of an application that answers with runs."""

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
        """``paths``: those that are counted by name, so that a client cannot make up further ones."""
        super().__init__(app, max_body=limits.max_body, body_seconds=limits.body_seconds, hosts=hosts, warn=warn)
        self.limits, self.measures, self.paths = limits, measures, paths
        self.token = None if token is None else token.encode("utf-8")
        self._of_client: Counter[str] = Counter()

    def refusal(self, scope: Scope) -> Refusal | None:
        if (refusal := super().refusal(scope)) is not None:
            return refusal
        if self.token is not None and scope["path"].startswith(PROTECTED) and not self._has_token(scope):
            return 401, "a token is needed: send the header Authorization: Bearer TOKEN", {"www-authenticate": "Bearer"}
        return None

    async def admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = (scope.get("client") or ("", 0))[0]
        most = self.limits.client_requests
        if scope["method"] != "POST" or not most or is_loopback(client):
            await super().admit(scope, receive, send)
            return
        if self._of_client[client] >= most:
            self.measures.refused.add(reason="client")
            await refuse(send, 429, f"more than {most} requests at a time; wait for answers", {"retry-after": "1"})
            return
        self._of_client[client] += 1
        try:
            await super().admit(scope, receive, send)
        finally:
            self._of_client[client] -= 1
            if not self._of_client[client]:
                del self._of_client[client]

    def answered(self, path: str, status: int, seconds: float) -> None:
        path = path if path in self.paths else "other"
        self.measures.requests.add(path=path, status=str(status or 499))  # 499: the client left
        self.measures.seconds.observe(seconds, path=path)

    def _has_token(self, scope: Scope) -> bool:
        kind, _, given = header(scope, b"authorization").partition(" ")
        # In constant time: how long it takes must not tell how much of a token is right.
        return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1"), self.token or b"")
