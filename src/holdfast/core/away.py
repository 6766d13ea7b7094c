"""CLUSTER AWAY: the nodes that are away, since when, what is next, and how many jobs wait for each.

Every node that can be heard tells of those that it does not hear, and of the jobs that it counts for them (absence.py):
the sums are of all nodes that answer. One that only some do not hear is listed, too.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import absence, inquire
from holdfast.core.inquire import Question
from holdfast.core.peers import ME, NODES_MAX, Peer
from holdfast.core.reply import write_array, write_bulk, write_int
from holdfast.core.session import Session
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node


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
    counted = absence.by_peer(node)
    found: list[Away] = []
    for peer in node.peers:
        jobs: i64 = counted.get(int(peer.index), 0)
        if peer.index == ME or peer.is_linked or not (peer.is_member or jobs > 0):
            continue
        host = peer.facts.host.encode()
        ms, fails_ms = absence.away_ms(node, peer), absence.fails_ms(node, peer)
        found.append(Away(peer.node_id(), host, peer.facts.port, ms, fails_ms, jobs))
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
    """What each node says that can be heard."""
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
