"""One request for a page: who asks, with what rights, and how to answer. Pages and forms are built upon this.

Every answer has a policy that allows nothing but our own files: no script of others, none inside a page, no frame.
"""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, unquote

from fastapi import Depends, Form, Request, Response
from fastapi.responses import RedirectResponse
from starlette.templating import Jinja2Templates

from holdfast.client.errors import Error, NotAllowed
from holdfast.client.resp import to_text
from holdfast.console import session
from holdfast.console.shown import FILTERS, sendable
from holdfast.core.rights import ADMIN, CONSUME, PRODUCE, READ, User
from holdfast.core.users import may_touch
from holdfast.gateway.asking import Behind, behind
from holdfast.gateway.live import seen_by
from holdfast.gateway.members import NEAR
from holdfast.gateway.past import look_anew
from holdfast.gateway.problems import Unauthorized
from holdfast.gateway.queues import figures, name_of
from holdfast.gateway.who import ANYBODY, check

HERE = Path(__file__).resolve().parent
templates = Jinja2Templates(HERE / "templates")
templates.env.filters.update(FILTERS)
templates.env.autoescape = True
templates.env.finalize = sendable

MENU = [
    ("", "Dashboard", READ), ("queues", "Queues", READ), ("jobs", "Jobs", READ), ("ended", "Ended", READ),
    ("workers", "Workers", READ | CONSUME), ("scheduled", "Scheduled", READ), ("dead", "Dead", READ),
    ("limits", "Limits", READ), ("cluster", "Cluster", READ), ("history", "History", READ),
    ("add", "Add a job", PRODUCE),
]
"""Pages, and the roles of which each takes one: what nodes ask for the commands behind it (core/users.py)."""
SAID = "holdfast-said"
"""The cookie with what came of a form, until the next page has said it."""
SAID_S = 60
SAID_MAX = 500
CHOICE_MAX = 100
POLICY = "; ".join([
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", "connect-src 'self'",
    "font-src 'self'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'",
])


class View:
    """One request: who asks, with what rights, and how to answer."""

    def __init__(self, request: Request, gate: Behind, user: User, cookie: str) -> None:
        self.request = request
        self.gate = gate
        self.user = user
        self.cookie = cookie
        self.asking = gate.for_user(user)
        self.silent: list[str] = []  # nodes whose figures are missing on this page

    def may(self, role: int) -> bool:
        return bool(self.user.roles & (role | ADMIN))

    def menu(self) -> list[tuple[str, str]]:
        """The pages that are for this user."""
        return [(path, words) for path, words, roles in MENU if self.may(roles)]

    async def figures(self) -> list[dict[str, Any]]:
        """The figures of all queues that this user may see, by name."""
        check(self.user, ["INFO"])
        found, self.silent = await figures(self.gate.queue, "*")
        rows = seen_by(self.user, {"queues": found})["queues"]
        return sorted(({**row, "name": to_text(name_of(row))} for row in rows), key=lambda row: str(row["name"]))

    def is_bound(self) -> bool:
        """Whether this user may see some queues only; then what lists all of them is refused."""
        return bool(self.user.patterns) and not may_touch(self.user, b"*")

    async def choice(self, queue: str) -> list[str] | None:
        """Where somebody who is bound to queues has named none: those there are. None: go on."""
        if queue or not self.is_bound():
            return None
        return [str(row["name"]) for row in await self.figures()][:CHOICE_MAX]

    def past(self) -> Callable[[str], bool]:
        """Which queues' past this user may see. Raises NotAllowed."""
        check(self.user, ["INFO"])
        return lambda queue: not self.user.patterns or may_touch(self.user, queue.encode())

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        here = self.request.url.path.removeprefix("/console").strip("/").partition("/")[0]
        answer = templates.TemplateResponse(self.request, f"{template}.html", {
            "menu": self.menu(), "here": here, "user": "" if self.user is ANYBODY else self.user.name.decode(),
            "may_read": self.may(READ), "may_act": self.may(CONSUME), "may_add": self.may(PRODUCE),
            "may_all": self.may(ADMIN), "is_bound": self.is_bound(),
            "form_token": session.form_token(self.gate.door, self.user, self.cookie),
            "silent": [each[:NEAR] for each in self.silent],
            "said": unquote(self.request.cookies.get(SAID, "")), "typed": dict(self.request.query_params), **values,
        }, status_code=status)
        answer.delete_cookie(SAID, path="/console")
        return guarded(answer, self)

    def back(self, path: str, said: str) -> Response:
        """After a form: the page it came from, with what came of it. That is said once, and not by the address: others
        could put words into it, and a page that is loaded again would say it again."""
        look_anew(self.gate)
        answer = RedirectResponse(f"/console/{path}", 303)
        answer.set_cookie(
            SAID, quote(said[:SAID_MAX]), max_age=SAID_S, httponly=True, samesite="strict",
            secure=self.request.url.scheme == "https", path="/console",
        )
        return guarded(answer, self)


def guarded(answer: Response, view: View | None) -> Response:
    answer.headers["Content-Security-Policy"] = POLICY
    answer.headers["Referrer-Policy"] = "same-origin"
    answer.headers["Cache-Control"] = "no-store"
    if view is not None and view.request.cookies.get(session.COOKIE) != view.cookie:
        session.set_cookie(answer, view.request, view.cookie)
    return answer


async def view(request: Request, gate: Annotated[Behind, Depends(behind)]) -> View:
    """Raises Unauthorized where somebody must log in first."""
    cookie = request.cookies.get(session.COOKIE, "")
    try:
        user = session.read_cookie(gate.door, cookie, session.now())
    except Unauthorized:
        if gate.door.logins is not None:
            raise
        cookie = session.make_cookie(gate.door, "anybody", session.now())
        user = ANYBODY
    return View(request, gate, user, cookie)


async def acting(seen: Annotated[View, Depends(view)], form_token: Annotated[str, Form()] = "") -> View:
    """The same for a form."""
    session.check_form(seen.gate.door, seen.user, seen.cookie, form_token)
    return seen


Seen = Annotated[View, Depends(view)]
Acting = Annotated[View, Depends(acting)]


async def optional(asked: Any, otherwise: Any) -> Any:
    """What a node of another version, or one without that feature, does not know. Raises NotAllowed: somebody who may
    not look is not told that there is nothing."""
    try:
        return await asked
    except NotAllowed:
        raise
    except Error:
        return otherwise
