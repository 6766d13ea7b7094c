"""Replies as plain values, their bytes, and the reading of arguments: the model's half of the protocol."""
from __future__ import annotations

import re
from typing import Any

from . import texts


class Line(bytes):
    """A simple string, +text; plain bytes are bulk strings."""


class Nil:
    """Nothing, where a string would stand ($-1) or an array (*-1)."""

    def __init__(self, sign: bytes) -> None:
        self.sign = sign


class Bad(Exception):
    """An error reply."""

    def __init__(self, text: bytes) -> None:
        super().__init__(text)
        self.text = text


NIL, NIL_ARRAY, WAITS = Nil(b"$"), Nil(b"*"), object()


def encode(value: Any, resp3: bool) -> bytes:
    if isinstance(value, Bad):
        return b"-%b\r\n" % value.text
    if isinstance(value, Nil):
        return b"_\r\n" if resp3 else b"%b-1\r\n" % value.sign
    if isinstance(value, Line):
        return b"+%b\r\n" % value
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    if isinstance(value, int):
        return b":%d\r\n" % value
    return b"*%d\r\n" % len(value) + b"".join([encode(each, resp3) for each in value])


def number(text: bytes, error: bytes, low: int = -(10**18), high: int = 10**18, above: bytes = b"") -> int:
    """A whole number of at most 18 digits; `error` for no number or one below, `above` for one above."""
    if not re.fullmatch(rb"-?[0-9]{1,18}", text) or int(text) < low:
        raise Bad(error)
    if int(text) > high:
        raise Bad(above or error)
    return int(text)


def patience(text: bytes) -> int:
    value = number(text, texts.TIMEOUT_NUMBER, high=2**53)
    if value < 0:
        raise Bad(texts.TIMEOUT_NEGATIVE)
    return value


def value_of(words: list[bytes]) -> bytes:
    """Takes the value that must follow an option."""
    if not words:
        raise Bad(texts.SYNTAX)
    return words.pop(0)


def check_ids(ids: list[bytes]) -> None:
    if not all(re.fullmatch(rb"DI[0-9a-f]{44}SQ", jid) for jid in ids):
        raise Bad(texts.BAD_ID)


def check_name(name: bytes) -> None:
    if len(name) > 65536:
        raise Bad(texts.NAME_BYTES % len(name))
