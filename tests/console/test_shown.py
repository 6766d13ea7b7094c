"""How values look on a page, without a page."""
from __future__ import annotations

import json

import pytest

from holdfast.console import shown


@pytest.mark.parametrize("text", [
    '{"n": 12345678901234567890.123456789012345, "k": 1, "k": 2, "e": 1E400, "z": 1.50}', "[]", "[[], {}, [1, 2]]",
    '{"a": "x, y: [z] \\" {", "b\\\\": "\\u00e9\\n"}', " [1]", "[1", "plain", '{"a":[{"b":null},true,-0.0]}',
])
def test_a_body_is_shown_as_it_is_and_laid_out_only_as_it_is(text: str) -> None:
    """The same characters but for blanks between tokens: no number is rounded, no key lost."""
    data = text.encode()
    assert shown.body(data) == text and not shown.is_cut(data)
    lines = shown.laid_out(data)
    if lines:
        pairs = [json.loads(each, object_pairs_hook=list, parse_float=str, parse_int=str) for each in (text, lines)]
        assert pairs[0] == pairs[1]
        assert "".join(lines.split()) == "".join(text.split())


def test_json_is_laid_out_in_lines() -> None:
    assert shown.laid_out(b'{"a":[1,2],"b":{},"c":[]}') == '{\n  "a": [\n    1,\n    2\n  ],\n  "b": {},\n  "c": []\n}'
    assert shown.laid_out(b"[" * 5000 + b"]" * 5000) == ""  # too deep to be read by anybody
    assert shown.laid_out(b"[" * 500 + b"1" + b"]" * 500) == ""
    assert shown.laid_out(b"[1,2") == shown.laid_out(b"12") == shown.laid_out(b"\xff") == shown.laid_out(None) == ""


def test_a_long_body_is_cut_and_says_so() -> None:
    for data in (b"x" * 20_001, b"\xff" * 10_000):
        assert shown.is_cut(data) and len(shown.body(data)) <= shown.BODY_CHARS_SHOWN
    assert not shown.is_cut("é".encode() * 20_000)
