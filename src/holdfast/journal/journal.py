"""A node and its journal: loading at the start, a commit in each turn, a rewrite now and then, a snapshot at the end.

The server and the embedded queue both run this object; it starts no loop of its own. Rewriting goes on by calls of
`rewrite_some` between turns, each of which takes a slice of the node's state (core/snapshot.py). Queues may have
journals of their own beside it (own.py).
"""
from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.core import errors, salvage
from holdfast.core.early import make_room
from holdfast.core.job import Job
from holdfast.core.node import Node
from holdfast.core.recover import Loading
from holdfast.journal import identity
from holdfast.journal.disk import Disk
from holdfast.journal.files import Files
from holdfast.journal.folder import KEPT, NAME, Folder, JournalError, Wound, remove_folder, unfinished
from holdfast.journal.own import OwnJournals, Rewriting, Work
from holdfast.journal.spill import Spill

log = logging.getLogger("holdfast")

LOAD_SLICE_BYTES: Final = 256 * 1024
"""So much of a journal is loaded between two looks at the clients, who are told how far it has come."""


class Journal(Files):
    def __init__(self, node: Node, folder: Path, disk: Disk | None = None) -> None:
        super().__init__(node, folder / NAME, disk or Disk(), None, self.tell)
        self.own = OwnJournals(self)
        self.is_beginning = False  # it does not count yet (beginning.py)
        self.load_seconds = 0.0
        self.cut = ""  # what a crash had left incomplete, in words
        self.heals = False  # there are others who can be asked, so damage is no reason to stop
        self.has_lost = False  # there was damage, and more of it than one bit

    # -- the beginning -------------------------------------------------------------------------------------

    def load(self) -> Iterator[int]:
        """Bring the node back, a slice at a time; yields how many percent are done. Raises JournalError.

        Then a new segment is open, and the node records.
        """
        began = time.monotonic()
        node = self.node
        try:
            self.disk.make_folder(self.path)
        except OSError as error:
            raise JournalError(f"cannot use the folder {self.path}: {error.strerror}") from None
        remove_folder(unfinished(self.path.parent), self.disk)
        self.earlier = ([*identity.lives(self.path.parent), 0, 0])[1]
        folder = Folder.look(self.path, self.heals)
        self.begin_overflow()
        strays: list[tuple[bytes, Job]] = []
        if not folder.is_empty():
            node.is_loading = True
            node.refuse(errors.LOADING % 0)
            loading = Loading(node)
            total = max(1, folder.size() + self.own.size_on_disk())
            done = 0
            for done in self.read(loading, folder):
                node.refuse(errors.LOADING % (100 * done // total))
                yield 100 * done // total
            loading.end_shared()
            for name, number in loading.owned.items():
                before = done
                for done in self.own.read(loading, name, number):
                    node.refuse(errors.LOADING % (100 * (before + done) // total))
                    yield 100 * (before + done) // total
                done += before
            if salvage.others(node) and (self.has_lost or loading.is_cut or self.is_of_earlier):
                self.begin_life(loading)
            loading.finish()
            strays = loading.strays
        self.tidy(folder)
        self.begin(folder.last)
        self.own.begin()
        self.own.disown(strays)
        if self.earlier:
            yield from self.replace_all()
        node.is_loading = False
        node.refuse(b"")
        self.load_seconds = time.monotonic() - began

    def begin_life(self, loading: Loading) -> None:
        """Others count on what this node had, and not all of it is there: for them it is to be one that has lost its
        data, and what is there is news (core/salvage.py). Until the journal is replaced either life may be read."""
        node = self.node
        loading.is_unasked = True
        if not self.earlier:
            self.earlier = node.incarnation
            salvage.begin_life(node, max(node.incarnation + 1, int(node.wall)))
        identity.save_incarnation(self.path.parent, node.incarnation, self.earlier)
        for files in self.all():
            files.writer.incarnation = node.incarnation

    def replace_all(self) -> Iterator[int]:
        """Write all that is known anew, in place of what was read. Raises JournalError."""
        for files in self.all():
            try:
                files.begin_rewrite()
                while not files.rewrite_some():
                    yield 100
                assert files.rewrite is not None
                files.rewrite.sync()
                files.end_rewrite()
            except OSError as error:
                raise JournalError(f"cannot write the journal {files.path}: {error.strerror or error}") from None
            if files.rewrite_error:
                raise JournalError(f"cannot write the journal {files.path}: {files.rewrite_error}")
        identity.save_incarnation(self.path.parent, self.node.incarnation)
        self.earlier = 0

    def read(self, loading: Loading, folder: Folder, files: Files | None = None) -> Iterator[int]:
        """All records of a folder; yields now and then how many bytes were read."""
        files = files or self
        due = done = 0
        for records, done in folder.batches():
            if folder.header is not None:
                files.check_owner(folder.header.node_id, folder.header.incarnation)
            loading.batch(records)
            make_room(loading)
            if done >= due:
                due = done + LOAD_SLICE_BYTES
                yield done
        yield done
        self.note(files, folder.wounds)
        if folder.cut is not None:
            self.cut = folder.cut.words()
            log.warning("%s", self.cut)

    def note(self, files: Files, wounds: list[Wound]) -> None:
        """A journal is damaged: say so, and have its files replaced, by what is in memory."""
        for wound in wounds:
            log.error("the journal is damaged: %s", wound.words())
            self.node.count("journal-damaged")
            files.wounded.add(wound.path)
            self.has_lost = self.has_lost or not wound.is_mended

    def begin_overflow(self) -> None:
        """From now on jobs may be on disk alone. Before a load: there may be more of them than memory holds.

        What has overflowed stays where it is when the journal is switched off, until the process ends.
        """
        if self.node.overflow.is_on:
            return
        spill = Spill(self.path.parent, self.disk)
        try:
            spill.begin()
        except OSError as error:
            raise JournalError(f"cannot use the folder {spill.folder}: {error.strerror}") from None
        self.node.overflow.begin(spill)

    def begin(self, last: int) -> None:
        """Record from now on, in a new segment after the one of that number."""
        self.open(last)
        self.node.explained = self.node.log_wall = 0
        self.node.is_recording = True

    # -- while the node runs -------------------------------------------------------------------------------

    def commit(self) -> bool:
        """The end of a turn. False: its records are not where they must be, so nothing of it may leave."""
        node = self.node
        if node.books.by_name:
            return self.own.commit()
        records = node.take_log()
        if not records:
            return self.may_speak()
        must_sync = node.must_sync and not self.is_beginning
        node.must_sync = False
        is_kept = self.writer.append(records, must_sync)
        if node.overflow.is_due():
            node.overflow.step()
        return is_kept

    def may_speak(self) -> bool:
        """Whether what this turn says to other nodes may leave, though it has nothing to write itself."""
        return not self.node.frames or not any(files.writer.owes for files in self.all())

    def all(self) -> list[Files]:
        """This one and those that queues have for themselves."""
        return [self, *self.own.all()]

    def set_aside(self) -> int:
        """How many files were damaged and are kept for somebody to look at."""
        return sum(len(list(files.path.glob("*" + KEPT))) for files in self.all())

    def tick(self) -> None:
        """Once a second."""
        self.writer.tick()
        self.own.tick()

    def forget_time(self) -> None:
        self.node.log_wall = 0

    def begin_rewrite(self) -> None:
        self.own.stop()
        super().begin_rewrite()

    def next_work(self, percent: int, least_bytes: int) -> Work | None:
        """What is to be done in the background now, if anything."""
        for files in self.all():
            if files.is_long(percent, least_bytes) or files.is_misdated() or files.wounded:
                return Rewriting(files)
        return self.own.next_move()

    def tell(self) -> None:
        """Writing has failed, or works again. Of a journal that does not count yet, whoever makes it hears."""
        if self.is_beginning:
            return
        writer = next((each for each in self.own.writers() if each.trouble), self.writer)
        if writer.is_lost:
            log.critical("the journal could not be synced: %s. The node must be started again", writer.trouble)
            self.node.refuse(errors.JOURNAL_LOST % writer.trouble.encode())
        elif writer.trouble:
            log.error("the journal cannot be written: %s", writer.trouble)
            self.node.refuse(errors.JOURNAL_FAILS % writer.trouble.encode())
        else:
            log.warning("the journal can be written again")
            self.node.refuse(b"")

    # -- the end -------------------------------------------------------------------------------------------

    def close(self, with_snapshot: bool) -> None:
        super().close(with_snapshot)
        self.own.close(with_snapshot)
        self.node.is_recording = False

    def rename(self, node_id: bytes) -> None:
        """The node has another id from now on, and the journal is that node's."""
        for files in self.all():
            files.writer.node_id = node_id
            files.stop_rewrite()  # its header has the old one
            files.rewrite_now()

    def remove(self) -> None:
        """Nothing is to be kept any more."""
        super().remove()
        self.own.remove()
