"""arq on Redis, polling as fast as is sensible."""
import asyncio
import os
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings

from . import task

SETTINGS = RedisSettings("127.0.0.1", int(os.environ.get("BENCH_PORT", "6379")))


async def noop(ctx: Any) -> None:
    task.count()


class WorkerSettings:
    functions = (noop,)
    redis_settings = SETTINGS
    max_jobs = 10
    keep_result = 0
    poll_delay = 0.01
    log_results = False


def add(count: int) -> None:
    async def many() -> None:
        pool = await create_pool(SETTINGS)
        for start in range(0, count, 100):
            await asyncio.gather(*(pool.enqueue_job("noop") for _ in range(min(100, count - start))))

    asyncio.run(many())
