"""The files of history, byte by byte: docs/reference/history.md is the long form, core/tale.py writes the records.

    segment    header · batch*              0001785000123.log
    header     "HOLDHIST" · version u16 · zero u16 · number u64 · incarnation i64 · node id 20 · zeros 12 · crc u32
    batch      mark 4 · length u32 · crc u32 · count u32 · time i64 · records
    piece      "HFhp" · version u8 · zeros 3 · node id 20 · zeros 4 · segment u64 · position u64 · batch*
    cursor     node id : segment : position, as text

A piece is what a reader gets: batches as they are in the file, with what it takes to know where they came from.
"""
from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Final

import google_crc32c

VERSION: Final = 1
MAGIC: Final = b"HOLDHIST"
MARK: Final = b"\xb7HFh"
PIECE_MAGIC: Final = b"HFhp"

HEADER: Final = struct.Struct("<8sHHQq20s12x")
HEADER_BYTES: Final = HEADER.size + 4
BATCH: Final = struct.Struct("<4sIIIq")
PIECE: Final = struct.Struct("<4sB3x20s4xQQ")
PLACE: Final = struct.Struct("<QQIIq")  # what the checksum covers beside the records
TIME_IN_RECORD: Final = 8
RECORD_BYTES_MIN: Final = 56

BATCH_BYTES_MAX: Final = 1 << 26
"""A longer batch is none: it ends with the first record past 32 KB, and no record comes near this."""

CURSOR: Final = re.compile(r"([0-9a-f]{40}):([0-9]{1,18}):([0-9]{1,18})", re.ASCII)


class BadHistory(Exception):
    """Bytes that are not what this file describes; the message says where and why."""


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """A place between two batches. Those of one node are ordered."""

    node_id: str
    segment: int
    position: int

    def __str__(self) -> str:
        return f"{self.node_id}:{self.segment}:{self.position}"

    @classmethod
    def read(cls, text: str) -> Cursor | None:
        found = CURSOR.fullmatch(text)
        return None if found is None else cls(found[1], int(found[2]), int(found[3]))


def pack_header(number: int, incarnation: int, node_id: str) -> bytes:
    fields = HEADER.pack(MAGIC, VERSION, 0, number, incarnation, bytes.fromhex(node_id))
    return fields + struct.pack("<I", google_crc32c.value(fields))


def read_header(data: bytes) -> tuple[int, str]:
    """Number and node id. Raises BadHistory."""
    if len(data) < HEADER_BYTES:
        raise BadHistory("the header is cut short")
    magic, version, _, number, _, node_id = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise BadHistory("this is no file of a history")
    if struct.unpack_from("<I", data, HEADER.size)[0] != google_crc32c.value(data[:HEADER.size]):
        raise BadHistory("the header has a wrong checksum")
    if version != VERSION:
        raise BadHistory(f"this file has version {version} of the format, and we read version {VERSION}")
    return number, node_id.hex()


def checksum(number: int, position: int, count: int, time: int, records: bytes | memoryview) -> int:
    place = google_crc32c.value(PLACE.pack(number, position, len(records), count, time))
    return int(google_crc32c.extend(place, bytes(records)))


def batch_head(number: int, position: int, count: int, records: bytes) -> bytes:
    """What stands before the records of a batch."""
    time = int.from_bytes(records[TIME_IN_RECORD:TIME_IN_RECORD + 8], "little", signed=True)
    return BATCH.pack(MARK, len(records), checksum(number, position, count, time, records), count, time)


def pack_piece(cursor: Cursor, batches: bytes) -> bytes:
    if not batches:
        return b""
    return PIECE.pack(PIECE_MAGIC, VERSION, bytes.fromhex(cursor.node_id), cursor.segment, cursor.position) + batches


def read_piece(piece: bytes) -> Cursor:
    """Where the batches in it begin; they are what follows PIECE.size bytes. Raises BadHistory."""
    if len(piece) < PIECE.size:
        raise BadHistory("a piece is cut short")
    magic, version, node_id, segment, position = PIECE.unpack_from(piece)
    if magic != PIECE_MAGIC:
        raise BadHistory("this is no piece of a history")
    if version != VERSION:
        raise BadHistory(f"this piece has version {version} of the format, and we read version {VERSION}")
    return Cursor(node_id.hex(), segment, position)
