"""RQ: a hash per job, lists of ids per queue, and registries (sorted sets of ids).

    rq:queues                          set of rq:queue:<name>
    rq:queue:<name>                    list of ids, RPUSH and LPOP
    rq:job:<id>                        hash: data (zlib-compressed pickle), origin, timeout, exc_info, …
    rq:scheduled:<name>                by unix time: enqueue_at, and retries with an interval
    rq:deferred:<name> rq:failed:<name> rq:wip:<name>

The body is `data` as RQ wrote it, decompressed: a pickle or JSON of the call, not read here: reading a pickle runs it.
"""
from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .found import DEAD, RETRYING, RUNNING, SCHEDULED, WAITING, Found, Unreadable
from .sidekiq import by_score, lrange_all, named, parsed, text

if TYPE_CHECKING:
    from redis import Redis

REGISTRIES = {"scheduled": SCHEDULED, "deferred": WAITING, "failed": DEAD, "wip": RUNNING}


def rq(redis: Redis, namespace: str = "rq") -> Iterator[Found | Unreadable]:
    """All of RQ's jobs that are not finished."""
    for full in sorted(text(each) for each in redis.smembers(f"{namespace}:queues")):
        name = full.removeprefix(f"{namespace}:queue:")
        yield from ids_of(redis, namespace, full, name, WAITING, ((each, 0.0) for each in lrange_all(redis, full)))
        for registry, state in REGISTRIES.items():
            key = f"{namespace}:{registry}:{name}"
            times = ((each, score if state == SCHEDULED else 0.0) for each, score in by_score(redis, key))
            yield from ids_of(redis, namespace, key, name, state, times)


def ids_of(
    redis: Redis, namespace: str, key: str, queue: str, state: str, ids: Iterator[tuple[bytes, float]]
) -> Iterator[Found | Unreadable]:
    for raw, at in ids:
        # Running jobs are entered as <job id>:<execution id>.
        job_id = text(raw).partition(":")[0] if state == RUNNING else text(raw)
        job = redis.hgetall(f"{namespace}:job:{job_id}")
        if not job:
            continue  # RQ leaves ids behind whose job has expired
        yield parsed(raw, key, lambda raw=raw, job=job, at=at, job_id=job_id: job_of(
            job_id, queue, key, raw, state, at, job))


def job_of(job_id: str, queue: str, key: str, raw: bytes, state: str, at: float, job: dict[bytes, bytes]) -> Found:
    data = job[b"data"]
    try:
        body = zlib.decompress(data)
    except zlib.error:
        body = data
    error = job.get(b"exc_info", b"")
    if error:
        with_words = zlib.decompress(error) if error[:1] == b"\x78" else error
        error = with_words.strip().rpartition(b"\n")[2]
    if state == SCHEDULED and error:
        state = RETRYING
    return Found(
        "rq", job_id, queue, body, state, at, None, 1 if error else 0, error.decode("utf-8", "replace"),
        named({"description": text(job.get(b"description", b"")), "timeout": text(job.get(b"timeout", b"")),
               "created-at": text(job.get(b"created_at", b"")), "origin": text(job.get(b"origin", b""))}),
        (key, raw),
    )
