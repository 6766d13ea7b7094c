"""Replies in RESP, appended to the machine's output. RESP2 unless the session asked for 3 by HELLO.

The two differ here only in how "nothing" is said and in maps; everything else is the same bytes.
"""
from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core.session import Session

NOT_SAID: Final = -1
"""In place of a number of copies: the producer has not asked."""

SMALL: Final = [b"%d\r\n" % i for i in range(1024)]


def write_number(out: BytesWriter, v: i64) -> None:
    """Digits and the end of the line, after a type byte or a dollar sign."""
    if 0 <= v < 1024:
        out.write(SMALL[v])
    else:
        out.write(b"%d\r\n" % v)


def write_int(out: BytesWriter, v: i64) -> None:
    out.append(58)
    write_number(out, v)


def write_array(out: BytesWriter, length: i64) -> None:
    out.append(42)
    write_number(out, length)


def write_bulk(out: BytesWriter, value: bytes) -> None:
    out.append(36)
    write_number(out, len(value))
    out.write(value)
    out.write(b"\r\n")


def write_simple(out: BytesWriter, value: bytes) -> None:
    out.append(43)
    out.write(value)
    out.write(b"\r\n")


def write_error(out: BytesWriter, text: bytes) -> None:
    out.append(45)
    out.write(text)
    out.write(b"\r\n")


def write_null(out: BytesWriter, session: Session) -> None:
    """No value, where a string would stand."""
    out.write(b"_\r\n" if session.is_resp3 else b"$-1\r\n")


def write_null_array(out: BytesWriter, session: Session) -> None:
    """No value, where an array would stand."""
    out.write(b"_\r\n" if session.is_resp3 else b"*-1\r\n")


def write_map(out: BytesWriter, session: Session, pairs: i64) -> None:
    """Begin a map; its keys and values follow in turn."""
    if session.is_resp3:
        out.append(37)
        write_number(out, pairs)
    else:
        write_array(out, pairs * 2)


def write_bulks(out: BytesWriter, values: list[bytes]) -> None:
    write_array(out, len(values))
    for value in values:
        write_bulk(out, value)


def added_text(jid: bytes, says: bytes, copies: i64) -> bytes:
    """The reply to ADDJOB: the id as a simple string; with SAYDUP also what became of the unique key, with SAYCOPIES
    how many copies there are."""
    if not says and copies == NOT_SAID:
        return b"+%b\r\n" % jid
    text = b"$48\r\n%b\r\n" % jid
    if says:
        text += b"$%d\r\n%b\r\n" % (len(says), says)
    if copies == NOT_SAID:
        return b"*2\r\n" + text
    return b"*%d\r\n%b:%d\r\n" % (3 if says else 2, text, copies)


def many_text(ids: list[bytes], copies: i64) -> bytes:
    """The reply to ADDJOBS: the ids; with SAYCOPIES also how many copies each of the jobs has at least."""
    text = b"*%d\r\n" % len(ids) + b"".join([b"+%b\r\n" % jid for jid in ids])
    return text if copies == NOT_SAID else b"*2\r\n%b:%d\r\n" % (text, copies)
