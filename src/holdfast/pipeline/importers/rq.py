"""RQ: a hash per job, lists of ids per queue, and registries (sorted sets of ids).

    rq:queues                          set of rq:queue:<name>
    rq:queue:<name>                    list of ids, RPUSH and LPOP
    rq:queue:<name>:intermediate       list of ids that a worker has just taken
    rq:job:<id>                        hash: data (zlib-compressed pickle), origin, timeout, started_at, …
    rq:results:<id>                    stream of what came of it: exc_string (base64 of zlib)
    rq:scheduled:<name>                by unix time: enqueue_at, and retries with an interval
    rq:deferred:<name> rq:failed:<name> rq:wip:<name>

The body is `data` as RQ wrote it, decompressed: a pickle or JSON of the call, not read here: reading a pickle runs it.
"""
from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from .found import DEAD, RETRYING, RUNNING, SCHEDULED, WAITING, Found, Unreadable
from .sidekiq import by_score, lrange_all, named, parsed, text

if TYPE_CHECKING:
    from redis import Redis

REGISTRIES: Final = {"scheduled": SCHEDULED, "deferred": WAITING, "failed": DEAD, "wip": RUNNING}


def rq(redis: Redis, namespace: str = "rq") -> Iterator[Found | Unreadable]:
    """All of RQ's jobs that are not finished."""
    for full in sorted(text(each) for each in redis.smembers(f"{namespace}:queues")):
        name = full.removeprefix(f"{namespace}:queue:")
        yield from ids_of(redis, namespace, full, name, WAITING, ((each, 0.0) for each in lrange_all(redis, full)))
        taken = f"{full}:intermediate"  # a worker has it, and has not begun
        yield from ids_of(redis, namespace, taken, name, RUNNING, ((each, 0.0) for each in lrange_all(redis, taken)))
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
        error = job.get(b"exc_info") or last_error(redis, f"{namespace}:results:{job_id}")
        also = (f"{namespace}:job:{job_id}", f"{namespace}:results:{job_id}")
        yield parsed(raw, key, lambda raw=raw, job=job, at=at, job_id=job_id, error=error, also=also: job_of(
            job_id, queue, key, raw, state, at, job, error, also))


def last_error(redis: Redis, key: str) -> bytes:
    """What the last run of a job failed with; older versions have it with the job."""
    results: Any = redis.xrevrange(key, count=1)
    told: bytes = results[0][1].get(b"exc_string", b"") if results else b""
    return base64.b64decode(told)


def job_of(
    job_id: str, queue: str, key: str, raw: bytes, state: str, at: float, job: dict[bytes, bytes], error: bytes,
    also: tuple[str, ...] = (),
) -> Found:
    data = job[b"data"]
    try:
        body = zlib.decompress(data)
    except zlib.error:
        body = data
    if error:
        words = zlib.decompress(error) if error[:1] == b"\x78" else error
        error = words.strip().rpartition(b"\n")[2]
    has_run = bool(job.get(b"started_at"))
    if state == SCHEDULED and has_run:
        state = RETRYING
    return Found(
        "rq", job_id, queue, body, state, at, None, int(has_run), error.decode("utf-8", "replace"),
        named({"description": text(job.get(b"description", b"")), "timeout": text(job.get(b"timeout", b"")),
               "created-at": text(job.get(b"created_at", b"")), "origin": text(job.get(b"origin", b""))}),
        (key, raw), also,
    )
