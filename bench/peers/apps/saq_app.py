"""SAQ on Redis."""
import asyncio
from typing import Any

from saq import Job, Queue

from . import task

queue = Queue.from_url(task.REDIS)


async def noop(ctx: Any) -> None:
    task.count()


settings = {"queue": queue, "functions": [noop], "concurrency": 10}


def add(count: int) -> None:
    async def many() -> None:
        await queue.connect()
        for start in range(0, count, 100):
            await asyncio.gather(*(queue.enqueue(Job("noop", ttl=-1)) for _ in range(min(100, count - start))))
        await queue.disconnect()

    asyncio.run(many())
