"""What forms do: each one thing, and then the page it came from, with a sentence about what came of it.

Writing needs the role for it: a user who may only read gets no forms, and a form it made up is refused by the same
check as everywhere, at the queue that asks in its name.
"""
from __future__ import annotations

from collections import Counter
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Response
from starlette.datastructures import FormData

from holdfast.client.errors import BadRequest, NotAllowed, Refused
from holdfast.client.queue import AsyncQueue
from holdfast.client.resp import Reply
from holdfast.console import data, names
from holdfast.console.names import called
from holdfast.console.shown import link
from holdfast.console.view import Acting
from holdfast.core.rights import READ
from holdfast.gateway import models

router = APIRouter(prefix="/console", include_in_schema=False)

ACT_MAX = 1000
"""Jobs that one form may name."""
ALL_MAX = 100_000
"""Jobs that "all matching" acts upon in one go; the answer says if there may be more."""
BACK = ("jobs", "job", "dead", "scheduled")
DONE = {"run": "queued now", "retry": "queued again", "delete": "deleted", "cancel": "cancelled", "move": "moved"}
HARM = ("cancel", "delete")
Name = Annotated[str, Form(min_length=1, max_length=names.CODED_MAX), names.Decoded]
Word = Annotated[str, Form(max_length=names.CODED_MAX)]


def said(what: str, count: int) -> str:
    return f"{count:,} {'job was' if count == 1 else 'jobs were'} {DONE.get(what, what)}."


def there_already(name: str) -> str:
    return f"Nothing was moved: {called(name)} is where they are."


def left_out(without: set[str]) -> str:
    """Whose jobs are not among "all"; nothing where all nodes answer."""
    return f"Left out, as there is no answer: the jobs of {', '.join(sorted(without))}." if without else ""


def kept(refused: Counter[str]) -> str:
    """What was not done, by reason; nothing where nothing was refused."""
    return " ".join(f"{count:,} stayed as {'it was' if count == 1 else 'they were'}: {why}."
                    for why, count in refused.items())


@router.post("/add")
async def add(
    seen: Acting, queue: Name, body: Annotated[str, Form()] = "", delay: Annotated[float, Form(ge=0)] = 0.0,
    priority: Annotated[int, Form(ge=0, le=9)] = 5, attempts: Annotated[int | None, Form(ge=0)] = None,
    domain: Word = "", group: Word = "", tenant: Word = "",
) -> Response:
    said_keys = (("domain", domain), ("group", group), ("tenant", tenant))
    keys: Any = {name: names.decoded(value) for name, value in said_keys if value}
    if attempts is not None:
        keys["attempts"] = attempts
    body = body.replace("\r\n", "\n")  # a browser sends each end of a line like this, whatever was typed
    made = await seen.asking.add(queue, body, priority=priority, delay=delay, **keys)
    return seen.back(f"job?id={made}" if seen.may(READ) else "add", "The job was added.")


@router.post("/queue/set")
async def queue_set(seen: Acting, name: Name) -> Response:
    """What was changed on the page, and no more: others may have set the rest since it was loaded. Where they have set
    the same thing, nothing is saved, and the page shows both."""
    form = await seen.request.form()
    stored = settings_shown(await seen.asking.settings(name))
    typed = {str(key)[4:]: str(value).strip() for key, value in form.items() if str(key).startswith("set-")}
    were = {key: str(form.get(f"was-{key}", stored.get(key, ""))).strip() for key in typed}
    changed = {key: value for key, value in typed.items() if value not in (were[key], stored.get(key, ""))}
    path = f"queue?name={link(name)}"
    crossed = [key for key in changed if stored.get(key, "") != were[key]]
    if crossed:
        news = "; ".join(f"{key} was {were[key] or 'not set'} and is {stored[key] or 'not set'} now" for key in crossed)
        again = urlencode({f"set-{key}": value for key, value in changed.items()})
        return seen.back(f"{path}&{again}", f"Nothing was saved, as somebody else has changed it: {news}. "
                                            "Save again to have it as it is below.")
    if changed:
        await seen.asking.configure(name, **changed)
    return seen.back(path, f"Changed: {', '.join(changed) or 'nothing'}.")


def settings_shown(settings: dict[str, Reply]) -> dict[str, str]:
    """A queue's settings as its form has them; what is not set is empty."""
    return {key: "" if value is None else str(models.plain(value)) for key, value in settings.items()}


@router.post("/queue/pause")
async def queue_pause(seen: Acting, name: Name, how: Word) -> Response:
    state = await seen.asking.pause(name, how)
    words = "The queue runs." if state == "none" else f"The queue is paused: {state}."
    return seen.back(f"queue?name={link(name)}", words)


@router.post("/queue/flush")
async def queue_flush(seen: Acting, name: Name, typed: Word = "") -> Response:
    if typed != called(name) and names.decoded(typed) != name:
        return seen.back(f"queue?name={link(name)}", "Nothing was deleted: type the queue's name to confirm.")
    return seen.back(f"queue?name={link(name)}", said("delete", await seen.asking.flush(name)))


@router.post("/queue/move")
async def queue_move(seen: Acting, name: Name, to: Name) -> Response:
    """All jobs that wait in it."""
    if to == name:
        return seen.back(f"queue?name={link(name)}", there_already(name))
    without: set[str] = set()
    refused: Counter[str] = Counter()
    count = await act_on_all(seen.asking, "move", {"queue": names.coded(name), "state": "queued"}, names.coded(to),
                             without, refused)
    words = f"{said('move', count)} They came from {called(name)}. {kept(refused)} {left_out(without)}"
    return seen.back(f"queue?name={link(to)}", words)


@router.post("/jobs/act")
async def jobs_act(
    seen: Acting, what: Word, back: Annotated[str, Form(max_length=4000)] = "jobs", queue: Word = "",
    is_all: Annotated[str, Form(alias="all")] = "", is_sure: Annotated[str, Form(alias="sure")] = "",
) -> Response:
    """Something for many jobs: those that were ticked, or all that match the filter. Before these come to harm they are
    counted, and somebody has to be sure."""
    form = await seen.request.form()
    path = back if back.split("?")[0] in BACK else "jobs"
    if what not in DONE or (what == "move" and not queue):
        return seen.back(path, "Nothing was done: say what, and to move jobs, where to.")
    filters = {name: str(form.get(f"filter-{name}", "")) for name in data.FILTERS}
    if what == "move" and filters["queue"] and names.decoded(filters["queue"]) == names.decoded(queue):
        return seen.back(path, there_already(names.decoded(queue)))
    refused: Counter[str] = Counter()
    if not is_all:
        ids = chosen(form)[:ACT_MAX]
        if not ids:
            return seen.back(path, "Nothing was done: no job was chosen.")
        count = await act(seen.asking, what, ids, queue, refused)
        return seen.back(path, f"{said(what, count)} {kept(refused)}")
    if not any(filters.values()):
        return seen.back(path, "Nothing was done: without a filter, “all matching” would be every job there is.")
    without: set[str] = set()
    if what in HARM and not is_sure:
        count = await count_all(seen.asking, filters, without)
        return seen.page("sure", what=what, count=count, is_more=count >= ALL_MAX, filters=filters, back=path,
                         left_out=left_out(without))
    count = await act_on_all(seen.asking, what, filters, queue, without, refused)
    return seen.back(path, f"{said(what, count)} {kept(refused)} {left_out(without)}")


def chosen(form: FormData) -> list[str]:
    """The ids that a form names, one or many to a field."""
    return [job_id for key, value in form.multi_items() if key == "id" for job_id in str(value).split()]


async def count_all(asking: AsyncQueue, filters: dict[str, str], without: set[str]) -> int:
    """How many jobs match, up to as many as would be acted upon; `without` those of the nodes that are put there."""
    count, cursor = 0, "0"
    while True:
        cursor, rows = await data.jobs(asking, filters, cursor, ACT_MAX, without)
        count += len(rows)
        if cursor == "0" or count >= ALL_MAX:
            return count


async def act_on_all(
    asking: AsyncQueue, what: str, filters: dict[str, str], queue: str, without: set[str], refused: Counter[str]
) -> int:
    """Page by page; a job that has gone on meanwhile is not counted. `without`: as for `count_all`; `refused`: as for
    `act`."""
    count, cursor = 0, "0"
    while True:
        cursor, rows = await data.jobs(asking, filters, cursor, without=without)
        count += await act(asking, what, [row["id"] for row in rows], queue, refused)
        if cursor == "0" or count >= ALL_MAX:
            return count


async def act(asking: AsyncQueue, what: str, ids: list[str], queue: str, refused: Counter[str]) -> int:
    """How many it was done for. `queue`: where to, as pages write it. `refused`: why others stay where they are."""
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
            try:
                count += await asking.move(job_id, names.decoded(queue))
            except NotAllowed:
                raise
            except (BadRequest, Refused) as error:
                refused[error.text] += 1
    return count


@router.post("/dead/act")
async def dead_act(seen: Acting, what: Word, queue: Word = "") -> Response:
    """Those that were on the card, or were ticked on it, as far as they are still dead. `queue`: the page's filter."""
    ids = chosen(await seen.request.form())[:ACT_MAX]
    path = f"dead?{urlencode({'queue': queue})}" if queue else "dead"
    if not ids or what not in ("retry", "delete"):
        return seen.back(path, "Nothing was done: no job was chosen.")
    act = seen.asking.retry_dead if what == "retry" else seen.asking.delete_dead
    return seen.back(path, said(what, await act(*ids)))


@router.post("/domain/set")
async def domain_set(
    seen: Acting, domain: Name, rate: Annotated[str, Form(max_length=32)],
    burst: Annotated[int | None, Form(ge=0)] = None, concurrency: Annotated[int | None, Form(ge=0)] = None,
) -> Response:
    await seen.asking.limit(domain, rate, burst=burst, concurrency=concurrency)
    return seen.back("limits", f"{called(domain)} is limited to {rate}.")


@router.post("/domain/delete")
async def domain_delete(seen: Acting, domain: Name) -> Response:
    await seen.asking.unlimit(domain)
    return seen.back("limits", f"{called(domain)} is not limited any more.")


@router.post("/tenant/set")
async def tenant_set(
    seen: Acting, queue: Name, tenant: Name, weight: Annotated[int, Form(ge=1)]
) -> Response:
    await seen.asking.weigh(queue, tenant, weight)
    return seen.back("limits", f"{called(tenant)} has weight {weight} in {called(queue)}.")


@router.post("/cron/set")
async def cron_set(
    seen: Acting, name: Name, schedule: Name, queue: Name, body: Annotated[str, Form()] = "", zone: Word = ""
) -> Response:
    await seen.asking.schedule(name, schedule, queue, body, zone=zone)
    return seen.back("scheduled", f"The schedule {called(name)} is set.")


@router.post("/cron/delete")
async def cron_delete(seen: Acting, name: Name) -> Response:
    await seen.asking.unschedule(name)
    return seen.back("scheduled", f"The schedule {called(name)} is gone.")
