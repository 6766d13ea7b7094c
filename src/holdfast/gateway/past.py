"""/v1 about the past and the present of a cluster: the figures of the last hour and day, and what is wrong now.

Nodes keep the rows (core/past.py) and say how they are; here they are asked each time and added up, so every gateway
says the same, and says it again after a restart.
"""
from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Depends, Query

from holdfast.client import past, sight
from holdfast.client.figures import FIGURES
from holdfast.client.queue import AsyncQueue
from holdfast.client.resp import to_text
from holdfast.client.trouble import what_is_wrong
from holdfast.core.rights import User
from holdfast.core.users import may_touch
from holdfast.gateway import answers, members, queues
from holdfast.gateway.asking import Behind, behind, the_user
from holdfast.gateway.live import seen_by
from holdfast.gateway.models import Key, plain
from holdfast.gateway.problems import MEDIA
from holdfast.gateway.who import check

router = APIRouter(prefix="/v1", tags=["queues"], responses=MEDIA)

ALL = "*"
BOUND_QUEUES = 16
"""Queues that are added up for somebody who may not see all of them: those in which most happens."""
NAMES = {each.said: each.name for each in FIGURES if each.said in past.COLUMNS}
Step = Literal["second", "minute"]
ROWS = {step: most for step, (_, most) in past.STEPS.items()}


@dataclass(frozen=True)
class Told:
    """Rows of all nodes as one, and which node is in them from when on."""

    past: past.Past | None
    since: dict[str, int]
    """By the id of a node: Unix time."""
    silent: list[str]
    """Ids of members whose share is missing."""
    is_cut: bool = False
    """Whether there are more queues than were added up."""


async def rows(asking: AsyncQueue, names: Sequence[str], step: Step, count: int) -> Told:
    """The rows of one queue, of several, or of all (`*`)."""
    word, most = past.STEPS[step]
    known = await members.nodes(asking)
    asked = (members.at_each(asking, known, "PAST", "READ", name, word, min(count, most)) for name in names)
    replies = await asyncio.gather(*asked)
    found = [(node, past.read(reply)) for each in replies for node, reply in each.items()]
    heard = {node for each in replies for node in each}
    since: dict[str, int] = {}
    for node, each in found:
        if each.since:
            since[node] = min(each.since, since.get(node, each.since))
    silent = [each.id for each in known if each.id not in heard and each.state != "meeting"]
    return Told(past.added_up(each for _, each in found), since, silent)


async def seen(gate: Behind, user: User, queue: str, step: Step, count: int) -> Told:
    """The rows of a queue, or with `*` of all that this user may see. Raises NotAllowed."""
    asking = gate.for_user(user)
    if queue != ALL or not user.patterns or may_touch(user, ALL.encode()):
        return await rows(asking, [queue], step, count)
    check(user, ["INFO"])
    found, _ = await queues.figures(gate.queue, ALL)
    busy = sorted(seen_by(user, {"queues": found})["queues"], key=lambda row: -int(row["added"]) - int(row["len"]))
    names = [to_text(queues.name_of(row)) for row in busy]
    told = await rows(asking, names[:BOUND_QUEUES], step, count)
    return Told(told.past, told.since, told.silent, len(names) > BOUND_QUEUES)


class Recent:
    """The latest look at a cluster: a hundred open pages cost the nodes as much as one."""

    def __init__(self) -> None:
        self.sight: sight.Sight | None = None
        self.until = 0.0
        self.lock = asyncio.Lock()


RECENT: WeakKeyDictionary[Behind, Recent] = WeakKeyDictionary()
LOOKED_S = 2.0
"""So old a look may be: pages ask every few seconds."""


async def shared_look(gate: Behind) -> sight.Sight:
    recent = RECENT.setdefault(gate, Recent())
    async with recent.lock:
        if recent.sight is None or time.monotonic() > recent.until:
            recent.sight = await sight.alook(gate.queue)
            recent.until = time.monotonic() + LOOKED_S
        return recent.sight


def look_anew(gate: Behind) -> None:
    """Somebody has changed something, and wants to see that it helped."""
    RECENT.pop(gate, None)


async def look(gate: Behind, user: User) -> sight.Sight:
    """A look at the cluster with the eyes of a user. Raises NotAllowed."""
    check(user, ["INFO"])
    found = await shared_look(gate)
    if not user.patterns:
        return found
    return sight.with_figures_of(found, [
        each.name for each in found.figures.queues if may_touch(user, each.name.encode("utf-8", "surrogateescape"))])


@router.get("/past")
async def past_of(
    gate: Annotated[Behind, Depends(behind)], user: Annotated[User, Depends(the_user)],
    queue: Annotated[Key, Query()] = ALL, step: Step = "second", count: Annotated[int, Query(ge=1, le=3600)] = 3600,
) -> answers.Past:
    """The figures of a queue, or with * of all, of the last hour by seconds or of the last day by minutes."""
    told = await seen(gate, user, queue, step, count)
    columns: dict[str, Any] = past.as_rates(told.past) if told.past is not None else {}
    return answers.Past(
        queue=queue, step=step, time=columns.pop("time", []), since=dict(sorted(told.since.items())),
        silent=told.silent, is_cut=told.is_cut, **{name: columns.get(said, []) for said, name in NAMES.items()})


@router.get("/problems")
async def problems(
    gate: Annotated[Behind, Depends(behind)], user: Annotated[User, Depends(the_user)]
) -> answers.CurrentProblems:
    """What is wrong now, the worst first: nodes away, paused queues, queues nobody works, jobs that die, full disks."""
    found = what_is_wrong(await look(gate, user))
    return answers.CurrentProblems(problems=[
        answers.CurrentProblem(**{name: plain(value) for name, value in asdict(each).items()}) for each in found])
