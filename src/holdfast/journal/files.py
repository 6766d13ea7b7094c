"""The files of one journal, that of a node or one that a queue has for itself: appending, rewriting, closing."""
from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.core.books import Book
from holdfast.core.node import Node
from holdfast.journal import old
from holdfast.journal.disk import Disk
from holdfast.journal.folder import KEPT, Folder, JournalError, remove_folder, segment_path
from holdfast.journal.format import SEGMENT, Header
from holdfast.journal.rewrite import Rewrite
from holdfast.journal.writer import Writer

log = logging.getLogger("holdfast")

CLOCK_SET_MS = 5_000
"""A wall clock that moved by more than this against the steady one was set: lives would be wrong by so much."""


class Files:
    def __init__(self, node: Node, path: Path, disk: Disk, book: Book | None, on_change: Callable[[], None]) -> None:
        self.node = node
        self.path = path
        self.disk = disk
        self.book = book
        self.writer = Writer(path, node.node_id, node.incarnation, 0, disk)
        self.writer.on_change = on_change
        self.is_open = False
        self.rewrite: Rewrite | None = None
        self.rewrite_error = ""
        self.rewrite_seconds = -1.0
        self.base_bytes = 0  # the size of the journal after the last rewrite
        self.clock_ms = 0  # how far the wall clock was ahead of the steady one when the oldest of them was begun
        self.old_bytes = 0  # of the files before the segment that is being written
        self.keep_bytes = 0  # of what rewrites have replaced
        self.kept_bytes = 0
        self.earlier = 0  # a life of this node whose journal may be read, too
        self.is_of_earlier = False  # and was
        self.wounded: set[Path] = set()  # files to be set aside when others are in their place

    def check_owner(self, node_id: bytes, incarnation: int) -> None:
        if node_id != self.node.node_id:
            raise JournalError(
                f"the journal {self.path} is that of node {node_id.decode()}, and this is node "
                f"{self.node.node_id.decode()}: each needs its own folder. If the file node-id was lost, and only "
                "then, write the first of the two into it"
            )
        self.is_of_earlier = self.is_of_earlier or incarnation == self.earlier
        if incarnation not in (self.node.incarnation, self.earlier):
            raise JournalError(
                f"the journal {self.path} is of an earlier life: the node has run without it since, and what ended "
                "meanwhile would come back. Move the journal elsewhere to start without it. If the file incarnation "
                f"was lost, and only then, write {incarnation} into it"
            )

    def tidy(self, folder: Folder) -> None:
        """After a load."""
        try:
            folder.tidy(self.disk, Header(SEGMENT, folder.last, self.node.incarnation, self.node.node_id))
            self.put_away(folder.replaced)
        except OSError as error:
            raise JournalError(f"cannot write the journal {self.path}: {error.strerror}") from None
        self.old_bytes = self.base_bytes = folder.size()

    def open(self, last: int) -> None:
        """A new segment after the one of that number. Raises JournalError."""
        self.writer.number = last
        try:
            self.writer.open()
        except OSError as error:
            raise JournalError(f"cannot write the journal {self.path}: {error.strerror}") from None
        self.is_open = True
        self.clock_ms = int(self.node.wall - self.node.now)

    def rename_folder(self, path: Path) -> None:
        """Its folder has another name."""
        self.path = self.writer.folder = path

    def commit(self) -> bool:
        """What is collected and not written yet. False: it is not where it must be."""
        raise NotImplementedError

    def forget_time(self) -> None:
        """What is written next says what time it is."""
        raise NotImplementedError

    # -- rewriting -----------------------------------------------------------------------------------------

    def size(self) -> int:
        return self.old_bytes + self.writer.position

    def is_long(self, percent: int, least_bytes: int) -> bool:
        """Whether it has grown so much since the last time that rewriting is worth it."""
        size = self.size()
        return percent > 0 and size >= least_bytes and size >= self.base_bytes * (100 + percent) // 100

    def is_misdated(self) -> bool:
        """Whether the clock was set since. Records say what it showed, and by that a start reckons how long ago they
        are: an hour that it was set forward would be taken from every life. In new files all is dated anew."""
        return abs(int(self.node.wall - self.node.now) - self.clock_ms) > CLOCK_SET_MS

    def begin_rewrite(self) -> None:
        """Between turns. Raises OSError; then everything is as before."""
        assert self.rewrite is None
        self.commit()
        writer = self.writer
        if writer.trouble or not writer.flush():
            raise OSError(0, writer.trouble)
        size = writer.position
        writer.rotate()
        self.forget_time()  # the new segment is read without those before it
        self.clock_ms = int(self.node.wall - self.node.now)
        self.old_bytes += size
        self.rewrite = Rewrite(self.node, self.path, writer.number, self.disk, self.book)

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
                self.old_bytes = rewrite.finish(self.put_away)
                self.base_bytes = self.size()
                self.rewrite_seconds = time.monotonic() - rewrite.began
                self.rewrite_error = ""
                self.wounded.clear()
                return
            except OSError as failed:
                error = failed
        rewrite.abandon()
        self.rewrite_error = error.strerror or str(error)
        log.error("%s was not rewritten: %s", self.path, self.rewrite_error)

    def put_away(self, replaced: list[Path]) -> None:
        """What no longer counts. That it cannot be is no reason to stop: it is tried again with the next."""
        try:
            for path in self.wounded.intersection(replaced):
                self.disk.rename(path, path.with_name(path.name + KEPT))
                log.warning("%s was damaged and is set aside as %s", path, path.name + KEPT)
            good = [path for path in replaced if path not in self.wounded]
            self.kept_bytes = old.put_away(self.path, good, self.keep_bytes, self.disk)
        except OSError as error:
            log.error("%s has files that no longer count and cannot be %s: %s", self.path,
                      "kept" if self.keep_bytes else "removed", error)

    def keep(self, size: int) -> None:
        """From now on so many bytes of what rewrites replace; what is beyond goes at once."""
        if size != self.keep_bytes:
            self.keep_bytes = size
            if self.kept_bytes > size:
                self.put_away([])

    def stop_rewrite(self) -> None:
        if self.rewrite is not None:
            self.rewrite.abandon()
            self.rewrite = None

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
        self.stop_rewrite()
        if not with_snapshot or not self.rewrite_now():
            self.writer.flush()
        if self.writer.pending:
            log.error("the last %d bytes of %s were not written: %s", self.writer.pending_bytes, self.path,
                      self.writer.trouble)
        self.writer.close()

    def remove(self) -> None:
        """Nothing is to be kept any more."""
        for path in [*Folder.look(self.path).files(), segment_path(self.path, self.writer.number)]:
            self.disk.remove(path)
        remove_folder(self.path / old.NAME, self.disk)
        self.kept_bytes = 0
