"""Reading again what was written long ago: a disk that loses bits says nothing until somebody asks for them.

Closed segments and snapshots are read in turn, so many bytes a second (the setting journal-scrub-bytes), past what the
system has of them in memory, and every checksum is looked at. Of a file that is bad memory has the truth: the journal
is rewritten, and the bad file set aside. The segment that is being written is left out, since its turn comes when it is
full or rewritten.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from holdfast.journal.files import Files
from holdfast.journal.folder import Folder, Wound
from holdfast.journal.format import SNAPSHOT, Batch, Damage, Scan


class Reading:
    """One file, a slice at a time; in any thread, as it touches nothing else."""

    def __init__(self, files: Files, path: Path) -> None:
        self.files = files
        self.path = path
        self.wound: Wound | None = None
        self.file: BinaryIO | None = None
        self.scan: Scan | None = None
        self.batches: Iterator[Batch] = iter(())
        self.is_ended = False  # the last batch had no records: so a snapshot ends
        self.read = 0

    def step(self, size: int) -> bool:
        """So many bytes more, about; whether that was the last of it."""
        try:
            return self.look(size)
        except Damage as damage:
            self.wound = Wound(self.path, damage.position, -1, damage.why)
        except FileNotFoundError:
            pass  # a rewrite has replaced it meanwhile
        except OSError as error:
            self.wound = Wound(self.path, self.read, -1, f"it cannot be read ({error.strerror})")
        self.close()
        return True

    def look(self, size: int) -> bool:
        if self.file is None or self.scan is None:
            self.file = self.path.open("rb")
            os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            self.scan = Scan(self.file)
            self.batches = iter(self.scan)
        until = self.read + size
        for batch in self.batches:
            self.is_ended = not batch.records
            self.read = batch.end
            if self.read >= until:
                return False
        if self.scan.header.kind == SNAPSHOT and not self.is_ended:
            raise Damage(self.read, "the end of the snapshot is missing")
        self.close()
        return True

    def close(self) -> None:
        if self.file is not None:
            os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # nobody else will ask for it
            self.file.close()
            self.file = None


class Scrub:
    """All files of a node's journals, round and round."""

    def __init__(self, journals: Callable[[], list[Files]], note: Callable[[Files, list[Wound]], None]) -> None:
        self.journals = journals
        self.note = note
        self.left: list[Reading] = []
        self.bytes_read = 0
        self.files_read = 0

    def next(self) -> Reading | None:
        """What to read now; None if there is nothing."""
        if not self.left:
            self.left = [Reading(files, path) for files in self.journals() for path in closed(files)]
        return self.left[0] if self.left else None

    def end(self, reading: Reading) -> None:
        """It is read to its end, or up to what is wrong with it."""
        self.left = self.left[1:]
        self.files_read += 1
        self.bytes_read += reading.read
        files = reading.files
        if reading.wound is not None and reading.path in closed(files):
            self.note(files, [reading.wound])

    def stop(self) -> None:
        for reading in self.left:
            reading.close()
        self.left = []


def closed(files: Files) -> list[Path]:
    """Files of a journal to which nothing is written any more."""
    if not files.is_open:
        return []
    current = files.writer.path()
    return [path for path in Folder.look(files.path, heals=True).files() if path != current]
