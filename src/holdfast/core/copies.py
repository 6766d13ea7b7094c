"""A job as bytes, for another node or for the journal.

    id 48 · age ms i64 · life left ms i64 · delay left ms i64 · delay u32 · retry u32 · nacks u32 ·
    deliveries u32 · replicate u16 · priority u8 · hops u8 · holders mask · queue name · body · more (more.py)

Times are what is left, never a point in time: clocks differ. A receiver never lengthens a life it knows.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import BytesWriter
from mypy_extensions import i16, i32, i64

from holdfast.core import results
from holdfast.core.ids import id_minutes, id_random, id_seq, write_id
from holdfast.core.job import QUEUED_BEFORE, SPECIAL, Job
from holdfast.core.limits import (
    DURATION_S_MAX,
    PRIORITY_MAX,
    QUEUE_NAME_BYTES_MAX,
    REPLICATE_MAX,
)
from holdfast.core.more import TO_DEAD, More, read
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

AGE_MS_MAX = DURATION_S_MAX * 1000


def write_job_id(out: BytesWriter, job: Job) -> None:
    write_id(out, job.origin.prefix, job.seq, job.rnd, i64(job.minutes))


def write_copy(node: Node, out: BytesWriter, job: Job, holders: i64, delay_left: i64) -> None:
    write_job_id(out, job)
    bus.write_i64(out, max(0, node.now - job.ctime // 1_000_000))
    bus.write_i64(out, job.expire - node.now)
    bus.write_i64(out, delay_left)
    bus.write_u32(out, i64(job.delay))
    bus.write_u32(out, i64(job.retry))
    bus.write_u32(out, i64(job.nacks))
    bus.write_u32(out, i64(job.deliveries))
    bus.write_u16(out, i64(job.replicate))
    bus.write_i8(out, i64(job.priority))
    bus.write_i8(out, i64(job.hops))
    bus.write_i64(out, holders)
    bus.write_name(out, job.queue.name)
    bus.write_name(out, job.body)
    more = job.more
    bus.write_name(out, b"" if more is None else more.to_bytes())


class Copy:
    """A job as another node described it, before it is one of ours."""

    def __init__(self, reader: Reader) -> None:
        self.jid: bytes = reader.job_id()
        self.age: i64 = reader.long()
        self.life: i64 = reader.long()
        self.delay_left: i64 = reader.long()
        self.delay: i64 = reader.u32()
        self.retry: i64 = reader.u32()
        self.nacks: i64 = reader.u32()
        self.deliveries: i64 = reader.u32()
        self.replicate: i64 = reader.u16()
        self.priority: i64 = reader.u8()
        self.hops: i64 = reader.u8()
        self.holders: i64 = 0
        self.queue: bytes = b""
        self.body: bytes = b""
        self.more: More | None = None

    def check(self) -> None:
        """Bytes from outside are believed only within the bounds that hold for clients."""
        if (
            self.age < 0 or self.age > AGE_MS_MAX or self.life > AGE_MS_MAX
            or self.delay > DURATION_S_MAX or self.retry > DURATION_S_MAX or self.delay_left < 0
            or self.delay_left > AGE_MS_MAX or self.replicate < 1 or self.replicate > REPLICATE_MAX
            or self.nacks > DURATION_S_MAX or self.deliveries > DURATION_S_MAX
            or self.priority > PRIORITY_MAX or len(self.queue) > QUEUE_NAME_BYTES_MAX
        ):
            raise BadFrame("a job with values that no job can have")

    def pass_time(self, ms: i64) -> None:
        """It was written that long ago."""
        self.age += ms
        self.life -= ms
        self.delay_left = max(0, self.delay_left - ms)


def read_more(data: bytes) -> More | None:
    return read(data) if data else None


def is_to_die(node: Node, copy: Copy) -> bool:
    """Whether it goes to the dead letters when its life is over (expiry.py), which is still to be decided."""
    if copy.more is not None and copy.more.onexpire != 0:
        return copy.more.onexpire == TO_DEAD
    register = node.registers.find(b"queue", copy.queue, b"onexpire")
    return register is not None and register.value is not None


def register(node: Node, copy: Copy) -> Job | None:
    """Make a job known here from its description; None if its life is over or its id is none of ours to keep."""
    if copy.life <= 0 and not is_to_die(node, copy):
        return None
    seq = id_seq(copy.jid)
    if seq <= 0:
        return None
    origin = node.origin(copy.jid[:10])
    if origin.get(seq) is not None:
        return None  # another job of the same number: no honest node makes two
    job = Job(
        seq, id_random(copy.jid), origin, node.queue(copy.queue), copy.body, (node.now - copy.age) * 1_000_000,
        node.now + copy.life, id_minutes(copy.jid),
    )
    if node.broken("life-longer-by-hop"):
        job.expire = node.now + i64(job.minutes) * 60_000
    job.retry = i32(copy.retry)
    job.delay = i32(copy.delay)
    if copy.delay_left == 0 and copy.age < copy.delay * 1000:
        job.flags |= QUEUED_BEFORE  # ENQUEUE has ended its delay
    job.nacks = i32(copy.nacks)
    job.deliveries = i32(copy.deliveries)
    job.replicate = i32(copy.replicate)
    job.priority = i16(copy.priority)
    job.hops = int(copy.hops)
    job.holders = copy.holders | 1
    if copy.more is not None:
        job.more = copy.more
        job.flags |= SPECIAL
    node.keep(job)
    if node.results.watches:
        results.arrived(node, job)
    return job
