"""Commands as clients send them: RESP arrays of bulk strings, or plain lines typed by a person.

`Requests` takes bytes as they come, in any pieces, and gives commands; it never looks at a byte twice, so
a command of a million arguments in a thousand pieces costs what it costs in one. What breaks the protocol
is answered with Disque's texts and ends the connection. The native shell has this parser in C, with the
same limits and texts; one set of tests runs against both.
"""
from __future__ import annotations

from typing import Final

from mypy_extensions import i64

ARGS_MAX: Final = 1024 * 1024
"""Words in one command, as in Redis; the bytes they may have in all are bounded by max-command-bytes."""

LINE_BYTES_MAX: Final = 64 * 1024
"""A line typed by a person, or the digits of a length: as in Redis."""

STRANGER_ARGS_MAX: Final = 8
STRANGER_BYTES_MAX: Final = 4 * 1024
"""Before a client has said who it is: enough for HELLO 3 AUTH user password SETNAME name, not for an attack."""

BULK_BYTES_FLOOR: Final = 64 * 1024
"""No single argument is refused below this, however small max-body-bytes is set: queue names, passwords."""

BAD_LINE: Final = b"too big inline request"
BAD_BYTES: Final = b"a line has bytes in it that nobody types"
BAD_QUOTES: Final = b"unbalanced quotes in request"
BAD_COUNT_LINE: Final = b"too big mbulk count string"
BAD_COUNT: Final = b"invalid multibulk length"
BAD_LENGTH_LINE: Final = b"too big bulk count string"
BAD_LENGTH: Final = b"invalid bulk length"
BAD_STRANGER_COUNT: Final = b"unauthenticated multibulk length"
BAD_STRANGER_LENGTH: Final = b"unauthenticated bulk length"
TOO_LONG_ARGUMENT: Final = b"an argument is longer than the setting max-body-bytes allows"
TOO_LONG_COMMAND: Final = b"a command is longer than the setting max-command-bytes allows"

LINE_FAULTS: Final = {-1: BAD_LINE, -2: BAD_QUOTES, -4: BAD_BYTES}
"""What native.py's run_line says is wrong."""


class ProtocolError(Exception):
    """The client does not speak the protocol, or more of it than is allowed."""

    def __init__(self, text: bytes) -> None:
        super().__init__(text)
        self.text: bytes = text


def not_a_bulk(first: int) -> bytes:
    shown = chr(first) if 32 <= first < 127 else f"\\x{first:02x}"
    return f"expected '$', got '{shown}'".encode()


class Requests:
    """The commands in a stream of bytes."""

    def __init__(self) -> None:
        self.data: bytes = b""
        self.pos: i64 = 0  # where reading goes on
        self.pieces: list[bytes] = []  # what came after `data`
        self.have: i64 = 0  # bytes in `data` and `pieces`
        self.need: i64 = 0  # nothing can be done before there are so many
        self.left: i64 = -1  # arguments still to come; -1: between commands
        self.argv: list[bytes] = []
        self.size: i64 = 0  # bytes of the command's arguments so far
        self.bulk_bytes_max: i64 = BULK_BYTES_FLOOR
        self.command_bytes_max: i64 = 64 * 1024 * 1024

    def feed(self, more: bytes) -> None:
        self.pieces.append(more)
        self.have += len(more)

    def gather(self) -> bool:
        """Put the pieces together, if with them there is enough to go on; False if not."""
        if self.have < self.need:
            return False
        if self.pieces:
            rest = self.data[self.pos:]
            self.data = b"".join([rest, *self.pieces]) if rest or len(self.pieces) > 1 else self.pieces[0]
            self.pieces.clear()
            self.have = len(self.data)
            self.pos = 0
        self.need = 0
        return True

    def waiting(self) -> int:
        """Bytes that are here and have not been looked at."""
        return self.have - self.pos

    def held(self) -> int:
        """Bytes that are kept here: those not looked at, and the arguments of a command that is not complete."""
        return self.have - self.pos + (self.size if self.left > 0 else 0)

    def is_partial(self) -> bool:
        """A command has begun and is not all there."""
        return self.left >= 0 or self.pos < self.have

    def next(self, is_stranger: bool) -> list[bytes] | None:
        """The next command, None if it is not all there yet. Raises ProtocolError."""
        if self.pieces and not self.gather():
            return None
        while True:
            if self.left < 0 and not self.begin(is_stranger):
                return None
            if self.left > 0 and not self.read_bulks(is_stranger):
                return None
            argv = self.argv
            self.argv = []
            self.left = -1
            if argv:
                return argv

    def begin(self, is_stranger: bool) -> bool:
        """Read how many arguments come, or a whole line; False if that is not here yet."""
        data = self.data
        self.size = 0
        if self.pos >= len(data):
            return False
        if data[self.pos] != 42:
            return self.read_line(is_stranger)
        end = data.find(b"\r", self.pos, self.pos + LINE_BYTES_MAX)
        if end < 0 and len(data) - self.pos >= LINE_BYTES_MAX:
            raise ProtocolError(BAD_COUNT_LINE)
        if end < 0 or end + 1 >= len(data):
            return False
        count = number(data, self.pos + 1, end)
        if count == NOT_A_NUMBER or count > ARGS_MAX or data[end + 1] != 10:
            raise ProtocolError(BAD_COUNT)
        if is_stranger and count > STRANGER_ARGS_MAX:
            raise ProtocolError(BAD_STRANGER_COUNT)
        self.pos = end + 2
        self.left = max(0, count)
        return True

    def read_line(self, is_stranger: bool) -> bool:
        data = self.data
        most = STRANGER_BYTES_MAX if is_stranger else LINE_BYTES_MAX
        end = data.find(b"\n", self.pos, self.pos + most)
        if end < 0:
            if len(data) - self.pos >= most:
                raise ProtocolError(BAD_LINE)
            return False
        argv = split_line(data[self.pos:end])
        if argv is None:
            raise ProtocolError(BAD_QUOTES if is_typed(data[self.pos:end]) else BAD_BYTES)
        self.pos = end + 1
        self.argv = argv
        self.left = 0
        return True

    def read_bulks(self, is_stranger: bool) -> bool:
        """Read the arguments still to come; False if they are not all here yet."""
        data = self.data
        n: i64 = len(data)
        while self.left > 0:
            pos = self.pos
            if pos >= n:
                return False
            if data[pos] != 36:
                raise ProtocolError(not_a_bulk(data[pos]))
            end: i64 = data.find(b"\r", pos, pos + LINE_BYTES_MAX)
            if end < 0 and n - pos >= LINE_BYTES_MAX:
                raise ProtocolError(BAD_LENGTH_LINE)
            if end < 0 or end + 1 >= n:
                return False
            size = number(data, pos + 1, end)
            if size < 0 or data[end + 1] != 10:
                raise ProtocolError(BAD_LENGTH)
            if is_stranger and size > STRANGER_BYTES_MAX:
                raise ProtocolError(BAD_STRANGER_LENGTH)
            if size > self.bulk_bytes_max:
                raise ProtocolError(TOO_LONG_ARGUMENT)
            first = end + 2
            if self.size + size > self.command_bytes_max:
                raise ProtocolError(TOO_LONG_COMMAND)
            if n < first + size + 2:
                self.need = first + size + 2
                return False
            self.size += size
            self.argv.append(data[first:first + size])
            self.pos = first + size + 2
            self.left -= 1
        return True

    def give_back(self, argv: list[bytes]) -> None:
        """The command just given cannot be run now: the next call gives it again."""
        self.argv = argv
        self.left = 0


NOT_A_NUMBER: Final = -(1 << 60)
DIGITS_MAX: Final = 15


def number(data: bytes, i: i64, end: i64) -> i64:
    """The decimal integer data[i:end]; NOT_A_NUMBER if it is none."""
    negative = i < end and data[i] == 45
    if negative:
        i += 1
    if i >= end or end - i > DIGITS_MAX:
        return NOT_A_NUMBER
    value: i64 = 0
    while i < end:
        digit: i64 = data[i] - 48
        if digit < 0 or digit > 9:
            return NOT_A_NUMBER
        value = value * 10 + digit
        i += 1
    return -value if negative else value


ESCAPES: Final = {110: 10, 114: 13, 116: 9, 98: 8, 97: 7}  # \n \r \t \b \a
SPACES: Final = b" \t\r\n\v\f\x00"


UNTYPED: Final = frozenset([*range(1, 9), *range(14, 32), 127])


def is_typed(line: bytes) -> bool:
    """Whether somebody may have typed this line. The first bytes of a TLS handshake nobody has: it can be made to hold
    a whole command further on, by a server that a browser or another program of the victim's connects to."""
    for c in line:
        if c in UNTYPED:
            return False
    return True


def split_line(line: bytes) -> list[bytes] | None:
    """The words of a line: "double quotes" with escapes, 'single quotes' without; None if they don't match, or if
    nobody can have typed it."""
    if not is_typed(line):
        return None
    words: list[bytes] = []
    i = 0
    n = len(line)
    while True:
        while i < n and line[i] in SPACES:
            i += 1
        if i >= n:
            return words
        word = bytearray()
        while i < n and line[i] not in SPACES:
            c = line[i]
            if c == 34 or c == 39:
                i = read_quoted(line, i, word)
                if i < 0 or (i < n and line[i] not in SPACES):
                    return None
                break
            word.append(c)
            i += 1
        words.append(bytes(word))


def read_quoted(line: bytes, i: int, word: bytearray) -> int:
    """Append what the quotes at line[i] enclose to `word`; the index after them, -1 if they never close."""
    quote = line[i]
    i += 1
    n = len(line)
    while i < n:
        c = line[i]
        if c == quote:
            return i + 1
        if c == 92 and i + 1 < n and quote == 34:
            c = line[i + 1]
            if c == 120 and i + 3 < n and is_hex(line[i + 2]) and is_hex(line[i + 3]):
                word.append(int(line[i + 2:i + 4], 16))
                i += 4
                continue
            word.append(ESCAPES.get(c, c))
            i += 2
            continue
        if c == 92 and quote == 39 and i + 1 < n and line[i + 1] == 39:
            word.append(39)
            i += 2
            continue
        word.append(c)
        i += 1
    return -1


def is_hex(c: int) -> bool:
    return 48 <= c <= 57 or 65 <= c <= 70 or 97 <= c <= 102
