"""The pages: each asks the nodes what it shows.

Pages are whole HTML, made here, and work without JavaScript but for live figures and charts. htmx swaps the part of a
page that changes, so a filter does not load everything again; the same address gives the whole page, which makes every
view a link. What forms do is in acts.py.
"""
from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, FastAPI, Form, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException

from holdfast import ended
from holdfast.client.errors import BadRequest, Error, NotAllowed
from holdfast.client.resp import to_text
from holdfast.console import acts, charts, data, fields, names, session, shown, trouble
from holdfast.console.view import HERE, Acting, Seen, guarded, optional, templates, view
from holdfast.core import states
from holdfast.core.rights import PRODUCE, READ
from holdfast.gateway import ended as history_of
from holdfast.gateway import live, members, models, past
from holdfast.gateway.asking import Behind, behind
from holdfast.gateway.problems import Unauthorized, status_of
from holdfast.gateway.queues import name_of, totals
from holdfast.gateway.who import address_of

FORMS = {
    "add": "add", "domain/set": "limits", "tenant/set": "limits", "cron/set": "scheduled", "queue/set": "queue",
    "queue/move": "queue", "queue/pause": "queue",
}
"""Forms, and the pages they are on: a page fills in what its address says."""
TYPED_MAX = 4000
"""Of one field; an address has its bounds."""
BUSIEST = 12
"""Queues on the dashboard."""
Coded = Annotated[str, Query(max_length=names.CODED_MAX)]
"""A queue as pages write it (names.py); nothing is all of them."""
SEARCHED = ("id", "queue", "how", "task", "find", "worker", "since", "until")
"""What ended jobs are searched by."""
NO_BODIES = ended.NO_BODIES[:1].upper() + ended.NO_BODIES[1:]
log = logging.getLogger("holdfast.gateway")
router = APIRouter(prefix="/console", include_in_schema=False)


def install(app: FastAPI) -> None:
    """Put the console into a gateway's app."""
    from starlette.staticfiles import StaticFiles

    app.mount("/console/static", StaticFiles(directory=HERE / "static"), name="static")
    app.include_router(router)
    app.include_router(acts.router)

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def root() -> Response:
        return RedirectResponse("/console/")

    others: dict[Any, Any] = dict(app.exception_handlers)

    def tell_of(kind: type[Exception], title: str) -> None:
        """An error of this kind is a page for those who look at pages, and what it was before for programs."""

        @app.exception_handler(kind)
        async def tell(request: Request, error: Exception) -> Response:
            if request.url.path.startswith("/console"):
                return await problem_page(request, title, words_of(error), code_of(error))
            answer: Response = await others[kind](request, error)
            return answer

    tell_of(Error, "That did not work")
    tell_of(RequestValidationError, "This does not fit")
    tell_of(HTTPException, "There is no such page")

    @app.exception_handler(Unauthorized)
    async def must_log_in(request: Request, error: Unauthorized) -> Response:
        if request.url.path.startswith("/console"):
            wanted = f"{request.url.path}?{request.url.query}".rstrip("?") if request.method == "GET" else ""
            return guarded(RedirectResponse(login_path(wanted), 303), None)
        answer: Response = await others[Unauthorized](request, error)
        return answer

    @app.exception_handler(session.Forbidden)
    async def forbidden(request: Request, error: session.Forbidden) -> Response:
        return await problem_page(request, "Not like this", str(error), 403)


def words_of(error: Exception) -> str:
    if isinstance(error, RequestValidationError):
        return "; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in error.errors())
    if isinstance(error, HTTPException):
        return str(error.detail)
    return str(error)


def code_of(error: Exception) -> int:
    if isinstance(error, RequestValidationError):
        return 422
    return error.status_code if isinstance(error, HTTPException) else status_of(error)


async def problem_page(request: Request, title: str, words: str, code: int) -> Response:
    """What went wrong, for whoever it is; and the way back to the form, with what was typed into it."""
    form = FORMS.get(request.url.path.removeprefix("/console/")) if request.method == "POST" else None
    given = (await request.form()).items() if form is not None else ()
    sent = {key: str(value) for key, value in given if key != "form_token"}
    settings = [key[4:] for key in sent if key.startswith("set-")]
    untouched = {name for name in settings if sent[f"set-{name}"] == sent.get(f"was-{name}")}
    left_out = {f"{word}-{name}" for name in untouched for word in ("set", "was")}  # others may have changed them
    typed = {key: value for key, value in sent.items() if key not in left_out and len(value) <= TYPED_MAX}
    values = {"title": title, "words": words, "form": form, "typed": typed}
    try:
        seen = await view(request, behind(request))
    except Unauthorized:
        page = templates.get_template("problem.html").render({**values, "menu": [], "here": "", "user": "", "said": ""})
        return guarded(HTMLResponse(page, code), None)
    return seen.page("problem", code, **values)


def login_path(wanted: str, is_wrong: bool = False) -> str:
    """Where to log in, and where to go then: to a page of ours, and to no other site's."""
    said = {**({"next": wanted} if wanted.startswith("/console/") else {}), **({"wrong": "1"} if is_wrong else {})}
    return f"/console/login?{urlencode(said)}".rstrip("?")


@router.get("/login")
async def login_page(
    request: Request, wrong: bool = False, next: Annotated[str, Query(max_length=4000)] = ""
) -> Response:
    return guarded(templates.TemplateResponse(request, "login.html", {
        "menu": [], "here": "", "user": "", "said": "", "wrong": wrong, "next": next,
    }), None)


@router.post("/login")
async def login(
    request: Request, gate: Annotated[Behind, Depends(behind)], name: Annotated[str, Form(max_length=64)],
    secret: Annotated[str, Form(max_length=1024)], next: Annotated[str, Form(max_length=4000)] = "",
) -> Response:
    try:
        await gate.door.login(name, secret, address_of(request.client))
        cookie = session.make_cookie(gate.door, name, session.now())
    except Unauthorized:
        return guarded(RedirectResponse(login_path(next, is_wrong=True), 303), None)
    answer = guarded(RedirectResponse(next if next.startswith("/console/") else "/console/", 303), None)
    session.set_cookie(answer, request, cookie)
    return answer


@router.post("/logout")
async def logout(seen: Acting) -> Response:
    answer = RedirectResponse("/console/login", 303)
    answer.delete_cookie(session.COOKIE, path="/console")
    return guarded(answer, None)


@router.get("/")
async def dashboard(seen: Seen) -> Response:
    if not seen.may(READ) and seen.menu():  # what there is for somebody who only adds, or works
        return guarded(RedirectResponse(f"/console/{seen.menu()[-1][0]}"), seen)
    rows, wrong = await asyncio.gather(seen.figures(), trouble.now(seen))
    return seen.page("dashboard", wrong=wrong, sums=live.summed(rows), rows=data.ranked(rows, data.BUSY)[:BUSIEST],
                     most=BUSIEST, count=len(rows), by=data.BUSY, columns=data.COLUMNS,
                     members=members.told(await members.nodes(seen.asking), seen.silent))


@router.get("/problems")
async def problems(seen: Seen) -> Response:
    """The part of the dashboard that says what is wrong, for a page that is open."""
    return seen.page("problems", wrong=await trouble.now(seen))


@router.get("/past.json")
async def past_json(seen: Seen, queue: Coded = "", step: past.Step = "second") -> dict[str, Any]:
    """The figures of the last hour by seconds, or of the last day by minutes: what charts open with."""
    name = names.decoded(queue) if queue else past.ALL
    try:
        told = await past.seen(seen.gate, seen.user, name, step, past.ROWS[step])
    except NotAllowed:
        raise
    except Error as error:
        return {"time": [], "notes": [{"words": f"The nodes do not answer: {error.text}"}]}
    return {**charts.rows_of(told), "notes": charts.notes(told)}


@router.get("/queues")
async def queues(
    seen: Seen, find: Annotated[str, Query(max_length=200)] = "", page: Annotated[int, Query(ge=0)] = 0,
    by: Annotated[str, Query(max_length=40)] = "name",
) -> Response:
    by = by if by.removeprefix("-") in dict(data.COLUMNS) else "name"
    wanted = find.lower()
    rows = [row for row in await seen.figures()
            if any(wanted in each.lower() for each in (row["name"], names.called(row["name"])))]
    first = page * data.PAGE
    return seen.page("queues", rows=data.ranked(rows, by)[first:first + data.PAGE], count=len(rows), find=find,
                     number=page, first=first, most=data.PAGE, has_more=len(rows) > first + data.PAGE, by=by,
                     columns=data.COLUMNS)


@router.get("/queue")
async def queue(seen: Seen, name: Annotated[str, Query(max_length=names.CODED_MAX), names.Decoded]) -> Response:
    found = next(iter(await totals(seen.asking, name)), {})
    settings = acts.settings_shown(await seen.asking.settings(name))
    _, waiting = await data.jobs(seen.asking, {"queue": names.coded(name), "state": "queued"}, "0", 10)
    return seen.page("queue", name=name, row=found, settings=settings, waiting=waiting,
                     field=fields.field, tenants=await data.tenants(seen.asking, name))


@router.get("/jobs")
async def jobs(seen: Seen, cursor: Annotated[str, Query(max_length=200)] = "0") -> Response:
    filters = {name: seen.request.query_params.get(name, "")[:names.CODED_MAX] for name in data.FILTERS}
    choice = await seen.choice(filters["queue"])
    following, rows = await data.jobs(seen.asking, filters, cursor) if choice is None else ("0", [])
    listed = [each.decode() for each in states.LISTED]
    return seen.page("jobs", rows=rows, filters=filters, following=following, states=listed, cursor=cursor,
                     choice=choice)


@router.get("/ended")
async def ended_jobs(seen: Seen, cursor: Annotated[str, Query(max_length=40)] = "") -> Response:
    """Finished and failed jobs of the last hours and days, out of the history of the nodes."""
    given = seen.request.query_params
    sought = {name: given.get(name, "")[:names.CODED_MAX] for name in SEARCHED}
    wanted = ended.Wanted(sought["id"], names.decoded(sought["queue"]), sought["how"], sought["task"], sought["find"],
                          sought["worker"], shown.unix_ms(sought["since"]), shown.unix_ms(sought["until"]))
    off, page = "", None
    try:
        page = await history_of.search(seen.gate, seen.user, wanted, data.PAGE, cursor)
    except ended.HistoryOff as error:
        off = error.text[:1].upper() + error.text[1:]
    return seen.page("ended", page=page, off=off, sought=sought, cursor=cursor, hows=list(ended.HOWS.values()),
                     no_bodies=NO_BODIES, task_of=ended.task_of)


async def ended_job(seen: Seen, job_id: str, cursor: str, ended_ms: int) -> Response:
    """The page of a job that no node knows any more: its life, where the nodes keep history."""
    words = "It was done, deleted, or has expired; or the node that holds it is away."
    try:
        page = await history_of.life(seen.gate, seen.user, job_id, cursor, ended_ms)
    except ended.HistoryOff as error:
        return seen.page("problem", 404, title="Nobody knows this job", words=f"{words} Its life cannot be told, as "
                         f"{error.text}.")
    except BadRequest:
        return seen.page("problem", 404, title="Nobody knows this job", words=words)
    end = next((each for each in page.jobs if each.how and each.queue is not None),
               next((each for each in page.jobs if each.how), None))
    return seen.page("life", 200 if page.jobs else 404, id=job_id, events=page.jobs[::-1], end=end, cursor=page.cursor,
                     silent=page.silent, until_ms=page.until_ms, no_bodies=NO_BODIES)


@router.get("/job")
async def job(
    seen: Seen, id: Annotated[str, Query(max_length=48)], cursor: Annotated[str, Query(max_length=40)] = "",
    ended: Annotated[int, Query(ge=0, le=2**50)] = 0,
) -> Response:
    found = await data.job(seen.asking, id)
    if found is None:
        return await ended_job(seen, id, cursor, ended)
    return seen.page("job", job=found, labels=data.OF_A_JOB, why=await optional(seen.asking.explain(id), None),
                     holders=[each.near for each in await members.nodes(seen.asking)
                              if each.id in (found.get("nodes-delivered") or [])])


@router.get("/job/body")
async def job_body(seen: Seen, id: Annotated[str, Query(max_length=48)]) -> Response:
    """The body as it is, for saving; never as a page."""
    found = await data.job(seen.asking, id)
    headers = {"Content-Disposition": "attachment; filename=job-body.bin"}
    content = (found or {}).get("data") or b""
    return guarded(Response(content, media_type="application/octet-stream", headers=headers), seen)


@router.get("/workers")
async def workers(seen: Seen) -> Response:
    rows = await optional(seen.asking.workers(), [])
    if not seen.may(READ):
        return seen.page("workers", rows=rows, held=[], has_more=False, choice=None)
    choice = await seen.choice("")
    following, held = await data.jobs(seen.asking, {"state": "leased"}, "0") if choice is None else ("0", [])
    return seen.page("workers", rows=rows, held=held, has_more=following != "0", choice=choice)


@router.get("/scheduled")
async def scheduled(seen: Seen, cursor: Annotated[str, Query(max_length=200)] = "0") -> Response:
    choice = await seen.choice("")
    if choice is not None:
        return seen.page("scheduled", crons=[], rows=[], following="0", choice=choice)
    crons = await optional(seen.asking.call("CRON", "LIST"), [])
    wanted = {"state": "delayed"}
    following, rows = await data.jobs(seen.asking, wanted, cursor)
    counted = await data.expected(seen.asking, wanted)
    is_all = cursor == "0" and counted is not None and len(rows) >= counted
    return seen.page("scheduled", crons=[data.told(each) for each in crons], rows=rows, following=following,
                     cursor=cursor, is_all=is_all, choice=None)


@router.get("/dead")
async def dead(seen: Seen, queue: Coded = "") -> Response:
    heaps, is_all, choice = [], True, await seen.choice(queue)
    if choice is None:
        heaps, is_all = await optional(data.dead_by_signature(seen.asking, queue), ([], True))
    return seen.page("dead", heaps=heaps, is_all=is_all, looked_at=data.DEAD_LOOKED_AT, queue=queue, choice=choice)


@router.get("/limits")
async def limits(seen: Seen, cursor: Annotated[str, Query(max_length=1100)] = "0") -> Response:
    rows = await seen.figures()
    reply: Any = [b"0", []]
    if not seen.is_bound():
        reply = await optional(seen.asking.call("DOMAIN", "LIST", "CURSOR", cursor, "COUNT", data.PAGE), reply)
    longest = [str(row["name"]) for row in sorted(rows, key=lambda row: -int(row.get("len") or 0))[:data.TENANT_QUEUES]]
    shares = [(name, found) for name in longest if (found := await data.tenants(seen.asking, name))]
    return seen.page("limits", domains=[data.told(each) for each in reply[1]], shares=shares,
                     following=models.plain(reply[0]))


@router.get("/cluster")
async def cluster(seen: Seen) -> Response:
    found = await members.nodes(seen.asking)
    facts, links = await asyncio.gather(data.facts(seen.asking, found), data.links(seen.asking, found))
    seen.silent = [node.id for node in found if node.id not in facts]
    told, counters = data.of_cluster(data.fields(await seen.asking.call("CLUSTER", "INFO")))
    return seen.page("cluster", members=found, facts=facts, links=links, told=told, counters=counters)


@router.get("/history")
async def history(seen: Seen, queue: Coded = "") -> Response:
    return seen.page("history", queue=queue, names=charts.queues(seen.request.app.state.lake, seen.past()))


@router.get("/history.json")
async def history_json(seen: Seen, queue: Coded = "") -> dict[str, Any]:
    return charts.minutes(seen.request.app.state.lake, queue, seen.past())


@router.get("/events")
async def events(seen: Seen) -> Response:
    """Live figures: what /v1/events gives, for whoever the cookie says."""
    return live.stream(seen.request.app.state.live, seen.user,
                       lambda row: names.marked(row, to_text(name_of(row))))


@router.get("/add")
async def add_page(seen: Seen, queue: Coded = "") -> Response:
    return seen.page("add", 200 if seen.may(PRODUCE) else 403, queue=queue)
