"""One wrong bit is found, wherever it is; more than one never leads to something that was not written."""
from __future__ import annotations

from random import Random

import pytest

from holdfast.journal.flips import bit_from_end, mend_batch, mend_header
from holdfast.journal.format import HEADER_BYTES, SEGMENT, Header, batch_head

NODE_ID = b"0123456789" * 4
RECORDS = b"".join(len(each).to_bytes(4, "little") + each for each in (b"\x14first", b"\x05", b"\x14" + b"x" * 300))


def flip(data: bytes, *bits: int) -> bytes:
    wrong = bytearray(data)
    for bit in bits:
        wrong[bit // 8] ^= 1 << bit % 8
    return bytes(wrong)


@pytest.mark.parametrize("records", [b"", RECORDS[:10], RECORDS], ids=["empty", "short", "long"])
def test_each_wrong_bit_of_a_batch_is_turned_back(records: bytes) -> None:
    whole = batch_head(3, 1000, 777, records) + records
    rest = b"\xb7HFj and what comes after it"
    for bit in range(8 * len(whole)):
        mended = mend_batch(flip(whole, bit) + rest, 3, 1000)
        assert mended is not None, f"bit {bit} of {8 * len(whole)}"
        assert (mended.records, mended.synced, mended.position) == (records, 777, 1000)
        assert mended.end == 1000 + len(whole)


def test_each_wrong_bit_of_a_header_is_turned_back() -> None:
    header = Header(SEGMENT, 12, 1_700_000_000_001, NODE_ID)
    for bit in range(8 * HEADER_BYTES):
        assert mend_header(flip(header.pack(), bit)) == header, f"bit {bit}"


def test_two_wrong_bits_are_not_taken_for_one() -> None:
    whole = batch_head(3, 64, 64, RECORDS) + RECORDS
    dice = Random(1)
    for _ in range(2_000):
        bits = dice.sample(range(8 * len(whole)), 2)
        assert mend_batch(flip(whole, *bits), 3, 64) is None, f"bits {bits}"
    for _ in range(500):
        bits = dice.sample(range(8 * HEADER_BYTES), 2)
        assert mend_header(flip(Header(SEGMENT, 1, 7, NODE_ID).pack(), *bits)) is None


def test_a_batch_that_is_cut_short_or_elsewhere_is_none() -> None:
    whole = batch_head(3, 64, 64, RECORDS) + RECORDS
    for size in range(len(whole)):
        assert mend_batch(whole[:size], 3, 64) is None, f"{size} bytes"
        if size > 40:
            assert mend_batch(whole[:size] + bytes(len(whole) - size), 3, 64) is None, "zeros in place of its end"
    assert mend_batch(whole, 3, 65) is None and mend_batch(whole, 4, 64) is None


def test_a_difference_that_no_single_bit_makes_has_no_place() -> None:
    assert bit_from_end(0, 1000) == -1
