"""RQ on Redis."""
import redis
import rq

from . import task


def noop() -> None:
    task.count()


def add(count: int) -> None:
    queue = rq.Queue("default", connection=redis.Redis.from_url(task.REDIS))
    for start in range(0, count, 500):
        queue.enqueue_many([rq.Queue.prepare_data(noop, result_ttl=0) for _ in range(min(500, count - start))])
