"""BullMQ: a hash per job, and lists and sorted sets of ids per queue.

    bull:<queue>:meta                    a queue is where this is
    bull:<queue>:wait, paused, active    lists of ids, oldest last
    bull:<queue>:prioritized             by priority * 2^32 + counter; the smaller goes first
    bull:<queue>:delayed                 by (unix milliseconds << 12) + counter
    bull:<queue>:failed                  by when
    bull:<queue>:waiting-children        parents that wait for their children
    bull:<queue>:repeat                  what makes jobs again and again, by when it does next; repeat:<id> is a hash
    bull:<queue>:<id>                    hash: name, data, opts, timestamp, atm (attempts made), failedReason, …
"""
from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from .found import DEAD, RETRYING, RUNNING, SCHEDULED, WAITING, Found, Schedule, Unreadable
from .sidekiq import by_score, named, oldest_first, parsed, text

if TYPE_CHECKING:
    from redis import Redis

LISTS: Final = {"wait": WAITING, "paused": WAITING, "active": RUNNING}
SETS: Final = {"prioritized": WAITING, "delayed": SCHEDULED, "failed": DEAD, "waiting-children": WAITING}
MARKER: Final = b"0:"
"""Older versions leave an entry that is no job, to wake workers."""


def bullmq(redis: Redis, namespace: str = "bull") -> Iterator[Found | Schedule | Unreadable]:
    """All of BullMQ's jobs that are not completed."""
    names = sorted(text(key)[len(namespace) + 1:-len(":meta")] for key in redis.scan_iter(f"{namespace}:*:meta"))
    for queue in names:
        for word, state in LISTS.items():
            key = f"{namespace}:{queue}:{word}"
            for raw in oldest_first(redis, key):
                yield from one(redis, namespace, queue, key, raw, state, 0.0)
        for word, state in SETS.items():
            key = f"{namespace}:{queue}:{word}"
            for raw, score in by_score(redis, key):
                at = int(score) / 4096 / 1000 if state == SCHEDULED else 0.0
                yield from one(redis, namespace, queue, key, raw, state, at)
        for raw, _ in by_score(redis, f"{namespace}:{queue}:repeat"):
            said: Any = redis.hgetall(f"{namespace}:{queue}:repeat:{text(raw)}")
            yield schedule_of(queue, raw, said)


def schedule_of(queue: str, raw: bytes, said: dict[bytes, bytes]) -> Schedule:
    """A job scheduler; older versions have all of it in its name, `name:id:end:zone:pattern`."""
    every = said.get(b"every")
    if every:
        when = f"every {int(every) / 1000:g} s"
    else:
        pattern = text(said.get(b"pattern") or raw.rpartition(b":")[2])
        when = f"cron {pattern}" + (f" in {text(said[b'tz'])}" if b"tz" in said else "")
    return Schedule(text(said.get(b"name") or raw.partition(b":")[0]), queue, when)


def one(
    redis: Redis, namespace: str, queue: str, key: str, raw: bytes, state: str, at: float
) -> Iterator[Found | Unreadable]:
    if raw.startswith(MARKER):
        return
    job: Any = redis.hgetall(f"{namespace}:{queue}:{text(raw)}")
    if job:
        yield parsed(raw, key, lambda: job_of(queue, key, raw, state, at, job))


def job_of(queue: str, key: str, raw: bytes, state: str, at: float, job: dict[bytes, bytes]) -> Found:
    options = json.loads(job.get(b"opts", b"{}"))
    attempts = int(job.get(b"atm") or job.get(b"attemptsMade") or 0)
    error = text(job.get(b"failedReason", b""))
    if state == SCHEDULED and attempts:
        state = RETRYING
    priority = int(options.get("priority") or 0)
    return Found(
        # Ids are numbers that each queue counts by itself.
        "bullmq", f"{queue}:{text(raw)}", queue, job[b"data"], state, at,
        # 1 is the highest of two million there; none is above all.
        None if not priority else max(0, 4 - priority // 1000), attempts, error,
        named({"name": text(job[b"name"]), "attempts": options.get("attempts"), "created-ms": text(job[b"timestamp"])}),
        (key, raw), (key.rpartition(":")[0] + f":{text(raw)}",),
    )
