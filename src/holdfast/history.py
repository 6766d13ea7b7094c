"""History as a table: the pieces that HISTORY READ gives, made into Arrow record batches.

    schema()            the columns: docs/reference/history.md says what they mean
    decode(piece)       a pyarrow.RecordBatch, one row for each record

The work is done column by column: a loop in Python only finds where records begin (each says how long it is), all
else is numpy over the whole piece. pyarrow and numpy are needed here and nowhere else in the package, so they
are imported when they are used (`pip install 'holdfast[pipeline]'`).
"""
from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from holdfast.core import tale as told
from holdfast.journal.history_format import (
    BATCH,
    MARK,
    PIECE,
    RECORD_BYTES_MIN,
    BadHistory,
    checksum,
    read_piece,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

EVENTS: Final = {
    told.ADDED: "added",
    told.QUEUED: "queued",
    told.HANDED: "handed-out",
    told.EXTENDED: "extended",
    told.NACKED: "nacked",
    told.LEASE_LOST: "lease-lost",
    told.DONE: "acked",
    told.EXPIRED: "expired",
    told.DEAD: "dead",
    told.DELETED: "deleted",
    told.REFUSED: "refused",
    told.MOVED: "moved",
    told.IMPORTED: "imported",
    told.RELEASED: "released",
    told.CANCELLED: "cancelled",
    told.REVIVED: "revived",
    told.DEQUEUED: "dequeued",
    told.EVICTED: "evicted",
    told.GAP: "gap",
}
TEXTS: Final = {
    "worker": told.WORKER,
    "error": told.ERROR,
    "cause": told.CAUSE,
    "tenant": told.TENANT,
    "domain": told.DOMAIN,
    "group": told.GROUP,
    "parent": told.PARENT,
    "peer": told.PEER,
    "unique": told.UNIQUE,
    "batch": told.BATCH,
}
TAGS: Final = 256


@cache
def schema() -> pa.Schema:
    import pyarrow as pa

    text, long, number = pa.string(), pa.int64(), pa.int32()
    columns: list[tuple[str, Any]] = [
        ("node", text), ("segment", long), ("position", long), ("time", pa.timestamp("us", tz="UTC")), ("event", text),
        ("job", text), ("queue", text), ("attempt", number), ("worker", text), ("error", text), ("cause", text),
        ("tenant", text), ("domain", text), ("group", text), ("parent", text), ("peer", text), ("body_bytes", long),
        ("lease_ms", long), ("delay_ms", long), ("count", long), ("copy", pa.bool_()), ("retry_s", number),
        ("ttl_s", long), ("replicate", number), ("priority", number), ("attempts", number), ("unique", text),
        ("batch", text), ("batch_index", long), ("headers", pa.map_(text, text)),
    ]
    always = {"node", "segment", "position", "time", "event", "attempt", "copy"}
    return pa.schema([pa.field(name, kind, nullable=name not in always) for name, kind in columns])


def decode(piece: bytes) -> pa.RecordBatch:
    """All records of a piece as rows. Raises BadHistory where it is not whole."""
    import pyarrow as pa

    if not piece:
        return pa.RecordBatch.from_pylist([], schema())
    return Decoding(piece).table()


class Decoding:
    """One piece: arrays as long as there are records, and how to make columns of them."""

    def __init__(self, piece: bytes) -> None:
        import numpy as np

        self.np = np
        self.cursor = read_piece(piece)
        places = find_records(piece, self.cursor.segment, self.cursor.position)
        self.bytes = np.frombuffer(piece, np.uint8)
        self.words = np.frombuffer(piece, "<u4")
        self.at = np.asarray(places, np.int64)  # in words of four bytes
        self.position = self.at * 4 + (self.cursor.position - PIECE.size)
        self.rows = len(places)
        head = self.words[self.at + 1]
        self.event = (head & 0xFF).astype(np.uint8)
        self.flags = (head >> 8) & 0xFF
        self.attempt = (head >> 16).astype(np.int32)
        self.value = self.long(2 + 9)
        self.queue_bytes = self.words[self.at + 13].astype(np.int64)
        # For each tag, where its text begins and how long it is: -1 where there is none.
        self.text_at: dict[int, NDArray[Any]] = {}
        self.text_bytes: dict[int, NDArray[Any]] = {}
        self.find_texts()

    def find_texts(self) -> None:
        """The first text of every record, then the second of those that have one, and so on."""
        np = self.np
        ends = self.at + self.words[self.at] // 4
        rows = np.arange(self.rows)
        at = self.at + 14 + (self.queue_bytes + 3) // 4
        while True:
            is_there = at < ends[rows]
            rows, at = rows[is_there], at[is_there]
            if not len(rows):
                return
            word = self.words[at]
            tags, sizes = word >> 24, (word & 0xFFFFFF).astype(np.int64)
            for tag in np.unique(tags).tolist():
                mask = tags == tag
                if tag not in self.text_at:
                    self.text_at[tag] = np.zeros(self.rows, np.int64)
                    self.text_bytes[tag] = np.full(self.rows, -1, np.int64)
                self.text_at[tag][rows[mask]] = at[mask] * 4 + 4
                self.text_bytes[tag][rows[mask]] = sizes[mask]
            at = at + 1 + (sizes + 3) // 4
            if (at > ends[rows]).any():
                raise BadHistory("a text is longer than its record")

    def long(self, offset: int) -> NDArray[Any]:
        """The number of eight bytes at that offset, in words, of every record."""
        low = self.words[self.at + offset].astype(self.np.uint64)
        high = self.words[self.at + offset + 1].astype(self.np.uint64)
        return (low | high << self.np.uint64(32)).view(self.np.int64)

    def table(self) -> pa.RecordBatch:
        import pyarrow as pa

        np = self.np
        has_job = (self.words[self.at + 4] != 0) | (self.long(5) != 0) | (self.long(7) != 0)
        body = self.words[self.at + 10].astype(np.int64)
        columns = {
            "node": pa.repeat(pa.scalar(self.cursor.node_id), self.rows),
            "segment": pa.array(np.full(self.rows, self.cursor.segment, np.int64)),
            "position": pa.array(self.position),
            "time": pa.array(self.long(2) * 1000).cast(pa.timestamp("us", tz="UTC")),
            "event": pa.DictionaryArray.from_arrays(pa.array(self.event), event_names()).cast(pa.string()),
            "job": self.job_ids(has_job),
            "queue": self.strings((self.at + 14) * 4, np.where(self.event == told.GAP, -1, self.queue_bytes)),
            "attempt": pa.array(self.attempt),
            "body_bytes": pa.array(body, mask=~has_job & (self.event != told.REFUSED)),
            "lease_ms": self.value_of(told.HANDED, told.EXTENDED),
            "count": self.value_of(told.REFUSED, told.GAP),
            "copy": pa.array(self.flags & told.IS_COPY != 0),
            "headers": self.headers(),
            **{name: self.text(tag) for name, tag in TEXTS.items()},
            **self.options(),
        }
        return pa.RecordBatch.from_arrays([columns[name] for name in schema().names], schema=schema())

    def value_of(self, *events: int) -> pa.Array:
        import pyarrow as pa

        return pa.array(self.value, mask=~self.np.isin(self.event, events))

    def options(self) -> dict[str, pa.Array]:
        """What comes with `added` in fixed places."""
        import pyarrow as pa

        np = self.np
        is_there, words = self.fixed(told.OPTIONS, 6)
        none = ~is_there
        with_index, index = self.fixed(told.INDEX, 2)
        is_delayed = np.isin(self.event, (told.NACKED, told.RELEASED))
        delay = np.where(is_delayed, self.value, words[1] * 1000)
        return {
            "retry_s": pa.array(words[0].astype(np.int32), mask=none),
            "delay_ms": pa.array(delay, mask=none & ~is_delayed),
            "ttl_s": pa.array(words[2], mask=none),
            "replicate": pa.array((words[3] & 0xFFFF).astype(np.int32), mask=none),
            "priority": pa.array((words[3] >> 16 & 0xFF).astype(np.int32), mask=none),
            "attempts": pa.array(words[4].astype(np.int32), mask=none),
            "batch_index": pa.array(index[0] | index[1] << 32, mask=~with_index),
        }

    def fixed(self, tag: int, count: int) -> tuple[NDArray[Any], list[NDArray[Any]]]:
        """A text that is numbers: who has it, and its words, zero where there is none."""
        np = self.np
        if tag not in self.text_at:
            return np.zeros(self.rows, bool), [np.zeros(self.rows, np.int64)] * count
        is_there = self.text_bytes[tag] >= count * 4
        at = np.where(is_there, self.text_at[tag] // 4, 0)
        return is_there, [np.where(is_there, self.words[at + i].astype(np.int64), 0) for i in range(count)]

    def job_ids(self, has_job: NDArray[Any]) -> pa.Array:
        """The text of every id: DI, 8 digits, 16, 16, 4, SQ."""
        import pyarrow as pa

        np = self.np
        raw = np.empty((self.rows, 22), np.uint8)  # the binary parts, the highest byte first
        starts = self.at[:, None] * 4
        for begin, offset, size in ((0, 16, 4), (4, 20, 8), (12, 28, 8), (20, 36, 2)):
            raw[:, begin:begin + size] = self.bytes[starts + np.arange(offset + size - 1, offset - 1, -1)]
        text = np.empty((self.rows, 48), np.uint8)
        text[:, :2] = (ord("D"), ord("I"))
        text[:, 46:] = (ord("S"), ord("Q"))
        text[:, 2:46] = hex_digits()[raw].view(np.uint8)
        text = text[has_job]
        offsets = np.zeros(self.rows + 1, np.int32)
        np.cumsum(has_job * 48, out=offsets[1:])
        return pa.StringArray.from_buffers(
            self.rows, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text)), self.validity(has_job)
        )

    def text(self, tag: int) -> pa.Array:
        import pyarrow as pa

        if tag not in self.text_at:
            return pa.nulls(self.rows, pa.string())
        return self.strings(self.text_at[tag], self.text_bytes[tag])

    def strings(self, begins: NDArray[Any], sizes: NDArray[Any]) -> pa.Array:
        """A column of texts that lie in the piece; null where a size is negative."""
        import pyarrow as pa

        np = self.np
        is_there = sizes >= 0
        lengths = np.where(is_there, sizes, 0)
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        picks = np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], lengths)
        data = self.bytes[picks]
        column = pa.StringArray.from_buffers(
            len(sizes), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data), self.validity(is_there)
        )
        if (data >= 0x80).any():
            try:
                column.validate(full=True)
            except pa.ArrowInvalid:  # no UTF-8: any bytes can be the name of a queue
                whole = data.tobytes()
                return pa.array([
                    whole[begin:end].decode("utf-8", "backslashreplace") if there else None
                    for begin, end, there in zip(offsets[:-1].tolist(), offsets[1:].tolist(), is_there.tolist())
                ], pa.string())
        return column

    def validity(self, is_there: NDArray[Any]) -> Any:
        import pyarrow as pa

        return None if is_there.all() else pa.py_buffer(self.np.packbits(is_there, bitorder="little"))

    def headers(self) -> pa.Array:
        import pyarrow as pa

        kind = pa.map_(pa.string(), pa.string())
        if told.HEADERS not in self.text_at:
            return pa.nulls(self.rows, kind)
        whole = self.bytes.tobytes()
        found: list[list[tuple[str, str]] | None] = [None] * self.rows
        sizes = self.text_bytes[told.HEADERS]
        for row in self.np.flatnonzero(sizes >= 0).tolist():
            at = int(self.text_at[told.HEADERS][row])
            found[row] = read_headers(whole[at:at + int(sizes[row])])
        return pa.array(found, kind)


def find_records(piece: bytes, segment: int, position: int) -> list[int]:
    """Where each record begins, in words. Raises BadHistory where something is not as it should be."""
    if len(piece) % 4 or len(piece) == PIECE.size:
        raise BadHistory("a piece is cut short")
    words = memoryview(piece).cast("I")
    whole = memoryview(piece)
    places: list[int] = []
    at = PIECE.size
    while at < len(piece):
        if at + BATCH.size > len(piece):
            raise BadHistory(f"a batch is cut short at byte {at}")
        mark, length, crc, count, time = BATCH.unpack_from(piece, at)
        begin = at + BATCH.size
        end = begin + length
        if mark != MARK or end > len(piece) or length % 4:
            raise BadHistory(f"there is no batch at byte {at}")
        if checksum(segment, position + at - PIECE.size, count, time, whole[begin:end]) != crc:
            raise BadHistory(f"a batch has a wrong checksum at byte {at}")
        before = len(places)
        word, last = begin // 4, end // 4
        while word < last:
            places.append(word)
            size = words[word]
            if size < RECORD_BYTES_MIN:
                raise BadHistory(f"there is no record at byte {word * 4}")
            word += size >> 2
        if word != last or len(places) - before != count:
            raise BadHistory(f"the records of the batch at byte {at} are not what it says")
        at = end
    return places


def read_headers(data: bytes) -> list[tuple[str, str]]:
    texts = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at:at + 4], "little")
        texts.append(data[at + 4:at + 4 + size].decode("utf-8", "backslashreplace"))
        at += 4 + size
    return list(zip(texts[::2], texts[1::2]))


@cache
def event_names() -> pa.Array:
    import pyarrow as pa

    return pa.array([EVENTS.get(number, f"event-{number}") for number in range(256)])


@cache
def hex_digits() -> NDArray[Any]:
    """For each byte its two digits, as one number of two bytes."""
    import numpy as np

    return np.frombuffer("".join(f"{value:02x}" for value in range(256)).encode(), np.uint16)
