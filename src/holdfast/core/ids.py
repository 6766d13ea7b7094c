"""Job ids: DI + 8 hex of the node + 16 hex sequence + 16 hex random + 4 hex TTL in minutes + SQ, 48 characters.

The text is never stored. A job keeps the sequence and the random part as two 64-bit integers; the text is
made when a reply needs it and read when a command brings it. Eight hex digits are made, and read, as one
64-bit word, which is what makes an id cheap enough for the hot path.

The sequence begins at the node's start time in microseconds and then counts, so ids are dense (a job is
found in a page, not in a hash table), never reused after a restart, and in the order of creation.
The TTL field is odd for jobs that may be delivered again and even for at-most-once jobs (RETRY 0), so that
a node that has never seen a job knows from its id alone whether an ack for it is worth keeping.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from librt.strings import BytesWriter, read_i64_be, read_i64_le, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from holdfast.core.limits import NEVER, TTL_MINUTES_MAX

ID_LENGTH: Final = 48
NODE_ID_LENGTH: Final = 40
CRON_PREFIX: Final = b"DI00000000"
"""How ids of jobs begin that a schedule makes: their numbers are not drawn by a node but worked out, by any of them."""

RANDOM_POOL_BYTES: Final = 8 * 1024


def hex8(v: i64) -> i64:
    """The low 32 bits of v as eight ASCII hex digits, packed big-endian into a word."""
    v = ((v & 0xFFFF0000) << 16) | (v & 0xFFFF)
    v = ((v & 0x0000FF000000FF00) << 8) | (v & 0x000000FF000000FF)
    v = ((v & 0x00F000F000F000F0) << 4) | (v & 0x000F000F000F000F)
    letters: i64 = ((v + 0x0606060606060606) >> 4) & 0x0101010101010101
    return v + 0x3030303030303030 + letters * 39


def unhex8(text: i64) -> i64:
    """The inverse of hex8; nonsense in, nonsense out: callers compare hex8 of the result with the text."""
    v: i64 = (text & 0x0F0F0F0F0F0F0F0F) + 9 * ((text >> 6) & 0x0101010101010101)
    v = (v | (v >> 4)) & 0x00FF00FF00FF00FF
    v = (v | (v >> 8)) & 0x0000FFFF0000FFFF
    return (v | (v >> 16)) & 0xFFFFFFFF


def write_id(out: BytesWriter, prefix: bytes, seq: i64, rnd: i64, minutes: i64) -> None:
    """Append the 48 characters. `prefix` is DI and the eight digits of the creating node."""
    out.write(prefix)
    write_i64_be(out, hex8(seq >> 32))
    write_i64_be(out, hex8(seq))
    write_i64_be(out, hex8(rnd >> 32))
    write_i64_be(out, hex8(rnd))
    write_i32_be(out, i32(hex8(minutes) & 0xFFFFFFFF))
    out.write(b"SQ")


def signed(high: i64) -> i64:
    """The upper half of a machine word, which has a sign; uncompiled numbers must be told."""
    return high - 0x100000000 if high >= 0x80000000 else high


def id_seq(jid: bytes) -> i64:
    """The sequence number inside a text of 48 bytes; meaningless unless the text is an id."""
    return (signed(unhex8(read_i64_be(jid, 10))) << 32) | unhex8(read_i64_be(jid, 18))


def can_be_seq(prefix: bytes, seq: i64) -> bool:
    """Whether a job whose id begins so can have this number: a node counts, a schedule has a hash of up to 63 bits."""
    return seq > 0 and (seq < NEVER or prefix == CRON_PREFIX)


def id_random(jid: bytes) -> i64:
    """The random part of an id."""
    return (signed(unhex8(read_i64_be(jid, 26))) << 32) | unhex8(read_i64_be(jid, 34))


def id_minutes(jid: bytes) -> i64:
    """The TTL field of an id."""
    return unhex8(read_i64_be(jid, 38)) & 0xFFFF


def id_matches(jid: bytes, seq: i64, rnd: i64, minutes: i64) -> bool:
    """Whether a text of 48 bytes says exactly this sequence, random part and TTL, in lower case."""
    return (
        read_i64_be(jid, 34) == hex8(rnd)
        and read_i64_be(jid, 26) == hex8(rnd >> 32)
        and read_i64_be(jid, 18) == hex8(seq)
        and read_i64_be(jid, 10) == hex8(seq >> 32)
        and (read_i64_be(jid, 40) & 0xFFFFFFFFFFFF) == (((hex8(minutes) & 0xFFFFFFFF) << 16) | 0x5351)
    )


def is_id(jid: bytes) -> bool:
    """Whether a text has the form of a job id. The 40-character ids of later Disque versions do not."""
    if len(jid) != ID_LENGTH or not jid.startswith(b"DI") or not jid.endswith(b"SQ"):
        return False
    for i in range(2, ID_LENGTH - 2):
        c = jid[i]
        if not (48 <= c <= 57 or 97 <= c <= 102):
            return False
    return True


def ttl_minutes(ttl_s: i64, retry_s: i64) -> i64:
    """The TTL field of an id: minutes, at most 65535, odd if the job may be delivered again, even if not."""
    minutes: i64 = ttl_s // 60
    if minutes > TTL_MINUTES_MAX:
        minutes = TTL_MINUTES_MAX
    return minutes | 1 if retry_s > 0 else minutes & ~1


class RandomPool:
    """Random 64-bit numbers, fetched from their source many at a time."""

    def __init__(self, source: Callable[[int], bytes]) -> None:
        self.source: Callable[[int], bytes] = source
        self.pool: bytes = b""
        self.pos: i64 = RANDOM_POOL_BYTES

    def next(self) -> i64:
        pos = self.pos
        if pos >= RANDOM_POOL_BYTES:
            self.pool = self.source(RANDOM_POOL_BYTES)
            pos = 0
        self.pos = pos + 8
        return read_i64_le(self.pool, pos)
