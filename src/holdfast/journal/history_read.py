"""Reading history: where a cursor leads, what lies there, and what is gone. Files are read in any thread.

Nothing is parsed but the heads of batches: a reader gets the bytes as they are and makes of them what it likes.
"""
from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.journal.history_format import (
    BATCH,
    BATCH_BYTES_MAX,
    HEADER_BYTES,
    MARK,
    BadHistory,
    Cursor,
    checksum,
    pack_piece,
    read_header,
)

if TYPE_CHECKING:
    from holdfast.journal.history import History

FIRST: Final = "first"
LAST: Final = "last"

PIECE_BYTES_MAX: Final = 4 << 20
"""A piece is no longer, but for a single batch that is: one reply, read in a few milliseconds."""
READ_BYTES_MIN: Final = 64 * 1024
RECORD_BYTES_GUESS: Final = 160


class NoPlace(Exception):
    """A cursor that leads nowhere; the message is an error reply."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes of one segment that can be read."""

    path: Path
    begin: Cursor
    end: int

    def is_empty(self) -> bool:
        return self.begin.position >= self.end


def stretch(history: History, text: str) -> Stretch:
    """What lies after a cursor, to the end of its segment; of the next where there is nothing more. Raises NoPlace."""
    segments = history.all()
    if text == LAST:
        cursor = history.last()
    elif text == FIRST:
        cursor = history.first()
    else:
        found = Cursor.read(text)
        if found is None:
            raise NoPlace("BADCURSOR that is no cursor: HISTORY READ gives them, first and last are two more")
        cursor = found
    for each in segments:
        if each.number < cursor.segment:
            continue
        if each.number == cursor.segment:
            check(history, cursor, each.node_id)
            if each is history.current and cursor.position > each.end:
                raise NoPlace(f"BADCURSOR that is beyond the end, which is {history.last()}")
            if cursor.position >= each.end and each is not history.current:
                continue  # all of it was read, or a power cut has taken the rest
            return Stretch(history.path_of(each.number), cursor, each.end)
        check_gone(history, cursor, each.number)
        return Stretch(history.path_of(each.number), each.begin(), each.end)
    raise NoPlace(f"BADCURSOR that is beyond the end, which is {history.last()}")


def check(history: History, cursor: Cursor, node_id: str) -> None:
    if cursor.node_id != node_id:
        raise NoPlace(f"BADCURSOR that is a cursor of node {cursor.node_id}, and this is node {node_id}")
    if cursor.position < HEADER_BYTES:
        raise NoPlace("BADCURSOR that is no place between two records")


def check_gone(history: History, cursor: Cursor, next_number: int) -> None:
    """Raise where records lay between a cursor and the next segment that is still there."""
    lost = [each for each in history.gone if cursor.segment <= each.number < next_number and each.records]
    if lost and lost[0].number == cursor.segment and cursor.position >= lost[0].end:
        del lost[0]
    oldest = min([each.number for each in [*history.gone, *history.all()]])
    is_known = cursor.segment >= oldest
    if is_known and not lost:
        return  # what a power cut took
    count = f"up to {sum(each.records for each in lost)}" if is_known else "an unknown number of"
    times = f" of {lost[0].first} to {lost[-1].last}" if lost else ""
    raise NoPlace(f"GONE from {cursor} to {history.first()}: {count} records{times} were removed")


def read_piece(where: Stretch, count: int) -> tuple[str, bytes]:
    """The cursor to go on with, and the piece: at most `count` records, but at least a batch. Raises NoPlace."""
    begin = where.begin
    if where.is_empty():
        return str(begin), b""
    most = min(PIECE_BYTES_MAX, max(READ_BYTES_MIN, count * RECORD_BYTES_GUESS), where.end - begin.position)
    with open_segment(where) as file:
        data = os.pread(file.fileno(), most, begin.position)
        if len(data) >= BATCH.size:
            data += missing_part(file.fileno(), data, begin.position)
    size = 0
    records = 0
    for at, length, batch_count, _ in heads(data, begin):
        if size and records + batch_count > count:
            break
        records += batch_count
        size = at + BATCH.size + length
    if size == 0:
        raise damaged(begin)
    after = Cursor(begin.node_id, begin.segment, begin.position + size)
    return str(after), pack_piece(begin, data[:size])


def seek(where: Stretch, count: int) -> str:
    """The cursor that many records further on, or as far as this segment goes."""
    at = where.begin.position
    records = 0
    for position, length, batch_count, _ in walk(where):
        if records and records + batch_count > count:
            break
        records += batch_count
        at = position + BATCH.size + length
    return str(Cursor(where.begin.node_id, where.begin.segment, at))


def seek_time(where: Stretch, ms: int) -> str:
    """The first batch of that time or later; the end of the segment if there is none."""
    at = where.begin.position
    for position, length, _, time in walk(where):
        if time >= ms:
            return str(Cursor(where.begin.node_id, where.begin.segment, position))
        at = position + BATCH.size + length
    return str(Cursor(where.begin.node_id, where.begin.segment, at))


def segment_at(history: History, ms: int) -> Stretch:
    """The segment in which that time is to be looked for."""
    for each in history.all():
        if each.last >= ms or each is history.current:
            return Stretch(history.path_of(each.number), each.begin(), each.end)
    raise AssertionError("the current segment is one of all")


def open_segment(where: Stretch) -> FileIO:
    try:
        return FileIO(where.path)
    except FileNotFoundError:
        raise NoPlace(f"GONE from {where.begin}: its segment was removed just now; read from first") from None


def missing_part(descriptor: int, data: bytes, position: int) -> bytes:
    """The rest of the first batch, where it is longer than what was read."""
    _, length, *_ = BATCH.unpack_from(data)
    missing = BATCH.size + length - len(data)
    return os.pread(descriptor, missing, position + len(data)) if 0 < missing <= BATCH_BYTES_MAX else b""


def heads(data: bytes, begin: Cursor) -> Iterator[tuple[int, int, int, int]]:
    """Of each batch that is whole in there: where it begins, its length, its count and its time."""
    at = 0
    while at + BATCH.size <= len(data):
        mark, length, _, count, time = BATCH.unpack_from(data, at)
        if mark != MARK or length > BATCH_BYTES_MAX:
            raise damaged(Cursor(begin.node_id, begin.segment, begin.position + at))
        if at + BATCH.size + length > len(data):
            return
        yield at, length, count, time
        at += BATCH.size + length


def walk(where: Stretch) -> Iterator[tuple[int, int, int, int]]:
    """The heads of all batches of a stretch, by their places in the file."""
    at = where.begin.position
    with open_segment(where) as file:
        while at < where.end:
            place = Cursor(where.begin.node_id, where.begin.segment, at)
            data = os.pread(file.fileno(), min(PIECE_BYTES_MAX, where.end - at), at)
            if len(data) >= BATCH.size:
                data += missing_part(file.fileno(), data, at)
            size = 0
            for offset, length, count, time in heads(data, place):
                yield at + offset, length, count, time
                size = offset + BATCH.size + length
            if size == 0:
                raise damaged(place)
            at += size


def damaged(place: Cursor) -> NoPlace:
    following = Cursor(place.node_id, place.segment + 1, HEADER_BYTES)
    return NoPlace(
        f"BADCURSOR there is no record at {place}: that is no cursor that was given, or the file is damaged there; "
        f"the next segment is {following}"
    )


def measure(path: Path, number: int) -> tuple[str, int, int, int, int]:
    """Read a whole segment: node id, end of what is good, records, first and last time. Raises BadHistory."""
    with path.open("rb") as file:
        said, node_id = read_header(file.read(HEADER_BYTES))
        if said != number:
            raise BadHistory(f"it says that it is number {said}")
        end, records, first, last = HEADER_BYTES, 0, 0, 0
        while True:
            head = file.read(BATCH.size)
            if len(head) < BATCH.size:
                break
            mark, length, crc, count, time = BATCH.unpack(head)
            if mark != MARK or length > BATCH_BYTES_MAX:
                break
            data = file.read(length)
            if len(data) < length or checksum(number, end, count, time, data) != crc:
                break
            first = first or time
            last = time
            records += count
            end += BATCH.size + length
    return node_id, end, records, first, last
