"""Who works: what worker processes say of themselves, for lists and dashboards.

A worker says now and then that it is there (WORKER BEAT), for how long that is to be believed, and a few fields of its
own choice. Nothing depends on it: what a worker has in hand is known by its leases. A node remembers those that
speak to it; a list (WORKER LIST) is of all nodes that can be heard.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import errors, inquire, users
from holdfast.core.errors import BadRequest, Refused
from holdfast.core.inquire import Question
from holdfast.core.limits import (
    CLIENT_NAME_BYTES_MAX,
    WORKER_BYTES_MAX,
    WORKER_FIELDS_MAX,
    WORKERS_MAX,
    WORKERS_PER_USER,
)
from holdfast.core.peers import Peer
from holdfast.core.reply import write_array, write_bulks
from holdfast.core.rights import User
from holdfast.core.session import Session
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node


class Worker:
    def __init__(self, owner: bytes, address: bytes, since: i64, until: i64, fields: list[bytes]) -> None:
        self.owner: bytes = owner  # the user that said so; nobody else may say anything under this name
        self.address: bytes = address
        self.since: i64 = since
        self.until: i64 = until
        self.heard: i64 = since
        self.fields: list[bytes] = fields  # name, value, name, value


def beat(node: Node, session: Session, name: bytes, ttl_s: i64, fields: list[bytes]) -> None:
    worker = node.workers.get(name)
    until = node.now + ttl_s * 1000
    if worker is not None and worker.owner != session.user:
        if worker.until > node.now:
            raise BadRequest(b"NOPERM a worker of this name is another user's")
        node.account(-cost(name, node.workers.pop(name)))
        worker = None
    if worker is None:
        if session.rights is not None and count_of(node, session.user) >= WORKERS_PER_USER:
            raise Refused(errors.OUT_OF_MEMORY)
        if len(node.workers) >= WORKERS_MAX:
            forget_old(node)
        if len(node.workers) >= WORKERS_MAX:
            raise Refused(errors.OUT_OF_MEMORY)
        worker = Worker(session.user, session.where, node.now, until, fields)
        node.workers[name] = worker
        node.account(cost(name, worker))
    else:
        node.account(-cost(name, worker))
        worker.address = session.where
        worker.until = until
        worker.fields = fields
        node.account(cost(name, worker))
    worker.heard = node.now
    if not session.name and is_plain_name(name):
        session.name = name


def count_of(node: Node, user: bytes) -> i64:
    """Workers of a user that are believed to be there."""
    forget_old(node)
    return len([worker for worker in node.workers.values() if worker.owner == user])


def is_plain_name(name: bytes) -> bool:
    """Whether a connection may be called so: CLIENT LIST has one line for each, and a space between two facts."""
    if len(name) > CLIENT_NAME_BYTES_MAX:
        return False
    for c in name:
        if not 33 <= c <= 126:
            return False
    return True


def may_see(user: User, row: list[bytes]) -> bool:
    """Whether a user that is bound to queues is shown a worker: one that works on these, and on no others."""
    queues: list[bytes] = []
    for i in range(1, len(row) - 1, 2):
        if row[i] == b"queues":
            queues = [name for name in row[i + 1].split(b",") if name]
    for queue in queues:
        if not users.may_touch(user, queue):
            return False
    return len(queues) > 0


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
        rights = self.session.rights
        shown = self.rows if rights is None or not rights.patterns else [
            row for row in self.rows if may_see(rights, row)
        ]
        write_array(out, len(shown))
        for row in sorted(shown):
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
