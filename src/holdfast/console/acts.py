"""What forms do: each one thing, and then the page it came from, with a sentence about what came of it.

Writing needs the role for it: a user who may only read gets no forms, and a form it made up is refused by the same
check as everywhere, at the queue that asks in its name.
"""
from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Response

from holdfast.client.queue import AsyncQueue
from holdfast.console import data
from holdfast.console.view import Acting, quoted
from holdfast.gateway import models

router = APIRouter(prefix="/console", include_in_schema=False)

ACT_MAX = 1000
"""Jobs that one form may name."""
ALL_MAX = 100_000
"""Jobs that "all matching" acts upon in one go; the answer says if there may be more."""
BACK = ("jobs", "job", "dead", "scheduled")
DONE = {"run": "queued now", "retry": "queued again", "delete": "deleted", "cancel": "cancelled", "move": "moved"}
Name = Annotated[str, Form(min_length=1, max_length=1000)]
Word = Annotated[str, Form(max_length=1000)]


def said(what: str, count: int) -> str:
    return f"{count:,} {'job was' if count == 1 else 'jobs were'} {DONE.get(what, what)}."


@router.post("/add")
async def add(
    seen: Acting, queue: Name, body: Annotated[str, Form()] = "", delay: Annotated[float, Form(ge=0)] = 0.0,
    priority: Annotated[int, Form(ge=0, le=9)] = 5, attempts: Word = "", domain: Word = "", group: Word = "",
    tenant: Word = "",
) -> Response:
    keys: Any = {name: value for name, value in (("domain", domain), ("group", group), ("tenant", tenant)) if value}
    if attempts.isdigit():
        keys["attempts"] = int(attempts)
    made = await seen.asking.add(queue, body, priority=priority, delay=delay, **keys)
    return seen.back(f"job?id={made}", "The job was added.")


@router.post("/queue/set")
async def queue_set(seen: Acting, name: Name) -> Response:
    form = await seen.request.form()
    changes = {str(key)[4:]: str(value).strip() for key, value in form.items() if str(key).startswith("set-")}
    known = {key: models.plain(value) for key, value in (await seen.asking.settings(name)).items()}
    changed = {key: value for key, value in changes.items() if value != str(known.get(key, ""))}
    if changed:
        await seen.asking.configure(name, **changed)
    return seen.back(f"queue?name={quoted(name)}", f"Changed: {', '.join(changed) or 'nothing'}.")


@router.post("/queue/pause")
async def queue_pause(seen: Acting, name: Name, how: Word) -> Response:
    state = await seen.asking.pause(name, how)
    words = "The queue runs." if state == "none" else f"The queue is paused: {state}."
    return seen.back(f"queue?name={quoted(name)}", words)


@router.post("/queue/flush")
async def queue_flush(seen: Acting, name: Name, typed: Word = "") -> Response:
    if typed != name:
        return seen.back(f"queue?name={quoted(name)}", "Nothing was deleted: type the queue's name to confirm.")
    return seen.back(f"queue?name={quoted(name)}", said("delete", await seen.asking.flush(name)))


@router.post("/queue/move")
async def queue_move(seen: Acting, name: Name, to: Name) -> Response:
    """All jobs that wait in it."""
    count = await act_on_all(seen.asking, "move", {"queue": name, "state": "queued"}, to)
    return seen.back(f"queue?name={quoted(to)}", f"{said('move', count)} They came from {name}.")


@router.post("/jobs/act")
async def jobs_act(
    seen: Acting, what: Word, back: Annotated[str, Form(max_length=4000)] = "jobs", queue: Word = "",
    is_all: Annotated[str, Form(alias="all")] = "",
) -> Response:
    """Something for many jobs: those that were ticked, or all that match the filter."""
    form = await seen.request.form()
    path = back if back.split("?")[0] in BACK else "jobs"
    if what not in DONE or (what == "move" and not queue):
        return seen.back(path, "Nothing was done: say what, and to move jobs, where to.")
    if not is_all:
        ids = [str(value) for key, value in form.multi_items() if key == "id"]
        return seen.back(path, said(what, await act(seen.asking, what, ids[:ACT_MAX], queue)))
    filters = {name: str(form.get(f"filter-{name}", "")) for name in data.FILTERS}
    if not any(filters.values()):
        return seen.back(path, "Nothing was done: without a filter, “all matching” would be every job there is.")
    return seen.back(path, said(what, await act_on_all(seen.asking, what, filters, queue)))


async def act_on_all(asking: AsyncQueue, what: str, filters: dict[str, str], queue: str) -> int:
    """Page by page; a job that has gone on meanwhile is not counted."""
    count, cursor = 0, "0"
    while True:
        cursor, rows = await data.jobs(asking, filters, cursor)
        count += await act(asking, what, [row["id"] for row in rows], queue)
        if cursor == "0" or count >= ALL_MAX:
            return count


async def act(asking: AsyncQueue, what: str, ids: list[str], queue: str) -> int:
    """How many it was done for."""
    if not ids:
        return 0
    if what == "retry":
        return await asking.retry_dead(*ids)
    if what == "delete":
        dead = await asking.delete_dead(*ids)
        return dead if dead == len(ids) else dead + await asking.done(*ids)
    count = 0
    for job_id in ids:
        if what == "run":
            count += await asking.run_now(job_id)
        elif what == "cancel":
            count += await asking.cancel(job_id) != "unknown"
        else:
            count += await asking.move(job_id, queue)
    return count


@router.post("/dead/act")
async def dead_act(seen: Acting, what: Word, queue: Name, cause: Word = "") -> Response:
    """All dead jobs of a queue and a cause."""
    fitting: Any = {"queue": queue, **({"cause": cause} if cause else {})}
    if what == "retry":
        return seen.back("dead", said(what, await seen.asking.retry_dead(**fitting)))
    if what == "delete":
        return seen.back("dead", said(what, await seen.asking.delete_dead(**fitting)))
    return seen.back("dead", "Nothing was done.")


@router.post("/domain/set")
async def domain_set(
    seen: Acting, domain: Name, rate: Annotated[str, Form(max_length=32)], burst: Word = "", concurrency: Word = "",
) -> Response:
    await seen.asking.limit(domain, rate, burst=int(burst) if burst.isdigit() else None,
                            concurrency=int(concurrency) if concurrency.isdigit() else None)
    return seen.back("limits", f"{domain} is limited to {rate}.")


@router.post("/domain/delete")
async def domain_delete(seen: Acting, domain: Name) -> Response:
    await seen.asking.unlimit(domain)
    return seen.back("limits", f"{domain} is not limited any more.")


@router.post("/tenant/set")
async def tenant_set(
    seen: Acting, queue: Name, tenant: Name, weight: Annotated[int, Form(ge=1)]
) -> Response:
    await seen.asking.weigh(queue, tenant, weight)
    return seen.back("limits", f"{tenant} has weight {weight} in {queue}.")


@router.post("/cron/set")
async def cron_set(
    seen: Acting, name: Name, schedule: Name, queue: Name, body: Annotated[str, Form()] = "", zone: Word = ""
) -> Response:
    await seen.asking.schedule(name, schedule, queue, body, zone=zone)
    return seen.back("scheduled", f"The schedule {name} is set.")


@router.post("/cron/delete")
async def cron_delete(seen: Acting, name: Name) -> Response:
    await seen.asking.unschedule(name)
    return seen.back("scheduled", f"The schedule {name} is gone.")
