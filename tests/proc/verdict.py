"""A look into real nodes, and the verdict over a load's history.

    wait_until_restored(load, cluster)    jobs have their copies again, acks are collected; marks it
    finish(load, cluster)                 drain, last look, all checkers

A look is JSCAN at every node: the views that the simulator takes directly. They are not of one moment, so a
job is only called short of a copy, or an ack uncollected, if it stays so until patience ends.
"""
from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from cluster_harness import Cluster, Member, pairs
from load import Load

from holdfast.testing.checkers import Violation, check
from holdfast.testing.checkers.whitebox import Copy, uncollected

COLLECT_S = 60.0
"""Copies are made anew and acks collected in this time after everything is up and connected again."""

LOOK_S = 0.2
TOLD_MAX = 20
"""Of each class, so many are written into the history: the first ones tell the story."""

Views = dict[str, dict[str, Copy]]


class Verdict(NamedTuple):
    violations: list[Violation]
    collected_s: float  # from heal until nothing was left
    accepted: int
    delivered: int


def view(node: Member) -> dict[str, Copy]:
    """Every job a node holds something of, by id."""
    cursor, rows = node.ask("JSCAN", "BUSYLOOP", "REPLY", "all")
    assert cursor == b"0"
    facts = [pairs(row) for row in rows]
    return {
        each["id"].decode(): Copy(each["state"].decode(), each["retry"], each["queue"].decode()) for each in facts
    }


def look(nodes: Iterable[Member]) -> Views:
    return {str(node.number): view(node) for node in nodes}


def short_of_copies(load: Load, views: Views, jobs: Iterable[str], lost: int) -> dict[str, str]:
    """Those of the jobs that nobody has ended and that too few nodes hold, with what is wrong.

    A job that had no more copies than nodes were lost may be gone.
    """
    found = {}
    for job in jobs:
        where = {name: held[job].state for name, held in views.items() if job in held}
        row = load.rows[job]
        if len(where) < row.copies and job not in load.ended and (where or row.copies > lost):
            found[job] = f"{row.copies} copies promised at {row.t} ms, held {where}"
    return found


def beliefs(cluster: Cluster, job: str) -> str:
    """Where each node that holds the job thinks its copies are."""
    names = {node.id: str(node.number) for node in cluster}
    told = {str(node.number): node.show(job.encode()).get("nodes-delivered", []) for node in cluster}
    thought = {name: " ".join(sorted(names.get(each, "?") for each in ids)) for name, ids in told.items() if ids}
    return f"thought to be at {thought}"


def left_over(load: Load, views: Views, acked: Iterable[str]) -> dict[str, str]:
    """Acknowledged jobs that some node still holds something of."""
    found: dict[str, str] = {}
    for job, node, state in uncollected(acked, views):
        found[job] = f"{found.get(job, f'acked at {load.acked[job]} ms')}, {state} at {node}"
    return found


def tell(load: Load, promise: str, what: str, found: dict[str, str]) -> None:
    for job, text in list(found.items())[:TOLD_MAX]:
        load.seen(promise, what, job, text)


def wait_until_restored(load: Load, cluster: Cluster, lost: int, seconds: float = COLLECT_S) -> bool:
    """Until what was accepted so far has its copies, and what was acknowledged so far is collected.

    `lost`: how many nodes lost theirs since this was last so.
    """
    since = load.now()
    jobs = [job for job, row in list(load.open.items()) if row.retry_s > 0]
    acked = set(load.acked)
    end = time.monotonic() + seconds
    while True:
        views = look(cluster)
        short, left = short_of_copies(load, views, jobs, lost), left_over(load, views, acked)
        if not short and not left:
            held = {job for each in views.values() for job in each}
            load.excuse(job for job in jobs if job not in held and load.rows[job].copies <= lost)
            load.mark("restored", since=since)
            return True
        if time.monotonic() > end:
            told = {job: f"{text}, {beliefs(cluster, job)}" for job, text in list(short.items())[:TOLD_MAX]}
            tell(load, "heal", "short-of-copies", told)
            tell(load, "I6", "uncollected", left)
            return False
        load.check()
        time.sleep(LOOK_S)


def finish(load: Load, cluster: Cluster) -> Verdict:
    """The cluster is whole, and stays so: everything accepted is delivered, every ack collected."""
    load.mark("heal")
    began = time.monotonic()
    load.drain()
    while True:
        views = look(cluster)
        waiting = [job for job in list(load.rows) if load.must_arrive(job) and job not in load.acked]
        left = left_over(load, views, list(load.acked))
        collected_s = time.monotonic() - began
        if (not waiting and not left) or collected_s > COLLECT_S:
            break
        load.check()
        time.sleep(LOOK_S)
    tell(load, "I6", "uncollected", left)
    load.end()
    delivered = sum(len(op.value["jobs"]) for op in load.history.ops if op.f == "get" and op.type == "ok")
    return Verdict(check(load.history), collected_s, len(load.rows), delivered)
