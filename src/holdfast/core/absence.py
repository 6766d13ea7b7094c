"""Jobs whose node is away: who of the holders counts them, how many there are, and who is away since when.

A copy leaves a job to the node that last said it has it queued or out. While that node cannot be heard the job is in
no queue, and no worker can get it: it waits for the node to come back, or for the time at which another holder sees to
it (requeue.py). That is a state like any other, with a number. Each job is counted once: by the first of the holders
that can be heard, in the job's own order of nodes. All holders that hear each other agree on who that is; where they do
not hear each other, or one of them has lost its copy, the number is an estimate.

The walk over all jobs (census.py) counts by the node that has a job, whether or not it can be heard: so when a link
ends, the number is there at once, and nobody looks at any job.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import inquire
from holdfast.core.inquire import Question
from holdfast.core.job import Job
from holdfast.core.peers import ME, MY_BIT, NODES_MAX, Peer, order_in
from holdfast.core.queue import Tally
from holdfast.core.reply import write_array, write_bulk, write_int
from holdfast.core.session import Session
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node


def is_first(node: Node, job: Job, without: i64) -> bool:
    """Whether this node comes before all other holders that it hears, those of a set aside."""
    others = job.holders & ~without & ~MY_BIT
    if others == 0 or node.broken("counted-by-all-holders"):
        return True
    orders = node.census.orders_of(node)
    mix = order_in(job)
    mine = orders[ME] ^ mix
    for peer in node.peers:
        if peer.bit & others and peer.is_linked and orders[peer.index] ^ mix < mine:
            return False
    return True


def is_there(node: Node, job: Job) -> bool:
    """Whether the node that has the job is this one, or can be heard."""
    peer = node.peers[job.responsible]
    return peer.index == ME or peer.is_linked


def is_counted_here(node: Node, job: Job) -> bool:
    """Of those that hold a job the one that sees to it counts it; if that cannot be heard, the first in its order."""
    if is_there(node, job):
        return job.responsible == ME
    return is_first(node, job, node.peers[job.responsible].bit)


def waiting(node: Node, tally: Tally) -> int:
    """Jobs of a queue, of those that this node counts, whose node is away."""
    if node.broken("away-uncounted"):
        return 0
    return sum([count for index, count in tally.behind.items() if not node.peers[index].is_linked])


def by_peer(node: Node) -> dict[int, int]:
    """The same of all queues, by the index of the node that is away."""
    found: dict[int, int] = {}
    for queue in node.queues.values():
        for index, count in queue.last_tally(node.census.number).behind.items():
            if not node.peers[index].is_linked:
                found[index] = found.get(index, 0) + count
    return found


def away_ms(node: Node, peer: Peer) -> i64:
    """For how long there has been no link; after a start, since then."""
    return node.now - max(peer.away_since, node.start)


def fails_ms(node: Node, peer: Peer) -> i64:
    """Until a node that is away counts as failed, at the earliest; 0: it does, or is no member any more."""
    if peer.is_failed or not peer.is_member:
        return 0
    return max(1, peer.heard + node.node_timeout - node.now)


def words(node: Node, peer: Peer) -> bytes:
    """A node that is away, for people: which, since when, and what is next."""
    if not peer.is_member:
        what = b"forgotten"
    elif peer.is_failed:
        what = b"counts as failed"
    else:
        what = b"counts as failed in %d s if it stays so" % int((fails_ms(node, peer) + 999) // 1000)
    return b"node %b (away for %d s, %b)" % (peer.node_id()[:8], int(away_ms(node, peer) // 1000), what)


# -- CLUSTER AWAY -----------------------------------------------------------------------------------------------


class Away:
    """A node that somebody does not hear."""

    def __init__(self, node_id: bytes, host: bytes, port: i64, ms: i64, fails_ms: i64, jobs: i64) -> None:
        self.node_id: bytes = node_id
        self.host: bytes = host
        self.port: i64 = port
        self.ms: i64 = ms  # since when there is no link
        self.fails_ms: i64 = fails_ms  # until it counts as failed, at the earliest; 0: it does
        self.jobs: i64 = jobs  # that wait for it

    def add(self, other: Away) -> None:
        self.ms = max(self.ms, other.ms)
        self.fails_ms = min(self.fails_ms, other.fails_ms)
        self.jobs += other.jobs


def seen(node: Node) -> list[Away]:
    """The members that this node does not hear, and others that jobs wait for."""
    counted = by_peer(node)
    found: list[Away] = []
    for peer in node.peers:
        jobs: i64 = counted.get(int(peer.index), 0)
        if peer.index == ME or peer.is_linked or not (peer.is_member or jobs > 0):
            continue
        host = peer.facts.host.encode()
        found.append(Away(peer.node_id(), host, peer.facts.port, away_ms(node, peer), fails_ms(node, peer), jobs))
    return found


class Absences(Question):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.found: dict[bytes, Away] = {}

    def add(self, each: Away) -> None:
        known = self.found.get(each.node_id)
        if known is None:
            self.found[each.node_id] = each
        else:
            known.add(each)

    def hear(self, node: Node, peer: Peer, reader: Reader) -> None:
        count = reader.u32()
        if count > NODES_MAX:
            raise BadFrame("more nodes away than there can be")
        for _ in range(count):
            node_id = reader.node_id()
            host = reader.name()
            port = reader.u16()
            ms = reader.long()
            left = reader.long()
            self.add(Away(node_id, host, port, ms, left, reader.long()))

    def reply(self, node: Node, out: BytesWriter) -> None:
        write_array(out, 2)
        write_array(out, len(self.found))
        for node_id in sorted(self.found):
            each = self.found[node_id]
            write_array(out, 12)
            for name, value in ((b"node", node_id), (b"host", each.host)):
                write_bulk(out, name)
                write_bulk(out, value)
            numbers = (
                (b"port", each.port), (b"away-ms", each.ms), (b"fails-in-ms", each.fails_ms), (b"jobs", each.jobs),
            )
            for title, number in numbers:
                write_bulk(out, title)
                write_int(out, number)
        missing = [peer for peer in inquire.missing(node, self) if peer.is_linked]
        write_array(out, len(missing))
        for peer in missing:
            write_bulk(out, peer.node_id())


def ask(node: Node, session: Session) -> None:
    """CLUSTER AWAY: what each node says that can be heard."""
    question = Absences(session)
    for each in seen(node):
        question.add(each)
    inquire.ask(node, question, inquire.AWAY, b"", -1)


def tell(node: Node, peer: Peer, reader: Reader, out: BytesWriter) -> None:
    found = seen(node)
    bus.write_u32(out, len(found))
    for each in found:
        out.write(each.node_id)
        bus.write_name(out, each.host)
        bus.write_u16(out, each.port)
        bus.write_i64(out, each.ms)
        bus.write_i64(out, each.fails_ms)
        bus.write_i64(out, each.jobs)
