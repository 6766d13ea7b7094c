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

from holdfast.core import domains, grants, home
from holdfast.core.grants import OF_DOMAIN, OF_QUEUE
from holdfast.core.job import ACKED, Job
from holdfast.core.peers import ME, Peer
from holdfast.core.rows import SLOTS
from holdfast.core.throttle import Throttle
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

NO_TOKENS: Final = 2
"""In place of what a throttle is of: the key is of something else."""

KEYS_MAX: Final = 8
"""Of one job: its group or unique key, its domain, and the rate of its queue."""


class Key:
    """Something about which one node decides, and who says that it does."""

    def __init__(self, name: bytes, slot: i64, throttle: Throttle | None = None) -> None:
        self.name: bytes = name
        self.slot: i64 = slot
        self.believers: list[bytes] = []
        self.throttle: Throttle | None = throttle  # whose tokens it is about
        self.ms: i64 = -1  # until the next of them, as who keeps them says


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
        of_queue = queue_rules.throttle
        found.append(Key(b"the rate of its queue", grants.share_of(node, of_queue).slot, of_queue))
    domain = None if more is None else node.domains.table.get(more.domain)
    if domain is not None and domain.interval > 0:
        found.append(Key(b"domain " + domain.name, grants.share_of(node, domain).slot, domain))
    for key in found:
        if node.homes.opened[key.slot]:
            key.believers.append(node.node_id[:8])
            key.ms = 0 if key.throttle is None else domains.next_ms(node, key.throttle)
    return found


def write_slots(out: BytesWriter, keys: list[Key]) -> None:
    for key in keys:
        throttle = key.throttle
        bus.write_u16(out, key.slot)
        bus.write_i8(out, NO_TOKENS if throttle is None else OF_DOMAIN if throttle.queue is None else OF_QUEUE)
        bus.write_name(out, b"" if throttle is None else throttle.name)


def write_answer(node: Node, reader: Reader, out: BytesWriter) -> None:
    """For each slot that a peer asks about, whether we decide about it, and if so when there is a token."""
    for _ in range(KEYS_MAX):
        if not reader.more():
            return
        slot = reader.u16()
        if slot >= SLOTS:
            raise BadFrame("a slot that there is none of")
        kind = reader.u8()
        name = reader.name()
        bus.write_i8(out, 1 if node.homes.opened[slot] else 0)
        bus.write_i64(out, next_ms(node, kind, name) if node.homes.opened[slot] else -1)


def next_ms(node: Node, kind: i64, name: bytes) -> i64:
    """Until there is a token: none was taken of a bucket that nobody has asked for."""
    throttle: Throttle | None = None
    if kind == OF_DOMAIN:
        throttle = node.domains.table.get(name)
    elif kind == OF_QUEUE:
        queue = node.queues.get(name)
        throttle = None if queue is None or queue.rules is None else queue.rules.throttle
    if throttle is None or not grants.is_home(node, throttle, grants.share_of(node, throttle)):
        return 0
    return domains.next_ms(node, throttle)


def hear(peer: Peer, reader: Reader, keys: list[Key]) -> None:
    for key in keys:
        if not reader.more():
            return
        is_home = reader.u8() == 1
        ms = reader.long()
        if is_home:
            key.believers.append(peer.node_id()[:8])
            key.ms = max(key.ms, ms)


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
