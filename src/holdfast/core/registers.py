"""Settings of the whole cluster: registers, the same at every node in the end.

A register is one field of one thing: of a queue, a domain, a tenant, a cron entry (`kind`, `name`, `field`). It has a
value and a stamp, which is a time and the node that wrote it; the higher stamp wins, wherever and in whatever order
words of it arrive. The time is hybrid: that of the wall, in milliseconds and 65,536 steps of each, but never behind
a stamp that was seen; so a word that answers another is later, whatever the clocks say. Of two that were written at
once one wins, and whoever reads (QUEUE GET … WITHSTAMP) sees when and where the one was written.

A node whose clock is an hour ahead would win for an hour. So the wall is the one in the middle of all that can be heard
(doubt.py), a stamp that is further ahead of it than clocks may differ is not taken over, and an operator is told. It is
asked for again when its time has come. Who has such a stamp itself, from a time when its clock was wrong and nobody
said so, makes it anew: nobody else would take it, nor any later one of that node.

A change is told to all peers at once. What was lost with a link is found at the next: both sides say a digest of all
they have (DIGEST), and where the two differ each tells all of it. A deletion is a value like any other, so that an
old word does not bring back what was deleted; it is dropped when all members have the same digest, which counts
living values only: then nobody has an old word left.
"""
from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import errors, links, membership, records, settings
from holdfast.core.doubt import SKEW_MS, common_wall, own_wall
from holdfast.core.errors import Refused
from holdfast.core.limits import (
    KEY_BYTES_MAX,
    QUEUE_NAME_BYTES_MAX,
    REGISTER_BYTES,
    REGISTERS_MAX,
)
from holdfast.core.peers import ME, Peer
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

STEPS: Final = 16
"""Bits of a stamp below its milliseconds."""

TELL_ALL_MS: Final = 1000
"""Not more often than this all is told to a peer whose digest differs: mostly a word is still on its way."""

DELETED_MS: Final = 60_000
"""A deletion is kept at least this long, so that the digests compared are of a time after it."""


class Register:
    def __init__(self, value: bytes | None, time: i64, writer: bytes) -> None:
        self.value: bytes | None = value  # None: it was deleted
        self.time: i64 = time
        self.writer: bytes = writer  # a node id

    def is_older_than(self, time: i64, writer: bytes) -> bool:
        return self.time < time or (self.time == time and self.writer < writer)


class Registers:
    def __init__(self) -> None:
        self.things: dict[tuple[bytes, bytes], dict[bytes, Register]] = {}  # by kind and name, then by field
        self.count: i64 = 0
        self.deleted: i64 = 0
        self.latest: i64 = 0  # no stamp seen is later
        self.digest: int = 0  # of all living values: 64 bits, in whatever order they came
        self.told: dict[int, int] = {}  # peers, by index: the digest that we told them in this epoch
        self.heard: dict[int, int] = {}  # and that they told us
        self.told_all: dict[int, int] = {}  # and when all was told to them
        self.ask_at: dict[int, int] = {}  # and when to ask for what was too far ahead

    def find(self, kind: bytes, name: bytes, field: bytes) -> Register | None:
        fields = self.things.get((kind, name))
        return None if fields is None else fields.get(field)


def value(node: Node, kind: bytes, name: bytes, field: bytes) -> bytes | None:
    """What is set; None if nothing is."""
    found = node.registers.find(kind, name, field)
    return None if found is None else found.value


def names(node: Node, kind: bytes) -> list[bytes]:
    """Everything of a kind of which something is set, in order."""
    return sorted([
        name for (its, name), fields in node.registers.things.items()
        if its == kind and any([each.value is not None for each in fields.values()])
    ])


def check_room(node: Node, more: i64) -> None:
    """Not a matter of memory: whoever pauses a queue because the node is full must be heard."""
    if node.registers.count + more > REGISTERS_MAX:
        raise Refused(b"ERR the cluster has as many settings as it can: %d" % REGISTERS_MAX)


def new_stamp(node: Node) -> i64:
    """Later than any that was seen here."""
    registers = node.registers
    registers.latest = max(own_wall(node) << STEPS, registers.latest + 1)
    return registers.latest


def put(node: Node, kind: bytes, name: bytes, values: dict[bytes, bytes | None]) -> None:
    """Set fields of one thing, here and everywhere; None deletes one. The caller has checked them."""
    check_room(node, len(values))
    registers = node.registers
    for field in values:
        known = registers.find(kind, name, field)
        if values[field] is None and (known is None or known.value is None):
            continue  # nothing to delete
        register = Register(values[field], new_stamp(node), node.node_id)
        spread(node, kind, name, field, register)
        if register.value is None and (len(node.peers) == 1 or node.broken("deletions-forgotten")):
            drop(node, kind, name, field)  # nobody else ever heard of it
    settings.apply(node, kind, name)


def spread(node: Node, kind: bytes, name: bytes, field: bytes, register: Register) -> None:
    """Keep it, and tell everybody."""
    store(node, kind, name, field, register)
    for peer in node.peers:
        if peer.is_linked:
            write(peer, kind, name, field, register)


def store(node: Node, kind: bytes, name: bytes, field: bytes, register: Register) -> None:
    registers = node.registers
    fields = registers.things.setdefault((kind, name), {})
    known = fields.get(field)
    if known is None:
        registers.count += 1
        node.account(REGISTER_BYTES)
    elif known.value is None:
        registers.deleted -= 1
    else:
        registers.digest ^= digest_of(kind, name, field, known)
    if register.value is None:
        registers.deleted += 1
    else:
        registers.digest ^= digest_of(kind, name, field, register)
    fields[field] = register
    registers.latest = max(registers.latest, register.time)
    records.register(node, kind, name, field, register.value, register.time, register.writer)


def digest_of(kind: bytes, name: bytes, field: bytes, register: Register) -> int:
    """63 bits of a living value, so that they fit a number on the wire."""
    text = b"%b\0%d %b\0%d %b\0%d %b" % (
        kind, len(name), name, len(field), field, int(register.time), register.writer
    )
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") >> 1


def drop(node: Node, kind: bytes, name: bytes, field: bytes) -> None:
    """A deletion that everybody has."""
    fields = node.registers.things[(kind, name)]
    del fields[field]
    if not fields:
        del node.registers.things[(kind, name)]
    node.registers.count -= 1
    node.registers.deleted -= 1
    node.account(-REGISTER_BYTES)
    records.register(node, kind, name, field, None, 0, node.node_id)


# -- between nodes ---------------------------------------------------------------------------------------------


def write(peer: Peer, kind: bytes, name: bytes, field: bytes, register: Register) -> None:
    out = peer.out
    out.append(bus.REGISTER)
    bus.write_name(out, kind)
    bus.write_name(out, name)
    bus.write_name(out, field)
    bus.write_i8(out, 0 if register.value is None else 1)
    bus.write_name(out, b"" if register.value is None else register.value)
    bus.write_i64(out, register.time)
    out.write(register.writer)


def on_register(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer tells what a register is set to."""
    kind = reader.name()
    name = reader.name()
    field = reader.name()
    is_set = reader.u8() == 1
    text = reader.name()
    time = reader.long()
    writer = reader.node_id()
    if (
        len(name) > QUEUE_NAME_BYTES_MAX or len(field) > KEY_BYTES_MAX or time <= 0
        or (is_set and not settings.is_legal(kind, name, field, text))
    ):
        raise BadFrame("a setting that nobody can have made")
    registers = node.registers
    known = registers.find(kind, name, field)
    if known is not None and not known.is_older_than(time, writer) and not node.broken("settings-by-arrival"):
        return
    if known is None and registers.count >= REGISTERS_MAX:
        node.count("settings-refused")
        return
    ahead = (time >> STEPS) - common_wall(node)
    if ahead > SKEW_MS and not node.broken("future-stamp-adopted"):
        node.count("settings-from-the-future")
        node.notice(
            peer.node_id(), f"tells a setting of {errors.printable(name).decode()} from {ahead} ms ahead of the time: "
            "not taken over; a clock is wrong",
        )
        registers.ask_at[int(peer.index)] = int(node.now + ahead - SKEW_MS)
        return
    store(node, kind, name, field, Register(text if is_set else None, time, writer))
    if not is_set and node.broken("deletions-forgotten"):
        drop(node, kind, name, field)
    settings.apply(node, kind, name)


def link_up(node: Node, peer: Peer) -> None:
    for told in (node.registers.told, node.registers.heard, node.registers.told_all, node.registers.ask_at):
        told.pop(int(peer.index), None)
    tell_digest(node, peer, False)


def tell_digest(node: Node, peer: Peer, wants_all: bool) -> None:
    node.registers.told[int(peer.index)] = node.registers.digest
    peer.out.append(bus.DIGEST)
    bus.write_i64(peer.out, node.registers.digest)
    bus.write_i8(peer.out, 1 if wants_all else 0)


def on_digest(node: Node, peer: Peer, reader: Reader) -> None:
    """What a peer has, in a word. Where it has something else than we it is told all that we have."""
    registers = node.registers
    index = int(peer.index)
    registers.heard[index] = int(reader.long())
    wants_all = reader.u8() == 1
    if registers.heard[index] == registers.digest and not wants_all:
        return
    if node.now - registers.told_all.get(index, -TELL_ALL_MS) >= TELL_ALL_MS or wants_all:
        tell_all(node, peer)


def tell_all(node: Node, peer: Peer) -> None:
    registers = node.registers
    registers.told_all[int(peer.index)] = int(node.now)
    if node.broken("settings-told-once"):
        return
    for (kind, name), fields in registers.things.items():
        for field, register in fields.items():
            write(peer, kind, name, field, register)
            settings.told(node, peer, kind, name)
            if len(peer.out) >= bus.FRAME_BYTES_FULL:
                links.make_frame(node, peer)


def beat(node: Node) -> None:
    """Once a second: tell the digest where it is new, ask for what was too early, let go of deletions."""
    registers = node.registers
    for peer in node.peers:
        if not peer.is_linked:
            continue
        index = int(peer.index)
        asks = 0 <= registers.ask_at.get(index, -1) <= node.now
        if asks:
            del registers.ask_at[index]
        differs = registers.heard.get(index) != registers.digest
        if asks or registers.told.get(index) != registers.digest:
            tell_digest(node, peer, asks)
        elif differs and node.now - registers.told_all.get(index, -TELL_ALL_MS) >= 5 * TELL_ALL_MS:
            tell_all(node, peer)
    if registers.deleted > 0:
        drop_deleted(node)
    if (registers.latest >> STEPS) - common_wall(node) > SKEW_MS and membership.sees_majority(node):
        make_anew(node)


def make_anew(node: Node) -> None:
    """Settings that were made, or taken over, when clocks were wrong get a stamp that all take."""
    if node.broken("future-stamp-kept"):
        return
    registers = node.registers
    until = (common_wall(node) + SKEW_MS) << STEPS
    own_pauses = settings.forget_pause_stamps(node, until)
    found: list[tuple[bytes, bytes, bytes, Register]] = []
    registers.latest = 0
    for (kind, name), fields in registers.things.items():
        for field, register in fields.items():
            if register.time > until:
                found.append((kind, name, field, register))
            else:
                registers.latest = max(registers.latest, register.time)
    for kind, name, field, register in found:
        node.count("settings-made-anew")
        stamp = new_stamp(node)
        value = settings.moved_in_time(field, register.value, (stamp - register.time) >> STEPS)
        spread(node, kind, name, field, Register(value, stamp, node.node_id))
    for kind, name, _, _ in found:
        settings.apply(node, kind, name)
    for queue in own_pauses:
        queue.pause_stamp = new_stamp(node)
        records.queue(node, queue)


def drop_deleted(node: Node) -> None:
    registers = node.registers
    for peer in node.peers:
        if peer.index == ME or not peer.is_member:
            continue
        if not peer.is_linked or registers.heard.get(int(peer.index)) != registers.digest:
            return  # somebody may still have an old word
    wall = node.wall if node.broken("deletion-by-own-clock") else own_wall(node)
    before = (wall - DELETED_MS) << STEPS
    for (kind, name), fields in list(registers.things.items()):
        for field, register in list(fields.items()):
            if register.value is None and register.time < before:
                drop(node, kind, name, field)


# -- the journal -----------------------------------------------------------------------------------------------


def load(node: Node, reader: Reader) -> None:
    kind = reader.name()
    name = reader.name()
    field = reader.name()
    is_set = reader.u8() == 1
    text = reader.name()
    time = reader.long()
    writer = reader.text(bus.NODE_ID)
    known = node.registers.find(kind, name, field)
    if time == 0:
        if known is not None and known.value is None:
            drop(node, kind, name, field)
        return
    # What was kept last counts: it may have an earlier stamp (make_anew).
    store(node, kind, name, field, Register(text if is_set else None, time, writer))
    settings.apply(node, kind, name)


def write_all(node: Node) -> None:
    """All of them, for a snapshot."""
    for (kind, name), fields in node.registers.things.items():
        for field, each in fields.items():
            records.register(node, kind, name, field, each.value, each.time, each.writer)
