"""`holdfast pipeline dead`: the dead jobs of a cluster, put together by what they died of, and brought back by it.

The nodes have the dead (DEAD LIST); which of them are of one kind is said by the same signature that the lake uses.
"""
from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from holdfast.client.values import items, text, whole

from .nodes import Nodes
from .signatures import signature

PAGE: Final = 1000
RETRIED_AT_ONCE: Final = 500


@dataclass(frozen=True)
class Dead:
    """One dead job."""

    id: str
    queue: str
    cause: str
    died_ms: int
    attempts: int
    error: str


@dataclass
class Kind:
    """Dead jobs of one kind."""

    signature: str
    queue: str
    jobs: list[Dead] = field(default_factory=list)


def all_dead(nodes: Nodes, queue: str = "") -> Iterator[Dead]:
    """Every dead job of the cluster once, though several nodes may know it."""
    seen: set[str] = set()
    for target in nodes.members().values():
        cursor = "0"
        while True:
            words = ["QUEUE", queue] if queue else []
            reply = items(nodes.ask(target, "DEAD", "LIST", *words, "COUNT", PAGE, "CURSOR", cursor))
            for each in items(reply[1]):
                job_id, name, cause, died, attempts, error = items(each)[:6]
                job = Dead(text(job_id), text(name), text(cause), whole(died), whole(attempts), text(error or b""))
                if job.id not in seen:
                    seen.add(job.id)
                    yield job
            cursor = text(reply[0])
            if cursor == "0":
                break


def triage(nodes: Nodes, queue: str = "", matching: str = "") -> list[Kind]:
    """Kinds of dead jobs, the most frequent first; with `matching` those whose signature has it."""
    kinds: dict[tuple[str, str], Kind] = defaultdict(lambda: Kind("", ""))
    wanted = re.compile(matching) if matching else None
    for job in all_dead(nodes, queue):
        key = (signature(job.error or job.cause), job.queue)
        if wanted is None or wanted.search(key[0]):
            kind = kinds[key]
            kind.signature, kind.queue = key
            kind.jobs.append(job)
    return sorted(kinds.values(), key=lambda kind: (-len(kind.jobs), kind.signature, kind.queue))


def retry(nodes: Nodes, jobs: list[Dead]) -> int:
    """Bring these back to their queues; how many were."""
    target = next(iter(nodes.members().values()))
    count = 0
    for start in range(0, len(jobs), RETRIED_AT_ONCE):
        count += whole(nodes.ask(target, "DEAD", "RETRY", *[job.id for job in jobs[start:start + RETRIED_AT_ONCE]]))
    return count
