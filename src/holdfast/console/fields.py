"""The settings of a queue as a form asks for them: what may be typed, in which unit, up to what.

Names, words and limits are those of core/settings.py, which has the last word: here they only keep a slip of the finger
from a round trip.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.core import settings
from holdfast.core.limits import DURATION_S_MAX
from holdfast.core.queue import PAUSE_NAMES

RATE: Final = r"none|0|[0-9]{1,7}/[smhd]"
BACKOFF: Final = r"none|[0-9]+(\.[0-9]+)?(:[0-9]+(\.[0-9]+)?)?"
UNITS: Final = {
    "maxlen": "jobs", "totalmaxlen": "jobs", "burst": "jobs", "concurrency": "jobs", "attempts": "attempts",
    "retention": "s", "ttl": "s",
}
HINTS: Final = {
    "maxlen": "at one node; 0: no bound", "totalmaxlen": "at all nodes; 0: no bound",
    "paused": "in: it takes no jobs; out: it gives none to workers", "rate": "hand-outs, as in 10/s, 30/m, 5/h; none",
    "burst": "handed out at once after a pause", "concurrency": "with workers at a time; 0: no bound",
    "attempts": "then a job is dead; 0: as it says itself", "backoff": "seconds, or first:most, as in 2:600; none",
    "retention": "dead jobs are kept so long; 0: as the node says",
    "ttl": "jobs live so long that do not say it; 0: a day",
    "onexpire": "whose time is over goes to the dead, or is dropped",
    "journal": "own: files of its own at each node", "fsync": "when its jobs must be on the disk",
}


@dataclass(frozen=True)
class Field:
    """How one setting is asked for."""

    name: str
    hint: str
    unit: str = ""
    most: int | None = None
    """Of a number; None: it is none."""
    words: tuple[str, ...] = ()
    """Of which it is one."""
    pattern: str = ""
    """Of a text."""


def field(name: str) -> Field:
    key = name.encode()
    hint, unit = HINTS.get(name, ""), UNITS.get(name, "")
    if key == b"paused":
        return Field(name, hint, words=tuple(map(bytes.decode, PAUSE_NAMES)))
    if key in settings.CHOICES:
        return Field(name, hint, words=tuple(map(bytes.decode, settings.CHOICES[key])))
    if key in settings.NUMBERS:
        return Field(name, hint, unit, int(settings.MOST.get(key, DURATION_S_MAX)))
    return Field(name, hint, pattern={"rate": RATE, "backoff": BACKOFF}.get(name, ""))
