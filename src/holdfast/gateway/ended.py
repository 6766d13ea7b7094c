"""/v1 about jobs that are over: found in the history of the nodes, with bounded work for each request."""
from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query

from holdfast import ended
from holdfast.core.rights import User
from holdfast.core.users import may_touch
from holdfast.gateway import answers, members
from holdfast.gateway.asking import Behind, behind, the_user
from holdfast.gateway.jobs import JobId
from holdfast.gateway.models import Key, Text
from holdfast.gateway.problems import MEDIA
from holdfast.gateway.who import check

router = APIRouter(prefix="/v1", tags=["jobs"], responses=MEDIA)
How = Literal["", "done", "dead", "expired", "deleted", "cancelled", "evicted"]
Word = Annotated[Text, Query(max_length=500)]
Gate = Annotated[Behind, Depends(behind)]
Who = Annotated[User, Depends(the_user)]


def seen_queues(user: User) -> Callable[[str], bool] | None:
    """Of which queues this user may see jobs; None: of all. Raises NotAllowed."""
    check(user, ["INFO"])
    if not user.patterns or may_touch(user, b"*"):
        return None
    return lambda queue: may_touch(user, queue.encode("utf-8", "surrogateescape"))


async def search(gate: Behind, user: User, wanted: ended.Wanted, count: int, cursor: str) -> ended.Page:
    """Raises HistoryOff, NotAllowed, and BadRequest for a cursor that is none."""
    sees = seen_queues(user)
    near = [each.near for each in await members.nodes(gate.queue) if each.is_linked]
    return await ended.adrive(gate.queue, ended.search(near, wanted, count, cursor, sees), members.ANSWER_S)


async def life(gate: Behind, user: User, job_id: str, cursor: str = "", until_ms: int = 0) -> ended.Page:
    """Raises as `search`, and BadRequest for an id that is none."""
    sees = seen_queues(user)
    near = [each.near for each in await members.nodes(gate.queue) if each.is_linked]
    return await ended.adrive(gate.queue, ended.life(near, job_id, cursor, until_ms, sees), members.ANSWER_S)


@router.get("/ended")
async def ended_jobs(
    gate: Gate, user: Who, id: Word = "", queue: Annotated[Key | None, Query()] = None, how: How = "", task: Word = "",
    find: Word = "", worker: Word = "", since: Annotated[float, Query(ge=0, le=2**33)] = 0.0,
    until: Annotated[float, Query(ge=0, le=2**33)] = 0.0, count: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str, Query(max_length=40)] = "",
) -> answers.EndedPage:
    """Jobs that are over, the newest first: done, dead, expired, … out of the history of the nodes. `find` is part of
    the body or the error; `since` and `until` are unix seconds."""
    wanted = ended.Wanted(id, queue or "", how, task, find, worker, int(since * 1000), int(until * 1000))
    page = await search(gate, user, wanted, count, cursor)
    return answers.EndedPage(
        jobs=[answers.ended(each) for each in page.jobs], cursor=page.cursor, until=page.until_ms,
        looked_at=page.looked_at, silent=page.silent, has_bodies=page.has_bodies)


@router.get("/jobs/{job_id}/life")
async def life_of(
    gate: Gate, user: Who, job_id: JobId, cursor: Annotated[str, Query(max_length=40)] = ""
) -> answers.Life:
    """What happened to a job, also when no node knows it any more."""
    page = await life(gate, user, job_id, cursor)
    return answers.Life(
        events=[answers.life_event(each) for each in reversed(page.jobs)], cursor=page.cursor, silent=page.silent)
