"""How values look on a page: bytes, times, numbers. Escaping is the templates' business, always on."""
from __future__ import annotations

import contextlib
import json
import time
from typing import Any

from jinja2 import UndefinedError

UNREADABLE = (TypeError, ValueError, UndefinedError)
"""What is not there, or no number: shown as a dash, not as a broken page."""
BODY_CHARS_SHOWN = 20_000
"""Of one body on a page; the rest can be fetched as it is."""


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
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(unix_ms) / 1000))
    except (*UNREADABLE, OverflowError, OSError):
        return "–"


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
    """A job's body as text: JSON is laid out, what is no text is shown as hex."""
    if data is None:
        return ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return " ".join(f"{byte:02x}" for byte in data[: BODY_CHARS_SHOWN // 3])
    if text[:1] in ("{", "["):
        with contextlib.suppress(ValueError):
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return text[:BODY_CHARS_SHOWN]


def line(text: Any) -> str:
    """Some text in one line."""
    return " ".join(str(text or "").split())


def jobs(count: Any) -> str:
    """1 job, 2 jobs"""
    return f"{number(count)} {'job' if count == 1 else 'jobs'}"


def called(name: Any) -> str:
    """A queue's name; the empty one is a name, too, but nothing to click on."""
    return str(name) or "(empty)"


FILTERS = {"called": called, "line": line, "jobs": jobs,
           "number": number, "span": span, "ago": ago, "moment": moment, "size": size, "body": body}
