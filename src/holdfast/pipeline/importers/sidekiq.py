"""Sidekiq (and Resque, which it took its queues from): JSON in lists, and sorted sets by time.

    queues              set of names
    queue:<name>        list, newest first: LPUSH and RPOP
    schedule retry dead sorted sets of jobs by the time they are due, or died
    processes           set of processes; <process>:work is a hash of what each of its threads runs

A job is {"class", "args", "jid", "queue", "retry", "created_at", "enqueued_at", "retry_count", "error_class", …}. Times
are seconds as floats, or milliseconds as whole numbers since Sidekiq 8.
"""
from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from .found import DEAD, RETRYING, RUNNING, SCHEDULED, Found, Unreadable

if TYPE_CHECKING:
    from redis import Redis

PAGE: Final = 1000
WORK: Final = ("work", "workers")
"""How the hash is called now, and was before Sidekiq 7."""
SETS: Final = {"schedule": SCHEDULED, "retry": RETRYING, "dead": DEAD}


def sidekiq(redis: Redis, namespace: str = "") -> Iterator[Found | Unreadable]:
    """All of Sidekiq's jobs, those that a process of it is running, too: they are in no other place there."""
    before = f"{namespace}:" if namespace else ""
    for name in sorted(text(each) for each in redis.smembers(f"{before}queues")):
        key = f"{before}queue:{name}"
        for raw in oldest_first(redis, key):
            yield parsed(raw, key, lambda raw=raw, name=name, key=key: job_of(raw, name, key))
    for word, state in SETS.items():
        key = f"{before}{word}"
        for raw, score in by_score(redis, key):
            at = 0.0 if state == DEAD else score
            yield parsed(raw, key, lambda raw=raw, key=key, state=state, at=at: job_of(raw, "", key, state, at))
    for process in sorted(text(each) for each in redis.smembers(f"{before}processes")):
        for word in WORK:
            key = f"{before}{process}:{word}"
            for _, raw in redis.hscan_iter(key):
                yield parsed(raw, key, lambda raw=raw, key=key: running_of(raw, key))


def resque(redis: Redis, namespace: str = "resque") -> Iterator[Found | Unreadable]:
    """Resque's queues, its failed jobs, and those of resque-scheduler (delayed:<unix time>)."""
    for name in sorted(text(each) for each in redis.smembers(f"{namespace}:queues")):
        key = f"{namespace}:queue:{name}"
        for number, raw in enumerate(lrange_all(redis, key)):
            yield parsed(raw, key, lambda raw=raw, name=name, key=key, number=number: resque_job(
                raw, name, key, number))
    for number, raw in enumerate(lrange_all(redis, f"{namespace}:failed")):
        key = f"{namespace}:failed"
        yield parsed(raw, key, lambda raw=raw, key=key, number=number: resque_failed(raw, key, number))
    for stamp, score in by_score(redis, f"{namespace}:delayed_queue_schedule"):
        key = f"{namespace}:delayed:{text(stamp)}"
        for number, raw in enumerate(lrange_all(redis, key)):
            yield parsed(raw, key, lambda raw=raw, key=key, number=number, at=score: resque_job(
                raw, "", key, number, SCHEDULED, at))


def job_of(raw: bytes, queue: str, key: str, state: str = "waiting", at: float = 0.0) -> Found:
    job = json.loads(raw)
    error = f"{job['error_class']}: {job.get('error_message', '')}" if job.get("error_class") else ""
    return Found(
        "sidekiq", str(job["jid"]), str(queue or job["queue"]), raw, state, at, None,
        int(job.get("retry_count") or 0) + (1 if error else 0), error,
        named({"class": job["class"], "created-at": job.get("created_at"), "bid": job.get("bid"),
               "tags": job.get("tags")}),
        (key, raw),
    )


def running_of(raw: bytes, key: str) -> Found:
    """What a thread runs: its process has it in memory, so there is nothing to take out."""
    held = json.loads(raw)
    job = held["payload"]
    payload = job if isinstance(job, str) else json.dumps(job)
    return replace(job_of(payload.encode(), str(held["queue"]), key, RUNNING), place=None)


def resque_job(raw: bytes, queue: str, key: str, number: int, state: str = "waiting", at: float = 0.0) -> Found:
    """Resque's jobs have no ids: one is what it is and which of its equals."""
    job = json.loads(raw)
    digest = hashlib.sha256(b"%b %d %b" % (key.encode(), number, raw)).hexdigest()[:24]
    return Found("resque", digest, str(queue or job["queue"]), raw, state, at, None, 0, "",
                 named({"class": job["class"]}), (key, raw))


def resque_failed(raw: bytes, key: str, number: int) -> Found:
    failed = json.loads(raw)
    body = json.dumps(failed["payload"]).encode()
    found = resque_job(body, str(failed["queue"]), key, number, DEAD)
    return Found(
        "resque", found.id, found.queue, body, DEAD, 0.0, None, 1, f"{failed.get('exception')}: {failed.get('error')}",
        {**found.headers, **named({"failed-at": failed.get("failed_at"), "worker": failed.get("worker")})}, (key, raw),
    )


# -- reading Redis ----------------------------------------------------------------------------------------


def parsed(raw: bytes, key: str, read: Any) -> Found | Unreadable:
    """The job, or that it cannot be read."""
    try:
        found: Found = read()
        return found
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Unreadable(f"{key}: {type(error).__name__} {error} in {raw[:80]!r}")


def oldest_first(redis: Redis, key: str) -> Iterator[bytes]:
    """A list that is pushed at its head and popped at its end, in the order in which it would be popped."""
    at = -1
    while True:
        page: Any = redis.lrange(key, at - PAGE + 1, at)
        if not page:
            return
        yield from reversed(page)
        at -= PAGE


def lrange_all(redis: Redis, key: str) -> Iterator[bytes]:
    values: Any = redis
    at = 0
    while page := values.lrange(key, at, at + PAGE - 1):
        yield from page
        at += PAGE


def by_score(redis: Redis, key: str) -> Iterator[tuple[bytes, float]]:
    values: Any = redis
    at = 0
    while page := values.zrange(key, at, at + PAGE - 1, withscores=True):
        yield from page
        at += PAGE


def text(raw: bytes | str) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw


def named(values: dict[str, Any]) -> dict[str, str]:
    """Headers: what is there, as text."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items() if value}
