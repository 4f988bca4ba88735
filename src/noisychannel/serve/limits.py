"""What one request, one client and the server as a whole may use."""

from __future__ import annotations

from dataclasses import dataclass

from noisychannel.arguments import Count, CountOrZero, Positive, check_bounds

EXPLAINED = 16
"""Inputs of one request that are explained: each answer has the tree of its search."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a server.

    Args:
        max_symbols: Longest input with its features, or given output, in symbols. The time of a search grows with its
            square, and others wait meanwhile.
        max_n_best: Most outputs of an input that a request may ask for.
        max_inputs: Most inputs of one request; for given outputs, most outputs.
        max_body: Most bytes of a request.
        body_seconds: How long a client may take to send a request.
        queue: Most inputs that may wait for one run. Beyond it requests get status 503.
        batch_size: Most inputs decoded together.
        client_requests: Most requests of one address at a time; beyond it they get status 429. Clients on this machine
            share one address and are not counted. 0: no limit.
        shutdown_seconds: How long the server takes to answer what it has accepted when it is asked to stop.
    """

    max_symbols: Count = 100
    max_n_best: Count = 50
    max_inputs: Count = 100
    max_body: Count = 256 * 1024
    body_seconds: Positive = 10.0
    queue: Count = 500
    batch_size: Count = 32
    client_requests: CountOrZero = 32
    shutdown_seconds: Positive = 30.0

    def __post_init__(self) -> None:
        check_bounds(self)
