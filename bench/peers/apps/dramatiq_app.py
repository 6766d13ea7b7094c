"""Dramatiq on Redis."""
import dramatiq
from dramatiq.brokers.redis import RedisBroker

from . import task

dramatiq.set_broker(RedisBroker(url=task.REDIS))


@dramatiq.actor
def noop() -> None:
    task.count()


def add(count: int) -> None:
    for _ in range(count):
        noop.send()
