"""How values look on a page: bytes, times, numbers. Escaping is the templates' business, always on."""
from __future__ import annotations

import datetime
import json
import re
import time
from typing import Any
from urllib.parse import quote

from jinja2 import UndefinedError
from markupsafe import Markup

from holdfast.console import names

UNREADABLE = (TypeError, ValueError, UndefinedError)
"""What is not there, or no number: shown as a dash, not as a broken page."""
BODY_CHARS_SHOWN = 20_000
"""Of one body on a page; the rest can be fetched as it is."""
LAID_OUT_MAX = 10 * BODY_CHARS_SHOWN
"""Characters of one that is laid out: what is deep is mostly blanks."""
JSON_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s"\[\]{},:]+')
"""Texts whole, marks, and the rest; blanks between them are left out."""


def number(value: Any) -> str:
    """12,345"""
    try:
        return f"{int(value):,}"
    except UNREADABLE:
        return "–"


def span(seconds: Any) -> str:
    """A length of time in one or two units."""
    try:
        left = float(seconds)
    except UNREADABLE:
        return "–"
    if left < 0:
        return "0 s"
    if left < 10:
        return f"{left:.1f} s".replace(".0 s", " s")
    for unit, size, smaller, small in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if left >= size:
            rest = int(left % size // small)
            return f"{int(left // size)} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{int(left)} s"


def ago(unix_ms: Any) -> str:
    try:
        return span(time.time() - float(unix_ms) / 1000) + " ago"
    except UNREADABLE:
        return "–"


def moment(unix_ms: Any) -> str:
    """A point in time, with its zone: UTC here, since a gateway does not know where it is looked at; console.js makes
    it the local time of who looks."""
    try:
        when = time.gmtime(float(unix_ms) / 1000)
        day, clock = time.strftime("%Y-%m-%d", when), time.strftime("%H:%M:%S", when)
    except (*UNREADABLE, OverflowError, OSError):
        return "–"
    return Markup('<time datetime="{0}T{1}Z">{0} {1} UTC</time>').format(day, clock)


def unix_ms(text: str) -> int:
    """What a field for a date and a time says, in UTC; 0 where it says nothing that can be read."""
    try:
        return int(datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0


def size(value: Any) -> str:
    try:
        left = float(value)
    except UNREADABLE:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if left < 1024 or unit == "GiB":
            return f"{left:.0f} {unit}" if unit == "B" or left >= 100 else f"{left:.1f} {unit}"
        left /= 1024
    return "–"


def body(data: bytes | None) -> str:
    """A job's body as it is; what is no text is shown as hex."""
    if data is None:
        return ""
    try:
        return data.decode()[:BODY_CHARS_SHOWN]
    except UnicodeDecodeError:
        return " ".join(f"{byte:02x}" for byte in data[: BODY_CHARS_SHOWN // 3])


def is_cut(data: bytes | None) -> bool:
    """Whether there is more of a body than `body` shows."""
    try:
        return data is not None and len(data.decode()) > BODY_CHARS_SHOWN
    except UnicodeDecodeError:
        return len(data or b"") > BODY_CHARS_SHOWN // 3


def laid_out(data: bytes | None) -> str:
    """JSON in lines and indented; nothing where that shows no more than the body itself. What is between the lines is
    the text as it stands: read as values and printed again, numbers lose digits and a key that is there twice is
    there once."""
    text = "" if is_cut(data) else body(data)
    if text[:1] not in ("{", "["):
        return ""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return ""
    lines, depth = [""], 0
    for token in JSON_TOKENS.findall(text):
        if token in ("}", "]"):
            depth -= 1
            if lines[-1].strip():  # not of an empty one
                lines.append("  " * depth)
            else:
                lines.pop()
        lines[-1] += {":": ": "}.get(token, token)
        if token in ("{", "["):
            depth += 1
        if token in ("{", "[", ","):
            lines.append("  " * depth)
    return "\n".join(lines) if len(lines) > 1 and sum(map(len, lines)) < LAID_OUT_MAX else ""


def line(text: Any) -> str:
    """Some text in one line."""
    return " ".join(str(text or "").split())


def commands(text: str) -> Markup:
    """A sentence in which what is to be typed stands between backticks."""
    parts = [Markup("<code>{}</code>" if at % 2 else "{}").format(part) for at, part in enumerate(text.split("`"))]
    return Markup("").join(parts)


def jobs(count: Any) -> str:
    """1 job, 2 jobs"""
    return f"{number(count)} {'job' if count == 1 else 'jobs'}"


def link(name: Any) -> str:
    """A name in an address."""
    return quote(names.coded(name), safe="")


def shown_coded(text: str) -> Markup:
    """A name that came with an address."""
    return names.shown(names.decoded(text))


def sendable(value: Any) -> Any:
    """Whatever a page says: text with bytes in it that are none is shown with backslashes."""
    if isinstance(value, str) and not value.isascii():
        return type(value)(value.encode("utf-8", "backslashreplace").decode())
    return value


FILTERS = {"called": names.called, "shown": names.shown, "coded": names.coded, "link": link,
           "shown_coded": shown_coded, "line": line, "jobs": jobs, "commands": commands,
           "number": number, "span": span, "ago": ago, "moment": moment, "size": size, "body": body,
           "is_cut": is_cut, "laid_out": laid_out}
