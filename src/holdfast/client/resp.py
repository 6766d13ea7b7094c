"""Bytes and values: the client's half of the protocol, without any I/O.

A command leaves as an array of bulk strings. A reply comes back in pieces of any size; a `Reader`
is fed the pieces and gives whole replies, in order, RESP2 and RESP3 alike.

Where hiredis is installed its reader does the work, in C; `plain.PlainReader` is its twin in plain
Python and gives the same values, so that nothing here needs a compiler. The tests run both on the
same streams, cut at every possible place.

    what comes                      what it becomes
    simple, bulk, verbatim, bignum  bytes
    error                           an exception of the tree in `errors`, as a value: not raised here
    integer / double / boolean      int / float / bool
    null, null bulk, null array     None
    array, set                      list
    map                             dict
    push                            a list of one of the types in PUSH: a message nobody asked for
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Final, Protocol, TypeAlias

from . import errors, plain

_hiredis: ModuleType | None
try:
    import hiredis as _hiredis
except ImportError:  # The plain twin does the same, slower.
    _hiredis = None

Arg: TypeAlias = "bytes | str | int"
Argv: TypeAlias = "Sequence[Arg]"
Reply: TypeAlias = plain.Reply
ProtocolError = plain.ProtocolError
NOT_READY: Final = plain.NOT_READY
"""What a reader answers when the reply is not complete yet."""

PUSH: Final[tuple[type[list[Reply]], ...]] = (
    (plain.Push,) if _hiredis is None else (plain.Push, _hiredis.PushNotification)
)
"""The types of a message nobody asked for."""


class Reader(Protocol):
    """Feed it bytes; it gives replies, or NOT_READY. Bytes that are no RESP raise ProtocolError."""

    def feed(self, data: bytes, /) -> None: ...

    def gets(self) -> Reply: ...


def new_reader() -> Reader:
    """The fastest reader there is here."""
    if _hiredis is None:
        return plain.PlainReader(error=errors.from_reply)
    reader: Reader = _hiredis.Reader(
        protocolError=ProtocolError, replyError=errors.from_reply, notEnoughData=NOT_READY
    )
    return reader


def to_bytes(arg: Arg) -> bytes:
    """One argument as the node sees it. Names that are not UTF-8 survive the way there and back."""
    if isinstance(arg, bytes):
        return arg
    if isinstance(arg, str):
        return arg.encode("utf-8", "surrogateescape")
    return b"%d" % arg


def to_text(data: bytes) -> str:
    """The inverse of `to_bytes` for names and ids."""
    return data.decode("utf-8", "surrogateescape")


def encode(argv: Argv) -> bytes:
    """One command, ready to be sent."""
    if _hiredis is not None:
        try:
            packed: bytes = _hiredis.pack_command(tuple(argv))
            return packed
        except (UnicodeEncodeError, TypeError):
            pass  # A name that is not UTF-8, a huge number: the slow way knows how.
    return encode_plain(argv)


def encode_plain(argv: Argv) -> bytes:
    """The twin of `hiredis.pack_command`."""
    parts = [b"*%d\r\n" % len(argv)]
    for arg in argv:
        data = to_bytes(arg)
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)
