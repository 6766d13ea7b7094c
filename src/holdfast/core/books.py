"""Queues with a journal of their own, as the machine sees them.

`QUEUE SET q journal own` asks for one. Records about jobs of such a queue are collected in its book in place of
`node.log`; everything else a node must know stays in the journal of the node. Of each turn the shell writes that one
first, then those of the books (journal/own.py).

Who says where the jobs of a queue are? The journal of the node: OWN in it means that what it has said of the jobs of
that queue so far no longer counts, and that the book of that number does; SHARED is the way back. While jobs are being
moved from one to the other their records go to both (`is_both`), so that the one moment that counts is the one in
which that word is on the disk.

A job that is put into another queue, of another book, is first written there, and only in the next turn said to be
gone here: a crash in between leaves it in one of the two.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i64

from holdfast.core import records
from holdfast.core.job import Job
from holdfast.core.peers import Peer
from holdfast.core.queue import Queue
from holdfast.wire import bus

if TYPE_CHECKING:
    from holdfast.core.node import Node

CLOCK_BYTES: Final = 4 + 1 + 8  # a CLOCK record with its length


class Book:
    def __init__(self, name: bytes, number: i64) -> None:
        self.name: bytes = name  # of its queue
        self.number: i64 = number
        self.log: BytesWriter = BytesWriter()
        self.only: BytesWriter = BytesWriter()  # what the journal of the node must not be told, even if others are
        self.wall: i64 = 0  # the time that it knows
        self.is_both: bool = True  # records of its queue go to the journal of the node, too
        self.syncs_adds: bool = False

    def take_log(self) -> bytes:
        data = self.log.getvalue() + self.only.getvalue()
        self.log.truncate(0)
        self.only.truncate(0)
        return data

    def is_empty(self) -> bool:
        return len(self.log) == 0 and len(self.only) == 0


class Books:
    """Those of a node."""

    def __init__(self) -> None:
        self.by_name: dict[bytes, Book] = {}
        self.left: list[tuple[Book | None, Job]] = []  # jobs that were put into a queue of another book in this turn
        self.earlier: list[bytes] = []  # what node.log held before the newest record of a book was taken out of it
        self.is_walking: bool = False  # a snapshot is being written (snapshot.py)


def begin(node: Node, book: Book) -> None:
    """A new segment begins, that is read after others perhaps written in another numbering of nodes."""
    book.wall = 0
    for peer in node.peers[1:]:
        write_member(node, book, peer)


def write_member(node: Node, book: Book, peer: Peer) -> None:
    """Which node a bit is: the record that the journal of the node has."""
    start = len(node.log)
    wall, explained = node.log_wall, node.explained
    node.log_wall = node.wall
    records.write_member(node, peer)
    take(node, book, start)
    node.log_wall, node.explained = wall, explained


def bind(node: Node, book: Book) -> None:
    """From now on the records of its queue go to this book."""
    node.books.by_name[book.name] = book
    queue = node.queues.get(book.name)
    if queue is not None:
        queue.book = book


def unbind(node: Node, book: Book) -> None:
    del node.books.by_name[book.name]
    queue = node.queues.get(book.name)
    if queue is not None:
        queue.book = None


def take(node: Node, book: Book, start: i64) -> None:
    """The record that was written to the journal of the node from there on is one for a book."""
    if node.books.is_walking:
        return  # what is written is the snapshot of one or of the other
    # A log gives out all of its bytes or none. What lies before the record is set aside, so no byte is copied twice.
    log = node.log
    written = log.getvalue()
    log.truncate(0)
    earlier = node.books.earlier
    if start == CLOCK_BYTES and not earlier:
        node.log_wall = 0  # the log holds nothing but the time, which nobody needs then
    elif start > 0:
        earlier.append(written[:start])
    data = written[start:]
    out = book.log
    if book.wall != node.wall:
        book.wall = node.wall
        write_i32_le(out, 9)
        out.append(records.CLOCK)
        write_i64_le(out, node.wall)
    out.write(data)


def own(node: Node, book: Book) -> None:
    """The jobs of a queue are in a book, and not here."""
    if node.is_recording:
        out = records.begin(node, records.OWN)
        bus.write_name(out, book.name)
        bus.write_i64(out, book.number)
        records.end(node)


def shared(node: Node, book: Book) -> None:
    """They are here again."""
    if node.is_recording:
        out = records.begin(node, records.SHARED)
        bus.write_name(out, book.name)
        records.end(node)


def emptied(node: Node) -> None:
    """Every job is gone: each book says so for itself."""
    for book in node.books.by_name.values():
        start = len(node.log)
        records.begin(node, records.EMPTIED)
        records.end(node)
        take(node, book, start)


def change(node: Node, job: Job, old: Queue) -> None:
    """A job is in another queue than before, with another book."""
    records.job(node, job)
    node.books.left.append((old.book, job))


def leave(node: Node) -> None:
    """What was written elsewhere in the turn before is gone from where it was: there alone, if it is not in both."""
    left, node.books.left = node.books.left, []
    for old, job in left:
        new = job.queue.book
        is_here = new is None or new.is_both  # in the journal of the node
        if old is None:
            if not is_here:
                write_gone(node, job)
        elif old is not new:
            if old.is_both and not is_here:
                write_gone(node, job)
            write_i32_le(old.only, records.SHORT)
            old.only.append(records.GONE)
            records.write_name(old.only, job)


def write_gone(node: Node, job: Job) -> None:
    if node.wall != node.log_wall:
        records.tell_time(node)
    records.write_short(node, records.GONE, job)
