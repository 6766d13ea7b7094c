"""Who works: what worker processes say of themselves, for lists and dashboards.

A worker says now and then that it is there (WORKER BEAT), for how long that is to be believed, and a few fields of its
own choice. Nothing depends on it: what a worker has in hand is known by its leases. A node remembers those that
speak to it; a list (WORKER LIST) is of all nodes that can be heard.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import errors, inquire
from holdfast.core.errors import Refused
from holdfast.core.inquire import Question
from holdfast.core.limits import WORKER_BYTES_MAX, WORKER_FIELDS_MAX, WORKERS_MAX
from holdfast.core.peers import Peer
from holdfast.core.reply import write_array, write_bulks
from holdfast.core.session import Session
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node


class Worker:
    def __init__(self, address: bytes, since: i64, until: i64, fields: list[bytes]) -> None:
        self.address: bytes = address
        self.since: i64 = since
        self.until: i64 = until
        self.heard: i64 = since
        self.fields: list[bytes] = fields  # name, value, name, value


def beat(node: Node, session: Session, name: bytes, ttl_s: i64, fields: list[bytes]) -> None:
    worker = node.workers.get(name)
    until = node.now + ttl_s * 1000
    if worker is None:
        if len(node.workers) >= WORKERS_MAX:
            forget_old(node)
        if len(node.workers) >= WORKERS_MAX:
            raise Refused(errors.OUT_OF_MEMORY)
        worker = Worker(session.where, node.now, until, fields)
        node.workers[name] = worker
        node.account(cost(name, worker))
    else:
        node.account(-cost(name, worker))
        worker.address = session.where
        worker.until = until
        worker.fields = fields
        node.account(cost(name, worker))
    worker.heard = node.now
    if not session.name:
        session.name = name


def cost(name: bytes, worker: Worker) -> i64:
    return 256 + len(name) + sum([len(text) + 40 for text in worker.fields])


def forget_old(node: Node) -> None:
    for name in [name for name, worker in node.workers.items() if worker.until <= node.now]:
        node.account(-cost(name, node.workers.pop(name)))


def rows(node: Node) -> list[list[bytes]]:
    """Of those that are there: the name, then names and values."""
    forget_old(node)
    found: list[list[bytes]] = []
    for name in sorted(node.workers):
        worker = node.workers[name]
        found.append([
            name, b"node", node.node_id, b"address", worker.address,
            b"since-ms", b"%d" % int(node.now - worker.since), b"heard-ms", b"%d" % int(node.now - worker.heard),
            *worker.fields,
        ])
    return found


class Listing(Question):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.rows: list[list[bytes]] = []

    def hear(self, node: Node, peer: Peer, reader: Reader) -> None:
        for _ in range(reader.u32()):
            count = reader.u32()
            if count > 9 + 2 * WORKER_FIELDS_MAX:
                raise BadFrame("a worker that says more than workers can")
            self.rows.append([reader.name()[:WORKER_BYTES_MAX] for _ in range(count)])

    def reply(self, node: Node, out: BytesWriter) -> None:
        write_array(out, len(self.rows))
        for row in sorted(self.rows):
            write_bulks(out, row)


def list_all(node: Node, session: Session) -> None:
    """WORKER LIST. A worker that has spoken to two nodes is in it twice: it says where."""
    listing = Listing(session)
    listing.rows = rows(node)
    inquire.ask(node, listing, inquire.WORKERS, b"", -1)


def tell(node: Node, peer: Peer, reader: Reader, out: BytesWriter) -> None:
    found = rows(node)
    bus.write_u32(out, len(found))
    for row in found:
        bus.write_u32(out, len(row))
        for text in row:
            bus.write_name(out, text)
