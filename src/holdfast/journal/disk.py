"""Everything the journal does to a disk, in one place, so that a test can stand in for a disk that fails."""
from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path


class Disk:
    """The real one. Each method may raise OSError."""

    def create(self, path: Path) -> int:
        """A new, empty file, for us alone."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def write(self, descriptor: int, pieces: Sequence[bytes], position: int) -> None:
        """All of it, at that place. After an error any part may have been written."""
        written = os.pwritev(descriptor, pieces, position)
        if written < sum([len(piece) for piece in pieces]):
            rest = memoryview(b"".join(pieces))
            while written < len(rest):
                written += os.pwrite(descriptor, rest[written:], position + written)

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        """Fewer bytes where the file ends."""
        data = os.pread(descriptor, size, position)
        while len(data) < size:
            more = os.pread(descriptor, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def sync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def sync_file(self, path: Path) -> None:
        """A file that another process has written is on the disk after this."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def overwrite(self, path: Path, data: bytes, position: int) -> None:
        """Bytes of a file that is there, on the disk after this."""
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self.write(descriptor, [data], position)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def forget(self, descriptor: int) -> None:
        """What the system has in memory of a file is read from the disk when it is next asked for."""
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def sync_folder(self, folder: Path) -> None:
        """Names that came and went are on the disk after this."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def make_folder(self, folder: Path) -> None:
        """It and those above it are there, and are on the disk: a file in a folder that a power cut takes is gone.

        Jobs are nobody else's business, so one that is made here is closed to others.
        """
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in missing or [folder]:  # one that is there may be so new that it is not on the disk yet
            self.sync_folder(each.parent)

    def cut(self, path: Path, size: int) -> None:
        """Shorten a file for good."""
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)
