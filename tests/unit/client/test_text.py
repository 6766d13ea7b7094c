"""Lines to words and replies to text, by the rules of redis-cli."""

from __future__ import annotations

import json
import math

import pytest

from holdfast.client import errors, plain, text
from holdfast.client.resp import Reply


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("   \t ", []),
        ("ping", [b"ping"]),
        (" addjob  q\tbody 0 \r\n", [b"addjob", b"q", b"body", b"0"]),
        (r'"a b" "" ', [b"a b", b""]),
        (r'"\x00\xfF\n\r\t\b\a\"\\\q"', b"\x00\xff\n\r\t\b\a\"\\q".split(b"|")),
        (r'"\xZZ"', [b"xZZ"]),
        (r"'a\'b\n'", [rb"a'b\n"]),
        (r"a\nb", [rb"a\nb"]),
        ("größe 'ü'", ["größe".encode(), "ü".encode()]),
        ('x"y z"', [b"xy z"]),
        ("\udcff", [b"\xff"]),
    ],
)
def test_words(line: str, words: list[bytes]) -> None:
    assert text.split(line) == words


@pytest.mark.parametrize("line", ['"', "'", '"a"b', "'a'b", '"a\\"', '"abc', "'abc\\'"])
def test_quotes_that_do_not_match(line: str) -> None:
    with pytest.raises(errors.BadRequest, match="unbalanced"):
        text.split(line)


def test_what_is_quoted_reads_back() -> None:
    data = bytes(range(256))
    assert text.split(text.quote(data)) == [data]


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        (None, "(nil)"),
        (7, "(integer) 7"),
        (True, "(true)"),
        (0.5, "(double) 0.5"),
        (plain.Simple(b"OK"), "OK"),
        (b"OK\n", '"OK\\n"'),
        (errors.from_reply("ERR no"), "(error) ERR no"),
        ([], "(empty array)"),
        ({}, "(empty hash)"),
        (plain.Elements(), "(empty set)"),
        ([[b"q", b"id"], 1], '1) 1) "q"\n   2) "id"\n2) (integer) 1'),
        ({b"a": [1, 2]}, '1# "a" => 1) (integer) 1\n   2) (integer) 2'),
        (plain.Elements([1]), "1~ (integer) 1"),
        (plain.Push([1]), "1> (integer) 1"),
    ],
)
def test_for_a_terminal(reply: Reply, shown: str) -> None:
    assert text.for_terminal(reply) == shown


def test_numbers_line_up() -> None:
    lines = text.for_terminal([[0]] * 10).splitlines()
    assert lines[0] == " 1) 1) (integer) 0" and lines[9] == "10) 1) (integer) 0"


def test_raw() -> None:
    reply: Reply = [b"\xff", 1, None, True, [b"a", {b"k": 2}], errors.from_reply("ERR no"), 1.5]
    assert text.raw(reply) == b"\xff\n1\n\ntrue\na\nk\n2\nERR no\n1.5"


def test_json_loses_nothing() -> None:
    reply: Reply = [b"\xff", 1, None, True, {b"k": 1.5, 2: math.inf}, errors.from_reply("BADID x")]
    assert json.loads(text.to_json(reply)) == [
        "\udcff", 1, None, True, {"k": 1.5, "2": "inf"}, {"error": "BADID x", "code": "BADID"},
    ]
