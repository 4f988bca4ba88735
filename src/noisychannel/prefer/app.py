"""The web application that shows a page and stores its ratings. It never sees the key.

    GET /           the page
    POST /ratings   a JSON list of ratings; 201 when they are on disk

400 is no JSON, 408 a body that does not arrive, 413 one that is too large, 415 another content type, 421 another host,
422 a record that is no rating of this page, 431 a large head, 507 a full disk, each with {"error": "one line"}. Nothing
of a refused body is stored.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from noisychannel.errors import NoisyChannelError
from noisychannel.pages import Page
from noisychannel.prefer.page import html
from noisychannel.prefer.ratings import Rating
from noisychannel.prefer.ratings_file import RatingsFile
from noisychannel.web.guard import Guard

LARGEST_BODY = 1 << 16
"""Bytes. The page sends at most 50 ratings at a time."""
SECONDS_FOR_BODY = 10.0

_RATINGS = TypeAdapter(list[Rating])


def make_app(
    store: RatingsFile, hosts: Collection[str] | None = None, warn: Callable[[str], None] = lambda line: None
) -> Guard:
    """The application for one page and the file of its ratings, behind its guard. ``hosts``: names for this server that
    requests may use; any if not given. ``warn`` is told of failures."""
    app = FastAPI(title="noisychannel prefer", docs_url=None, redoc_url=None, openapi_url=None)
    shown = Page.of(html(replace(store.page, stored=True)))
    items = {item.id for item in store.page.items}

    @app.get("/")
    def page() -> HTMLResponse:
        return HTMLResponse(shown.html, headers={"content-security-policy": shown.policy})

    @app.post("/ratings")
    async def add_ratings(request: Request) -> JSONResponse:
        ratings = _parsed(await request.body())
        for rating in ratings:
            if rating.page != store.page.page or rating.item not in items:
                raise HTTPException(422, "a rating of another page; load the page again")
        try:
            await run_in_threadpool(store.add, ratings)
        except NoisyChannelError as error:
            warn(str(error))
            raise HTTPException(507, "the ratings could not be written; tell the person who runs the server") from error
        return JSONResponse({"stored": len(ratings)}, status_code=201)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    return Guard(app, max_body=LARGEST_BODY, body_seconds=SECONDS_FOR_BODY, hosts=hosts, warn=warn)


def _parsed(body: bytes) -> list[Rating]:
    try:
        return _RATINGS.validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise HTTPException(400, "the body is not JSON") from error
        raise HTTPException(422, f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}"[:200]) from error
