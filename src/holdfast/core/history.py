"""What happened to jobs, told for those who ask later: docs/reference/history.md has the format, byte by byte.

Unlike the journal (records.py), which keeps what the node needs to come back and forgets what is over, history is for
people and programs: each transition is one record that stands for itself, with the time on the wall, and nothing
ever reads it back into a node.

Whoever changes a job says so by one call of a function here, in the same moment and before the job itself
changes where the record needs what it was (the attempt of a nack, the body of a job that is forgotten). On the hot
path callers look at `node.is_telling` themselves, so that without history it costs one test.

The records of a turn are collected in `node.tale`, in batches of about 32 KB, and leave as such (journal/history.py):
a batch is what a reader gets at least, so it must not be as long as a turn can be.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64, u8

from holdfast.core.ids import id_minutes, id_random, id_seq
from holdfast.core.job import ACK_ONLY, ACKED, ACTIVE, HANDED_OUT, QUEUED_BEFORE, Job, read_code
from holdfast.core.limits import DURATION_S_MAX
from holdfast.core.peers import ME, Peer
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

IS_COPY: Final = 1

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
        self.cuts: list[tuple[int, int]] = []  # batches that are full: where each ends, how many records it has

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


# -- what happens to a job --------------------------------------------------------------------------------------


def added(node: Node, job: Job) -> None:
    """A client's job was accepted. Without a delay it is queued in the same moment, and no `queued` follows."""
    if not node.is_telling:
        return
    begin(node, ADDED, job, 0, 0)
    write_options(node, job)
    more = job.more
    if more is not None:
        out = node.tale.out
        write_text(out, UNIQUE, more.unique)
        if more.batch:
            write_text(out, BATCH, more.batch)
            write_tag(out, INDEX, 8)
            write_i64_le(out, more.index - 1)
        if more.headers:
            headers = BytesWriter()
            for text in more.headers:
                write_i32_le(headers, i32(len(text)))
                headers.write(text)
            write_text(out, HEADERS, headers.getvalue())
    end(node, job)


def queued(node: Node, job: Job) -> None:
    """It is about to be queued. The first time right after it was added is told with that."""
    if not node.is_telling or (not job.flags & QUEUED_BEFORE and job.delay == 0 and job.origin is node.own):
        return
    begin(node, QUEUED, job, tried(job), 0)
    end(node, job)


def handed_out(node: Node, job: Job, session: Session, ms: i64) -> None:
    if not node.is_telling or node.broken("hand-out-untold"):
        return
    begin(node, HANDED, job, tried(job) + 1, ms)
    write_text(node.tale.out, WORKER, worker_of(session))
    end(node, job)


def extended(node: Node, job: Job, session: Session | None, ms: i64) -> None:
    """Its worker has it for so much longer."""
    with_worker(node, EXTENDED, job, session, ms)


def nacked(node: Node, job: Job, session: Session | None, error: bytes = b"", delay_ms: i64 = 0) -> None:
    """Its worker says that it failed. To be called before the counts of the job grow."""
    if not node.is_telling:
        return
    begin(node, NACKED, job, tried(job) + 1, delay_ms)
    if session is not None:
        write_text(node.tale.out, WORKER, worker_of(session))
    write_text(node.tale.out, ERROR, error)
    end(node, job)


def released(node: Node, job: Job, session: Session | None, delay_ms: i64 = 0) -> None:
    """Its worker gives it back without blame."""
    with_worker(node, RELEASED, job, session, delay_ms)


def lease_lost(node: Node, job: Job, cause: bytes) -> None:
    """Nobody said what became of it: the worker kept silent (lease-ended), or went away (worker-gone).

    To be called before the counts of the job grow.
    """
    if not node.is_telling:
        return
    begin(node, LEASE_LOST, job, tried(job) + 1, 0)
    write_text(node.tale.out, WORKER, last_worker(node, job))
    write_text(node.tale.out, CAUSE, cause)
    end(node, job)


def acked(node: Node, job: Job, session: Session | None) -> None:
    if node.is_telling and not node.broken("ack-untold"):
        with_worker(node, DONE, job, session, 0)


def acked_unknown(node: Node, jid: bytes, session: Session) -> None:
    """Done, says a client, and this node has never seen the job."""
    if not node.is_telling:
        return
    head(node, DONE)
    out = node.tale.out
    write_i32_le(out, i32(read_code(jid[:10])))
    write_i64_le(out, id_seq(jid))
    write_i64_le(out, id_random(jid))
    write_i32_le(out, i32(id_minutes(jid)))
    write_i32_le(out, 0)
    write_i64_le(out, 0)
    write_i32_le(out, 0)
    write_text(out, WORKER, worker_of(session))
    finish(node)


def expired(node: Node, job: Job) -> None:
    """Its life ended. That of one that was done before is no news."""
    if not node.is_telling or job.state == ACKED or job.flags & ACK_ONLY:
        return
    begin(node, EXPIRED, job, reached(job), 0)
    end(node, job)


def dead(node: Node, job: Job, cause: bytes, error: bytes) -> None:
    """It has failed for good."""
    if not node.is_telling:
        return
    begin(node, DEAD, job, tried(job), 0)
    write_text(node.tale.out, ERROR, error)
    write_text(node.tale.out, CAUSE, cause)
    end(node, job)


def revived(node: Node, job: Job, session: Session | None) -> None:
    with_worker(node, REVIVED, job, session, 0)


def cancelled(node: Node, job: Job, session: Session | None) -> None:
    with_worker(node, CANCELLED, job, session, 0)


def deleted(node: Node, job: Job, cause: bytes) -> None:
    """By a client; `cause` is the command."""
    if not node.is_telling or job.state == ACKED:
        return
    begin(node, DELETED, job, reached(job), 0)
    write_text(node.tale.out, CAUSE, cause)
    end(node, job)


def dequeued(node: Node, job: Job, session: Session) -> None:
    with_worker(node, DEQUEUED, job, session, 0)


def evicted(node: Node, job: Job) -> None:
    if not node.is_telling:
        return
    begin(node, EVICTED, job, reached(job), 0)
    end(node, job)


def moved(node: Node, job: Job, peer: Peer) -> None:
    """It goes to a node where somebody waits for it."""
    if not node.is_telling:
        return
    begin(node, MOVED, job, tried(job), 0)
    write_text(node.tale.out, PEER, peer.node_id())
    end(node, job)


def imported(node: Node, job: Job, peer: Peer) -> None:
    """It came from another node, because somebody here waits for it."""
    if not node.is_telling:
        return
    begin(node, IMPORTED, job, tried(job), 0)
    write_text(node.tale.out, PEER, peer.node_id())
    write_options(node, job)
    end(node, job)


def not_accepted(node: Node, job: Job, error: bytes) -> None:
    """A job that waited for its copies will not be; `error` is what its producer is told."""
    if not node.is_telling:
        return
    begin(node, REFUSED, job, 0, 1)
    write_refusal(node.tale.out, error or b"GONE the producer went away")
    end(node, job)


def refused(node: Node, argv: list[bytes], error: bytes) -> None:
    """A command was refused. If it wanted to add, that is told: there is no job."""
    if not node.is_telling:
        return
    word = argv[0].upper()
    is_one = word == b"ADDJOB"
    if len(argv) < 4 or not (is_one or word == b"ADDJOBS"):
        return
    count: i64 = 1 if is_one or not argv[3].isdigit() or len(argv[3]) > 9 else i64(int(argv[3]))
    head(node, REFUSED)
    out = node.tale.out
    write_i64_le(out, 0)
    write_i64_le(out, 0)
    write_i64_le(out, 0)
    write_i32_le(out, i32(len(argv[2])) if is_one else 0)
    write_i64_le(out, count)
    write_queue(out, argv[1])
    write_refusal(out, error)
    finish(node)


def gap(node: Node, lost: i64) -> None:
    """So many records could not be written, and are missing before this one."""
    head(node, GAP)
    out = node.tale.out
    write_i64_le(out, 0)
    write_i64_le(out, 0)
    write_i64_le(out, 0)
    write_i32_le(out, 0)
    write_i64_le(out, lost)
    write_i32_le(out, 0)
    finish(node)


# -- how it is written ------------------------------------------------------------------------------------------


def with_worker(node: Node, event: i64, job: Job, session: Session | None, value: i64) -> None:
    """Without a session it is whoever has the job: it spoke through another node."""
    if not node.is_telling:
        return
    begin(node, event, job, reached(job), value)
    write_text(node.tale.out, WORKER, last_worker(node, job) if session is None else worker_of(session))
    end(node, job)


def tried(job: Job) -> i64:
    """Hand-outs that are over."""
    return i64(job.nacks) + i64(job.deliveries)


def reached(job: Job) -> i64:
    """Which hand-out it has come to: the one that goes on, or the last."""
    return tried(job) + (1 if job.flags & HANDED_OUT and job.state == ACTIVE else 0)


def worker_of(session: Session) -> bytes:
    return session.name or session.address.encode()


def last_worker(node: Node, job: Job) -> bytes:
    """Who had it, as far as that is known; a plain hand-out knows only the session, and that may be gone."""
    lease = job.lease
    if lease is not None:
        return lease.worker or lease.address
    session = node.sessions.get(int(job.taker))
    return b"" if session is None else worker_of(session)


def head(node: Node, event: i64) -> None:
    """A new record of no job that this node has, up to its time. Its size is said at the end."""
    tale = node.tale
    tale.record_at = len(tale.out)
    write_i64_le(tale.out, event << 32)
    write_i64_le(tale.out, node.wall)


def begin(node: Node, event: i64, job: Job, attempt: i64, value: i64) -> None:
    """A new record up to the name of its queue."""
    tale = node.tale
    out = tale.out
    tale.record_at = len(out)
    if attempt > ATTEMPT_MAX:
        attempt = ATTEMPT_MAX
    if attempt >= 0x8000:
        attempt -= 0x10000  # a machine word has a sign; uncompiled numbers must be told
    write_i64_le(out, event << 32 | (0 if job.responsible == ME else IS_COPY) << 40 | attempt << 48)
    write_i64_le(out, node.wall)
    write_i32_le(out, i32(job.origin.code))
    write_i64_le(out, job.seq)
    write_i64_le(out, job.rnd)
    write_i32_le(out, job.minutes)
    write_i32_le(out, i32(job.body_bytes()))
    write_i64_le(out, value)
    write_queue(out, job.queue.name)


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


def write_refusal(out: BytesWriter, error: bytes) -> None:
    """The code is the cause, the words are the error."""
    code, _, words = error.partition(b" ")
    write_text(out, CAUSE, code)
    write_text(out, ERROR, words)


def write_options(node: Node, job: Job) -> None:
    out = node.tale.out
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
