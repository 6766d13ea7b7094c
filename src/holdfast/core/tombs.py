"""What must not be forgotten about a job: who may hold a copy, and that it ended.

A tombstone is an id that must not come back. It answers every question about the job with its ending, keeps
the set of nodes that may still have a copy, and goes when no copy can be alive or on its way any more. There
are many, one for each job that ended in the last while: their ends are whole seconds, so that those buried
together are one object, and they are found again by the second in which they go.

Those that name a forgotten node are the log of the endings it has missed, and may have to be kept for as long as
the jobs would have lived. There is a bound to that: past it the oldest are given up, and a forgotten node that one
of them named is let in again only by an operator's word, since nobody can tell it everything any more.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import records
from holdfast.core.job import Job
from holdfast.core.limits import TOMB_BYTES, TOMBS_GIVEN_UP, TOMBS_MAX
from holdfast.core.peers import Tomb, longest_timeout

if TYPE_CHECKING:
    from holdfast.core.node import Node

SLACK_MS: Final = 10_000


def learn_holders(node: Node, job: Job, holders: i64) -> None:
    """Somebody says who may hold a copy: never forgotten, since a forgotten holder is a redelivery."""
    if holders & ~job.holders:
        job.holders |= holders
        records.holders(node, job)


def bury(node: Node, jid: bytes, why: i64, holders: i64, until: i64) -> None:
    """An id that must not come back."""
    if node.broken("tombstone-too-short"):
        until = min(until, soon(node))
    known = node.tombs.get(jid)
    if known is not None:
        why = known.why
        holders |= known.holders
        until = max(until, known.until)
    place(node, jid, why, holders, until)
    records.tomb(node, jid, node.tombs[jid])
    if len(node.tombs) > TOMBS_MAX:
        give_up_oldest(node)


def give_up_oldest(node: Node) -> None:
    """Some at a time: looking for the first of very many is costly."""
    oldest: list[bytes] = []
    for jid in node.tombs:
        if len(oldest) == TOMBS_GIVEN_UP:
            break
        oldest.append(jid)
    holders: i64 = 0
    for jid in oldest:
        holders |= node.tombs.pop(jid).holders
        node.account(-TOMB_BYTES)
    node.count("tombstones-given-up")
    for peer in node.peers:
        if peer.bit & holders and peer.is_forgotten():
            peer.needs_word = True


def place(node: Node, jid: bytes, why: i64, holders: i64, until: i64) -> None:
    second: i64 = max(until // 1000, node.tombs_swept) + 1
    tomb = node.last_tomb
    if tomb.why != why or tomb.holders != holders or tomb.until != second * 1000:
        tomb = Tomb(why, holders, second * 1000)
        node.last_tomb = tomb
    if jid not in node.tombs:
        node.account(TOMB_BYTES)
    node.tombs[jid] = tomb
    ends = node.tomb_ends.get(int(second))
    if ends is None:
        node.tomb_ends[int(second)] = [jid]
    else:
        ends.append(jid)


def lengthen(node: Node, ms: i64) -> None:
    """All of them stay that much longer."""
    old = node.tombs
    forget_all(node)
    for jid, tomb in old.items():
        place(node, jid, tomb.why, tomb.holders, tomb.until + ms)


def forget_all(node: Node) -> None:
    node.account(-TOMB_BYTES * len(node.tombs))
    node.tombs = {}
    node.tomb_ends = {}


def widen(node: Node, jid: bytes, tomb: Tomb, holders: i64) -> i64:
    """Somebody names holders of a job that has ended; returns all that are known."""
    if holders & ~tomb.holders:
        node.tombs[jid] = Tomb(tomb.why, tomb.holders | holders, tomb.until)
    return tomb.holders | holders


def forget_old(node: Node) -> None:
    """Once a second: tombstones and moves that need not be remembered any longer."""
    now = node.now
    second: i64 = now // 1000
    while node.tombs_swept < second:
        node.tombs_swept += 1
        for jid in node.tomb_ends.pop(int(node.tombs_swept), []):
            tomb = node.tombs.get(jid)
            if tomb is not None and tomb.until <= now:
                del node.tombs[jid]
                node.account(-TOMB_BYTES)
    if second % 60 == 0:
        for peer in node.peers:
            for table in (peer.taken, peer.refused):
                for number in [number for number, until in table.items() if until <= now]:
                    del table[number]


def beneath(node: Node) -> list[Job]:
    """After a start: jobs that have a tombstone. They are gone, only the word of that was not on disk yet."""
    found = [node.find(jid) for jid in node.tombs]
    return [job for job in found if job is not None]


def soon(node: Node) -> i64:
    """The end of a tombstone of a job that all holders have confirmed: when no frame can be on its way any more.

    A frame that is not acknowledged keeps its sender from confirming (acks.py), and a link that says nothing ends
    after node-timeout, which may be another at the other end.
    """
    return node.now + 2 * longest_timeout(node) + SLACK_MS


def latest_life(node: Node, jid: bytes) -> i64:
    """The latest time at which a copy of a job of that id can still be alive."""
    return node.now + (int(jid[42:46], 16) + 2) * 60_000
