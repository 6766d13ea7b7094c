"""The cluster asked as a whole: figures of queues summed over all nodes that answer.

A node asks its peers (ASK), waits a moment, and answers with sums, naming the members that did not answer:
a sum without them is a lower bound, and whoever reads it should know.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import census, waiting
from holdfast.core.alarms import Alarm
from holdfast.core.limits import QUEUE_NAME_BYTES_MAX
from holdfast.core.peers import ME, MY_BIT, Peer
from holdfast.core.queue import Queue
from holdfast.core.reply import write_array, write_bulk, write_int
from holdfast.core.session import FOR_PEERS, Session
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

WAIT_MS: Final = 1000
QUEUES_MAX: Final = 10_000
"""Queues one node tells of in one answer to `*`, the first by name; a cluster with more is asked queue by queue."""

FIELDS: Final = [
    b"len", b"held", b"blocked", b"jobs-in", b"jobs-out", b"oldest-age", b"in-per-second", b"out-per-second",
    b"out", b"delayed", b"moving", b"ended",
]
OLDEST: Final = 5  # of FIELDS: the largest counts, not the sum


class View(Alarm):
    """One question, and what has come in so far."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session: Session = session
        self.waiting: i64 = 0
        self.answered: i64 = MY_BIT
        self.rows: dict[bytes, list[int]] = {}

    def add(self, name: bytes, values: list[int]) -> None:
        row = self.rows.get(name)
        if row is None:
            self.rows[name] = values
            return
        for i in range(len(values)):
            row[i] = max(row[i], values[i]) if i == OLDEST else row[i] + values[i]


def ask(node: Node, session: Session, name: bytes) -> None:
    """CLUSTER QSTAT: `*` is every queue."""
    view = View(session)
    node.view_count += 1
    node.views[int(node.view_count)] = view
    for queue in wanted(node, name):
        view.add(queue.name, figures(node, queue))
    for peer in node.peers:
        if peer.is_linked:
            peer.out.append(bus.ASK)
            bus.write_i64(peer.out, node.view_count)
            bus.write_name(peer.out, name)
            view.waiting |= peer.bit
    waiting.block(node, session, FOR_PEERS)
    node.alarms.set(view, node.now + WAIT_MS)
    if view.waiting == 0:
        finish(node, view)


def wanted(node: Node, name: bytes) -> list[Queue]:
    if name == b"*":
        return [node.queues[each] for each in sorted(node.queues)[:QUEUES_MAX]]
    queue = node.queues.get(name)
    return [] if queue is None else [queue]


def figures(node: Node, queue: Queue) -> list[int]:
    oldest = queue.oldest(1)
    age = (node.now - oldest[0].ctime // 1_000_000) // 1000 if oldest else 0
    tally = census.tally(node, queue)
    return [
        int(queue.size), int(queue.held), len(queue.waiting), int(queue.jobs_in), int(queue.jobs_out), max(0, int(age)),
        int(queue.rate_in), int(queue.rate_out),
        int(tally.out), int(tally.delayed), int(tally.moving), int(tally.ended),
    ]


def on_ask(node: Node, peer: Peer, reader: Reader) -> None:
    number = reader.long()
    queues = wanted(node, reader.name())
    out = peer.out
    out.append(bus.TELL)
    bus.write_i64(out, number)
    bus.write_u32(out, len(queues))
    for queue in queues:
        bus.write_name(out, queue.name)
        for value in figures(node, queue):
            bus.write_i64(out, value)


def on_tell(node: Node, peer: Peer, reader: Reader) -> None:
    view = node.views.get(int(reader.long()))
    count = reader.u32()
    if count > QUEUES_MAX:
        raise BadFrame("more queues than a node tells of")
    for _ in range(count):
        name = reader.name()
        values = [int(reader.long()) for _ in FIELDS]
        if len(name) > QUEUE_NAME_BYTES_MAX:
            raise BadFrame("a queue name longer than there are")
        if view is not None and view.waiting & peer.bit:
            view.add(name, values)
    if view is not None:
        view.answered |= peer.bit
        view.waiting &= ~peer.bit
        if view.waiting == 0:
            finish(node, view)


def link_down(node: Node, peer: Peer) -> None:
    for view in list(node.views.values()):
        if view.waiting & peer.bit:
            view.waiting &= ~peer.bit
            if view.waiting == 0:
                finish(node, view)


def finish(node: Node, view: View) -> None:
    """All have answered, or the time is over."""
    for number in [number for number, each in node.views.items() if each is view]:
        del node.views[number]
    view.wake = 1 << 62
    if view.session.blocked != FOR_PEERS:
        return
    missing = [
        peer.node_id() for peer in node.peers
        if peer.index != ME and peer.is_member and not peer.bit & view.answered
    ]
    out = BytesWriter()
    write_array(out, 2)
    write_array(out, len(view.rows))
    for name in sorted(view.rows):
        write_array(out, 2 + 2 * len(FIELDS))
        write_bulk(out, b"name")
        write_bulk(out, name)
        for field, value in zip(FIELDS, view.rows[name]):
            write_bulk(out, field)
            write_int(out, value)
    write_array(out, len(missing))
    for node_id in missing:
        write_bulk(out, node_id)
    node.answer(view.session, out.getvalue())
