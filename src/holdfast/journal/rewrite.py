"""Writing a snapshot beside the running node, and putting it in place of everything before it.

    00000007.log            a new segment begins; from here on it has what happens
    00000007.snapshot.new   what is there, slice by slice
    00000007.snapshot       renamed when it is complete and on the disk: this is the one moment that counts
    00000006.log …          removed, or kept elsewhere for a while (old.py)

After a crash at any point the folder is that of before the rename or that of after it (folder.py).
"""
from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast.core.books import Book
from holdfast.core.node import Node
from holdfast.core.snapshot import Walk
from holdfast.core.store import Unreadable
from holdfast.journal.disk import Disk
from holdfast.journal.folder import SEGMENT_NAME, SNAPSHOT_NAME, number_of, snapshot_path
from holdfast.journal.format import BATCH, HEADER_BYTES, SNAPSHOT, Header, batch_head

SLICE_BYTES: Final = 64 * 1024
"""So much is written between two turns of the node: about a fifth of a millisecond."""


class Rewrite:
    def __init__(self, node: Node, folder: Path, number: int, disk: Disk, book: Book | None = None) -> None:
        self.walk = Walk(node, book)
        self.folder = folder
        self.number = number
        self.disk = disk
        self.began = time.monotonic()
        self.path = snapshot_path(folder, number)
        self.beside = self.path.with_name(self.path.name + ".new")
        self.descriptor = disk.create(self.beside)
        self.position = HEADER_BYTES
        disk.write(self.descriptor, [Header(SNAPSHOT, number, node.incarnation, node.node_id).pack()], 0)

    def step(self) -> bool:
        """One slice more. True: that was the last."""
        try:
            records = self.walk.slice(SLICE_BYTES)
        except Unreadable as error:
            raise OSError(errno.EIO, error.text.decode()) from None
        if records:
            self.write(records)
        if self.walk.is_done:
            self.write(b"")  # the end: without it the snapshot is not complete
        return self.walk.is_done

    def write(self, records: bytes) -> None:
        head = batch_head(self.number, self.position, 0, records)
        self.disk.write(self.descriptor, [head, records], self.position)
        self.position += BATCH.size + len(records)

    def sync(self) -> None:
        self.disk.sync(self.descriptor)

    def finish(self, put_away: Callable[[list[Path]], None]) -> int:
        """Put it in place, and away what it replaces; its size. Raises OSError while everything is still as before."""
        self.disk.rename(self.beside, self.path)
        with contextlib.suppress(OSError):  # whether the old or the new name is found after a crash, both are right
            self.disk.sync_folder(self.folder)
            put_away(self.older())
        self.disk.close(self.descriptor)
        return self.position

    def older(self) -> list[Path]:
        found = [path for name in (SEGMENT_NAME, SNAPSHOT_NAME) for path in self.folder.glob(name)]
        return sorted(path for path in found if number_of(path) < self.number)

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self.disk.close(self.descriptor)
            self.disk.remove(self.beside)
