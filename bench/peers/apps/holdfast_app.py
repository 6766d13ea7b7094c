"""Ours: a plain function in threads, and an async one."""
import os

import holdfast

from . import task

app = holdfast.App(f"holdfast://127.0.0.1:{os.environ.get('BENCH_PORT', '7711')}", retries=None)


@app.task(name="noop", queue="threads")
def noop() -> None:
    task.count()


@app.task(name="anoop", queue="loop")
async def anoop() -> None:
    task.count()


def add(count: int, queue: str) -> None:
    chosen = noop if queue == "threads" else anoop
    chosen.add_many(chosen.call() for _ in range(count))
