"""What a job has beyond a queue, a body and its times: keys, headers, rules for failure, and what became of its tries.

Most jobs have none of it, and then `job.more` is None: they pay nothing. A job that has any carries the flag
SPECIAL, the one thing the fast path looks at.

As bytes, on the bus and in the journal alike, it is a run of fields, each a tag, a length and a value; what is not
said has its default. Tags are never used for another meaning.
"""
from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i32, i64, mypyc_attr

from holdfast.core.limits import (
    DURATION_S_MAX,
    ERROR_BYTES_MAX,
    HEADERS_BYTES_MAX,
    KEY_BYTES,
    KEY_BYTES_MAX,
    MORE_BYTES,
    TRACE_BYTES_MAX,
    TRIES_KEPT,
    TRY_BYTES,
)
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

# How long a unique key is taken.
UNTIL_STARTED: Final = 1  # until its job is handed out
UNTIL_DONE: Final = 0  # until its job has ended

# What to do with a job whose unique key is taken.
EXISTING: Final = 0
REPLACE: Final = 1
REJECT: Final = 2

# What becomes of a job whose time is over before it was done; 0: as its queue says.
TO_DEAD: Final = 1
DROPPED: Final = 2

# How a try ended.
NACKED: Final = 1
LEASE_ENDED: Final = 2  # the worker kept silent
WORKER_GONE: Final = 3  # its connection ended while it had the job
RELEASED: Final = 4  # given back, without blame

TRY_NAMES: Final = [b"", b"nacked", b"lease-ended", b"worker-gone", b"released"]

# Tags.
HEADERS: Final = 1
PARENT: Final = 2
TENANT: Final = 3
DOMAIN: Final = 4
GROUP: Final = 5
SKIPS: Final = 6
UNIQUE: Final = 7
UNTIL: Final = 8
WINDOW: Final = 9
ATTEMPTS: Final = 10
BACKOFF: Final = 11
BACKOFF_MOST: Final = 12
BATCH: Final = 13
INDEX: Final = 14
ORDER: Final = 15
ROUND: Final = 16
CAUSE: Final = 17
FAILURES: Final = 18
TRY: Final = 19
DIED: Final = 20
LOST: Final = 21
LIFE: Final = 22
CHANGED: Final = 23
ONEXPIRE: Final = 40
TAG_LAST: Final = 40


@mypyc_attr(acyclic=True)
class Try:
    """A hand-out that did not end with an acknowledgement."""

    def __init__(self, token: bytes, worker: bytes, began: i64, ended: i64, how: i64, error: bytes) -> None:
        self.token: bytes = token  # which hand-out it was; empty where the consumer did not ask for one
        self.worker: bytes = worker
        self.began: i64 = began  # unix ms
        self.ended: i64 = ended
        self.how: i64 = how
        self.said: bytes = error  # by the worker: a line, and of the last try perhaps more of them, where it was raised

    @property
    def error(self) -> bytes:
        """In one line."""
        return self.said.partition(b"\n")[0]

    @property
    def trace(self) -> bytes:
        return self.said.partition(b"\n")[2]


NO_HEADERS: Final[list[bytes]] = []
NO_TRIES: Final[list[Try]] = []
"""Of most jobs; never added to. A list for each would be two more objects to make, keep and free."""


@mypyc_attr(acyclic=True)
class More:
    def __init__(self) -> None:
        self.headers: list[bytes] = NO_HEADERS  # name, value, name, value
        self.parent: bytes = b""  # id of the job that made it
        self.tenant: bytes = b""
        self.domain: bytes = b""
        self.group: bytes = b""
        self.skips: bool = False  # a failed job of the group lets the next pass
        self.unique: bytes = b""
        self.until: i64 = UNTIL_DONE
        self.window: i64 = 0  # seconds for which the unique key is taken, whatever becomes of the job
        self.attempts: i32 = 0  # failures after which it is dead; 0: any number
        self.backoff: i64 = 0  # ms before it is queued again after its first failure; doubles with each
        self.backoff_most: i64 = 0
        self.batch: bytes = b""
        self.index: i64 = 0  # of the job in its batch, from 1; 0: it is in none
        self.onexpire: i64 = 0  # TO_DEAD or DROPPED; 0: as its queue says
        self.order: i64 = 0  # its place in its group, given by the home of the group
        self.round: i32 = 0  # how often it was brought back from the dead
        self.cause: bytes = b""  # why it is dead
        self.died: i64 = 0  # when, unix ms
        self.failures: i32 = 0
        self.lost: i32 = 0  # of these, how often nothing was heard of the worker
        self.life: i64 = 0  # ms that it was to live when it was made; known once it has been dead
        self.changed: i64 = 0  # when it got another priority or queue, unix ms; the last word counts
        self.tries: list[Try] = NO_TRIES
        self.key: bytes = b""  # the unique key as the index has it, once it was asked for (unique.py)

    def cost(self) -> i64:
        """Bytes of memory, accounted."""
        size: i64 = (
            MORE_BYTES + len(self.parent) + len(self.tenant) + len(self.domain) + len(self.group) + len(self.unique)
            + len(self.batch) + len(self.cause)
        )
        for text in self.headers:
            size += len(text)
        for each in self.tries:
            size += TRY_BYTES + len(each.said)
        if self.domain or self.tenant:
            size += KEY_BYTES
        return size

    def note_try(self, new: Try) -> bool:
        """Keep how a hand-out ended; the oldest go. False if it was known already."""
        for old in self.tries:
            if old.token == new.token and old.began == new.began:
                return False
        self.tries = [*self.tries, new]
        self.tries.sort(key=lambda each: each.ended)
        if len(self.tries) > TRIES_KEPT:
            del self.tries[0]
        self.cut_traces()
        return True

    def cut_traces(self) -> None:
        """The last one stays: where it failed last is what somebody wants to know."""
        is_last = True
        for each in reversed(self.tries):
            if each.trace and not is_last:
                each.said = each.error
            is_last = is_last and not each.trace

    def trace(self) -> bytes:
        """Where its worker says that it failed last, as lines of a traceback; empty if none has said so."""
        for each in reversed(self.tries):
            if each.trace:
                return each.trace
        return b""

    def copy(self) -> More:
        """Another job's, with the same options."""
        return read(self.to_bytes())

    def next(self) -> More:
        """Of the job that is added after this one, by the same command: each has its own, and its own index."""
        more = self.copy()
        if more.batch:
            more.index += 1
        return more

    def to_bytes(self) -> bytes:
        out = BytesWriter()
        for i in range(0, len(self.headers), 2):
            pair = BytesWriter()
            bus.write_name(pair, self.headers[i])
            pair.write(self.headers[i + 1])
            write_text(out, HEADERS, pair.getvalue())
        write_text(out, PARENT, self.parent)
        write_text(out, TENANT, self.tenant)
        write_text(out, DOMAIN, self.domain)
        write_text(out, GROUP, self.group)
        write_value(out, SKIPS, 1 if self.skips else 0)
        write_text(out, UNIQUE, self.unique)
        write_value(out, UNTIL, self.until)
        write_value(out, WINDOW, self.window)
        write_value(out, ATTEMPTS, i64(self.attempts))
        write_value(out, BACKOFF, self.backoff)
        write_value(out, BACKOFF_MOST, self.backoff_most)
        write_text(out, BATCH, self.batch)
        write_value(out, INDEX, self.index)
        write_value(out, ONEXPIRE, self.onexpire)
        write_value(out, ORDER, self.order)
        self.write_fate(out)
        return out.getvalue()

    def fate(self) -> bytes:
        """Only what became of it: the part that other holders must hear of as it changes."""
        out = BytesWriter()
        self.write_fate(out)
        return out.getvalue()

    def write_fate(self, out: BytesWriter) -> None:
        write_value(out, ROUND, i64(self.round))
        write_text(out, CAUSE, self.cause)
        write_value(out, DIED, self.died)
        write_value(out, FAILURES, i64(self.failures))
        write_value(out, LOST, i64(self.lost))
        write_value(out, LIFE, self.life)
        write_value(out, CHANGED, self.changed)
        for each in self.tries:
            text = BytesWriter()
            bus.write_i64(text, each.began)
            bus.write_i64(text, each.ended)
            bus.write_i8(text, each.how)
            bus.write_name(text, each.token)
            bus.write_name(text, each.worker)
            text.write(each.said)
            write_text(out, TRY, text.getvalue())


def write_text(out: BytesWriter, tag: i64, text: bytes) -> None:
    if text:
        out.append(int(tag))
        bus.write_name(out, text)


def write_value(out: BytesWriter, tag: i64, value: i64) -> None:
    if value != 0:
        out.append(int(tag))
        bus.write_u32(out, 8)
        bus.write_i64(out, value)


def read(data: bytes) -> More:
    """The opposite of to_bytes. Raises BadFrame where that cannot have written it."""
    more = More()
    fields = Reader(data)
    header_bytes: i64 = 0
    headers: list[bytes] = []
    tries: list[Try] = []
    while fields.more():
        tag = fields.u8()
        text = fields.name()
        value: i64 = Reader(text).long() if len(text) == 8 else 0
        if tag == HEADERS:
            header_bytes += len(text)
            pair = Reader(text)
            headers.append(pair.name())
            headers.append(text[pair.pos:])
        elif tag == PARENT:
            more.parent = key(text)
        elif tag == TENANT:
            more.tenant = key(text)
        elif tag == DOMAIN:
            more.domain = key(text)
        elif tag == GROUP:
            more.group = key(text)
        elif tag == SKIPS:
            more.skips = value != 0
        elif tag == UNIQUE:
            more.unique = key(text)
        elif tag == UNTIL:
            more.until = value
        elif tag == WINDOW:
            more.window = bounded(value)
        elif tag == ATTEMPTS:
            more.attempts = i32(bounded(value))
        elif tag == BACKOFF:
            more.backoff = bounded(value)
        elif tag == BACKOFF_MOST:
            more.backoff_most = bounded(value)
        elif tag == BATCH:
            more.batch = key(text)
        elif tag == INDEX:
            more.index = bounded(value)
        elif tag == ORDER:
            more.order = value
        elif tag == ROUND:
            more.round = i32(bounded(value))
        elif tag == CAUSE:
            more.cause = text[:ERROR_BYTES_MAX]
        elif tag == DIED:
            more.died = value
        elif tag == FAILURES:
            more.failures = i32(bounded(value))
        elif tag == LOST:
            more.lost = i32(bounded(value))
        elif tag == LIFE:
            more.life = max(0, value)
        elif tag == CHANGED:
            more.changed = max(0, value)
        elif tag == ONEXPIRE:
            more.onexpire = bounded(value)
        elif tag == TRY:
            tries.append(read_try(text))
        elif tag > TAG_LAST:
            raise BadFrame("a field of a job that there is none of")
    if header_bytes > 2 * HEADERS_BYTES_MAX or len(tries) > TRIES_KEPT:
        raise BadFrame("more of a job than a job can have")
    if headers:
        more.headers = headers
    if tries:
        more.tries = tries
    return more


def read_try(text: bytes) -> Try:
    reader = Reader(text)
    began = reader.long()
    ended = reader.long()
    how = reader.u8()
    token = key(reader.name())
    worker = key(reader.name())
    if how >= len(TRY_NAMES):
        raise BadFrame("an end that no hand-out has")
    return Try(token, worker, began, ended, how, cut(text[reader.pos:]))


def cut(said: bytes) -> bytes:
    """What a worker says about a failure: the beginning of its first line, and the end of the others."""
    line, newline, trace = said.partition(b"\n")
    return line[:ERROR_BYTES_MAX] + newline + trace[-TRACE_BYTES_MAX:] if trace else line[:ERROR_BYTES_MAX]


def key(text: bytes) -> bytes:
    if len(text) > KEY_BYTES_MAX:
        raise BadFrame("a key longer than there are")
    return text


def bounded(value: i64) -> i64:
    if value < 0 or value > DURATION_S_MAX:
        raise BadFrame("a number that no job can have")
    return value
