r"""Commands and replies as people write and read them, by the rules of redis-cli.

A line becomes words: spaces separate, "double quotes" know \n \r \t \b \a \xHH and \", 'single quotes' know
only \', and a closing quote must be followed by a space or the end.

A reply becomes text in one of three forms: for a terminal (types shown, arrays numbered and indented), raw
(values only, one per line, for pipes), or JSON. To tell `OK` from `"OK"` the terminal form needs values from
a reader that is `exact` (see `plain`).
"""

from __future__ import annotations

import json
import re
from typing import Final, TypeAlias

from .errors import BadRequest, Error
from .plain import Elements, Simple
from .resp import PUSH, Reply, to_text

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

_UNQUOTE: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "b": b"\b", "a": b"\a"}
_QUOTE: Final = {
    0x5C: r"\\", 0x22: r"\"", 0x0A: r"\n", 0x0D: r"\r", 0x09: r"\t", 0x07: r"\a", 0x08: r"\b",
}
_UNSEEN: Final = {code: _QUOTE.get(code, f"\\x{code:02x}") for code in (*range(0x20), *range(0x7F, 0xA0))}
_HEX_BYTE: Final = re.compile("x[0-9a-fA-F]{2}")
_SPACE: Final = frozenset(" \n\r\t\v\f\0")


def split(line: str) -> list[bytes]:
    """The words of a line. `BadRequest` where quotes don't match."""
    words: list[bytes] = []
    at = 0
    while True:
        while at < len(line) and line[at] in _SPACE:
            at += 1
        if at == len(line):
            return words
        word, at = _word(line, at)
        words.append(word)


def _word(line: str, at: int) -> tuple[bytes, int]:
    word = bytearray()
    while at < len(line) and line[at] not in _SPACE:
        if line[at] == '"':
            at = _double(line, at + 1, word)
        elif line[at] == "'":
            at = _single(line, at + 1, word)
        else:
            word += _encoded(line[at])
            at += 1
    return bytes(word), at


def _double(line: str, at: int, word: bytearray) -> int:
    while at < len(line):
        char = line[at]
        if char == '"':
            return _closed(line, at + 1)
        if char == "\\" and _HEX_BYTE.match(line, at + 1):
            word.append(int(line[at + 2 : at + 4], 16))
            at += 4
        elif char == "\\" and at + 1 < len(line):
            word += _UNQUOTE.get(line[at + 1], _encoded(line[at + 1]))
            at += 2
        else:
            word += _encoded(char)
            at += 1
    raise unbalanced()


def _single(line: str, at: int, word: bytearray) -> int:
    while at < len(line):
        if line[at] == "'":
            return _closed(line, at + 1)
        if line.startswith("\\'", at):
            at += 1
        word += _encoded(line[at])
        at += 1
    raise unbalanced()


def _closed(line: str, at: int) -> int:
    if at < len(line) and line[at] not in _SPACE:
        raise unbalanced()
    return at


def _encoded(char: str) -> bytes:
    return char.encode("utf-8", "surrogateescape")


def unbalanced() -> BadRequest:
    return BadRequest("unbalanced quotes: close them, and put a space after a closing quote")


def quote(data: bytes) -> str:
    """Bytes as a quoted string that `split` reads back."""
    shown = (_QUOTE.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}") for byte in data)
    return '"' + "".join(shown) + '"'


def visible(text: str) -> str:
    """Text of others for a terminal: what it would obey (colours, the cursor, its title) is shown instead."""
    return text.translate(_UNSEEN)


def for_terminal(reply: Reply) -> str:
    """The reply with its types, as redis-cli shows it."""
    return "\n".join(_lines(reply))


def _lines(reply: Reply) -> list[str]:
    if isinstance(reply, dict):
        pairs = [_lines(value) for value in reply.values()]
        keys = [_lines(key)[0] for key in reply]
        children = [[f"{key} => {value[0]}", *value[1:]] for key, value in zip(keys, pairs, strict=True)]
        return _numbered(children, "#", "(empty hash)")
    if isinstance(reply, list):
        children = [_lines(item) for item in reply]
        if isinstance(reply, Elements):
            return _numbered(children, "~", "(empty set)")
        return _numbered(children, ">" if isinstance(reply, PUSH) else ")", "(empty array)")
    return [_scalar(reply)]


def _numbered(children: list[list[str]], mark: str, empty: str) -> list[str]:
    if not children:
        return [empty]
    width = len(str(len(children)))
    indent = " " * (width + 2)
    lines: list[str] = []
    for number, child in enumerate(children, 1):
        lines.append(f"{number:>{width}}{mark} {child[0]}")
        lines += [indent + line for line in child[1:]]
    return lines


def _scalar(reply: Reply) -> str:
    if reply is None:
        return "(nil)"
    if isinstance(reply, bool):
        return "(true)" if reply else "(false)"
    if isinstance(reply, int):
        return f"(integer) {reply}"
    if isinstance(reply, float):
        return f"(double) {reply:.17g}"
    if isinstance(reply, BaseException):
        return f"(error) {visible(str(reply))}"
    if isinstance(reply, Simple):
        return visible(to_text(reply))
    return quote(reply) if isinstance(reply, bytes) else str(reply)


def raw(reply: Reply) -> bytes:
    """The values alone, one per line, bytes as they are."""
    if isinstance(reply, dict):
        return b"\n".join(raw(key) + b"\n" + raw(value) for key, value in reply.items())
    if isinstance(reply, list):
        return b"\n".join(map(raw, reply))
    if isinstance(reply, bytes):
        return reply
    if reply is None:
        return b""
    if isinstance(reply, bool):
        return b"true" if reply else b"false"
    return str(reply).encode("utf-8", "replace")


def to_json(reply: Reply) -> str:
    """The reply as JSON. Bytes that are not UTF-8 become lone surrogates (`\\udcff`), so nothing is lost."""
    return json.dumps(_json(reply), indent=2)


def _json(reply: Reply) -> Json:
    if isinstance(reply, dict):
        return {
            to_text(key) if isinstance(key, bytes) else str(key): _json(value)
            for key, value in reply.items()
        }
    if isinstance(reply, list):
        return [_json(item) for item in reply]
    if isinstance(reply, bytes):
        return to_text(reply)
    if isinstance(reply, Error):
        return {"error": str(reply), "code": reply.code}
    if isinstance(reply, float):
        return reply if reply - reply == 0 else str(reply)  # JSON has no infinities.
    return reply if isinstance(reply, int) or reply is None else str(reply)
