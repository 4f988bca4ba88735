"""Serving a page until the process is asked to stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from noisychannel.errors import missing_extra
from noisychannel.prefer.page import read_page
from noisychannel.prefer.ratings_file import RatingsFile

SHUTDOWN_SECONDS = 5.0


def ratings_file(page: Path) -> Path:
    """Where the ratings of a page go if nothing else is asked for."""
    return page.with_suffix(".ratings.jsonl")


def serve_page(page: Path, ratings: Path | None, host: str, port: int, say: Callable[[str], None]) -> None:
    """Show the page at this address and store what raters say. ``port`` 0: any that is free."""
    record = read_page(page)
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise missing_extra(error.name or "fastapi", "serve", "prefer serve") from None
    from noisychannel.prefer.app import make_app
    from noisychannel.web.guard import allowed_hosts
    from noisychannel.web.server import Server, address_of, answer_requests, bind

    with RatingsFile(ratings or ratings_file(page), record) as store, bind(host, port) as bound:
        hosts = allowed_hosts(host, bound)

        def announce() -> None:
            say(f"{len(record.items)} items at {address_of(bound)} (ctrl-C stops)")
            say(f"{store.count} ratings so far in {store.file}; new ones are added to it")
            if hosts is None:
                say("everyone who can reach this address can rate, under any name")

        answer_requests(Server(make_app(store, hosts, say), SHUTDOWN_SECONDS, announce), bound)
