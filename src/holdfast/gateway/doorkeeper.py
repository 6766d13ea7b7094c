"""Before a request is read: who asks, from its head alone, and how much of it will be read.

A layer around all else. What a framework reads and parses before it looks at credentials, anybody can make it read;
here a request without them is answered 401 when only its head is in memory. Each path has a bound for its body, held
against Content-Length first and against what comes then, whatever was said; and JSON has a bound of depth. New paths
below /v1 have the smallest one until RULES says otherwise, so none can be forgotten.
"""
from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.client.errors import Error
from holdfast.core.limits import MIB
from holdfast.gateway.asking import Behind
from holdfast.gateway.connections import KEY
from holdfast.gateway.problems import TooMany, Unauthorized, problem, shown, status_of
from holdfast.gateway.who import address_of
from holdfast.shell.strangers import BODY_BYTES_MAX

SMALL_BYTES_MAX: Final = MIB
"""A body that carries no job."""
JOBS_BYTES_MAX: Final = 64 * MIB
"""Jobs as JSON: what a node takes in one command, and a third more for base64."""
RAW_BYTES_MAX: Final = 64 * MIB
"""/push and /v1/call, which bound themselves closer."""
FORM_BYTES_MAX: Final = 4 * MIB
"""A form of the console. It may have a job's body in it."""
BODIES_BYTES_MAX: Final = 256 * MIB
"""Of all requests that are under way; a stream of jobs keeps a line at a time and is none of them."""
JSON_DEPTH_MAX: Final = 64
"""Lists in lists, or objects in them."""
ENDLESS: Final = 0

OPEN: Final = "open"  # for everybody
PAGES: Final = "pages"  # the console looks at its cookie itself
USERS: Final = "users"

STRINGS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
BRACKETS: Final = b"[]{}"
NOT_BRACKETS: Final = bytes(set(range(256)) - set(BRACKETS))
ALIKE: Final = bytes.maketrans(b"{}", b"[]")


@dataclass(frozen=True, slots=True)
class Rule:
    path: re.Pattern[str]
    whom: str = USERS
    bytes_max: int = SMALL_BYTES_MAX
    is_json: bool = False


RULES: Final = (
    Rule(re.compile(r"/(healthz|readyz|metrics|openapi\.json)?"), OPEN, BODY_BYTES_MAX),
    Rule(re.compile(r"/console/(static/.*|login)"), OPEN, BODY_BYTES_MAX),
    Rule(re.compile(r"/console(/.*)?"), PAGES, FORM_BYTES_MAX),
    Rule(re.compile(r"/(push|v1/call)"), bytes_max=RAW_BYTES_MAX),
    Rule(re.compile(r"/v1/queues/[^/]+/stream"), bytes_max=ENDLESS),
    Rule(re.compile(r"/v1/(queues/[^/]+/jobs.*|jobs/[^/]+/done|cron/.*)"),
         bytes_max=JOBS_BYTES_MAX, is_json=True),
    Rule(re.compile(r".*", re.DOTALL), is_json=True),
)


def rule_of(path: str) -> Rule:
    return next(rule for rule in RULES if rule.path.fullmatch(path))


class Doorkeeper:
    def __init__(self, app: ASGIApp, behind: Behind) -> None:
        self.app = app
        self.behind = behind
        self.bytes = 0  # of bodies of requests that are under way

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        rule = rule_of(scope["path"])
        try:
            most = rule.bytes_max if await self.let_in(rule, scope) else BODY_BYTES_MAX
        except Unauthorized as error:
            await problem(401, "Unauthorized", str(error), "NOAUTH")(scope, receive, send)
            return
        except Error as error:
            made = problem(status_of(error), type(error).__name__, shown(error.text), error.code)
            await made(scope, receive, send)
            return
        if most == ENDLESS:
            await self.app(scope, receive, send)
            return
        body = Body(self, receive, most)
        try:
            said = Headers(scope=scope).get("content-length", "")
            if said.isascii() and said.isdigit() and (len(said) > 18 or int(said) > most):
                raise too_long(most)
            if rule.is_json and scope["method"] not in ("GET", "HEAD"):
                await body.read_json()
        except (HTTPException, TooMany) as error:
            await body.end(error)(scope, receive, send)
            return
        try:
            await self.app(scope, body.receive, send)
        finally:
            body.forget()

    async def let_in(self, rule: Rule, scope: Scope) -> bool:
        """Whether its body may be as long as the rule says. Raises Unauthorized, or TooMany."""
        connection = scope.get(KEY)
        door = self.behind.door
        if rule.whom == PAGES:
            is_known = has_session(self.behind, scope)
        elif rule.whom == OPEN:
            is_known = door.is_open
        else:
            request = Request(scope)
            said = request.headers.get("authorization", "")
            request.state.user = await door.who(said, address_of(request.client))
            is_known = True
        if is_known and connection is not None:
            connection.is_known()
        return is_known


def has_session(behind: Behind, scope: Scope) -> bool:
    """Whether one of the console's cookies came along; what it is good for is the console's business."""
    from holdfast.console import session

    if behind.door.is_open:
        return True
    try:
        session.read_cookie(behind.door, Request(scope).cookies.get(session.COOKIE, ""), session.now())
    except Unauthorized:
        return False
    return True


def too_long(most: int) -> HTTPException:
    return HTTPException(413, f"a body has at most {most} bytes here")


class Body:
    """The body of one request, as far as it may be read."""

    def __init__(self, keeper: Doorkeeper, receive: Receive, most: int) -> None:
        self.keeper = keeper
        self.receive_more = receive
        self.most = most
        self.size = 0
        self.whole: bytes | None = None  # read already, to be told once

    async def receive(self) -> Message:
        if self.whole is not None:
            body, self.whole = self.whole, None
            return {"type": "http.request", "body": body, "more_body": False}
        message = await self.receive_more()
        size = len(message.get("body", b""))
        self.size += size
        self.keeper.bytes += size
        if self.size > self.most:
            raise too_long(self.most)
        if self.keeper.bytes > BODIES_BYTES_MAX:
            raise TooMany("this gateway reads as much as it can already; try again later")
        return message

    async def read_json(self) -> None:
        """All of it, and raises HTTPException where it is too deep."""
        pieces: list[bytes] = []
        while True:
            message = await self.receive()
            if message["type"] != "http.request":
                return  # it has hung up; whoever reads next hears so, too
            pieces.append(message.get("body", b""))
            if not message.get("more_body", False):
                break
        whole = b"".join(pieces)
        if is_too_deep(whole):
            raise HTTPException(400, f"JSON goes {JSON_DEPTH_MAX} levels deep here at most")
        self.whole = whole

    def end(self, error: HTTPException | TooMany) -> ASGIApp:
        self.forget()
        if isinstance(error, HTTPException):
            return problem(error.status_code, "HTTP", str(error.detail))
        return problem(429, "TooMany", error.text, error.code)

    def forget(self) -> None:
        self.keeper.bytes -= self.size
        self.size = 0


def is_too_deep(text: bytes) -> bool:
    """Whether lists and objects are nested deeper than JSON_DEPTH_MAX. Innermost pairs are taken away, all at once,
    until none is left: as often as it is deep."""
    if text.count(b"[") + text.count(b"{") <= JSON_DEPTH_MAX:
        return False
    left = STRINGS.sub(b"", text).translate(ALIKE, NOT_BRACKETS)
    for _ in range(JSON_DEPTH_MAX):
        fewer = left.replace(b"[]", b"")
        if len(fewer) == len(left):
            break
        left = fewer
    return left.count(b"[") > JSON_DEPTH_MAX or b"[]" in left
