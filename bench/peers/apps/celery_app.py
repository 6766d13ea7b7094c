"""Celery on Redis; acknowledged after the run, as ours."""
from celery import Celery

from . import task

app = Celery("bench", broker=task.REDIS)
app.conf.update(
    task_ignore_result=True, task_acks_late=True, worker_prefetch_multiplier=16,
    broker_connection_retry_on_startup=True,
)


@app.task(name="noop")
def noop() -> None:
    task.count()


def add(count: int) -> None:
    with app.producer_pool.acquire() as producer:
        for _ in range(count):
            noop.apply_async(producer=producer)
