"""Huey on Redis; at most once: a job is gone from the broker when a worker takes it."""
from huey import RedisHuey

from . import task

huey = RedisHuey("bench", url=task.REDIS, results=False)


@huey.task()
def noop() -> None:
    task.count()


def add(count: int) -> None:
    for _ in range(count):
        noop()
