"""One wrong bit in a batch or a header, found by the checksum that it no longer fits.

Any two texts with a right CRC32C differ in at least four bits, up to lengths far beyond those of a batch. So a text
that became wrong in one bit has one right neighbour: which bit it was follows from how the checksum differs. What is
found here is as good as what was written. Where two bits are wrong nothing is found; where more are, hardly ever, since
what is found must consist of whole records, too.
"""
from __future__ import annotations

from typing import Final

import google_crc32c

from holdfast.journal.format import (
    BATCH,
    BATCH_BYTES_MAX,
    CHECKSUM,
    HEADER,
    HEADER_BYTES,
    MARK,
    Batch,
    Damage,
    Header,
    checksum,
    read_header,
)

POLYNOMIAL: Final = 0x82F63B78  # CRC32C, its lowest bit first
BYTES_MAX: Final = 1 << 20
"""In a longer batch no bit is looked for: it would take seconds."""
SYNCED_BITS: Final = 64  # what stands last before the records in what the checksum covers
LENGTH_BITS: Final = 32


def bit_from_end(difference: int, bits: int) -> int:
    """Which bit is wrong, counted from the end of the text that the checksum covers; -1 if it is no single one."""
    effect = POLYNOMIAL
    for place in range(bits):
        if effect == difference:
            return place
        effect = effect >> 1 ^ (POLYNOMIAL if effect & 1 else 0)
    return -1


def is_one_bit(difference: int) -> bool:
    return difference.bit_count() == 1


def turned(data: bytes, place: int) -> bytes:
    """With that bit, counted from the end, as it was."""
    mended = bytearray(data)
    mended[len(data) - 1 - place // 8] ^= 0x80 >> place % 8
    return bytes(mended)


def mend_header(data: bytes) -> Header | None:
    """The header that was written, if one bit of it is wrong."""
    if len(data) < HEADER_BYTES:
        return None
    fields, kept = data[:HEADER.size], CHECKSUM.unpack_from(data, HEADER.size)[0]
    difference = kept ^ google_crc32c.value(fields)
    if not is_one_bit(difference):
        place = bit_from_end(difference, 8 * len(fields))
        if place < 0:
            return None
        fields = turned(fields, place)
    try:
        return read_header(fields + CHECKSUM.pack(google_crc32c.value(fields)))
    except Damage:
        return None


def mend_batch(data: bytes, number: int, position: int) -> Batch | None:
    """The batch that was written where `data` begins, if one bit of it is wrong."""
    if len(data) < BATCH.size:
        return None
    mark, length, crc, synced = BATCH.unpack_from(data)
    records = data[BATCH.size:BATCH.size + length]
    found: bytes | None = None
    if length <= BYTES_MAX and len(records) == length:
        difference = crc ^ checksum(number, position, synced, records)
        if difference == 0:
            found = records if is_one_bit(int.from_bytes(mark) ^ int.from_bytes(MARK)) else None
        elif mark == MARK and is_one_bit(difference):
            found = records
        elif mark == MARK:
            place = bit_from_end(difference, 8 * length + SYNCED_BITS)
            if place >= 8 * length:
                found, synced = records, synced ^ 1 << wrong_bit_of_synced(place - 8 * length)
            elif place >= 0:
                found = turned(records, place)
    if found is None and mark == MARK:
        found = with_other_length(data, number, position)
    return Batch(position, synced, found) if found is not None and are_whole(found) else None


def wrong_bit_of_synced(place: int) -> int:
    """Counted from the end of eight bytes with the lowest first, as a power of two."""
    return SYNCED_BITS - 1 - place


def with_other_length(data: bytes, number: int, position: int) -> bytes | None:
    """The records, if the wrong bit is one of their length."""
    _, length, crc, synced = BATCH.unpack_from(data)
    for bit in range(LENGTH_BITS):
        other = length ^ 1 << bit
        if other <= min(BATCH_BYTES_MAX, len(data) - BATCH.size):
            records = data[BATCH.size:BATCH.size + other]
            if checksum(number, position, synced, records) == crc:
                return records
    return None


def are_whole(records: bytes) -> bool:
    """Whether they are records, one after the other, to the last byte."""
    at = 0
    while at < len(records):
        size = int.from_bytes(records[at:at + 4], "little")
        if size == 0:
            return False
        at += 4 + size
    return at == len(records)
