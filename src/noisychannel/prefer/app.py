"""The web application that shows a page and stores its ratings. It never sees the key.

    GET /           the page
    POST /ratings   a JSON list of ratings; 201 when they are on disk

400 is no JSON, 408 a body that does not arrive, 413 one that is too large, 415 another content type, 422 a record that
is no rating of this page, 507 a full disk. Nothing of a refused body is stored.
"""

import asyncio
from dataclasses import replace

from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect

from noisychannel.errors import NoisyChannelError
from noisychannel.prefer.page import html
from noisychannel.prefer.ratings import Rating
from noisychannel.prefer.ratings_file import RatingsFile

LARGEST_BODY = 1 << 16
"""Bytes. The page sends at most 50 ratings at a time."""
SECONDS_FOR_BODY = 10.0
HEADERS = {
    # No other page may ask for anything in the name of this one, nor show it inside itself.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

_RATINGS = TypeAdapter(list[Rating])


def make_app(store: RatingsFile) -> FastAPI:
    """The application for one page and the file of its ratings."""
    app = FastAPI(title="noisychannel prefer", docs_url=None, redoc_url=None, openapi_url=None)
    shown = html(replace(store.page, stored=True))
    items = {item.id for item in store.page.items}

    @app.get("/")
    def page() -> HTMLResponse:
        return HTMLResponse(shown, headers=HEADERS)

    @app.post("/ratings")
    async def add_ratings(request: Request) -> JSONResponse:
        # A form of another site cannot send this type without being asked first.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, "send application/json")
        ratings = _parsed(await _body(request))
        for rating in ratings:
            if rating.page != store.page.page or rating.item not in items:
                raise HTTPException(422, "a rating of another page; load the page again")
        try:
            await run_in_threadpool(store.add, ratings)
        except NoisyChannelError as error:
            raise HTTPException(507, "the ratings could not be written; tell the person who runs the server") from error
        return JSONResponse({"stored": len(ratings)}, status_code=201)

    return app


async def _body(request: Request) -> bytes:
    """The body of a request, which may be neither too large nor too slow."""
    body = bytearray()
    try:
        async with asyncio.timeout(SECONDS_FOR_BODY):
            async for part in request.stream():
                body += part
                if len(body) > LARGEST_BODY:
                    raise HTTPException(413, f"send at most {LARGEST_BODY} bytes")
    except TimeoutError as error:
        raise HTTPException(408, "the body did not arrive in time") from error
    except ClientDisconnect as error:
        raise HTTPException(400, "the body did not arrive") from error  # nobody reads this
    return bytes(body)


def _parsed(body: bytes) -> list[Rating]:
    try:
        return _RATINGS.validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise HTTPException(400, "not JSON") from error
        raise HTTPException(422, f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}"[:200]) from error
