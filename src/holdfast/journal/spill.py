"""Files for what memory has no room for: the store of core/overflow.py.

    overflow/00000001.spill    pieces one after the other: length u32 · crc u32 · bytes

A piece is appended once and read by its place, the number of the file and the position in it. Nothing is synced, and
what a process leaves behind the next one removes: the journal has all of it. A file goes when nothing in it is needed
any more; one that is mostly unneeded stays for the rest of it, so a queue that nobody empties among others that come
and go costs disk, but no more than what has overflowed since its oldest job.

Errors are OSErrors, the wrong bytes in a right place included.
"""
from __future__ import annotations

import errno
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import google_crc32c

from holdfast.journal.disk import Disk

NAME: Final = "overflow"  # of the folder, inside that of the node
SPILL_NAME: Final = "*.spill"
FILE_BYTES: Final = 128 << 20
"""A new file begins after so many bytes: ten gigabytes are eighty descriptors."""
PIECE: Final = struct.Struct("<II")
PIECES_MAX: Final = 400
"""In one write: with their heads, fewer than the system takes at once."""
POSITION_BITS: Final = 36
POSITION_MASK: Final = (1 << POSITION_BITS) - 1


@dataclass(slots=True)
class File:
    path: Path
    descriptor: int
    size: int = 0
    needed: int = 0  # bytes of pieces that may still be asked for


class Spill:
    def __init__(self, folder: Path, disk: Disk) -> None:
        self.folder = folder / NAME
        self.disk = disk
        self.files: dict[int, File] = {}
        self.number = 0

    def begin(self) -> None:
        """Remove what an earlier process left. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob(SPILL_NAME):
            self.disk.remove(path)

    def put(self, pieces: list[bytes]) -> list[int]:
        places: list[int] = []
        for i in range(0, len(pieces), PIECES_MAX):
            places += self.append(pieces[i:i + PIECES_MAX])
        return places

    def append(self, pieces: list[bytes]) -> list[int]:
        file = self.files.get(self.number)
        if file is None or file.size >= FILE_BYTES:
            file = self.new_file()
        data: list[bytes] = []
        places = []
        at = file.size
        for piece in pieces:
            places.append(self.number << POSITION_BITS | at)
            data += (PIECE.pack(len(piece), google_crc32c.value(piece)), piece)
            at += PIECE.size + len(piece)
        self.disk.write(file.descriptor, data, file.size)
        file.needed += at - file.size
        file.size = at
        return places

    def new_file(self) -> File:
        number = self.number + 1
        path = self.folder / f"{number:08d}.spill"
        file = self.files[number] = File(path, self.disk.create(path))
        last, self.number = self.number, number
        self.remove_if_unneeded(last)
        return file

    def get(self, place: int, size: int) -> bytes:
        file = self.files[place >> POSITION_BITS]
        data = self.disk.read(file.descriptor, PIECE.size + size, place & POSITION_MASK)
        if len(data) == PIECE.size + size:
            length, crc = PIECE.unpack_from(data)
            piece = data[PIECE.size:]
            if length == size and google_crc32c.value(piece) == crc:
                return piece
        raise OSError(errno.EIO, f"{file.path} has changed at byte {place & POSITION_MASK}")

    def drop(self, place: int, size: int) -> None:
        number = place >> POSITION_BITS
        file = self.files.get(number)
        if file is not None:
            file.needed -= PIECE.size + size
            self.remove_if_unneeded(number)

    def remove_if_unneeded(self, number: int) -> None:
        file = self.files.get(number)
        if file is not None and file.needed == 0 and number != self.number:
            del self.files[number]
            self.disk.close(file.descriptor)
            self.disk.remove(file.path)

    def ahead(self, place: int, size: int) -> None:
        file = self.files.get(place >> POSITION_BITS)
        if file is not None:
            os.posix_fadvise(file.descriptor, place & POSITION_MASK, PIECE.size + size, os.POSIX_FADV_WILLNEED)

    def facts(self) -> dict[str, int]:
        files = list(self.files.values())
        return {
            "overflow_files": len(files), "overflow_disk_bytes": sum(file.size for file in files),
            "overflow_needed_bytes": sum(file.needed for file in files),
        }

    def close(self) -> None:
        for file in self.files.values():
            self.disk.close(file.descriptor)
            self.disk.remove(file.path)
        self.files.clear()
