"""Replies as text: short enough to read, exact enough to compare.

    +OK  -ERR ...  :7        as they travel, without the end of the line
    "bulk"                   a bulk string; what is not printable ASCII is escaped as in C
    $-1  *-1  _              nothing: where a string stands, where an array stands, in RESP3
    [a b]  {k v}             an array, a map of RESP3

Two different replies never look the same. What does not fit a line is folded: an array over several lines,
with name and value together where it is a list of these, a text at its line ends. A long run of one
character is written `{x*10000}`, the way a transcript writes it in a command.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

WIDTH = 100
LONG_RUN = re.compile(r"(.)\1{63,}")
LINE_END = re.compile(rb"[^\n]*\n|[^\n]+")
INDENT = "  "
ESCAPES = {byte: f"\\x{byte:02x}" for byte in (*range(32), *range(127, 256))}
ESCAPES |= {ord(char): "\\" + name for char, name in {"\r": "r", "\n": "n", "\t": "t", '"': '"', "\\": "\\"}.items()}


@dataclass(frozen=True)
class Word:
    """A reply without inner structure, already as text: +OK, :7, $-1."""

    text: str


@dataclass(frozen=True)
class Bulk:
    data: bytes


@dataclass(frozen=True)
class Many:
    items: list[Reply]
    is_map: bool = False


Reply = Word | Bulk | Many
Rename = Callable[[str], str]


class Reader:
    """RESP read strictly: a byte too many or too few is an error of the node."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0

    def all(self) -> list[Reply]:
        replies = []
        while self.pos < len(self.data):
            replies.append(self.one())
        return replies

    def line(self) -> bytes:
        end = self.data.index(b"\r\n", self.pos)
        line = self.data[self.pos:end]
        assert b"\r" not in line and b"\n" not in line, f"a line end inside the line {line!r}"
        self.pos = end + 2
        return line

    def one(self) -> Reply:
        line = self.line()
        kind, rest = line[:1], line[1:]
        if kind in (b"+", b"-", b":", b"_") or rest == b"-1":
            assert kind != b":" or str(int(rest)).encode() == rest
            return Word(line.decode("latin-1"))
        if kind == b"$":
            return self.bulk(int(rest))
        if kind == b"*":
            return Many([self.one() for _ in range(int(rest))])
        if kind == b"%":
            return Many([self.one() for _ in range(2 * int(rest))], is_map=True)
        raise AssertionError(f"no RESP: {line!r}")

    def bulk(self, length: int) -> Bulk:
        data = self.data[self.pos:self.pos + length]
        self.pos += length
        assert len(data) == length and self.data[self.pos:self.pos + 2] == b"\r\n", "a bulk of a wrong length"
        self.pos += 2
        return Bulk(data)


def quoted(data: bytes) -> str:
    return f'"{data.decode("latin-1").translate(ESCAPES)}"'


def shorten(text: str) -> str:
    return LONG_RUN.sub(lambda run: f"{{{run[1]}*{len(run[0])}}}", text)


def flat(reply: Reply, rename: Rename) -> str:
    """A reply on one line."""
    if isinstance(reply, Word):
        return rename(reply.text)
    if isinstance(reply, Bulk):
        return shorten(rename(quoted(reply.data)))
    inner = " ".join(flat(item, rename) for item in reply.items)
    return f"{{{inner}}}" if reply.is_map else f"[{inner}]"


def lines(reply: Reply, rename: Rename, before: str = "") -> list[str]:
    """A reply on as many lines as it needs. `before` stands in front of the first."""
    one = before + flat(reply, rename)
    margin = " " * (len(before) - len(before.lstrip()))
    if isinstance(reply, Bulk) and len(one) > WIDTH and reply.data.count(b"\n") > 1:
        pieces = LINE_END.findall(reply.data)
        return [(before if i == 0 else margin) + rename(quoted(piece)) for i, piece in enumerate(pieces)]
    if isinstance(reply, Many) and len(one) > WIDTH:
        opening, closing = "{}" if reply.is_map else "[]"
        folded = [before + opening]
        items = reply.items
        if len(items) % 2 == 0 and all(isinstance(item, Bulk) for item in items[::2]):
            for name, value in zip(items[::2], items[1::2]):
                folded += lines(value, rename, f"{margin}{INDENT}{flat(name, rename)} ")
        else:
            for item in items:
                folded += lines(item, rename, margin + INDENT)
        return [*folded, margin + closing]
    return [one]
