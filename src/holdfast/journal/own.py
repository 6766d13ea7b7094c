"""Journals that queues have for themselves, beside that of the node.

    queues/1700000000000/00000001.log …    segments and snapshots as in journal/, with records about one queue's jobs

Which folder belongs to which queue only the journal of the node says (OWN, see core/books.py); a folder that it does
not name is what a move or a crash has left behind, and is removed at a start.

A turn is written to the journal of the node first, and, if somebody waits for what it has in a queue's own, synced
there before that: what is said in both is never only in the second.

Moving is done in slices, as a rewrite is. To its own: the new journal gets a snapshot of the queue's jobs while what
happens to them goes to both; then OWN is synced, and from there on it goes to the new one alone. Back: OWN is said once
more, the jobs are written to the journal of the node, slice by slice, with what happens going to both; then SHARED
is synced, and the folder is removed. A crash before the word is on the disk leaves the old journal in force,
complete; one after it the new.
"""
from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from holdfast.core import books, registers, settings
from holdfast.core.books import Book
from holdfast.core.job import Job
from holdfast.core.recover import Loading
from holdfast.core.snapshot import Walk
from holdfast.core.store import Unreadable
from holdfast.journal.files import Files
from holdfast.journal.folder import CUT_RECORD, KEPT, Folder, JournalError, Wound, remove_folder
from holdfast.journal.rewrite import SLICE_BYTES
from holdfast.journal.writer import ADDS, ALWAYS, Writer

if TYPE_CHECKING:
    from holdfast.journal.journal import Journal

log = logging.getLogger("holdfast")

NAME: Final = "queues"  # of the folder, inside that of the node
OWN_MAX: Final = 256
"""Journals of queues at one node: each has a file open and, with everysec, a thread that syncs."""


class OwnJournal(Files):
    def __init__(self, journal: Journal, book: Book) -> None:
        path = journal.path.parent / NAME / f"{book.number:08d}"
        super().__init__(journal.node, path, journal.disk, book, journal.tell)
        self.keep_bytes = journal.keep_bytes
        self.earlier = journal.earlier
        self.journal = journal
        self.its = book
        self.last = 0  # number of its last segment, after a load
        self.claim = ""  # the word that is to be on the disk: OWN, SHARED or nothing
        self.move: ToOwn | ToShared | None = None  # that is going on

    def begin(self) -> None:
        self.open(self.last)
        books.begin(self.node, self.its)
        books.bind(self.node, self.its)

    def commit(self) -> bool:
        return self.journal.commit()

    def append(self, must_sync: bool) -> bool:
        return self.its.is_empty() or self.writer.append(self.its.take_log(), must_sync)

    def forget_time(self) -> None:
        self.its.wall = 0

    def remove(self) -> None:
        remove_folder(self.path, self.disk)


class OwnJournals:
    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.by_name: dict[bytes, OwnJournal] = {}
        self.looked_at = (-1, -1)  # at the settings of that time
        self.is_over_told = False
        self.last_number = 0

    def all(self) -> list[OwnJournal]:
        return list(self.by_name.values())

    def writers(self) -> list[Writer]:
        return [own.writer for own in self.by_name.values()]

    def folder(self) -> Path:
        return self.journal.path.parent / NAME

    def size_on_disk(self) -> int:
        return sum(path.stat().st_size for path in self.folder().glob("*/*") if path.is_file())

    # -- the beginning -------------------------------------------------------------------------------------

    def read(self, loading: Loading, name: bytes, number: int) -> Iterator[int]:
        """Load the journal of a queue. Raises JournalError."""
        own = OwnJournal(self.journal, Book(name, number))
        own.its.is_both = False
        folder = Folder.look(own.path, self.journal.heals)
        loading.begin_book(name)
        if folder.is_empty() and self.journal.heals:
            self.journal.disk.make_folder(own.path)
            self.journal.note(own, [Wound(own.path, 0, -1, "the journal of a queue is missing")])
            loading.batch(CUT_RECORD)
        elif folder.is_empty():
            raise JournalError(
                f"the journal of the queue {name.decode('utf-8', 'backslashreplace')} is missing: {own.path}. The "
                "node does not start, since its jobs would be lost without a word. `holdfast journal repair "
                f"{self.journal.path.parent}` goes on without them"
            )
        yield from self.journal.read(loading, folder, own)
        own.tidy(folder)
        own.last = folder.last
        self.by_name[name] = own

    def begin(self) -> None:
        """After a load: go on in new segments, and remove folders that belong to nobody."""
        self.apply_policies()
        known = {own.path for own in self.by_name.values()}
        for path in self.folder().glob("*"):
            if path in known or path.name.endswith(KEPT):
                continue
            if self.journal.has_lost:  # the word of whose it is may be what is missing
                self.journal.disk.rename(path, path.with_name(path.name + KEPT))
            else:
                remove_folder(path, self.journal.disk)
        for own in self.by_name.values():
            own.begin()

    def disown(self, strays: list[tuple[bytes, Job]]) -> None:
        """A crash left jobs in two journals, between the word where they have gone and the word that they have left.

        The second is said now: else a job that ends where it is would come back from where it was.
        """
        for name, job in strays:
            self.journal.node.books.left.append((self.by_name[name].its, job))

    # -- while the node runs -------------------------------------------------------------------------------

    def commit(self) -> bool:
        """The end of a turn: first the journal of the node, then those of queues."""
        journal = self.journal
        node = journal.node
        must_sync = node.must_sync or len(node.books.left) > 0
        node.must_sync = False
        dirty = [own for own in self.by_name.values() if not own.its.is_empty()]
        written = [node.take_log()]
        for own in dirty:
            if own.its.is_both:
                written.append(own.its.log.getvalue())
                node.log_wall = 0
        records = b"".join(written)
        is_kept = True
        if records:
            waits = must_sync or any(own.writer.policy == ALWAYS for own in dirty)
            is_kept = journal.writer.append(records, waits)
        for own in dirty:
            is_kept = own.append(must_sync) and is_kept
        if node.books.left and is_kept:
            books.leave(node)  # where these jobs have gone to is on the disk, and nothing has left yet
            node.must_sync = True
            return self.commit()
        if node.overflow.is_due():
            node.overflow.step()
        return is_kept and journal.may_speak()

    def tick(self) -> None:
        for own in self.all():
            own.writer.tick()
            if own.claim:
                self.settle(own)
        self.apply_policies()

    def apply_policies(self) -> None:
        shared = self.journal.writer
        for name, own in self.by_name.items():
            value = registers.value(self.journal.node, settings.KIND, name, b"fsync")
            own.writer.policy = shared.policy if value is None else value.decode()
            own.writer.segment_bytes = shared.segment_bytes
            own.writer.buffer_bytes = shared.buffer_bytes
            own.its.syncs_adds = own.writer.policy == ADDS
            own.keep(self.journal.keep_bytes)

    # -- moving --------------------------------------------------------------------------------------------

    def next_move(self) -> Work | None:
        """What is not yet as the settings say."""
        node = self.journal.node
        stamp = (int(node.registers.latest), int(node.registers.count))
        if stamp == self.looked_at:
            return None
        wanted = [
            name for name in registers.names(node, settings.KIND)
            if registers.value(node, settings.KIND, name, b"journal") == b"own"
        ]
        for name, own in self.by_name.items():
            if name not in wanted and not own.its.is_both:
                return ToShared(self.journal, own)
        for name in wanted:
            if name not in self.by_name and len(self.by_name) < OWN_MAX:
                return ToOwn(self.journal, name)
        if len(wanted) > OWN_MAX and not self.is_over_told:
            self.is_over_told = True
            log.error("%d queues are to have journals of their own, and %d can", len(wanted), OWN_MAX)
        self.looked_at = stamp
        return None

    def make(self, name: bytes) -> OwnJournal:
        """A new journal for a queue; what happens to its jobs goes to both from now on. Raises OSError."""
        journal = self.journal
        journal.disk.make_folder(self.folder())
        # No number is used twice: after a power cut files that were removed may be back.
        numbers = [int(path.name) for path in self.folder().glob("*") if path.name.isdigit()]
        self.last_number = max(*numbers, self.last_number, int(journal.node.wall) - 1) + 1
        own = OwnJournal(journal, Book(name, self.last_number))
        journal.disk.make_folder(own.path)
        try:
            own.begin()
        except JournalError as error:
            remove_folder(own.path, journal.disk)
            raise OSError(0, str(error)) from None
        self.by_name[name] = own
        self.apply_policies()
        return own

    def drop(self, own: OwnJournal) -> None:
        """Its jobs are in the journal of the node, all of them."""
        books.unbind(self.journal.node, own.its)
        del self.by_name[own.its.name]
        own.close(with_snapshot=False)
        own.remove()

    def stop(self) -> None:
        """The journal of the node is about to be rewritten: what moves is again where it came from."""
        for own in self.all():
            if own.claim:
                self.settle(own)
            elif own.move is not None:
                own.move.abandon(OSError(0, "put off, since the journal is rewritten"))

    def settle(self, own: OwnJournal) -> None:
        """See to it that the word that changes everything is on the disk; until then both journals are complete."""
        journal = self.journal
        journal.commit()
        if journal.writer.trouble or journal.writer.pending or not journal.writer.flush():
            return
        claim, own.claim = own.claim, ""
        own.move = None
        if claim == "OWN":
            own.its.is_both = False
        else:
            self.drop(own)

    # -- the end -------------------------------------------------------------------------------------------

    def close(self, with_snapshot: bool) -> None:
        for own in self.all():
            own.close(with_snapshot)

    def remove(self) -> None:
        for own in self.all():
            own.writer.close()
            books.unbind(self.journal.node, own.its)
        self.by_name.clear()
        for path in self.folder().glob("*"):
            remove_folder(path, self.journal.disk)


class Work(Protocol):
    """Something long that is done in slices between turns."""

    def begin(self) -> None:
        """Raises OSError, as the others do; then `abandon` is to be called."""
        ...

    def step(self) -> bool:
        """One slice more. True: that was the last, and it waits to be synced."""
        ...

    def sync(self) -> None:
        """In any thread."""
        ...

    def end(self) -> None: ...
    def abandon(self, error: OSError) -> None: ...
    def words(self) -> str: ...


class Rewriting:
    def __init__(self, files: Files) -> None:
        self.files = files

    def begin(self) -> None:
        self.files.begin_rewrite()

    def step(self) -> bool:
        return self.files.rewrite_some()

    def sync(self) -> None:
        if self.files.rewrite is not None:
            self.files.rewrite.sync()

    def end(self) -> None:
        self.files.end_rewrite()

    def abandon(self, error: OSError) -> None:
        if self.files.rewrite is not None:
            self.files.end_rewrite(error)

    def words(self) -> str:
        return f"{self.files.path} was rewritten: {self.files.size()} bytes, {self.files.rewrite_seconds:.1f} s"


class ToOwn:
    """A queue gets its own journal."""

    def __init__(self, journal: Journal, name: bytes) -> None:
        self.journal = journal
        self.name = name
        self.own: OwnJournal | None = None

    def begin(self) -> None:
        self.own = self.journal.own.make(self.name)
        self.own.move = self
        self.own.begin_rewrite()

    def step(self) -> bool:
        if self.own is None or self.own.rewrite is None:
            raise OSError(0, "stopped")
        return self.own.rewrite_some()

    def sync(self) -> None:
        if self.own is not None and self.own.rewrite is not None:
            self.own.rewrite.sync()

    def end(self) -> None:
        own = self.own
        if own is None or own.rewrite is None:
            raise OSError(0, "stopped")
        own.end_rewrite()
        self.journal.commit()
        if own.rewrite_error or not own.writer.flush():
            raise OSError(0, own.rewrite_error or own.writer.trouble)
        books.own(self.journal.node, own.its)
        self.journal.node.must_sync = True
        own.claim = "OWN"
        self.journal.own.settle(own)

    def abandon(self, error: OSError) -> None:
        log.error("a queue gets no journal of its own: %s", error.strerror or error)
        own, self.own = self.own, None
        if own is not None and not own.claim:
            if own.rewrite is not None:
                own.end_rewrite(error)
            self.journal.own.drop(own)

    def words(self) -> str:
        return f"the queue {self.name.decode('utf-8', 'backslashreplace')} has its own journal"


class ToShared:
    """A queue goes back to the journal of the node."""

    def __init__(self, journal: Journal, own: OwnJournal) -> None:
        self.journal = journal
        self.own = own
        self.walk: Walk | None = None

    def begin(self) -> None:
        self.journal.commit()
        books.own(self.journal.node, self.own.its)  # once more: what a try that was cut short has left does not count
        self.own.its.is_both = True
        self.own.move = self
        self.walk = Walk(self.journal.node, self.own.its)

    def step(self) -> bool:
        journal, walk = self.journal, self.walk
        if walk is None or journal.writer.trouble:
            raise OSError(0, journal.writer.trouble or "stopped")
        try:
            records = walk.slice(SLICE_BYTES)
        except Unreadable as error:
            raise OSError(0, error.text.decode()) from None
        journal.commit()
        if records:
            journal.writer.append(records, False)
            journal.forget_time()
        return bool(walk.is_done)

    def sync(self) -> None:
        pass

    def end(self) -> None:
        if self.walk is None:
            raise OSError(0, "stopped")
        books.shared(self.journal.node, self.own.its)
        self.journal.node.must_sync = True
        self.own.claim = "SHARED"
        self.journal.own.settle(self.own)

    def abandon(self, error: OSError) -> None:
        log.error("a queue keeps its own journal: %s", error.strerror or error)
        self.walk = None
        if not self.own.claim:
            self.own.its.is_both = False
            self.own.move = None

    def words(self) -> str:
        return f"the queue {self.own.its.name.decode('utf-8', 'backslashreplace')} is in the journal of the node again"
