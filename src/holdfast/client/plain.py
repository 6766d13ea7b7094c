"""A RESP2 and RESP3 reader in plain Python, the twin of hiredis' (see `resp`).

It never looks at a byte twice: what was parsed of an unfinished reply stays in `_open`, a stack of
the arrays and maps that still miss elements, and the next piece of data continues there. A reply of
100,000 elements that arrives in small pieces costs no more than one that arrives at once.

Bytes that are no RESP leave the reader broken for good: there is no way to find the next reply in
a stream whose position was lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

Reply: TypeAlias = (
    "bool | int | float | bytes | BaseException | list[Reply] | dict[Reply, Reply] | NotReady | None"
)

LINE_BYTES_MAX: Final = 64 * 1024
"""No header, number or simple string is longer; a peer that sends more is not talking RESP."""
ELEMENTS_MAX: Final = 2**32 - 1
DEPTH_MAX: Final = 128
"""Arrays in arrays. Deeper nesting is an attack on whoever walks the value recursively."""


class ProtocolError(Exception):
    """The bytes are not RESP."""


class NotReady:
    """The reply is not complete yet."""

    def __repr__(self) -> str:
        return "NOT_READY"


NOT_READY: Final = NotReady()


class Push(list[Reply]):
    """A message nobody asked for (RESP3)."""


class Simple(bytes):
    """A simple string, where a caller wants to tell it from a bulk string (see PlainReader)."""


class Elements(list[Reply]):
    """A RESP3 set, where a caller wants to tell it from an array."""


class _Open:
    """An array, set, map or push that still misses elements."""

    __slots__ = ("items", "kind", "missing")

    def __init__(self, kind: int, missing: int) -> None:
        self.kind = kind
        self.missing = missing
        self.items: list[Reply] = []


_AGGREGATES: Final = frozenset(b"*~>%")
_INT64_MAX: Final = 2**63 - 1


class PlainReader:
    """`feed` it bytes, `gets` gives whole replies or NOT_READY.

    error  makes the value that stands for an error reply, from its text
    exact  keeps simple strings and sets distinguishable, as `Simple` and `Elements`: for a prompt that
           shows types. Both still are bytes and lists.
    """

    def __init__(self, error: Callable[[str], BaseException], exact: bool = False) -> None:
        self._error = error
        self._exact = exact
        self._buffer = bytearray()
        self._at = 0
        self._searched = 0
        self._bulk = -1
        self._bulk_kind = 0
        self._open: list[_Open] = []
        self._broken: ProtocolError | None = None

    def feed(self, data: bytes, /) -> None:
        self._buffer += data

    def gets(self) -> Reply:
        if self._broken is not None:
            raise self._broken
        try:
            return self._gets()
        except ProtocolError as error:
            self._broken = error
            self._buffer.clear()
            raise

    def _gets(self) -> Reply:
        while True:
            value = self._one()
            if value is NOT_READY:
                self._forget()
                return NOT_READY
            if isinstance(value, _Open):
                self._open.append(value)
                if len(self._open) > DEPTH_MAX:
                    raise ProtocolError("reply nested too deeply")
                continue
            while self._open:
                top = self._open[-1]
                top.items.append(value)
                top.missing -= 1
                if top.missing:
                    break
                self._open.pop()
                value = self._close(top)
            else:
                return value

    def _forget(self) -> None:
        """Drop what was read. Only when out of data, so that the cost is shared by many replies."""
        del self._buffer[: self._at]
        self._searched = max(0, self._searched - self._at)
        self._at = 0

    def _one(self) -> Reply | _Open:
        """The next element: a value, the start of an aggregate, or NOT_READY."""
        if self._bulk >= 0:
            return self._take_bulk()
        end = self._buffer.find(b"\r\n", max(self._at, self._searched))
        if end < 0:
            self._searched = max(self._at, len(self._buffer) - 1)
            if len(self._buffer) - self._at > LINE_BYTES_MAX:
                raise ProtocolError("line too long")
            return NOT_READY
        if end == self._at:
            raise ProtocolError("empty line")
        kind = self._buffer[self._at]
        line = bytes(self._buffer[self._at + 1 : end])
        self._at = end + 2
        if kind == 0x24 or kind == 0x3D:  # $ bulk string, = verbatim string
            size = _integer(line)
            if size == -1:
                return None
            if size < 0:
                raise ProtocolError("bulk string length out of range")
            self._bulk, self._bulk_kind = size, kind
            return self._take_bulk()
        if kind in _AGGREGATES:
            return self._start(kind, _integer(line))
        return self._scalar(kind, line)

    def _take_bulk(self) -> Reply:
        end = self._at + self._bulk
        if len(self._buffer) < end + 2:
            return NOT_READY
        if self._buffer[end : end + 2] != b"\r\n":
            raise ProtocolError("bulk string does not end where it should")
        data = bytes(self._buffer[self._at : end])
        self._at, self._bulk = end + 2, -1
        if self._bulk_kind == 0x24:
            return data
        if data[3:4] != b":":
            raise ProtocolError("verbatim string without a content type")
        return data[4:]

    def _start(self, kind: int, count: int) -> Reply | _Open:
        if count == -1:
            return None
        if not 0 <= count <= ELEMENTS_MAX:
            raise ProtocolError("number of elements out of range")
        started = _Open(kind, count * 2 if kind == 0x25 else count)
        return started if count else self._close(started)

    def _close(self, done: _Open) -> Reply:
        items = done.items
        if done.kind == 0x2A:  # *
            return items
        if done.kind == 0x3E:  # >
            return Push(items)
        if done.kind == 0x7E:  # ~
            return Elements(items) if self._exact else items
        try:
            return dict(zip(items[::2], items[1::2], strict=True))
        except TypeError:
            raise ProtocolError("a map with an array as a key") from None

    def _scalar(self, kind: int, line: bytes) -> Reply:
        if kind == 0x2B:  # +
            return Simple(line) if self._exact else line
        if kind == 0x2D:  # -
            return self._error(line.decode("utf-8", "replace"))
        if kind == 0x3A:  # :
            return _integer(line)
        if kind == 0x5F:  # _
            if line:
                raise ProtocolError("bad null")
            return None
        if kind == 0x23:  # #
            if line not in (b"t", b"f"):
                raise ProtocolError("bad boolean")
            return line == b"t"
        if kind == 0x2C:  # ,
            try:
                return float(line)
            except ValueError:
                raise ProtocolError("bad double") from None
        if kind == 0x28:  # (
            if not line.removeprefix(b"-").isdigit():
                raise ProtocolError("bad big number")
            return line
        raise ProtocolError(f"unknown type byte {bytes([kind])!r}")


def _integer(line: bytes) -> int:
    if not line.removeprefix(b"-").isdigit() or len(line) > 20:
        raise ProtocolError("bad integer")
    value = int(line)
    if not -_INT64_MAX - 1 <= value <= _INT64_MAX:
        raise ProtocolError("integer out of range")
    return value
