"""Commands out of bytes: every parser reads the same out of the same stream, however it is cut.

Golden conversations, every error text of the protocol, and the limits. What a connection does with its
commands (wait, throttle, go on) is in test_sockets.py; random streams are in test_random_streams.py.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from twins import MIB, READERS, USUAL, Bounds, Read, array, cut, halves

KIB = 1024
STRANGER = Bounds(is_stranger=True)
# A command longer than this is refused; arguments may have 64 KiB whatever the setting says.
SMALL = Bounds(body_bytes=1, command_bytes=100 * KIB)
PING = array(b"PING")


@dataclass(frozen=True)
class Talk:
    sent: bytes
    commands: list[list[bytes]]
    error: bytes | None = None
    bounds: Bounds = USUAL


EVERY_BYTE = bytes(range(256))
MANY = [b"DEL", *[b"%d" % i for i in range(10_000)]]

TALKS = {
    "one word": Talk(PING, [[b"PING"]]),
    "direct commands": Talk(
        array(b"ADDJOB", b"q", b"body", b"0") + array(b"GETJOB", b"FROM", b"q")
        + array(b"GETJOB", b"NOHANG", b"FROM", b"q") + array(b"ACKJOB", b"id"),
        [[b"ADDJOB", b"q", b"body", b"0"], [b"GETJOB", b"FROM", b"q"], [b"GETJOB", b"NOHANG", b"FROM", b"q"],
         [b"ACKJOB", b"id"]],
    ),
    "direct names, other word counts": Talk(
        array(b"ADDJOB") + array(b"ACKJOB", b"a", b"b") + array(b"GETJOB", b"x") + array(b"ADDJOB", b"q", b"b")
        + array(b"GETJOB", b"COUNT", b"2", b"FROM", b"q"),
        [[b"ADDJOB"], [b"ACKJOB", b"a", b"b"], [b"GETJOB", b"x"], [b"ADDJOB", b"q", b"b"],
         [b"GETJOB", b"COUNT", b"2", b"FROM", b"q"]],
    ),
    "one, two, … eight words": Talk(
        b"".join(array(*[b"w%d" % i for i in range(n)]) for n in range(1, 9)),
        [[b"w%d" % i for i in range(n)] for n in range(1, 9)],
    ),
    "empty arguments": Talk(array(b"", b"", b"") + array(b"x", b""), [[b"", b"", b""], [b"x", b""]]),
    "binary body": Talk(array(b"ADDJOB", b"q", EVERY_BYTE, b"0"), [[b"ADDJOB", b"q", EVERY_BYTE, b"0"]]),
    "a body that looks like commands": Talk(
        array(b"ADDJOB", b"q", PING + b"\r\nPING\r\n*", b"0") + PING,
        [[b"ADDJOB", b"q", PING + b"\r\nPING\r\n*", b"0"], [b"PING"]],
    ),
    "bytes after a body are not looked at": Talk(b"*1\r\n$4\r\nPINGxy" + PING, [[b"PING"], [b"PING"]]),
    "leading zeros": Talk(b"*0002\r\n$004\r\nPING\r\n$01\r\nx\r\n", [[b"PING", b"x"]]),
    "no words at all": Talk(b"*0\r\n*-1\r\n*-0\r\n*-999999999999999\r\n" + PING, [[b"PING"]]),
    "only empty lines": Talk(b"\r\n\n \r\n\t \n", []),
    "a line": Talk(b"PING\r\nping\n", [[b"PING"], [b"ping"]]),
    "a line with blanks": Talk(b"  ADDJOB \t q   body  0 \r\n", [[b"ADDJOB", b"q", b"body", b"0"]]),
    "double quotes": Talk(
        rb'ADDJOB q "a b\n\r\t\b\a\\\"\x00\xFf\q\x1" 0' + b"\r\n",
        [[b"ADDJOB", b"q", b'a b\n\r\t\b\a\\"\x00\xffqx1', b"0"]],
    ),
    "single quotes": Talk(rb"ECHO 'it\'s \n \x00' ''" + b"\r\n", [[b"ECHO", rb"it's \n \x00", b""]]),
    "a quote inside a word": Talk(b'ab"cd ef" x\r\n', [[b"abcd ef", b"x"]]),
    "empty quotes": Talk(b'"" \'\'\r\n', [[b"", b""]]),
    "lines and arrays in turn": Talk(
        b"PING a\r\n" + PING + b"\r\n*0\r\nPING b\n" + array(b"ECHO", b"\r\n"),
        [[b"PING", b"a"], [b"PING"], [b"PING", b"b"], [b"ECHO", b"\r\n"]],
    ),
    "a line that begins like a body": Talk(b"$4\r\nPING\r\n", [[b"$4"], [b"PING"]]),
    "a pipeline": Talk(
        b"".join(array(b"ADDJOB", b"q", b"%d" % i, b"0") + array(b"ACKJOB", b"%d" % i) for i in range(20)),
        [words for i in range(20) for words in ([b"ADDJOB", b"q", b"%d" % i, b"0"], [b"ACKJOB", b"%d" % i])],
    ),
    "the longest line": Talk(
        b"x" * (64 * KIB - 1) + b"\n" + PING, [[b"x" * (64 * KIB - 1)], [b"PING"]]
    ),
    "a body of a mebibyte": Talk(
        array(b"ADDJOB", b"q", EVERY_BYTE * 4 * KIB, b"0") + PING,
        [[b"ADDJOB", b"q", EVERY_BYTE * 4 * KIB, b"0"], [b"PING"]],
    ),
    "ten thousand arguments": Talk(array(*MANY) + PING, [MANY, [b"PING"]]),
    "a stranger who says who it is": Talk(
        array(b"AUTH", b"secret") + array(*[b"w"] * 9) + array(b"x" * 5000) + b"y" * 5000 + b"\r\n",
        [[b"AUTH", b"secret"], [b"w"] * 9, [b"x" * 5000], [b"y" * 5000]], bounds=STRANGER,
    ),
    "as much as a stranger may": Talk(
        array(*[b"x" * 4096] * 8) + b"y" * 4095 + b"\n", [[b"x" * 4096] * 8, [b"y" * 4095]], bounds=STRANGER,
    ),
    "as much as settings allow": Talk(
        array(b"x" * 64 * KIB, b"y" * 36 * KIB) + PING, [[b"x" * 64 * KIB, b"y" * 36 * KIB], [b"PING"]],
        bounds=SMALL,
    ),
    "framing does not count": Talk(
        array(*[b"x"] * 16_000) + PING, [[b"x"] * 16_000, [b"PING"]], bounds=SMALL,
    ),
}


def broken(sent: bytes, error: bytes, bounds: Bounds = USUAL) -> Talk:
    """Something before it is run, something after it is not."""
    return Talk(array(b"before") + sent + array(b"after") * 3 + b"after\r\n", [[b"before"]], error, bounds)


def endless(sent: bytes, error: bytes, bounds: Bounds = USUAL) -> Talk:
    """Too much before there is an end of it; what follows must not matter."""
    return Talk(array(b"before") + sent, [[b"before"]], error, bounds)


ERRORS = {
    # Disque's, to the letter.
    "inline: too big": endless(b"x" * 64 * KIB, b"too big inline request"),
    "inline: too big with its end": broken(b"x" * 64 * KIB + b"\r\n", b"too big inline request"),
    "inline: double quotes": broken(b'PING "abc\r\n', b"unbalanced quotes in request"),
    "inline: single quotes": broken(b"PING 'abc\r\n", b"unbalanced quotes in request"),
    "inline: text after quotes": broken(b'PING "abc"d\r\n', b"unbalanced quotes in request"),
    "inline: an escape at the end": broken(b'PING "abc\\\r\n', b"unbalanced quotes in request"),
    "count: endless": endless(b"*" + b"1" * 64 * KIB, b"too big mbulk count string"),
    "count: endless letters": endless(b"*" + b"z" * 64 * KIB, b"too big mbulk count string"),
    "count: one too many": broken(b"*1048577\r\n", b"invalid multibulk length"),
    "count: huge": broken(b"*999999999999999999999999\r\n", b"invalid multibulk length"),
    "count: huge and negative": broken(b"*-9999999999999999\r\n", b"invalid multibulk length"),
    "count: letters": broken(b"*abc\r\n", b"invalid multibulk length"),
    "count: mixed": broken(b"*1a\r\n", b"invalid multibulk length"),
    "count: nothing": broken(b"*\r\n", b"invalid multibulk length"),
    "count: a sign only": broken(b"*-\r\n", b"invalid multibulk length"),
    "count: a plus": broken(b"*+1\r\n", b"invalid multibulk length"),
    "count: blanks": broken(b"* 1\r\n", b"invalid multibulk length"),
    "count: no line feed": broken(b"*1\rx", b"invalid multibulk length"),
    "bulk: a letter": broken(b"*1\r\nPING\r\n", b"expected '$', got 'P'"),
    "bulk: nested array": broken(b"*1\r\n*1\r\n$4\r\nPING\r\n", b"expected '$', got '*'"),
    "bulk: unprintable": broken(b"*1\r\n\r\n", b"expected '$', got '\\x0d'"),
    "bulk: beyond ASCII": broken(b"*1\r\n\xff", b"expected '$', got '\\xff'"),
    "bulk: second one": broken(b"*2\r\n$1\r\nx\r\n:1\r\n", b"expected '$', got ':'"),
    "length: endless": endless(b"*1\r\n$" + b"1" * 64 * KIB, b"too big bulk count string"),
    "length: endless letters": endless(b"*2\r\n$1\r\nx\r\n$" + b"z" * 64 * KIB, b"too big bulk count string"),
    "length: negative": broken(b"*1\r\n$-1\r\n", b"invalid bulk length"),
    "length: letters": broken(b"*1\r\n$abc\r\n", b"invalid bulk length"),
    "length: nothing": broken(b"*1\r\n$\r\n", b"invalid bulk length"),
    "length: huge": broken(b"*1\r\n$999999999999999999999999\r\n", b"invalid bulk length"),
    "length: no line feed": broken(b"*1\r\n$4\rx", b"invalid bulk length"),
    "length: third one": broken(b"*3\r\n$1\r\nx\r\n$0\r\n\r\n$-5\r\n", b"invalid bulk length"),
    # Ours.
    "stranger: nine words": broken(b"*9\r\n", b"unauthenticated multibulk length", STRANGER),
    "stranger: long word": broken(b"*1\r\n$4097\r\n", b"unauthenticated bulk length", STRANGER),
    "stranger: long line": endless(b"x" * 4096, b"too big inline request", STRANGER),
    "stranger: the count is wrong, too": broken(b"*1048577\r\n", b"invalid multibulk length", STRANGER),
    "argument: too long": broken(
        b"*2\r\n$1\r\nx\r\n$1048577\r\n", b"an argument is longer than the setting max-body-bytes allows"
    ),
    "argument: very much too long": broken(
        b"*1\r\n$999999999999999\r\n", b"an argument is longer than the setting max-body-bytes allows"
    ),
    "argument: too long at the least setting": broken(
        b"*1\r\n$65537\r\n", b"an argument is longer than the setting max-body-bytes allows", SMALL
    ),
    "command: two long arguments": broken(
        b"*2\r\n$60000\r\n" + b"x" * 60_000 + b"\r\n$60000\r\n",
        b"a command is longer than the setting max-command-bytes allows", SMALL,
    ),
    "command: many short arguments": broken(
        array(*[b"x" * 64] * 1601), b"a command is longer than the setting max-command-bytes allows", SMALL
    ),
}

EVERYTHING = {**TALKS, **ERRORS}


def expect(talk: Talk, reader: str, pieces: list[bytes]) -> None:
    read = READERS[reader](pieces, talk.bounds)
    if read != Read(talk.commands, talk.error):
        assert read.error == talk.error, [len(piece) for piece in pieces]
        assert shortened(read.commands) == shortened(talk.commands), [len(piece) for piece in pieces]
        assert read.commands == talk.commands


def shortened(commands: list[list[bytes]]) -> list[list[bytes]]:
    """Enough to see what is wrong, without a megabyte of it on the screen."""
    return [[word[:30] for word in argv[:10]] for argv in commands[:50]]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", EVERYTHING)
def test_in_one_piece(name: str, reader: str) -> None:
    talk = EVERYTHING[name]
    expect(talk, reader, [talk.sent])


SPLITS_MOST = 600


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", EVERYTHING)
def test_in_two_pieces_cut_anywhere(name: str, reader: str) -> None:
    talk = EVERYTHING[name]
    size = len(talk.sent)
    places = list(range(1, size))
    if size > SPLITS_MOST:
        near = [*range(1, 30), *range(size - 20, size), *[size * i // 8 for i in range(1, 8)]]
        places = sorted(set(near))
    for place in places:
        expect(talk, reader, halves(talk.sent, place))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", [name for name in EVERYTHING if len(EVERYTHING[name].sent) < 10_000])
def test_byte_by_byte(name: str, reader: str) -> None:
    talk = EVERYTHING[name]
    expect(talk, reader, [talk.sent[i:i + 1] for i in range(len(talk.sent))])


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", EVERYTHING)
def test_in_random_pieces(name: str, reader: str) -> None:
    talk = EVERYTHING[name]
    choose = random.Random(name)
    for _ in range(4):
        count = choose.choice([3, 7, 50])
        expect(talk, reader, cut(talk.sent, [choose.randrange(len(talk.sent)) for _ in range(count)]))


@pytest.mark.parametrize("reader", READERS)
def test_all_conversations_one_after_the_other(reader: str) -> None:
    """No state of one command reaches the next."""
    talks = [talk for talk in TALKS.values() if talk.bounds == USUAL and len(talk.sent) < 10_000]
    talk = Talk(b"".join(each.sent for each in talks), [argv for each in talks for argv in each.commands])
    expect(talk, reader, [talk.sent])
    for place in range(1, len(talk.sent), 3):
        expect(talk, reader, halves(talk.sent, place))


@pytest.mark.parametrize("reader", READERS)
def test_a_large_command_in_many_pieces_costs_what_it_costs_in_one(reader: str) -> None:
    """A thousand pieces: were each of them a new look at everything before it, this would take minutes."""
    command = array(*[b"x" * 100] * 40_000)
    assert len(command) > 4 * MIB
    pieces = cut(command, range(0, len(command), 4096))
    read = READERS[reader](pieces, USUAL)
    assert len(read.commands) == 1 and len(read.commands[0]) == 40_000 and read.error is None
