"""The cluster asked as a whole: figures of queues summed over all nodes that answer.

A node asks its peers (inquire.py) and answers with sums, naming the members that did not answer: a sum without
them is a lower bound, and whoever reads it should know.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter

from holdfast.core import absence, census, inquire, states
from holdfast.core.inquire import Question
from holdfast.core.limits import QUEUE_NAME_BYTES_MAX
from holdfast.core.peers import Peer
from holdfast.core.queue import PAUSE_NAMES, Queue
from holdfast.core.reply import write_array, write_bulk, write_int
from holdfast.core.session import Session
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

QUEUES_MAX: Final = 10_000
"""Queues one node tells of in one answer to `*`, the first by name; a cluster with more is asked queue by queue."""

FIELDS: Final = [
    b"len", b"held", b"blocked", b"jobs-in", b"jobs-out", b"oldest-age", b"in-per-second", b"out-per-second",
    b"out", b"delayed", b"moving", b"ended", b"dead-kept", b"acked", b"nacked", b"dead", b"expired", b"lease-lost",
    b"added", b"handed-out", b"retrying", b"pause", b"node-away", b"accepting", b"asking", b"put-off", b"in-doubt",
    b"counted-age",
]
OLDEST: Final = (FIELDS.index(b"oldest-age"), FIELDS.index(b"counted-age"))  # the largest counts, not the sum
PAUSE: Final = FIELDS.index(b"pause")  # bits: paused at one node is paused


class View(Question):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.rows: dict[bytes, list[int]] = {}

    def add(self, name: bytes, values: list[int]) -> None:
        row = self.rows.get(name)
        if row is None:
            self.rows[name] = values
        else:
            combine(row, values)

    def hear(self, node: Node, peer: Peer, reader: Reader) -> None:
        count = reader.u32()
        if count > QUEUES_MAX:
            raise BadFrame("more queues than a node tells of")
        for _ in range(count):
            name = reader.name()
            if len(name) > QUEUE_NAME_BYTES_MAX:
                raise BadFrame("a queue name longer than there are")
            values = [int(reader.long()) for _ in FIELDS]
            if not 0 <= values[PAUSE] < len(PAUSE_NAMES):
                raise BadFrame("a pause there is none of")
            self.add(name, values)

    def reply(self, node: Node, out: BytesWriter) -> None:
        write_array(out, 2)
        write_array(out, len(self.rows))
        for name in sorted(self.rows):
            write_array(out, 2 + 2 * len(FIELDS))
            write_bulk(out, b"name")
            write_bulk(out, name)
            row = self.rows[name]
            for i in range(len(FIELDS)):
                write_bulk(out, FIELDS[i])
                if i == PAUSE:
                    write_bulk(out, PAUSE_NAMES[row[i]])
                else:
                    write_int(out, row[i])
        missing = inquire.missing(node, self)
        write_array(out, len(missing))
        for peer in missing:
            write_bulk(out, peer.node_id())


def combine(row: list[int], values: list[int]) -> None:
    """Take the figures of another node, or of another queue, into a row."""
    for i in range(len(values)):
        if i in OLDEST:
            row[i] = max(row[i], values[i])
        elif i == PAUSE:
            row[i] |= values[i]
        else:
            row[i] += values[i]


def ask(node: Node, session: Session, name: bytes) -> None:
    """CLUSTER QSTAT: `*` is every queue."""
    view = View(session)
    for queue in wanted(node, name):
        view.add(queue.name, figures(node, queue))
    inquire.ask(node, view, inquire.FIGURES, name, -1)


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
        int(queue.size + queue.lined), int(queue.held), len(queue.waiting), int(queue.jobs_in), int(queue.jobs_out),
        max(0, int(age)), int(queue.rate_in), int(queue.rate_out),
        tally.of(states.LEASED), tally.of(states.DELAYED), tally.of(states.MOVING), tally.of(states.ENDED),
        tally.of(states.DEAD),
        int(queue.acked), int(queue.nacked), int(queue.died), int(queue.expired), int(queue.lease_lost),
        int(queue.added), int(queue.handed_out()), tally.of(states.RETRYING), int(queue.paused),
        absence.waiting(node, tally), int(queue.adding), tally.of(states.ASKING), tally.of(states.PUT_OFF),
        tally.of(states.IN_DOUBT), int(census.age_ms(node) // 1000),
    ]


def tell(node: Node, peer: Peer, reader: Reader, out: BytesWriter) -> None:
    queues = wanted(node, reader.data)
    bus.write_u32(out, len(queues))
    for queue in queues:
        bus.write_name(out, queue.name)
        for value in figures(node, queue):
            bus.write_i64(out, value)

