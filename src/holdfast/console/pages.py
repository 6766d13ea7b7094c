"""The pages: each asks the nodes what it shows.

Pages are whole HTML, made here, and work without JavaScript but for live figures and charts. htmx swaps the part of a
page that changes, so a filter does not load everything again; the same address gives the whole page, which makes every
view a link. What forms do is in acts.py.
"""
from __future__ import annotations

import logging
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Form, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException

from holdfast.client.errors import Error
from holdfast.console import acts, charts, data, session
from holdfast.console.view import HERE, MENU, Acting, Seen, guarded, optional, templates
from holdfast.gateway import live, models
from holdfast.gateway.asking import Behind, behind
from holdfast.gateway.problems import Unauthorized, status_of
from holdfast.gateway.queues import totals
from holdfast.gateway.who import address_of

log = logging.getLogger("holdfast.gateway")
router = APIRouter(prefix="/console", include_in_schema=False)


def install(app: FastAPI) -> None:
    """Put the console into a gateway's app."""
    from starlette.staticfiles import StaticFiles

    app.mount("/console/static", StaticFiles(directory=HERE / "static"), name="static")
    app.include_router(router)
    app.include_router(acts.router)

    @app.get("/", include_in_schema=False)
    async def root() -> Response:
        return RedirectResponse("/console/")

    others: dict[Any, Any] = dict(app.exception_handlers)

    def told(kind: type[Exception], title: str) -> None:
        """An error of this kind is a page for those who look at pages, and what it was before for programs."""

        @app.exception_handler(kind)
        async def tell(request: Request, error: Exception) -> Response:
            if request.url.path.startswith("/console"):
                return problem_page(title, words_of(error), code_of(error))
            answer: Response = await others[kind](request, error)
            return answer

    told(Error, "That did not work")
    told(RequestValidationError, "This does not fit")
    told(HTTPException, "There is no such page")

    @app.exception_handler(Unauthorized)
    async def must_log_in(request: Request, error: Unauthorized) -> Response:
        if request.url.path.startswith("/console"):
            return guarded(RedirectResponse("/console/login", 303), None)
        answer: Response = await others[Unauthorized](request, error)
        return answer

    @app.exception_handler(session.Forbidden)
    async def forbidden(request: Request, error: session.Forbidden) -> Response:
        return problem_page("Not like this", str(error), 403, menu=[])


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


def problem_page(title: str, words: str, code: int, menu: Any = MENU) -> Response:
    values = {"title": title, "words": words, "menu": menu, "here": "-", "user": "", "said": ""}
    page = templates.get_template("problem.html").render(values)
    return guarded(HTMLResponse(page, code), None)


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
    rows = await seen.figures()
    busiest = sorted(rows, key=lambda row: -int(row.get("held", 0)))[:12]
    return seen.page("dashboard", sums=live.summed(rows), busiest=busiest, count=len(rows),
                     members=await data.nodes(seen.asking))


@router.get("/queues")
async def queues(
    seen: Seen, find: Annotated[str, Query(max_length=200)] = "", page: Annotated[int, Query(ge=0)] = 0
) -> Response:
    rows = [row for row in await seen.figures() if find.lower() in str(row.get("name", "")).lower()]
    first = page * data.PAGE
    return seen.page("queues", rows=rows[first:first + data.PAGE], count=len(rows), find=find, number=page,
                     has_more=len(rows) > first + data.PAGE)


@router.get("/queue")
async def queue(seen: Seen, name: Annotated[str, Query(min_length=1, max_length=1000)]) -> Response:
    found = next(iter(await totals(seen.asking, name)), {})
    settings = {key: models.plain(value) for key, value in (await seen.asking.settings(name)).items()}
    _, waiting = await data.jobs(seen.asking, {"queue": name, "state": "queued"}, "0", 10)
    return seen.page("queue", name=name, row=found, settings=settings, waiting=waiting,
                     hints=data.SETTING_HINTS, tenants=await data.tenants(seen.asking, name))


@router.get("/jobs")
async def jobs(seen: Seen, cursor: Annotated[str, Query(max_length=200)] = "0") -> Response:
    filters = {name: seen.request.query_params.get(name, "")[:1000] for name in data.FILTERS}
    following, rows = await data.jobs(seen.asking, filters, cursor)
    return seen.page("jobs", rows=rows, filters=filters, following=following, states=data.STATES, cursor=cursor)


@router.get("/job")
async def job(seen: Seen, id: Annotated[str, Query(max_length=48)]) -> Response:
    found = await data.job(seen.asking, id)
    if found is None:
        return seen.page("problem", 404, title="Nobody knows this job",
                         words="It was done, deleted, or has expired; or the node that holds it is away.")
    return seen.page("job", job=found, why=await optional(seen.asking.explain(id), None),
                     holders=[each.near for each in await data.nodes(seen.asking)
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
    following, held = await data.jobs(seen.asking, {"state": "leased"}, "0")
    return seen.page("workers", rows=rows, held=held, has_more=following != "0")


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
    rows = await seen.figures()
    names = [str(row["name"]) for row in sorted(rows, key=lambda row: -int(row.get("len") or 0))[:data.TENANT_QUEUES]]
    shares = [(name, found) for name in names if (found := await data.tenants(seen.asking, name))]
    return seen.page("limits", domains=[models.named(each) for each in reply[1]], shares=shares,
                     following=models.plain(reply[0]))


@router.get("/cluster")
async def cluster(seen: Seen) -> Response:
    members = await data.nodes(seen.asking)
    facts = {node.id: await optional(data.info(seen.asking, node.near), {}) for node in members if node.is_linked}
    links = {node.id: await optional(data.links(seen.asking, node.near), {}) for node in members if node.is_linked}
    counts = models.plain(await seen.asking.call("CLUSTER", "INFO"))
    rows = [line.partition(":")[::2] for line in counts.splitlines() if ":" in line]
    return seen.page("cluster", members=members, facts=facts, links=links,
                     counts=[(key.removeprefix("cluster_").replace("_", " "), value) for key, value in rows])


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
