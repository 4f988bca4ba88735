"""The application: paths, and what they answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi import Request as HTTPRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from noisychannel import __version__
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.pages import Page
from noisychannel.serve import refusals, schema
from noisychannel.serve.guard import RunsGuard
from noisychannel.serve.limits import EXPLAINED, Limits
from noisychannel.serve.measures import CONTENT_TYPE, Measures
from noisychannel.serve.pages import main_page, reference_page
from noisychannel.serve.served_run import ServedRun
from noisychannel.serve.service import ClientGoneError, Service
from noisychannel.serve.tasks import Task, UnknownNameError
from noisychannel.serve.worker import BusyError, StoppingError

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": schema.Problem, "description": meaning}
    for status, meaning in {
        400: "The body is not JSON.",
        401: "The token is missing or wrong.",
        404: "There is no such run or system.",
        408: "The body took too long to arrive.",
        413: "The body is too large.",
        415: "The content type is not application/json.",
        421: "The Host header names another server.",
        422: "The request cannot be used; the line says what and where.",
        429: "This client has too many requests at a time.",
        503: "Too many inputs are waiting, or the server is stopping; come back after Retry-After seconds.",
    }.items()
}


def create_app(
    runs: Sequence[ServedRun],
    limits: Limits = Limits(),  # noqa: B008 (frozen)
    token: str | None = None,
    hosts: Collection[str] | None = None,
    warn: Callable[[str], None] = lambda line: None,
) -> Guarded:
    """The application of some runs, the first of which is the default. ``hosts``: names for this server that requests
    may use; any if not given. ``warn`` is told of failures."""
    measures = Measures()
    service = Service(runs, limits, measures, warn)
    app = FastAPI(
        title="noisychannel",
        version=__version__,
        description="Decode, explain, score and rerank with the runs of this server.",
        docs_url=None,
        redoc_url=None,
    )
    _add_answers(app, service)
    _add_pages(app, service)
    _add_errors(app)
    paths = {path for route in app.routes if (path := getattr(route, "path", None)) is not None}
    return Guarded(RunsGuard(app, limits, measures, token, hosts, paths, warn), app, service)


class Guarded:
    """The application behind its guard."""

    def __init__(self, guard: RunsGuard, app: FastAPI, service: Service) -> None:
        self.guard, self.app, self.service = guard, app, service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.guard(scope, receive, send)


def _add_answers(app: FastAPI, service: Service) -> None:
    limits = service.limits

    @app.post("/api/decode", response_model=schema.DecodeAnswer, responses=PROBLEMS, tags=["models"])
    async def decode(body: schema.DecodeRequest, request: HTTPRequest) -> Response:
        """The best outputs of one input or of many, with every term that has a weight, and both alignments."""
        service.check_n_best(body.n_best)
        service.check_count("inputs", len(body.all_inputs()), limits.max_inputs)
        tasks = [Task(one.text, tuple(one.features)) for one in body.all_inputs()]
        return json_answer(await service.ask(request, "decode", body, tasks, _places(body), body.n_best))

    @app.post("/api/explain", response_model=schema.ExplainAnswer, responses=PROBLEMS, tags=["models"])
    async def explain(body: schema.DecodeRequest, request: HTTPRequest) -> Response:
        """Like decode, with everything behind the outputs: all terms of the run, how probable each alignment point is,
        and the tree of the search."""
        service.check_n_best(body.n_best)
        service.check_count("inputs", len(body.all_inputs()), min(EXPLAINED, limits.max_inputs))
        tasks = [Task(one.text, tuple(one.features)) for one in body.all_inputs()]
        return json_answer(await service.ask(request, "explain", body, tasks, _places(body), body.n_best))

    @app.post("/api/score", response_model=schema.ExplainAnswer, responses=PROBLEMS, tags=["models"])
    async def score(body: schema.ScoreRequest, request: HTTPRequest) -> Response:
        """The terms, alignments and objective of given pairs."""
        service.check_count("pairs", len(body.pairs), limits.max_inputs)
        tasks = [Task(pair.input, tuple(pair.features), (pair.output,)) for pair in body.pairs]
        return json_answer(await service.ask(request, "score", body, tasks, [f"pairs.{n}" for n in range(len(tasks))]))

    @app.post("/api/rerank", response_model=schema.DecodeAnswer, responses=PROBLEMS, tags=["models"])
    async def rerank(body: schema.RerankRequest, request: HTTPRequest) -> Response:
        """Given outputs of one input or of many by the same objective, best first."""
        service.check_count("outputs", sum(len(item.outputs) for item in body.items), limits.max_inputs)
        tasks = [Task(item.input, tuple(item.features), tuple(item.outputs)) for item in body.items]
        n_best = body.n_best or limits.max_inputs
        places = [f"items.{n}" for n in range(len(tasks))]
        return json_answer(await service.ask(request, "rerank", body, tasks, places, n_best))

    @app.get("/api/runs", response_model=schema.Runs, responses={401: PROBLEMS[401]}, tags=["models"])
    async def runs() -> Response:
        """The runs of this server: systems, weights, features, examples; and the limits of requests."""
        return json_answer(service.info())


def _add_pages(app: FastAPI, service: Service) -> None:
    page = main_page()

    @app.get("/healthz", responses={503: {"description": "The server is stopping."}}, tags=["server"])
    async def healthz() -> Response:
        """Whether the server takes requests."""
        status = "stopping" if service.stopping else "ok"
        return JSONResponse({"status": status, "version": __version__}, 503 if service.stopping else 200)

    @app.get("/metrics", response_class=PlainTextResponse, tags=["server"])
    async def metrics() -> Response:
        """Counters and histograms for Prometheus."""
        return Response(service.measures.text(), media_type=CONTENT_TYPE)

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return page_answer(page)

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return Response(status_code=204)  # browsers ask for one

    @app.get("/docs", include_in_schema=False)
    async def docs(request: HTTPRequest) -> Response:
        return page_answer(reference_page(app.openapi(), f"{request.url.scheme}://{request.url.netloc}"))


def _add_errors(app: FastAPI) -> None:
    def problem(status: int, reason: str, headers: Mapping[str, str] | None = None) -> Response:
        # In ASCII: the reason may name a key with half of a surrogate pair.
        body = json.dumps({"error": " ".join(reason.split())})
        return Response(body, status, headers, media_type="application/json")

    @app.exception_handler(RequestValidationError)
    async def invalid(request: HTTPRequest, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            where = ".".join(str(part) for part in first["loc"] if part != "body")
            return problem(400, f"the body is not JSON: {first.get('ctx', {}).get('error', '')} at character {where}")
        return problem(422, refusals.reason(request.url.path, first))

    @app.exception_handler(NoisyChannelError)
    async def refused(request: HTTPRequest, error: NoisyChannelError) -> Response:
        match error:
            case BusyError() | StoppingError():
                return problem(503, str(error), {"retry-after": str(error.retry_after)})
            case UnknownNameError():
                return problem(404, str(error))
            case BadInputError():
                return problem(422, str(error))
        return problem(500, str(error))

    @app.exception_handler(HTTPException)
    async def unknown_path(request: HTTPRequest, error: HTTPException) -> Response:
        reasons = {
            404: "there is no such path; see /docs",
            405: "this path does not take that method; see /docs",
            400: "the body is not JSON",
        }
        return problem(error.status_code, reasons.get(error.status_code, str(error.detail)), error.headers)

    @app.exception_handler(ClientGoneError)
    async def gone(request: HTTPRequest, error: ClientGoneError) -> Response:
        return problem(499, "the client left")


def _places(body: schema.DecodeRequest) -> list[str]:
    """The name of each input in messages."""
    return ["input"] if body.input is not None else [f"inputs.{n}" for n in range(len(body.inputs))]


def json_answer(record: Mapping[str, Any]) -> Response:
    """Without the checks of a response model: tests do those."""
    return Response(json.dumps(record, ensure_ascii=False, allow_nan=False), media_type="application/json")


def page_answer(page: Page) -> Response:
    return HTMLResponse(page.html, headers={"content-security-policy": page.policy, "cache-control": "no-cache"})
