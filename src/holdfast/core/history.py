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
from mypy_extensions import i32, i64

from holdfast.core import times
from holdfast.core.ids import id_minutes, id_random, id_seq
from holdfast.core.job import ACK_ONLY, ACKED, ACTIVE, HANDED_OUT, QUEUED_BEFORE, Job, read_code
from holdfast.core.peers import Peer
from holdfast.core.session import Session
from holdfast.core.tale import (
    ADDED,
    BATCH,
    CANCELLED,
    CAUSE,
    DEAD,
    DELETED,
    DEQUEUED,
    DONE,
    ERROR,
    EVICTED,
    EXPIRED,
    EXTENDED,
    GAP,
    HANDED,
    HEADERS,
    IMPORTED,
    INDEX,
    LEASE_LOST,
    MOVED,
    NACKED,
    PEER,
    QUEUED,
    REFUSED,
    RELEASED,
    REVIVED,
    UNIQUE,
    WORKER,
    begin,
    end,
    finish,
    head,
    plain,
    tell,
    worker_of,
    write_body,
    write_options,
    write_queue,
    write_refusal,
    write_tag,
    write_text,
)

if TYPE_CHECKING:
    from holdfast.core.node import Node

NODE_SILENT: Final = b"node-silent"
"""The cause of a lease that was lost with its node: whether there was one nobody here knows."""


# -- what happens to a job --------------------------------------------------------------------------------------


def added(node: Node, job: Job) -> None:
    """A client's job was accepted. Without a delay it is queued in the same moment, and no `queued` follows."""
    if not node.is_telling:
        return
    more = job.more
    if more is None:
        plain(node, ADDED, job, 0, 0, node.tale.options(job))
        return
    begin(node, ADDED, job, 0, 0)
    out = node.tale.out
    write_options(out, job)
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
    tell(node, QUEUED, job, tried(job), 0, b"")


def handed_out(node: Node, job: Job, session: Session, ms: i64) -> None:
    if not node.is_telling or node.broken("hand-out-untold"):
        return
    tell(node, HANDED, job, tried(job) + 1, ms, node.tale.worker(session))


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
    write_text(node.tale.out, ERROR, error.partition(b"\n")[0])
    end(node, job)


def released(node: Node, job: Job, session: Session | None, delay_ms: i64 = 0) -> None:
    """Its worker gives it back without blame."""
    with_worker(node, RELEASED, job, session, delay_ms)


def lease_lost(node: Node, job: Job, cause: bytes) -> None:
    """Nobody said what became of it: the worker kept silent (lease-ended), or went away (worker-gone).

    To be called before the counts of the job grow.
    """
    if cause == NODE_SILENT:
        times.rescued(node, job)
    if not node.is_telling:
        return
    begin(node, LEASE_LOST, job, tried(job) + 1, 0)
    write_text(node.tale.out, WORKER, last_worker(node, job))
    write_text(node.tale.out, CAUSE, cause)
    end(node, job)


def acked(node: Node, job: Job, session: Session | None) -> None:
    if not node.is_telling or node.broken("ack-untold"):
        return
    if node.tale.body_bytes == 0:
        with_worker(node, DONE, job, session, 0)
        return
    begin(node, DONE, job, reached(job), 0)
    write_text(node.tale.out, WORKER, last_worker(node, job) if session is None else worker_of(session))
    write_body(node, job)
    end(node, job)


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
    write_body(node, job)
    end(node, job)


def dead(node: Node, job: Job, cause: bytes, error: bytes) -> None:
    """It has failed for good."""
    if not node.is_telling:
        return
    begin(node, DEAD, job, tried(job), 0)
    write_text(node.tale.out, WORKER, last_worker(node, job))
    write_text(node.tale.out, ERROR, error)
    write_text(node.tale.out, CAUSE, cause)
    write_body(node, job)
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
    write_body(node, job)
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
    write_options(node.tale.out, job)
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


# -- helpers --------------------------------------------------------------------------------------------------


def with_worker(node: Node, event: i64, job: Job, session: Session | None, value: i64) -> None:
    """Without a session it is whoever has the job: it spoke through another node."""
    if not node.is_telling:
        return
    if session is not None:
        tell(node, event, job, reached(job), value, node.tale.worker(session))
        return
    begin(node, event, job, reached(job), value)
    write_text(node.tale.out, WORKER, last_worker(node, job))
    end(node, job)


def tried(job: Job) -> i64:
    """Hand-outs that are over."""
    return i64(job.nacks) + i64(job.deliveries)


def reached(job: Job) -> i64:
    """Which hand-out it has come to: the one that goes on, or the last."""
    return tried(job) + (1 if job.flags & HANDED_OUT and job.state == ACTIVE else 0)


def last_worker(node: Node, job: Job) -> bytes:
    """Who had it, as far as that is known; a plain hand-out knows only the session, and that may be gone."""
    lease = job.lease
    if lease is not None:
        return lease.worker or lease.address
    session = node.sessions.get(int(job.taker))
    return b"" if session is None else worker_of(session)
