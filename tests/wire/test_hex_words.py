"""Hex digits are recognised eight at a time: every character at every place, as one by one."""
from __future__ import annotations

import pytest

from holdfast.wire.bus import is_hex

GOOD = b"0123456789abcdef"


@pytest.mark.parametrize("place", [*range(8), 43])
def test_every_character_is_judged_alone(place: int) -> None:
    for c in range(256):
        text = bytearray(GOOD * 3)[:44]
        text[place] = c
        assert is_hex(bytes(text), 0, 44) == (c in GOOD), (place, c)


def test_what_is_around_does_not_matter() -> None:
    assert is_hex(b"DI" + GOOD * 2 + b"SQ", 2, 34)
    assert not is_hex(b"DI" + GOOD * 2 + b"SQ", 1, 33)
    assert not is_hex(b"DI" + GOOD * 2 + b"SQ", 3, 35)
