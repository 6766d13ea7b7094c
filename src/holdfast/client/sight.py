"""One look at a whole cluster, as `trouble.what_is_wrong` judges it: members, figures of queues, what each node says of
itself. The same commands for all who look: the console, the gateway, `holdfast doctor`, `holdfast up`, `holdfast top`.

Each node is asked by itself, in one round trip. A node that is stopped or cut off takes LOOK_S and is then `silent`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from . import past
from .errors import Error
from .figures import Figures
from .members import Away, Member
from .resp import Argv, Reply
from .values import text

if TYPE_CHECKING:
    from .queue import AsyncQueue, Queue

RECENT_MINUTES: Final = 10
"""What happened in so many minutes is what happens now: long enough to see a failure that comes every few minutes."""
LOOK_S: Final = 2.0
ASKED_AT_ONCE: Final = 16
QUESTIONS: Final[tuple[Argv, ...]] = (
    [b"CLUSTER", b"MYID"], [b"TIME"], [b"INFO", b"all"], [b"CLUSTER", b"INFO"],
)
SUMS: Final[Argv] = [b"PAST", b"SUMS", RECENT_MINUTES]


@dataclass(frozen=True, slots=True)
class NodeSight:
    """What a node says of itself."""

    id: str
    info: Mapping[str, str]
    """INFO."""
    cluster: Mapping[str, str]
    """CLUSTER INFO."""
    sums: tuple[past.Sums, ...] = ()
    """What was counted in the last minutes, by queue; nothing where the caller may not see all queues."""
    ahead: float = 0.0
    """Seconds that its clock is ahead of ours."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A cluster at one moment. What could not be asked is not in it."""

    now: float
    """Unix seconds."""
    members: tuple[Member, ...] = ()
    figures: Figures = field(default_factory=lambda: Figures((), ()))
    nodes: Mapping[str, NodeSight] = field(default_factory=dict)
    """By id, those that answered."""
    silent: tuple[str, ...] = ()
    """Ids of linked members that did not answer."""
    away: tuple[Away, ...] = ()
    """Nodes that are away, with the jobs that wait for them."""

    def sums(self) -> dict[str, past.Sums]:
        """Of all nodes, by queue, without the sum of all queues."""
        found = past.summed(each.sums for each in self.nodes.values())
        return {name: each for name, each in found.items() if name != "*"}


def facts(words: str) -> dict[str, str]:
    """INFO and CLUSTER INFO: a fact on each line."""
    return dict(line.split(":", 1) for line in words.splitlines() if ":" in line)


def questions(with_sums: bool) -> list[Argv]:
    return [*QUESTIONS, SUMS] if with_sums else [*QUESTIONS]


def heard(replies: list[Reply], now: float) -> NodeSight | None:
    """None where the node may not be asked, or refuses: somebody else will say so."""
    if any(isinstance(each, Error) for each in replies[:len(QUESTIONS)]):
        return None
    who, clock, info, cluster, *more = replies
    seconds, micros = (float(text(each)) for each in clock) if isinstance(clock, list) else (now, 0.0)
    sums = past.read_sums(more[0]) if more and not isinstance(more[0], Error) else []
    return NodeSight(text(who), facts(text(info)), facts(text(cluster)), tuple(sums), seconds + micros / 1e6 - now)


def put_together(
    members: Iterable[Member], figures: Figures, away: Iterable[Away], found: Iterable[NodeSight | None],
    asked: Iterable[Member],
) -> Sight:
    nodes = {each.id: each for each in found if each is not None}
    silent = tuple(each.id for each in asked if each.id not in nodes)
    return Sight(time.time(), tuple(members), figures, nodes, silent, tuple(away))


def with_figures_of(sight: Sight, names: Iterable[str]) -> Sight:
    """For somebody who may see some queues only."""
    allowed = frozenset(names)
    nodes = {key: replace(each, sums=tuple(one for one in each.sums if one.name in allowed))
             for key, each in sight.nodes.items()}
    rows = tuple(each for each in sight.figures.queues if each.name in allowed)
    return replace(sight, figures=Figures(rows, sight.figures.silent), nodes=nodes)


def look(queue: Queue, with_sums: bool = True) -> Sight:
    """Ask all nodes. Raises what asking for members and figures does."""
    members, figures, away = queue.nodes(), queue.figures(), queue.away()
    linked = [each for each in members if each.is_linked]

    def ask(member: Member) -> NodeSight | None:
        try:
            return heard(queue.channel.call_many(questions(with_sums), member.near), time.time())
        except Error:
            return None

    pool = ThreadPoolExecutor(ASKED_AT_ONCE, "holdfast-look")
    try:
        asked = [pool.submit(ask, each) for each in linked]
        until = time.monotonic() + LOOK_S
        found = [in_time(each, until) for each in asked]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return put_together(members, figures, away, found, linked)


def in_time(asked: Any, until: float) -> NodeSight | None:
    try:
        found: NodeSight | None = asked.result(max(0.0, until - time.monotonic()))
    except TimeoutError:
        return None
    return found


async def alook(queue: AsyncQueue, with_sums: bool = True) -> Sight:
    """The same for asyncio."""
    members, figures, away = await queue.nodes(), await queue.figures(), await queue.away()
    linked = [each for each in members if each.is_linked]

    async def ask(member: Member) -> NodeSight | None:
        try:
            async with asyncio.timeout(LOOK_S):
                return heard(await queue.channel.call_many(questions(with_sums), member.near), time.time())
        except (Error, TimeoutError):
            return None

    return put_together(members, figures, away, await asyncio.gather(*map(ask, linked)), linked)
