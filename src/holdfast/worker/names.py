"""A queue that a worker is told to take from and that nobody knows: mistyped, perhaps."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.client import values
from holdfast.client.errors import Error
from holdfast.client.queue import Queue


def strange(queue: Queue, wanted: Sequence[str], of_tasks: Sequence[str]) -> list[str]:
    """A sentence for each queue that is wanted, that no task of the app names, and that has never had a job. The first
    may still come, so the worker takes from it all the same."""
    left = [name for name in wanted if name not in of_tasks]
    if not left:
        return []
    try:
        rows, _ = queue.call("CLUSTER", "QSTAT", "*")  # type: ignore[misc]  # an array of rows, and who is silent
    except Error:
        return []  # not allowed to ask, or no node just now: the fetcher says more of that
    known = [*of_tasks, *used(rows)]
    return [missing(name, known) for name in left if name not in known]


def used(rows: Any) -> Iterator[str]:
    """Queues that have, or had, jobs: one that somebody waits on is listed, too."""
    for row in map(values.fields, rows):
        if row.get("jobs-in") or row.get("held"):
            yield values.text(row["name"])


def missing(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, 3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(sorted(known)) or 'none'}"
    return f"no task of this app names the queue {name!r}, and there is none of that name yet: {hint}"
