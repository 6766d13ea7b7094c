"""The past of figures: what PAST says at one node, and what many nodes say together.

Nodes keep rows for themselves, an hour by seconds and a day by minutes. Added up here, the same in every gateway and
after each reload. Where no node has a row there is nothing (None), and a chart has a gap. A node that was started
again, or that is away, is missing in rows that others still have: `since` says from when on each node is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .resp import Reply
from .values import fields, items, text, whole

LEVELS: Final = ("len", "out", "delayed")
COUNTS: Final = ("added", "handed-out", "acked", "nacked", "dead", "expired")
OLDEST: Final = "oldest-age"
"""Of several nodes the largest counts, not the sum."""
COLUMNS: Final = (*COUNTS, *LEVELS, OLDEST)
STEPS: Final = {"second": ("SECONDS", 3600), "minute": ("MINUTES", 1440)}
"""What a row may be of: the word of PAST READ, and how many rows there are at most."""
SLACK_S: Final = 3
"""Nodes look at their clocks at different moments: the last rows, which not all nodes have yet, are left out."""


@dataclass(frozen=True, slots=True)
class Past:
    """Rows by column. None: nobody looked at that time."""

    step: int
    """Seconds of a row."""
    begin: int
    """Unix time of the first row."""
    since: int
    """Unix time from which on there are rows; 0: there are none."""
    left_out: int
    """Busy queues without rows of their own."""
    columns: Mapping[str, tuple[int | None, ...]]


@dataclass(frozen=True, slots=True)
class Sums:
    """What was counted in a queue in the last minutes."""

    name: str
    active: int
    """Unix time at which something last happened or waited in it."""
    counts: Mapping[str, int]


def read(reply: Reply) -> Past:
    """What PAST READ answers."""
    found = fields(reply)
    columns = {name: tuple(map(cell, text(found.get(name, b"")).split())) for name in COLUMNS}
    return Past(whole(found.get("step", 1)), whole(found.get("from", 0)), whole(found.get("since", 0)),
                whole(found.get("left-out", 0)), columns)


def cell(word: str) -> int | None:
    return None if word == "-" else int(word)


def read_sums(reply: Reply) -> list[Sums]:
    """What PAST SUMS answers."""
    found = []
    for each in items(reply):
        row = fields(each)
        counts = {name: whole(row.get(name, 0)) for name in COUNTS}
        found.append(Sums(text(row.get("name", b"")), whole(row.get("active", 0)), counts))
    return found


def added_up(pasts: Iterable[Past]) -> Past | None:
    """Several nodes, or several queues, as one: the times that all of them tell of. None where there is nothing."""
    many = [each for each in pasts if each.columns[COLUMNS[0]]]
    if not many:
        return None
    step = many[0].step
    begin = max(each.begin for each in many)
    end = min(each.begin + step * len(each.columns[COLUMNS[0]]) for each in many)
    columns = {}
    for name in COLUMNS:
        parts = [each.columns[name][(begin - each.begin) // step:(end - each.begin) // step] for each in many]
        columns[name] = tuple(joined(name, row) for row in zip(*parts, strict=True))
    kept = [each.since for each in many if each.since]
    return Past(step, begin, min(kept, default=0), max(each.left_out for each in many), columns)


def joined(name: str, values: tuple[int | None, ...]) -> int | None:
    known = [each for each in values if each is not None]
    if not known:
        return None
    return max(known) if name == OLDEST else sum(known)


def summed(many: Iterable[Iterable[Sums]]) -> dict[str, Sums]:
    """The sums of many nodes, by queue."""
    found: dict[str, Sums] = {}
    for sums in many:
        for each in sums:
            before = found.get(each.name)
            found[each.name] = each if before is None else Sums(
                each.name, max(each.active, before.active),
                {name: each.counts[name] + before.counts[name] for name in COUNTS})
    return found


def as_rates(past: Past) -> dict[str, Any]:
    """For charts: times of the rows, and columns; what was counted becomes so many per second."""
    count = len(past.columns[COLUMNS[0]])
    columns: dict[str, list[float | None]] = {name: list(values) for name, values in past.columns.items()}
    if past.step > 1:
        for name in COUNTS:
            columns[name] = [None if each is None else round(each / past.step, 3) for each in columns[name]]
    return {"time": [past.begin + past.step * i for i in range(count)], **columns}
