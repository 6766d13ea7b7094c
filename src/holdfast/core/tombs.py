"""What must not be forgotten about a job: who may hold a copy, and that it ended.

A tombstone is an id that must not come back. It answers every question about the job with its ending, keeps
the set of nodes that may still have a copy, and goes when no copy can be alive or on its way any more.

Those that name a forgotten node are the log of the endings it has missed, and may have to be kept for as long as
the jobs would have lived. There is a bound to that: past it the oldest are given up, and a forgotten node that one
of them named is let in again only by an operator's word, since nobody can tell it everything any more.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import records
from holdfast.core.job import Job
from holdfast.core.limits import TOMBS_GIVEN_UP, TOMBS_MAX
from holdfast.core.peers import Tomb

if TYPE_CHECKING:
    from holdfast.core.node import Node

TOMB_MS = 120_000
"""A tombstone of a job that all holders have confirmed: longer than any frame can be on its way."""


def learn_holders(node: Node, job: Job, holders: i64) -> None:
    """Somebody says who may hold a copy: never forgotten, since a forgotten holder is a redelivery."""
    if holders & ~job.holders:
        job.holders |= holders
        records.holders(node, job)


def bury(node: Node, jid: bytes, why: i64, holders: i64, until: i64) -> None:
    """An id that must not come back."""
    if node.broken("tombstone-too-short"):
        until = min(until, node.now + TOMB_MS)
    known = node.tombs.get(jid)
    if known is not None:
        holders |= known.holders
        until = max(until, known.until)
    node.tombs[jid] = Tomb(why, holders, until)
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
    node.count("tombstones-given-up")
    for peer in node.peers:
        if peer.bit & holders and peer.is_forgotten():
            peer.needs_word = True


def forget_old(node: Node) -> None:
    """Once a second: tombstones and moves that need not be remembered any longer."""
    now = node.now
    for jid in [jid for jid, tomb in node.tombs.items() if tomb.until <= now]:
        del node.tombs[jid]
    for table in (node.taken, node.refused_moves):
        for key in [key for key, until in table.items() if until <= now]:
            del table[key]


def latest_life(node: Node, jid: bytes) -> i64:
    """The latest time at which a copy of a job of that id can still be alive."""
    return node.now + (int(jid[42:46], 16) + 2) * 60_000
