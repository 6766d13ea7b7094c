"""Who believes to decide about the keys of a job: what EXPLAIN has to say of homes (home.py).

For each key there is one home, and in calm times everybody agrees on who that is. While members cannot hear each
other two may believe it of themselves, and each keeps the promise for itself: a group has one job out at each of
them, a domain its rate. Whoever asks why that happened is told how many there are, as far as they can be asked, and
that there may be more where they cannot.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import grants, home
from holdfast.core.job import ACKED, Job
from holdfast.core.peers import ME, Peer
from holdfast.core.rows import SLOTS
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

KEYS_MAX: Final = 8
"""Of one job: its group or unique key, its domain, and the rate of its queue."""


class Key:
    """Something about which one node decides, and who says that it does."""

    def __init__(self, name: bytes, slot: i64) -> None:
        self.name: bytes = name
        self.slot: i64 = slot
        self.believers: list[bytes] = []


def keys_of(node: Node, job: Job) -> list[Key]:
    """What others have a say in, of a job that has not ended; nothing where there are no others."""
    found: list[Key] = []
    if home.is_alone(node) or job.state == ACKED:
        return found
    more = job.more
    if more is not None and (more.group or more.unique):
        name = b"group " + more.group if more.group else b"unique key " + more.unique
        found.append(Key(name, home.slot_of_job(job)))
    queue_rules = job.queue.rules
    if queue_rules is not None and queue_rules.throttle is not None and queue_rules.throttle.interval > 0:
        found.append(Key(b"the rate of its queue", grants.share_of(node, queue_rules.throttle).slot))
    domain = None if more is None else node.domains.table.get(more.domain)
    if domain is not None and domain.interval > 0:
        found.append(Key(b"domain " + domain.name, grants.share_of(node, domain).slot))
    for key in found:
        if node.homes.opened[key.slot]:
            key.believers.append(node.node_id[:8])
    return found


def write_slots(out: BytesWriter, keys: list[Key]) -> None:
    for key in keys:
        bus.write_u16(out, key.slot)


def write_answer(node: Node, reader: Reader, out: BytesWriter) -> None:
    """For each slot that a peer asks about, whether we decide about it."""
    for _ in range(KEYS_MAX):
        if not reader.more():
            return
        slot = reader.u16()
        if slot >= SLOTS:
            raise BadFrame("a slot that there is none of")
        bus.write_i8(out, 1 if node.homes.opened[slot] else 0)


def hear(peer: Peer, reader: Reader, keys: list[Key]) -> None:
    for key in keys:
        if reader.more() and reader.u8() == 1:
            key.believers.append(peer.node_id()[:8])


def words_of(key: Key, missing: i64) -> bytes:
    """What is to be said of a key; nothing where all agree."""
    if len(key.believers) > 1:
        return b"%d nodes believe that they decide about %b (%b): until they agree each does so for itself" % (
            len(key.believers), key.name, b", ".join(sorted(key.believers)))
    if missing > 0:
        return b"%d node%b cannot be reached, and may believe to decide about %b as well" % (
            int(missing), b"" if missing == 1 else b"s", key.name)
    return b""


def missing(node: Node) -> i64:
    """Members that cannot be asked."""
    count: i64 = 0
    for peer in node.peers:
        if peer.is_member and peer.index != ME and not peer.is_linked:
            count += 1
    return count
