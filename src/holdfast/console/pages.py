"""The pages: each asks the nodes what it shows, and each form does one thing and says what came of it.

Pages are whole HTML, made here, and work without JavaScript but for live figures and charts. htmx swaps the part of a
page that changes, so a filter or a click does not load everything again; the same address gives the whole page, which
makes every view a link. Writing needs the role for it: a user who may only read gets no forms, and a form it made up
is refused by the same check as everywhere.
"""
from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Form, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.templating import Jinja2Templates

from holdfast.client.errors import Error
from holdfast.client.queue import AsyncQueue
from holdfast.console import charts, data, session
from holdfast.console.shown import FILTERS
from holdfast.core.rights import ADMIN, CONSUME, PRODUCE, User
from holdfast.gateway import live, models
from holdfast.gateway.asking import Behind, behind
from holdfast.gateway.problems import Unauthorized, status_of
from holdfast.gateway.queues import totals
from holdfast.gateway.who import ANYBODY, address_of

HERE = Path(__file__).resolve().parent
router = APIRouter(prefix="/console", include_in_schema=False)
templates = Jinja2Templates(HERE / "templates")
templates.env.filters.update(FILTERS)
templates.env.autoescape = True

MENU = [
    ("", "Dashboard"), ("queues", "Queues"), ("jobs", "Jobs"), ("workers", "Workers"), ("scheduled", "Scheduled"),
    ("dead", "Dead"), ("limits", "Limits"), ("cluster", "Cluster"), ("history", "History"), ("add", "Add a job"),
]
POLICY = "; ".join([
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", "connect-src 'self'",
    "font-src 'self'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'",
])
ACT_MAX = 1000
"""Jobs that one click may act upon; "all matching" goes on page by page."""


class View:
    """One request: who asks, with what rights, and how to answer."""

    def __init__(self, request: Request, gate: Behind, user: User, cookie: str) -> None:
        self.request = request
        self.gate = gate
        self.user = user
        self.cookie = cookie
        self.asking = gate.for_user(user)

    def may(self, role: int) -> bool:
        return bool(self.user.roles & (role | ADMIN))

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        here = self.request.url.path.removeprefix("/console").strip("/").partition("/")[0]
        answer = templates.TemplateResponse(self.request, f"{template}.html", {
            "menu": MENU, "here": here, "user": "" if self.user is ANYBODY else self.user.name.decode(),
            "may_act": self.may(CONSUME), "may_add": self.may(PRODUCE), "may_all": self.may(ADMIN),
            "form_token": session.form_token(self.gate.door, self.user, self.cookie),
            "said": self.request.query_params.get("said", ""), **values,
        }, status_code=status)
        return guarded(answer, self)

    def back(self, path: str, said: str) -> Response:
        """After a form: the page it came from, with what came of it."""
        sign = "&" if "?" in path else "?"
        return guarded(RedirectResponse(f"/console/{path}{sign}said={quote(said)}", 303), self)


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


async def acting(
    request: Request, seen: Annotated[View, Depends(view)], form_token: Annotated[str, Form()] = ""
) -> View:
    """The same for a form."""
    session.check_form(seen.gate.door, seen.user, seen.cookie, form_token, request)
    return seen


Seen = Annotated[View, Depends(view)]
Acting = Annotated[View, Depends(acting)]


def install(app: FastAPI) -> None:
    """Put the console into a gateway's app."""
    from starlette.staticfiles import StaticFiles

    app.mount("/console/static", StaticFiles(directory=HERE / "static"), name="static")
    app.include_router(router)

    @app.get("/", include_in_schema=False)
    async def root() -> Response:
        return RedirectResponse("/console/")

    def is_page(request: Request) -> bool:
        return request.url.path.startswith("/console")

    problems: dict[Any, Any] = dict(app.exception_handlers)

    @app.exception_handler(Unauthorized)
    async def must_log_in(request: Request, error: Unauthorized) -> Response:
        if is_page(request):
            return guarded(RedirectResponse("/console/login", 303), None)
        answer: Response = await problems[Unauthorized](request, error)
        return answer

    @app.exception_handler(session.Forbidden)
    async def forbidden(request: Request, error: session.Forbidden) -> Response:
        return guarded(HTMLResponse(templates.get_template("problem.html").render(
            title="Not like this", words=str(error), menu=[], here="", user="", said=""), 403), None)

    @app.exception_handler(Error)
    async def went_wrong(request: Request, error: Error) -> Response:
        if not is_page(request):
            answer: Response = await problems[Error](request, error)
            return answer
        words = templates.get_template("problem.html").render(
            title="That did not work", words=str(error), menu=MENU, here="", user="", said="")
        return guarded(HTMLResponse(words, status_of(error)), None)


# -- looking ----------------------------------------------------------------------------------------------


@router.get("/login")
async def login_page(request: Request, wrong: bool = False) -> Response:
    return guarded(templates.TemplateResponse(request, "login.html", {
        "menu": [], "here": "", "user": "", "said": "", "wrong": wrong,
    }), None)


@router.post("/login")
async def login(
    request: Request, gate: Annotated[Behind, Depends(behind)], name: Annotated[str, Form(max_length=64)],
    secret: Annotated[str, Form(max_length=1024)],
) -> Response:
    try:
        await gate.door.login(name, secret, address_of(request.client))
        cookie = session.make_cookie(gate.door, name, session.now())
    except Unauthorized:
        return guarded(RedirectResponse("/console/login?wrong=1", 303), None)
    answer = guarded(RedirectResponse("/console/", 303), None)
    session.set_cookie(answer, request, cookie)
    return answer


@router.post("/logout")
async def logout(seen: Acting) -> Response:
    answer = RedirectResponse("/console/login", 303)
    answer.delete_cookie(session.COOKIE, path="/console")
    return guarded(answer, None)


@router.get("/")
async def dashboard(seen: Seen) -> Response:
    rows = await data.figures(seen.asking)
    busiest = sorted(rows, key=lambda row: -int(row.get("held", 0)))[:12]
    return seen.page("dashboard", rows=rows, busiest=busiest, members=await data.nodes(seen.asking))


@router.get("/queues")
async def queues(
    seen: Seen, find: Annotated[str, Query(max_length=200)] = "", page: Annotated[int, Query(ge=0)] = 0
) -> Response:
    rows = [row for row in await data.figures(seen.asking) if find.lower() in str(row.get("name", "")).lower()]
    first = page * data.PAGE
    return seen.page("queues", rows=rows[first:first + data.PAGE], count=len(rows), find=find, number=page,
                     has_more=len(rows) > first + data.PAGE)


@router.get("/queue")
async def queue(seen: Seen, name: Annotated[str, Query(min_length=1, max_length=1000)]) -> Response:
    found = next(iter(await totals(seen.asking, name)), {})
    settings = {key: models.plain(value) for key, value in (await seen.asking.settings(name)).items()}
    peeked = await seen.asking.peek(name, 10)
    tenants = await optional(seen.asking.call("TENANT", "LIST", name), [])
    return seen.page("queue", name=name, row=found, settings=settings, peeked=peeked,
                     tenants=models.plain(tenants))


async def optional(asked: Any, otherwise: Any) -> Any:
    """What a node of another version, or one without that feature, does not know."""
    try:
        return await asked
    except Error:
        return otherwise


@router.get("/jobs")
async def jobs(seen: Seen, cursor: Annotated[str, Query(max_length=200)] = "0") -> Response:
    filters = {name: seen.request.query_params.get(name, "")[:1000] for name in data.FILTERS}
    following, rows = await data.jobs(seen.asking, filters, cursor)
    name = "rows" if seen.request.headers.get("hx-target") == "rows" else "jobs"
    return seen.page(name, rows=rows, filters=filters, following=following, states=data.STATES)


@router.get("/job")
async def job(seen: Seen, id: Annotated[str, Query(max_length=48)]) -> Response:
    found = await data.job(seen.asking, id)
    if found is None:
        return seen.page("problem", 404, title="Nobody knows this job",
                         words="It was acknowledged, deleted, or has expired; or the node that holds it is away.")
    return seen.page("job", job=found, why=await optional(seen.asking.explain(id), None))


@router.get("/job/body")
async def job_body(seen: Seen, id: Annotated[str, Query(max_length=48)]) -> Response:
    """The body as it is, for saving; never as a page."""
    found = await data.job(seen.asking, id)
    headers = {"Content-Disposition": "attachment; filename=job-body.bin"}
    content = (found or {}).get("data") or b""
    return guarded(Response(content, media_type="application/octet-stream", headers=headers), seen)


@router.get("/workers")
async def workers(seen: Seen) -> Response:
    return seen.page("workers", rows=await optional(seen.asking.workers(), []))


@router.get("/scheduled")
async def scheduled(seen: Seen, cursor: Annotated[str, Query(max_length=200)] = "0") -> Response:
    crons = await optional(seen.asking.call("CRON", "LIST"), [])
    following, rows = await data.jobs(seen.asking, {"state": "delayed"}, cursor)
    return seen.page("scheduled", crons=[models.named(each) for each in crons], rows=rows, following=following)


@router.get("/dead")
async def dead(seen: Seen, queue: Annotated[str, Query(max_length=1000)] = "") -> Response:
    return seen.page("dead", heaps=await optional(data.dead_by_signature(seen.asking, queue), []), queue=queue)


@router.get("/limits")
async def limits(seen: Seen, cursor: Annotated[str, Query(max_length=1100)] = "0") -> Response:
    reply = await optional(seen.asking.call("DOMAIN", "LIST", "CURSOR", cursor, "COUNT", data.PAGE), [b"0", []])
    return seen.page("limits", domains=[models.named(each) for each in reply[1]], following=models.plain(reply[0]))


@router.get("/cluster")
async def cluster(seen: Seen) -> Response:
    members = []
    for node in await data.nodes(seen.asking):
        facts = await optional(data.info(seen.asking, node.near), {}) if node.is_linked else {}
        members.append((node, facts))
    facts = models.plain(await seen.asking.call("CLUSTER", "INFO"))
    rows = [line.partition(":")[::2] for line in facts.splitlines() if ":" in line]
    return seen.page("cluster", members=members, facts=rows)


@router.get("/history")
async def history(seen: Seen, queue: Annotated[str, Query(max_length=1000)] = "") -> Response:
    return seen.page("history", queue=queue, names=charts.queues(seen.request.app.state.lake))


@router.get("/history.json")
async def history_json(seen: Seen, queue: Annotated[str, Query(max_length=1000)] = "") -> dict[str, Any]:
    return charts.minutes(seen.request.app.state.lake, queue)


@router.get("/events")
async def events(seen: Seen) -> Response:
    """Live figures: what /v1/events gives, for whoever the cookie says."""
    return live.stream(seen.request.app.state.live, seen.user)


@router.get("/add")
async def add_page(seen: Seen, queue: Annotated[str, Query(max_length=1000)] = "") -> Response:
    return seen.page("add", queue=queue)


# -- acting -----------------------------------------------------------------------------------------------


@router.post("/add")
async def add(
    seen: Acting, queue: Annotated[str, Form(min_length=1, max_length=1000)], body: Annotated[str, Form()] = "",
    delay: Annotated[float, Form(ge=0)] = 0.0, priority: Annotated[int, Form(ge=0, le=9)] = 5,
) -> Response:
    made = await seen.asking.add(queue, body, priority=priority, delay=delay)
    return seen.back(f"job?id={made}", "The job was added.")


@router.post("/queue/set")
async def queue_set(seen: Acting, name: Annotated[str, Form(max_length=1000)]) -> Response:
    form = await seen.request.form()
    changes = {str(key)[4:]: str(value).strip() for key, value in form.items() if str(key).startswith("set-")}
    known = {key: models.plain(value) for key, value in (await seen.asking.settings(name)).items()}
    changed = {key: value for key, value in changes.items() if value != str(known.get(key, ""))}
    if changed:
        await seen.asking.configure(name, **changed)
    return seen.back(f"queue?name={quoted(name)}", f"Changed: {', '.join(changed) or 'nothing'}.")


@router.post("/queue/pause")
async def queue_pause(
    seen: Acting, name: Annotated[str, Form(max_length=1000)], how: Annotated[str, Form()]
) -> Response:
    state = await seen.asking.pause(name, how)
    return seen.back(f"queue?name={quoted(name)}", f"The queue is paused: {state}.")


@router.post("/queue/flush")
async def queue_flush(
    seen: Acting, name: Annotated[str, Form(max_length=1000)], typed: Annotated[str, Form()] = ""
) -> Response:
    if typed != name:
        return seen.back(f"queue?name={quoted(name)}", "Nothing was deleted: type the queue's name to confirm.")
    count = await seen.asking.flush(name)
    return seen.back(f"queue?name={quoted(name)}", f"{count} jobs were deleted.")


@router.post("/jobs/act")
async def jobs_act(
    seen: Acting, what: Annotated[str, Form()], back: Annotated[str, Form(max_length=4000)] = "jobs",
    queue: Annotated[str, Form(max_length=1000)] = "", is_all: Annotated[str, Form(alias="all")] = "",
) -> Response:
    """Something for many jobs: those that were ticked, or all that match the filter."""
    form = await seen.request.form()
    ids = [str(value) for key, value in form.multi_items() if key == "id"]
    count = 0
    if is_all:
        filters = {name: str(form.get(f"filter-{name}", "")) for name in data.FILTERS}
        cursor = "0"
        while True:
            cursor, rows = await data.jobs(seen.asking, filters, cursor)
            count += await act(seen.asking, what, [row["id"] for row in rows], queue)
            if cursor == "0" or count >= 100 * ACT_MAX:
                break
    else:
        count = await act(seen.asking, what, ids[:ACT_MAX], queue)
    path = back if back.split("?")[0] in ("jobs", "job", "dead", "scheduled") else "jobs"
    return seen.back(path, f"{what}: {count} jobs.")


async def act(asking: AsyncQueue, what: str, ids: list[str], queue: str) -> int:
    if not ids:
        return 0
    if what == "retry":
        return await asking.retry_dead(*ids)
    if what == "delete":
        return await asking.done(*ids)
    count = 0
    for job_id in ids:
        if what == "run":
            count += await asking.run_now(job_id)
        elif what == "cancel":
            count += await asking.cancel(job_id) != "unknown"
        elif what == "move" and queue:
            count += await asking.move(job_id, queue)
    return count


@router.post("/dead/act")
async def dead_act(
    seen: Acting, what: Annotated[str, Form()], queue: Annotated[str, Form(max_length=1000)] = "",
    cause: Annotated[str, Form(max_length=1000)] = "",
) -> Response:
    """All dead jobs of a queue and a cause."""
    fitting: Any = {key: value for key, value in (("queue", queue), ("cause", cause)) if value}
    again = seen.asking.retry_dead if what == "retry" else seen.asking.delete_dead
    return seen.back("dead", f"{what}: {await again(**fitting)} jobs.")


@router.post("/domain/set")
async def domain_set(
    seen: Acting, domain: Annotated[str, Form(min_length=1, max_length=1000)],
    rate: Annotated[str, Form(max_length=32)],
    burst: Annotated[str, Form(max_length=12)] = "", concurrency: Annotated[str, Form(max_length=12)] = "",
) -> Response:
    await seen.asking.limit(domain, rate, burst=int(burst) if burst.isdigit() else None,
                            concurrency=int(concurrency) if concurrency.isdigit() else None)
    return seen.back("limits", f"{domain} is limited to {rate}.")


@router.post("/cron/delete")
async def cron_delete(seen: Acting, name: Annotated[str, Form(max_length=1000)]) -> Response:
    await seen.asking.unschedule(name)
    return seen.back("scheduled", f"The schedule {name} is gone.")


def quoted(name: str) -> str:
    return quote(name, safe="")
