"""How history is written: records side by side in a buffer, in batches. docs/reference/history.md has the bytes.

A record has a part that is the same for all, the name of its queue, and then texts, each with a tag, of which it has
those that there is something to say in. Records of a turn are much alike: the same queue, the same worker, the same
options. So these parts are kept as they were last written, and a plain record is a few stores and two copies.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64, u8

from holdfast.core.job import AWAY, Job
from holdfast.core.limits import DURATION_S_MAX
from holdfast.core.peers import ME
from holdfast.core.session import Session

if TYPE_CHECKING:
    from holdfast.core.node import Node

ADDED: Final = 1
QUEUED: Final = 2
HANDED: Final = 3
EXTENDED: Final = 4
NACKED: Final = 5
LEASE_LOST: Final = 6
DONE: Final = 7
EXPIRED: Final = 8
DEAD: Final = 9
DELETED: Final = 10
REFUSED: Final = 11
MOVED: Final = 12
IMPORTED: Final = 13
RELEASED: Final = 14
CANCELLED: Final = 15
REVIVED: Final = 16
DEQUEUED: Final = 17
EVICTED: Final = 18
GAP: Final = 255

WORKER: Final = 1
ERROR: Final = 2
CAUSE: Final = 3
TENANT: Final = 4
DOMAIN: Final = 5
GROUP: Final = 6
PARENT: Final = 7
PEER: Final = 8
OPTIONS: Final = 9
UNIQUE: Final = 10
BATCH: Final = 11
INDEX: Final = 12
HEADERS: Final = 13
BODY: Final = 14

IS_COPY: Final = 1

BEFORE_QUEUE: Final = 52  # bytes of a record before what it says of the queue
BATCH_BYTES: Final = 32 * 1024
ATTEMPT_MAX: Final = 65535
PADS: Final = [b"", b"\0\0\0", b"\0\0", b"\0"]


class Tale:
    """The records of a turn."""

    def __init__(self) -> None:
        self.out: BytesWriter = BytesWriter()
        self.count: i64 = 0  # records since the last cut
        self.cut_at: i64 = 0
        self.record_at: i64 = 0
        self.body_bytes: i64 = 0  # of the body of a job that ends so many are told
        self.cuts: list[tuple[int, int]] = []  # batches that are full: where each ends, how many records it has
        # What many records in a row have in common, as they have it.
        self.queue_name: bytes = b""
        self.queue_text: bytes = b"\0\0\0\0"
        self.worker_name: bytes = b""
        self.worker_address: str = ""
        self.worker_text: bytes = b""
        self.retry: i64 = -1
        self.life: i64 = -1
        self.rest: i64 = -1
        self.options_text: bytes = b""

    def queue(self, name: bytes) -> bytes:
        """The name of a queue in a record: length, name, zeros."""
        if name is not self.queue_name:
            text = BytesWriter()
            write_queue(text, name)
            self.queue_name = name
            self.queue_text = text.getvalue()
        return self.queue_text

    def worker(self, session: Session) -> bytes:
        if session.name is not self.worker_name or session.address is not self.worker_address:
            text = BytesWriter()
            write_text(text, WORKER, worker_of(session))
            self.worker_name = session.name
            self.worker_address = session.address
            self.worker_text = text.getvalue()
        return self.worker_text

    def options(self, job: Job) -> bytes:
        """Of a job that has no more than a plain one."""
        retry = i64(job.retry) << 32 | i64(job.delay)
        life = job.expire - job.ctime // 1_000_000
        rest = i64(job.replicate) << 16 | i64(job.priority)
        if retry != self.retry or life != self.life or rest != self.rest:
            text = BytesWriter()
            write_options(text, job)
            self.retry, self.life, self.rest = retry, life, rest
            self.options_text = text.getvalue()
        return self.options_text

    def cut(self) -> None:
        """The batch is long enough: what follows is the next."""
        self.cuts.append((len(self.out), int(self.count)))
        self.count = 0
        self.cut_at = len(self.out)

    def take(self) -> list[tuple[bytes, int]]:
        """All batches, each with the number of its records."""
        if self.count > 0:
            self.cut()
        data = self.out.getvalue()
        self.out.truncate(0)
        cuts = self.cuts
        self.cut_at = 0
        if len(cuts) == 1:
            count = cuts[0][1]
            cuts.clear()
            return [(data, count)]
        batches: list[tuple[bytes, int]] = []
        begin = 0
        for end, count in cuts:
            batches.append((data[begin:end], count))
            begin = end
        cuts.clear()
        return batches


def worker_of(session: Session) -> bytes:
    return session.name or session.where


def head(node: Node, event: i64) -> None:
    """A new record of no job that this node has, up to its time. Its size is said at the end."""
    tale = node.tale
    tale.record_at = len(tale.out)
    write_i64_le(tale.out, event << 32)
    write_i64_le(tale.out, node.wall)


def tell(node: Node, event: i64, job: Job, attempt: i64, value: i64, texts: bytes) -> None:
    """A whole record, whose texts are ready but for the keys of the job."""
    if job.more is None:
        plain(node, event, job, attempt, value, texts)
        return
    begin(node, event, job, attempt, value)
    node.tale.out.write(texts)
    end(node, job)


def plain(node: Node, event: i64, job: Job, attempt: i64, value: i64, texts: bytes) -> None:
    """The same of a job without keys: there are three of these in the life of most jobs."""
    tale = node.tale
    out = tale.out
    queue = tale.queue(job.queue.name)
    start(node, job, event << 32 | len(queue) + len(texts) + BEFORE_QUEUE, attempt, value)
    out.write(queue)
    out.write(texts)
    tale.count += 1
    if len(out) - tale.cut_at >= BATCH_BYTES:
        tale.cut()


def begin(node: Node, event: i64, job: Job, attempt: i64, value: i64) -> None:
    """A new record up to the name of its queue. Its size is said at the end."""
    tale = node.tale
    tale.record_at = len(tale.out)
    start(node, job, event << 32, attempt, value)
    tale.out.write(tale.queue(job.queue.name))


def start(node: Node, job: Job, first: i64, attempt: i64, value: i64) -> None:
    """What is in the same place in every record; `first` is its size and its event."""
    out = node.tale.out
    if attempt > ATTEMPT_MAX:
        attempt = ATTEMPT_MAX
    if attempt >= 0x8000:
        attempt -= 0x10000  # a machine word has a sign; uncompiled numbers must be told
    write_i64_le(out, first | (0 if job.responsible == ME else IS_COPY) << 40 | attempt << 48)
    write_i64_le(out, node.wall)
    write_i32_le(out, i32(job.origin.code))
    write_i64_le(out, job.seq)
    write_i64_le(out, job.rnd)
    write_i64_le(out, job.body_bytes() << 32 | i64(job.minutes))
    write_i64_le(out, value)


def write_queue(out: BytesWriter, name: bytes) -> None:
    write_i32_le(out, i32(len(name)))
    out.write(name)
    if len(name) & 3:
        out.write(PADS[len(name) & 3])


def write_tag(out: BytesWriter, tag: i64, size: i64) -> None:
    write_i32_le(out, i32(tag << 24 | size))


def write_text(out: BytesWriter, tag: i64, text: bytes) -> None:
    if text:
        write_tag(out, tag, len(text))
        out.write(text)
        if len(text) & 3:
            out.write(PADS[len(text) & 3])


def write_body(node: Node, job: Job) -> None:
    """The beginning of a job's body, where that is wanted. One that is on disk is not read for it."""
    most = node.tale.body_bytes
    if most > 0 and not job.flags & AWAY:
        write_text(node.tale.out, BODY, job.kept[:most])


def write_refusal(out: BytesWriter, error: bytes) -> None:
    """The code is the cause, the words are the error."""
    code, _, words = error.partition(b" ")
    write_text(out, CAUSE, code)
    write_text(out, ERROR, words)


def write_options(out: BytesWriter, job: Job) -> None:
    more = job.more
    write_tag(out, OPTIONS, 24)
    write_i32_le(out, job.retry)
    write_i32_le(out, job.delay)
    write_i32_le(out, i32(min(DURATION_S_MAX, max(0, job.expire - job.ctime // 1_000_000) // 1000)))
    write_i32_le(out, i32(i64(job.replicate) | i64(job.priority) << 16))
    write_i32_le(out, 0 if more is None else more.attempts)
    write_i32_le(out, 0)


def end(node: Node, job: Job) -> None:
    """The keys of the job, where it has them, and the size."""
    more = job.more
    if more is not None:
        out = node.tale.out
        write_text(out, TENANT, more.tenant)
        write_text(out, DOMAIN, more.domain)
        write_text(out, GROUP, more.group)
        write_text(out, PARENT, more.parent)
    finish(node)


def finish(node: Node) -> None:
    tale = node.tale
    out = tale.out
    at = tale.record_at
    size: i64 = len(out) - at
    out[at] = u8(size & 255)
    out[at + 1] = u8((size >> 8) & 255)
    out[at + 2] = u8((size >> 16) & 255)
    out[at + 3] = u8((size >> 24) & 255)
    tale.count += 1
    if len(out) - tale.cut_at >= BATCH_BYTES:
        tale.cut()
