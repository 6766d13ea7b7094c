"""The HTTP side of a gateway, put together: a FastAPI app over a queue.

It keeps no state of its own, neither between requests nor between gateways: any proxy may send any request to any of
them. What it knows is asked of the nodes each time.
"""
from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.client.errors import Error
from holdfast.client.pool import AsyncPool
from holdfast.client.queue import AsyncQueue
from holdfast.core.version import VERSION
from holdfast.gateway import ended, jobs, live, past, problems, queues, simple, sites, stream, tunnel
from holdfast.gateway.asking import Behind
from holdfast.gateway.doorkeeper import Doorkeeper
from holdfast.gateway.models import Problem
from holdfast.gateway.paths import SlashesInNames
from holdfast.gateway.who import Door

ABOUT = """Jobs over HTTP. Times are seconds. A job's body is `body` where it is text and `body64` where it is not.
Errors are problem+json; 429 and 503 mean try again later, 504 that nobody knows whether it happened."""

READY_S = 0.8
"""Then all nodes are asked whether they are there."""


class Figures:
    """What the gateway itself does, for Prometheus."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "holdfast_gateway_requests", "Requests answered", ["route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "holdfast_gateway_request_seconds", "Time until the answer began", ["route"], registry=self.registry
        )


def make_app(
    queue: AsyncQueue, door: Door, simple_queue: str = "default", lake: Path | None = None, has_console: bool = True,
    hosts: Iterable[str] = (),
) -> FastAPI:
    app = FastAPI(title="Holdfast", version=VERSION, description=ABOUT, docs_url=None, redoc_url=None,
                  dependencies=[Depends(sites.may_ask)])
    app.state.behind = Behind(queue, door, simple_queue, hosts)
    app.state.live = live.Live(queue)
    app.state.figures = Figures()
    app.state.lake = lake
    problems.install(app)
    for part in (simple, jobs, ended, queues, past, stream, live, tunnel):
        app.include_router(part.router)
    add_health(app)
    if has_console:
        from holdfast.console import pages

        pages.install(app)
    app.openapi = lambda: description(app)  # type: ignore[method-assign]
    app.add_middleware(Doorkeeper, behind=app.state.behind)
    app.add_middleware(Counted, figures=app.state.figures)
    app.add_middleware(SlashesInNames)
    return app


class Counted:
    """Counts what passes through. Plain ASGI, so that a client that hangs up is heard of by whoever serves it."""

    def __init__(self, app: ASGIApp, figures: Figures) -> None:
        self.app = app
        self.figures = figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()

        async def pass_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                path = getattr(scope.get("route"), "path", "none")
                self.figures.requests.labels(path, str(message["status"])).inc()
                self.figures.seconds.labels(path).observe(time.perf_counter() - began)
                message["headers"] = [*message.get("headers", ()), (b"x-content-type-options", b"nosniff")]
            await send(message)

        await self.app(scope, receive, pass_on)


def add_health(app: FastAPI) -> None:
    @app.get("/healthz", tags=["health"], response_class=PlainTextResponse)
    async def healthz() -> str:
        """The process is there."""
        return "ok\n"

    @app.get("/readyz", tags=["health"], response_class=PlainTextResponse, responses=problems.MEDIA)
    async def readyz(request: Request) -> Response:
        """It can reach a node, and that node takes commands."""
        gate: Behind = request.app.state.behind
        try:
            await some_node_answers(gate.queue)
        except Error as error:
            return problems.problem(503, "NotReady", str(error))
        return PlainTextResponse("ready\n")

    @app.get("/metrics", tags=["health"], response_class=PlainTextResponse)
    async def metrics(request: Request) -> Response:
        """Figures of this gateway for Prometheus; each node has its own."""
        return Response(generate_latest(request.app.state.figures.registry), media_type=CONTENT_TYPE_LATEST)


async def some_node_answers(queue: AsyncQueue) -> None:
    """Raises if none does. Whoever asks this waits a second or two: that the node whose turn it is takes its time must
    not look as if nobody were there."""
    asked = asyncio.ensure_future(queue.call("PING"))
    try:
        done, _ = await asyncio.wait([asked], timeout=READY_S)
        if not done and isinstance(queue.channel, AsyncPool) and await queue.channel.is_anybody_there(READY_S):
            return
        await asked
    finally:
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)


def description(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI description, with the shape of a problem in it."""
    if app.openapi_schema is None:
        made = FastAPI.openapi(app)
        made["components"].setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
        made["components"]["schemas"].pop("HTTPValidationError", None)
        made["components"]["schemas"].pop("ValidationError", None)
        made["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"}, "basic": {"type": "http", "scheme": "basic"},
        }
        for path in made["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
        app.openapi_schema = made
    return app.openapi_schema
