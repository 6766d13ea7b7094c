"""What went wrong, as HTTP says it: a status that proxies and clients understand, and a problem+json body.

The three questions of a caller (client/errors.py) are answered by the status: 4xx change something, 429 and 503 try
again later, 504 nobody knows whether it happened.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from holdfast.client import errors


class Gone(Exception):
    """Whoever asked has hung up. Nobody will read what is answered."""


class TooMany(errors.Refused):
    """There are too many of that kind already: try again later."""

    code = "TRYAGAIN"


class Unauthorized(Exception):
    """Nobody has said who is calling, or it was not true."""


STATUS: dict[type[Exception], int] = {
    errors.MaxLen: 429,
    TooMany: 429,
    errors.Duplicate: 409,
    errors.LeaseLost: 409,
    errors.TooLate: 409,
    errors.NoJob: 404,
    errors.BadId: 400,
    errors.NotAllowed: 403,
    errors.NotAvailable: 501,
    errors.BadRequest: 400,
    errors.Refused: 503,
    errors.Unknown: 504,
    errors.Closed: 503,
    errors.Error: 500,
}
RETRY_AFTER_S = 1
"""What a caller is told who was refused for now."""

PROBLEM = "application/problem+json"
MEDIA: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "What went wrong",
        "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}


def status_of(error: BaseException) -> int:
    for kind in type(error).__mro__:
        if kind in STATUS:
            return STATUS[kind]
    return 500


@contextmanager
def tables() -> Iterator[None]:
    """Around what reads Arrow tables: the packages for that come with the pipeline, and a gateway may do without."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise errors.NotAvailable(f"the gateway needs {error.name}: pip install 'holdfast[pipeline]'") from None


def problem(status: int, title: str, detail: str, code: str = "", **more: Any) -> JSONResponse:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    if code:
        body["code"] = code
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status in (429, 503) else {}
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="holdfast", Basic realm="holdfast"'
    return JSONResponse(body, status, headers, media_type=PROBLEM)


def shown(text: str) -> str:
    """Words of a client may be in it that are not text."""
    return text.encode("utf-8", "backslashreplace").decode()


def install(app: FastAPI) -> None:
    """Every error of the app is a problem."""

    @app.exception_handler(errors.Error)
    async def of_ours(request: Request, error: errors.Error) -> JSONResponse:
        more: dict[str, Any] = {}
        if isinstance(error, errors.Unknown):
            more["jobs"] = list(error.jobs)
        if isinstance(error, errors.Duplicate):
            more["existing"] = error.existing
        return problem(status_of(error), type(error).__name__, shown(error.text), error.code, **more)

    @app.exception_handler(TypeError)
    async def of_the_caller(request: Request, error: TypeError) -> JSONResponse:
        return problem(400, "BadRequest", shown(str(error)), "ERR")

    @app.exception_handler(Gone)
    async def to_nobody(request: Request, error: Gone) -> JSONResponse:
        return problem(499, "Gone", "the client has hung up")

    @app.exception_handler(Unauthorized)
    async def of_a_stranger(request: Request, error: Unauthorized) -> JSONResponse:
        return problem(401, "Unauthorized", str(error), "NOAUTH")

    @app.exception_handler(RequestValidationError)
    async def of_shape(request: Request, error: RequestValidationError) -> JSONResponse:
        faults = [{"where": "/".join(map(str, each["loc"])), "what": each["msg"]} for each in error.errors()]
        words = "; ".join(f"{each['where']}: {each['what']}" for each in faults)
        said = request.headers.get("content-type", "")
        if any(each["where"] == "body" for each in faults) and "json" not in said:  # curl -d says it is a form
            words += f" (the request says it is {said or 'of no type'}: send Content-Type: application/json)"
        return problem(422, "Unprocessable", words, "ERR", faults=faults)

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> JSONResponse:
        made = problem(error.status_code, "HTTP", str(error.detail))
        made.headers.update(error.headers or {})
        return made
