"""Time zones: what a clock on the wall shows somewhere at some instant. A table to look things up in, no clock.

An instant is seconds since 1970 in UTC; a local time is the same number for what the wall shows there. Zones are those
of the system, or of the package tzdata.
"""
from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

LAST = 253_370_764_800  # the year 9999: there is no calendar beyond


def is_zone(name: str) -> bool:
    if not name or len(name) > 64 or name.startswith("/") or ".." in name:
        return False
    try:
        ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        return False
    return True


def offset(name: str, instant: int) -> int:
    """How many seconds the wall is ahead of UTC."""
    if name == "UTC":
        return 0
    shown = datetime.fromtimestamp(max(0, min(instant, LAST)), UTC).astimezone(ZoneInfo(name)).utcoffset()
    return 0 if shown is None else shown.days * 86400 + shown.seconds


def shown(name: str, instant: int) -> str:
    """As people write it, with the offset."""
    return datetime.fromtimestamp(max(0, min(instant, LAST)), UTC).astimezone(ZoneInfo(name)).isoformat()
