"""Dead jobs in numbers: listed, sent back or deleted, one by one or as many as match.

A list is of the whole cluster, page by page, in the order of ids: each node that can be heard gives its next ones,
and copies of the same job become one. What is to be done with dead jobs is done by this node where it holds them,
and where it does not, by the first of their holders. At-most-once jobs of which nobody can say whether they were
handed out are listed, too, with the cause `in doubt`: sending one back is the operator's word that it may run.
"""
from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import absence, acks, doubt, fate, history, inquire
from holdfast.core.inquire import Question
from holdfast.core.job import DEAD, IN_DOUBT, Job
from holdfast.core.limits import ERROR_BYTES_MAX, QUEUE_NAME_BYTES_MAX, SCAN_COUNT_MAX
from holdfast.core.peers import Peer
from holdfast.core.reply import write_array, write_bulk, write_int
from holdfast.core.results import last_error
from holdfast.core.session import Session
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

# What to do.
LIST: Final = 0
RETRY: Final = 1
DELETE: Final = 2

IN_DOUBT_CAUSE: Final = b"in doubt"


class Filter:
    """Which dead jobs are meant: those named, or all that match."""

    def __init__(self, what: i64) -> None:
        self.what: i64 = what
        self.ids: list[bytes] = []
        self.queue: bytes | None = None
        self.cause: bytes = b""  # patterns; empty: any
        self.error: bytes = b""
        self.older: i64 = 0  # ms
        self.after: bytes = b""
        self.count: i64 = 100

    def takes(self, node: Node, job: Job) -> bool:
        if self.queue is not None and job.queue.name != self.queue:
            return False
        if self.cause and not like(cause_of(job), self.cause):
            return False
        if self.error and not like(error_of(job), self.error):
            return False
        more = job.more
        return self.older == 0 or more is None or doubt.own_wall(node) - more.died >= self.older

    def to_bytes(self) -> bytes:
        out = BytesWriter()
        bus.write_i8(out, self.what)
        bus.write_u32(out, len(self.ids))
        for jid in self.ids:
            out.write(jid)
        bus.write_i8(out, 0 if self.queue is None else 1)
        bus.write_name(out, self.queue or b"")
        bus.write_name(out, self.cause)
        bus.write_name(out, self.error)
        bus.write_i64(out, self.older)
        bus.write_name(out, self.after)
        bus.write_i64(out, self.count)
        return out.getvalue()


def read_filter(reader: Reader) -> Filter:
    found = Filter(reader.u8())
    count = reader.u32()
    if count > SCAN_COUNT_MAX or found.what > DELETE:
        raise BadFrame("more dead jobs than can be named at once")
    found.ids = [reader.job_id() for _ in range(count)]
    has_queue = reader.u8() != 0
    queue = reader.name()
    found.queue = queue if has_queue else None
    found.cause = reader.name()
    found.error = reader.name()
    found.older = reader.long()
    found.after = reader.name()
    found.count = max(0, min(reader.long(), SCAN_COUNT_MAX))
    if len(queue) > QUEUE_NAME_BYTES_MAX or len(found.cause) + len(found.error) > 2 * ERROR_BYTES_MAX:
        raise BadFrame("a filter longer than there are")
    return found


def like(text: bytes, pattern: bytes) -> bool:
    """Whether a text is of the form that the pattern says: * is anything, ? one character."""
    return fnmatchcase(text.decode("latin-1"), pattern.decode("latin-1"))


def cause_of(job: Job) -> bytes:
    more = job.more
    return IN_DOUBT_CAUSE if job.flags & IN_DOUBT or more is None else more.cause


def error_of(job: Job) -> bytes:
    return last_error(job) or b""


def is_dead(job: Job) -> bool:
    return job.state == DEAD or job.flags & IN_DOUBT != 0


# -- listing ----------------------------------------------------------------------------------------------


def page(node: Node, wanted: Filter) -> tuple[list[list[bytes]], bool]:
    """The next rows of this node, in the order of ids, and whether there are no more after them."""
    found: list[tuple[bytes, Job]] = []
    for job in node.dead:
        if is_dead(job) and wanted.takes(node, job):
            jid = node.id_text(job)
            if jid > wanted.after:
                found.append((jid, job))
    found.sort(key=lambda each: each[0])
    return [row(jid, job) for jid, job in found[:wanted.count]], len(found) <= wanted.count


def row(jid: bytes, job: Job) -> list[bytes]:
    more = job.more
    died = 0 if more is None else int(more.died)
    attempts = int(job.nacks + job.deliveries) if more is None else int(more.failures)
    return [jid, job.queue.name, cause_of(job), b"%d" % died, b"%d" % attempts, error_of(job)]


class Listing(Question):
    def __init__(self, session: Session, wanted: Filter) -> None:
        super().__init__(session)
        self.wanted: Filter = wanted
        self.rows: dict[bytes, list[bytes]] = {}
        self.until: bytes = b""  # up to here every node has told all it has; empty: to the end

    def take(self, rows: list[list[bytes]], is_end: bool) -> None:
        for each in rows:
            self.rows[each[0]] = each
        if not is_end and rows and (not self.until or rows[-1][0] < self.until):
            self.until = rows[-1][0]

    def hear(self, node: Node, peer: Peer, reader: Reader) -> None:
        is_end = reader.u8() != 0
        rows = []
        for _ in range(reader.u32()):
            rows.append([reader.name() for _ in range(6)])
        if len(rows) > SCAN_COUNT_MAX:
            raise BadFrame("more dead jobs than a page has")
        self.take(rows, is_end)

    def reply(self, node: Node, out: BytesWriter) -> None:
        ids = [jid for jid in sorted(self.rows) if not self.until or jid <= self.until]
        shown = ids[:self.wanted.count]
        is_end = not self.until and len(shown) == len(ids)
        write_array(out, 2)
        write_bulk(out, b"0" if is_end else b"=" + (shown[-1] if shown else self.wanted.after))
        write_array(out, len(shown))
        for jid in shown:
            each = self.rows[jid]
            write_array(out, 6)
            for i in range(3):
                write_bulk(out, each[i])
            write_int(out, int(each[3]))
            write_int(out, int(each[4]))
            write_bulk(out, each[5])


def list_all(node: Node, session: Session, wanted: Filter) -> None:
    listing = Listing(session, wanted)
    rows, is_end = page(node, wanted)
    listing.take(rows, is_end)
    inquire.ask(node, listing, inquire.DEAD, wanted.to_bytes(), -1)


# -- sending back and deleting ----------------------------------------------------------------------------


class Doing(Question):
    def __init__(self, session: Session, count: i64) -> None:
        super().__init__(session)
        self.count: i64 = count

    def hear(self, node: Node, peer: Peer, reader: Reader) -> None:
        self.count += reader.u32()

    def reply(self, node: Node, out: BytesWriter) -> None:
        write_int(out, self.count)


def do_all(node: Node, session: Session, wanted: Filter) -> None:
    """Here first: what is said to other holders by that reaches them before the question does."""
    chosen = choose(node, wanted)
    named = {node.id_text(job) for job in chosen} if wanted.ids else set()
    for job in chosen:
        do(node, job, wanted.what, session)
    wanted.ids = [jid for jid in wanted.ids if jid not in named]
    if len(node.peers) == 1 or (named and not wanted.ids):
        write_int(node.out, len(chosen))
        return
    inquire.ask(node, Doing(session, len(chosen)), inquire.DEAD, wanted.to_bytes(), -1)


def choose(node: Node, wanted: Filter) -> list[Job]:
    if wanted.ids:
        found = [node.find(jid) for jid in dict.fromkeys(wanted.ids)]
        return [job for job in found if job is not None and is_dead(job)]
    return [job for job in node.dead if is_dead(job) and wanted.takes(node, job)]


def do(node: Node, job: Job, what: i64, session: Session | None) -> None:
    if what == DELETE:
        history.deleted(node, job, b"dead-delete")
        node.end(job, acks.DELETED)
    elif job.state == DEAD:
        fate.send_back(node, job, session)
    else:
        node.queue_again(job)


def is_first(node: Node, job: Job, asker: Peer) -> bool:
    """Whether it is for this node to do it, of those that hold the job and can be heard."""
    return not job.holders & asker.bit and absence.is_first(node, job, 0)  # or the asker has seen to it


def tell(node: Node, peer: Peer, reader: Reader, out: BytesWriter) -> None:
    wanted = read_filter(reader)
    if wanted.what == LIST:
        rows, is_end = page(node, wanted)
        bus.write_i8(out, 1 if is_end else 0)
        bus.write_u32(out, len(rows))
        for each in rows:
            for text in each:
                bus.write_name(out, text)
        return
    chosen = [job for job in choose(node, wanted) if is_first(node, job, peer)]
    for job in chosen:
        do(node, job, wanted.what, None)
    bus.write_u32(out, len(chosen))
