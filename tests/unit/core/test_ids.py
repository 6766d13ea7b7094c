"""Job ids: text from numbers, numbers from text, and nothing else taken for one."""
from __future__ import annotations

import random

import pytest
from librt.strings import BytesWriter

from holdfast.core.ids import (
    RANDOM_POOL_BYTES,
    RandomPool,
    hex8,
    id_matches,
    id_minutes,
    id_random,
    id_seq,
    is_id,
    ttl_minutes,
    unhex8,
    write_id,
)

# The example in Disque's README, from before its ids became shorter.
GOLDEN = b"DI0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0SQ"


def signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def text(prefix: bytes, seq: int, rnd: int, minutes: int) -> bytes:
    out = BytesWriter()
    write_id(out, prefix, signed(seq), signed(rnd), minutes)
    return out.getvalue()


def test_golden() -> None:
    assert text(b"DI0f0c644f", 0xD3CCB51C2CEDBD47, 0xFCB6F312646C993C, 0x05A0) == GOLDEN
    assert is_id(GOLDEN)
    assert id_seq(GOLDEN) & (2**64 - 1) == 0xD3CCB51C2CEDBD47


def test_round_trip() -> None:
    rng = random.Random(1)
    for bits in [*range(64)] * 20:
        seq, rnd, minutes = rng.getrandbits(63) >> (bits % 63), rng.getrandbits(64) >> bits, rng.getrandbits(16)
        jid = text(b"DI%08x" % rng.getrandbits(32), seq, rnd, minutes)
        assert jid[10:46] == b"%016x%016x%04x" % (seq, rnd, minutes)
        assert is_id(jid) and id_seq(jid) == seq and id_matches(jid, seq, signed(rnd), minutes)
        assert not id_matches(jid, seq ^ 1 << bits % 63, signed(rnd), minutes)
        assert not id_matches(jid, seq, signed(rnd ^ 1 << bits), minutes)
        assert not id_matches(jid, seq, signed(rnd), minutes ^ 1 << bits % 16)


def test_every_byte_of_an_id_counts() -> None:
    seq, rnd, minutes = 0x0123456789ABCDEF, signed(0xFEDCBA9876543210), 0x05A1
    jid = text(b"DI01234567", seq, rnd, minutes)
    for i in range(10, 48):  # the prefix before them chose the origin
        for c in b"0f\x00gG@`/:\xff":
            if jid[i] != c:
                assert not id_matches(jid[:i] + bytes([c]) + jid[i + 1:], seq, rnd, minutes)


@pytest.mark.parametrize("jid", [
    b"", GOLDEN[:-1], GOLDEN + b"S", GOLDEN.upper(), b"D-" + GOLDEN[2:], GOLDEN[:-2] + b"QS", GOLDEN[:-2] + b"sq",
    *[GOLDEN[:20] + bytes([c]) + GOLDEN[21:] for c in b"/:`gAFG\x00\xff"],
    b"D-0f0c644f-d3ccb51c2cedbd47fcb6f312-05a0",
])
def test_no_id(jid: bytes) -> None:
    assert not is_id(jid)


def test_eight_digits_at_a_time() -> None:
    for value in [0, 1, 9, 10, 15, 16, 0x9A9A9A9A, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]:
        assert hex8(value).to_bytes(8, "big") == b"%08x" % value
        assert unhex8(hex8(value)) == value


@pytest.mark.parametrize("ttl, retry, minutes", [
    (86400, 300, 0x05A1), (86400, 0, 0x05A0), (59, 0, 0), (59, 1, 1), (119, 0, 0), (120, 1, 3),
    (65535 * 60, 1, 65535), (65535 * 60, 0, 65534), (2**31 - 1, 1, 65535), (2**31 - 1, 0, 65534),
])
def test_the_ttl_field_says_whether_a_job_may_come_again(ttl: int, retry: int, minutes: int) -> None:
    assert ttl_minutes(ttl, retry) == minutes


def test_the_pool_gives_every_byte_of_its_source_once() -> None:
    asked: list[int] = []
    rng, twin = random.Random(3), random.Random(3)

    def source(count: int) -> bytes:
        asked.append(count)
        return rng.randbytes(count)

    pool = RandomPool(source)
    for _ in range(2):
        block = twin.randbytes(RANDOM_POOL_BYTES)
        for i in range(0, RANDOM_POOL_BYTES, 8):
            assert pool.next() == int.from_bytes(block[i:i + 8], "little", signed=True)
    assert asked == [RANDOM_POOL_BYTES] * 2


@pytest.mark.parametrize("rnd", [0, 1, -1, 2**63 - 1, -(2**63), 0x0123456789ABCDEF])
def test_an_id_says_its_random_part_and_its_minutes(rnd: int) -> None:
    text = BytesWriter()
    write_id(text, b"DI01234567", 5, rnd, 1441)
    assert (id_random(text.getvalue()), id_minutes(text.getvalue())) == (rnd, 1441)
