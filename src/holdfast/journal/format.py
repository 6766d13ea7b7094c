"""The files of a journal, byte by byte: docs/reference/journal-format.md is the long form.

    segment    header · batch*            00000007.log
    snapshot   header · batch* · end      00000007.snapshot: the state when segment 7 began, or a little later

    header     "HOLDFAST" · version u16 · kind u16 · number u64 · incarnation i64 · node id 20 · zeros 12 · crc u32
    batch      mark 4 · length u32 · crc u32 · synced u64 · records (length u32 · record)*

A batch is what one turn of the node changed: it is there whole or not at all. Its checksum (CRC32C) covers where
it stands, too, so that bytes of a journal inside the body of a job are never taken for a batch. `synced` is up to
where the file was known to be on the disk when the batch was written. That tells two kinds of damage apart: what
was never synced may be missing after a power cut, and is cut off; what was, may not.

After a sync a batch without records is written at the end, for what it says of that sync, and the next batch is written
over it. It is not synced itself: a power cut in the seconds after it may take it along, and nothing else.
"""
from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

import google_crc32c

VERSION: Final = 1
MAGIC: Final = b"HOLDFAST"
SEGMENT: Final = 1
SNAPSHOT: Final = 2
MARK: Final = b"\xb7HFj"

HEADER: Final = struct.Struct("<8sHHQq20s12x")
HEADER_BYTES: Final = HEADER.size + 4
BATCH: Final = struct.Struct("<4sIIQ")
PLACE: Final = struct.Struct("<QQIQ")  # what the checksum covers beside the records: number, position, length, synced
CHECKSUM: Final = struct.Struct("<I")

BATCH_BYTES_MAX: Final = 1 << 30
"""A longer batch is none: no turn comes near it."""
READ_BYTES: Final = 1 << 20


class Damage(Exception):
    """Bytes that should be a header or a batch and are not; `position` is where."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"{why} at byte {position}")
        self.position = position
        self.why = why


class Foreign(Damage):
    """A good header of a format that we do not know."""


@dataclass(frozen=True, slots=True)
class Header:
    kind: int
    number: int
    incarnation: int
    node_id: bytes  # 40 hex digits

    def pack(self) -> bytes:
        fields = HEADER.pack(
            MAGIC, VERSION, self.kind, self.number, self.incarnation, bytes.fromhex(self.node_id.decode())
        )
        return fields + CHECKSUM.pack(google_crc32c.value(fields))


@dataclass(frozen=True, slots=True)
class Batch:
    position: int
    synced: int
    records: bytes

    @property
    def end(self) -> int:
        return self.position + BATCH.size + len(self.records)


def read_header(data: bytes) -> Header:
    if len(data) < HEADER_BYTES:
        raise Damage(0, "the header is cut short")
    magic, version, kind, number, incarnation, node_id = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise Damage(0, "this is no file of a journal")
    if CHECKSUM.unpack_from(data, HEADER.size)[0] != google_crc32c.value(data[:HEADER.size]):
        raise Damage(0, "the header has a wrong checksum")
    if version != VERSION:
        raise Foreign(8, f"this file has version {version} of the format, and we read version {VERSION}: no batch")
    return Header(kind, number, incarnation, node_id.hex().encode())


def checksum(number: int, position: int, synced: int, records: bytes) -> int:
    place = google_crc32c.value(PLACE.pack(number, position, len(records), synced))
    return int(google_crc32c.extend(place, records))


def batch_head(number: int, position: int, synced: int, records: bytes) -> bytes:
    """What stands before the records of a batch."""
    return BATCH.pack(MARK, len(records), checksum(number, position, synced, records), synced)


class Scan:
    """The batches of a file, one after the other, with no more than one of them in memory."""

    def __init__(self, file: BinaryIO, header: Header | None = None) -> None:
        """`header`: what stands there, or should."""
        self.file = file
        self.header = header or read_header(file.read(HEADER_BYTES))
        self.go_on(HEADER_BYTES)

    def go_on(self, position: int) -> None:
        """With the batch that begins there."""
        self.file.seek(position)
        self.position = position  # up to where everything is good
        self.data = b""
        self.at = 0

    def have(self, size: int) -> bool:
        """Whether so many bytes can be had from here on."""
        while len(self.data) - self.at < size:
            more = self.file.read(max(READ_BYTES, size - (len(self.data) - self.at)))
            if not more:
                return False
            self.data = self.data[self.at:] + more
            self.at = 0
        return True

    def __iter__(self) -> Iterator[Batch]:
        """Until the end of the file; raises Damage where something is wrong."""
        number = self.header.number
        while self.have(1):
            if not self.have(BATCH.size):
                raise Damage(self.position, "a batch is cut short")
            mark, length, crc, synced = BATCH.unpack_from(self.data, self.at)
            if mark != MARK or length > BATCH_BYTES_MAX:
                raise Damage(self.position, "there is no batch")
            if not self.have(BATCH.size + length):
                raise Damage(self.position, "a batch is cut short")
            begin = self.at + BATCH.size
            records = self.data[begin:begin + length]
            if checksum(number, self.position, synced, records) != crc:
                raise Damage(self.position, "a batch has a wrong checksum")
            batch = Batch(self.position, synced, records)
            self.at = begin + length
            self.position = batch.end
            yield batch


def batches_after(file: BinaryIO, number: int, position: int) -> Iterator[Batch]:
    """Good batches beyond a damage, wherever they begin."""
    with mapped(file) as data:
        at = data.find(MARK, position + 1)
        while 0 <= at <= len(data) - BATCH.size:
            _, length, crc, synced = BATCH.unpack_from(data, at)
            records = data[at + BATCH.size:at + BATCH.size + length]
            if len(records) == length and checksum(number, at, synced, records) == crc:
                yield Batch(at, synced, records)
                at = data.find(MARK, at + BATCH.size + length)
            else:
                at = data.find(MARK, at + 1)


def mapped(file: BinaryIO) -> mmap.mmap:
    """All of a file, without reading what is not looked at."""
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
