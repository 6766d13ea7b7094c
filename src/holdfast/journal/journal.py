"""A node and its journal: loading at the start, a commit in each turn, a rewrite now and then, a snapshot at the end.

The server and the embedded queue both run this object; it starts no loop of its own. Rewriting goes on by calls of
`rewrite_some` between turns, each of which takes a slice of the node's state (core/snapshot.py).
"""
from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.core import errors
from holdfast.core.node import Node
from holdfast.core.recover import Loading
from holdfast.journal.disk import Disk
from holdfast.journal.folder import NAME, Folder, JournalError, segment_path
from holdfast.journal.rewrite import Rewrite
from holdfast.journal.spill import Spill
from holdfast.journal.writer import Writer

log = logging.getLogger("holdfast")

LOAD_SLICE_BYTES: Final = 256 * 1024
"""So much of a journal is loaded between two looks at the clients, who are told how far it has come."""


class Journal:
    def __init__(self, node: Node, folder: Path, disk: Disk | None = None) -> None:
        self.node = node
        self.path = folder / NAME
        self.disk = disk or Disk()
        self.writer = Writer(self.path, node.node_id, node.incarnation, 0, self.disk)
        self.writer.on_change = self.tell
        self.is_open = False
        self.rewrite: Rewrite | None = None
        self.rewrite_error = ""
        self.rewrite_seconds = -1.0
        self.load_seconds = 0.0
        self.base_bytes = 0  # the size of the journal after the last rewrite
        self.old_bytes = 0  # of the files before the segment that is being written
        self.cut = ""  # what a crash had left incomplete, in words

    # -- the beginning -------------------------------------------------------------------------------------

    def load(self) -> Iterator[int]:
        """Bring the node back, a slice at a time; yields how many percent are done. Raises JournalError.

        Then a new segment is open, and the node records.
        """
        began = time.monotonic()
        node = self.node
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise JournalError(f"cannot use the folder {self.path}: {error.strerror}") from None
        folder = Folder.look(self.path)
        self.begin_overflow()
        total = max(1, folder.size())
        if not folder.is_empty():
            node.is_loading = True
            node.refuse(errors.LOADING % 0)
            loading = Loading(node)
            due = 0
            for records, done in folder.batches():
                if folder.header is not None:
                    self.check_owner(folder.header.node_id, folder.header.incarnation)
                loading.batch(records)
                loading.make_room()
                if done >= due:
                    due = done + LOAD_SLICE_BYTES
                    node.refuse(errors.LOADING % (100 * done // total))
                    yield 100 * done // total
            loading.finish()
            node.is_loading = False
            node.refuse(b"")
        if folder.cut is not None:
            self.cut = folder.cut.words()
            log.warning("%s", self.cut)
        try:
            folder.tidy(self.disk)
        except OSError as error:
            raise JournalError(f"cannot write the journal {self.path}: {error.strerror}") from None
        self.old_bytes = self.base_bytes = folder.size()
        self.begin(folder.last)
        self.load_seconds = time.monotonic() - began

    def check_owner(self, node_id: bytes, incarnation: int) -> None:
        if node_id != self.node.node_id:
            raise JournalError(
                f"the journal {self.path} is that of node {node_id[:8].decode()}, and this is node "
                f"{self.node.node_id[:8].decode()}: each needs its own folder"
            )
        if incarnation != self.node.incarnation:
            raise JournalError(
                f"the journal {self.path} is of an earlier life: the node has run without it since, and what ended "
                "meanwhile would come back. Move the journal elsewhere to start without it"
            )

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
        self.writer.number = last
        try:
            self.writer.open()
        except OSError as error:
            raise JournalError(f"cannot write the journal {self.path}: {error.strerror}") from None
        self.is_open = True
        self.node.explained = self.node.log_wall = 0
        self.node.is_recording = True

    # -- while the node runs -------------------------------------------------------------------------------

    def commit(self) -> bool:
        """The end of a turn. False: its records are not where they must be, so nothing of it may leave."""
        node = self.node
        if len(node.log) == 0:
            return True
        must_sync = node.must_sync
        node.must_sync = False
        is_kept = self.writer.append(node.take_log(), must_sync)
        if node.overflow.is_due():
            node.overflow.step()
        return is_kept

    def tick(self) -> None:
        """Once a second."""
        self.writer.tick()

    def tell(self) -> None:
        """Writing has failed, or works again."""
        writer = self.writer
        if writer.is_lost:
            log.critical("the journal could not be synced: %s. The node must be started again", writer.trouble)
            self.node.refuse(errors.JOURNAL_LOST % writer.trouble.encode())
        elif writer.trouble:
            log.error("the journal cannot be written: %s", writer.trouble)
            self.node.refuse(errors.JOURNAL_FAILS % writer.trouble.encode())
        else:
            log.warning("the journal can be written again")
            self.node.refuse(b"")

    def size(self) -> int:
        return self.old_bytes + self.writer.position

    # -- rewriting -----------------------------------------------------------------------------------------

    def is_long(self, percent: int, least_bytes: int) -> bool:
        """Whether it has grown so much since the last time that rewriting is worth it."""
        size = self.size()
        return percent > 0 and size >= least_bytes and size >= self.base_bytes * (100 + percent) // 100

    def begin_rewrite(self) -> None:
        """Between turns. Raises OSError; then everything is as before."""
        assert self.rewrite is None
        self.commit()
        writer = self.writer
        if writer.trouble or not writer.flush():
            raise OSError(0, writer.trouble)
        size = writer.position
        writer.rotate()
        self.node.log_wall = 0  # the new segment is read without those before it
        self.old_bytes += size
        self.rewrite = Rewrite(self.node, self.path, writer.number, self.disk)

    def rewrite_some(self) -> bool:
        """The next slice. True: the state is written, and waits to be synced (`Rewrite.sync`, in any thread)."""
        assert self.rewrite is not None
        try:
            return self.rewrite.step()
        except OSError as error:
            self.end_rewrite(error)
            raise

    def end_rewrite(self, error: OSError | None = None) -> None:
        """It is synced, or has failed: put it in place of what it was made from, or away."""
        rewrite, self.rewrite = self.rewrite, None
        assert rewrite is not None
        if error is None:
            try:
                self.old_bytes = rewrite.finish()
                self.base_bytes = self.size()
                self.rewrite_seconds = time.monotonic() - rewrite.began
                self.rewrite_error = ""
                return
            except OSError as failed:
                error = failed
        rewrite.abandon()
        self.rewrite_error = error.strerror or str(error)
        log.error("the journal was not rewritten: %s", self.rewrite_error)

    def rewrite_now(self) -> bool:
        """All of it, with everybody waiting; whether it worked."""
        try:
            if self.rewrite is None:
                self.begin_rewrite()
            while not self.rewrite_some():
                pass
            assert self.rewrite is not None
            self.rewrite.sync()
        except OSError as error:
            if self.rewrite is not None:
                self.end_rewrite(error)
            return False
        self.end_rewrite()
        return not self.rewrite_error

    # -- the end -------------------------------------------------------------------------------------------

    def close(self, with_snapshot: bool) -> None:
        """Everything to the disk; with a snapshot the next start is quicker and knows every lease."""
        if not self.is_open:
            return
        self.is_open = False
        self.commit()
        if self.rewrite is not None:
            self.rewrite.abandon()
            self.rewrite = None
        if not with_snapshot or not self.rewrite_now():
            self.writer.flush()
        if self.writer.pending:
            log.error("the last %d bytes of the journal were not written: %s", self.writer.pending_bytes,
                      self.writer.trouble)
        self.node.is_recording = False
        self.writer.close()

    def rename(self, node_id: bytes) -> None:
        """The node has another id from now on, and the journal is that node's."""
        self.writer.node_id = node_id
        self.rewrite_now()

    def remove(self) -> None:
        """Nothing is to be kept any more."""
        for path in [*Folder.look(self.path).files(), segment_path(self.path, self.writer.number)]:
            self.disk.remove(path)
