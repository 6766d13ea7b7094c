"""Predicates that need a look inside the nodes: who holds which job in what state, all at one moment.

A view is what one node holds: of a node that is up its memory, of one that is down what it would know after
a restart. The simulator takes views directly; for real nodes JSCAN gives the same. These are pure functions
of views; whoever calls them writes what they find into the history (mark `seen`).
"""
from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

WAIT_REPL: Final = "wait-repl"
ACTIVE: Final = "active"
QUEUED: Final = "queued"
MOVING: Final = "moving"  # given away, not yet known whether it arrived
DEAD: Final = "dead"
ACKED: Final = "acked"
TOMBSTONE: Final = "tombstone"


class Copy(NamedTuple):
    state: str
    retry_s: int  # 0: at most once
    queue: str
    stands: str = ""  # what becomes of it at this node, in the words of reach.py; empty: nobody can say
    left_ms: int = 0  # until that ends by itself
    turn: int = 0  # another number: it was handed out, or failed, once more


View: TypeAlias = Mapping[str, Copy]
"""By job id."""

REQUEUES: Final = frozenset([ACTIVE, QUEUED, MOVING])


def orphans(acked: Iterable[str], views: Mapping[str, View], weak: Container[str] = ()) -> list[str]:
    """I5: jobs acknowledged to a client that some node would queue again while no node remembers the ack.

    A tombstone is no memory of it: it answers who asks, but goes after minutes and tells nobody. Only for jobs
    that lived through the loss of a disk (`weak`) it has to do: who else held a copy may have been known to
    that disk alone.
    """
    found: list[str] = []
    for job in acked:
        is_held = False
        is_threatened = False
        for view in views.values():
            copy = view.get(job)
            if copy is None:
                continue
            if copy.state == ACKED or (copy.state == TOMBSTONE and job in weak):
                is_held = True
                break
            if copy.retry_s > 0 and copy.state in REQUEUES:
                is_threatened = True
        if is_threatened and not is_held:
            found.append(job)
    return found


def uncollected(acked: Iterable[str], views: Mapping[str, View]) -> list[tuple[str, str, str]]:
    """I6: (job, node, state) of acknowledged jobs that a node still holds something of, tombstones excepted.

    At-most-once jobs are none of its business: nobody remembers an ack for what is not handed out again.
    """
    jobs = set(acked)
    return [
        (job, node, copy.state)
        for node, view in views.items() for job, copy in view.items()
        if job in jobs and copy.state != TOMBSTONE and (copy.retry_s > 0 or copy.state == ACKED)
    ]


def queued_twice(views: Mapping[str, View]) -> list[tuple[str, list[str]]]:
    """Jobs that wait in the queues of more than one node: in calm times there is none."""
    where: dict[str, list[str]] = {}
    for node, view in views.items():
        for job, copy in view.items():
            if copy.state == QUEUED:
                where.setdefault(job, []).append(node)
    return [(job, nodes) for job, nodes in where.items() if len(nodes) > 1]


def half_dead(views: Mapping[str, View]) -> list[tuple[str, dict[str, str]]]:
    """Jobs that are dead at one node, and that another would queue again: who is dead is dead everywhere."""
    where: dict[str, dict[str, str]] = {}
    for node, view in views.items():
        for job, copy in view.items():
            if copy.state == DEAD or copy.state in REQUEUES:
                where.setdefault(job, {})[node] = copy.state
    return [(job, held) for job, held in where.items() if DEAD in held.values() and {*held.values()} != {DEAD}]
