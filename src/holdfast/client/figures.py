"""The figures of queues, summed over all nodes that answer (CLUSTER QSTAT): one table of names for all who show them.

The table says by what name a figure goes in Python, in HTTP and in `--json`, what nodes call it, and what stands above
its column. Command line, gateway and `holdfast up` read the reply nowhere but here. A figure that a newer node adds is
passed over; one that an older node does not know is 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from .resp import Reply
from .values import fields, items, text, texts, unexpected, whole


class Figure(NamedTuple):
    name: str
    said: str
    """What CLUSTER QSTAT calls it."""
    title: str
    """Above a column."""
    about: str


FIGURES: Final = (
    Figure("queued", "len", "queued", "jobs that wait for a worker"),
    Figure("leased", "out", "leased", "jobs that workers have"),
    Figure("delayed", "delayed", "delayed", "jobs whose delay has not ended"),
    Figure("retrying", "retrying", "retrying", "jobs that failed and wait for their next attempt"),
    Figure("dead", "dead-kept", "dead", "jobs that failed for good and are kept"),
    Figure("node_away", "node-away", "node away", "jobs that wait for a node that is away"),
    Figure("moving", "moving", "moving", "jobs on their way from one node to another"),
    Figure("accepting", "accepting", "accepting", "jobs that are not accepted yet: too few nodes hold a copy"),
    Figure("asking", "asking", "asking", "jobs of which the other holders are asked whether a worker has them"),
    Figure("put_off", "put-off", "put off", "jobs kept out of their queue for a while, such as by DEQUEUE or a pause"),
    Figure("in_doubt", "in-doubt", "in doubt", "at-most-once jobs that a worker may have had; nobody knows"),
    Figure("copies", "held", "copies", "jobs that nodes hold, each copy counted"),
    Figure("uncollected", "ended", "uncollected", "jobs that are over and still known to nodes"),
    Figure("idle_workers", "blocked", "idle workers", "consumers that wait for a job"),
    Figure("longest_wait", "oldest-age", "longest wait", "seconds since the oldest queued job was added"),
    Figure("in_per_second", "in-per-second", "in/s", "jobs added in the last second"),
    Figure("out_per_second", "out-per-second", "out/s", "jobs handed out in the last second"),
    Figure("added", "added", "added", "jobs added since the nodes started"),
    Figure("taken", "handed-out", "taken", "hand-outs since the nodes started"),
    Figure("done", "acked", "done", "jobs acknowledged since the nodes started"),
    Figure("failed", "nacked", "failed", "attempts given back since the nodes started"),
    Figure("died", "dead", "died", "jobs that failed for good since the nodes started"),
    Figure("expired", "expired", "expired", "jobs whose time to live ended since the nodes started"),
    Figure("leases_lost", "lease-lost", "leases lost", "leases that ended without an answer since the nodes started"),
    Figure("times_queued", "jobs-in", "times queued", "entries into the queue, also on the way through a node"),
    Figure("counted_ago", "counted-age", "counted ago", "seconds since nodes began to count what is not queued"),
    Figure("times_out", "jobs-out", "times out", "departures from the queue, also to another node"),
)
TITLES: Final = {"name": "queue", "paused": "paused"} | {each.name: each.title for each in FIGURES}
MOST: Final = ("longest_wait", "counted_ago")
"""Of several queues the largest counts, not the sum."""
STATES: Final = (
    "queued", "leased", "delayed", "retrying", "node_away", "dead", "moving", "accepting", "asking", "put_off",
    "in_doubt",
)
"""Each job of a queue is in one of these, and in one only (docs/reference/job-states.md)."""
OLD_S: Final = 5
"""Figures that were counted longer ago than this are an estimate, and whoever reads them is told."""
PAUSES: Final = ("none", "in", "out", "all")


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """A queue at all nodes that answered. FIGURES says what each number is."""

    name: str
    paused: str = "none"
    """none; in: it takes no jobs; out: it gives none to workers; all: both. At one node at least."""
    queued: int = 0
    leased: int = 0
    delayed: int = 0
    retrying: int = 0
    dead: int = 0
    node_away: int = 0
    moving: int = 0
    accepting: int = 0
    asking: int = 0
    put_off: int = 0
    in_doubt: int = 0
    copies: int = 0
    uncollected: int = 0
    idle_workers: int = 0
    longest_wait: int = 0
    in_per_second: int = 0
    out_per_second: int = 0
    added: int = 0
    taken: int = 0
    done: int = 0
    failed: int = 0
    died: int = 0
    expired: int = 0
    leases_lost: int = 0
    times_queued: int = 0
    counted_ago: int = 0
    times_out: int = 0

    @property
    def jobs(self) -> int:
        """In any state."""
        return sum(getattr(self, name) for name in STATES)

    def row(self) -> dict[str, Any]:
        """By the names of the fields."""
        return asdict(self)

    def told(self) -> dict[str, Any]:
        """By the names that CLUSTER QSTAT uses."""
        return {"name": self.name, "pause": self.paused} | {each.said: getattr(self, each.name) for each in FIGURES}


@dataclass(frozen=True, slots=True)
class Figures:
    """Of all queues that were asked for, and the ids of members whose share is missing in the sums."""

    queues: tuple[QueueFigures, ...]
    silent: tuple[str, ...]

    def total(self) -> QueueFigures:
        return total(self.queues)


def total(queues: Iterable[QueueFigures]) -> QueueFigures:
    """Many queues as one, without a name."""
    rows = list(queues)
    sums = {each.name: sum(getattr(row, each.name) for row in rows) for each in FIGURES}
    most = {name: max((getattr(row, name) for row in rows), default=0) for name in MOST}
    return QueueFigures("", **{**sums, **most})


def read(reply: Reply) -> Figures:
    """What CLUSTER QSTAT answers: a row for each queue, and who is missing."""
    page = items(reply)
    if len(page) != 2:
        raise unexpected("queues, nodes", page)
    return Figures(tuple(map(queue_of, items(page[0]))), tuple(texts(page[1])))


def queue_of(reply: Reply) -> QueueFigures:
    found = fields(reply)
    numbers = {each.name: whole(found.get(each.said, 0)) for each in FIGURES}
    return QueueFigures(text(found.get("name")), text(found.get("pause", b"none")), **numbers)
