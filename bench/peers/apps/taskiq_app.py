"""taskiq on a Redis stream, with acknowledgements."""
import asyncio

from taskiq_redis import RedisStreamBroker

from . import task

broker = RedisStreamBroker(task.REDIS)


@broker.task(task_name="noop")
async def noop() -> None:
    task.count()


def add(count: int) -> None:
    async def many() -> None:
        await broker.startup()
        for start in range(0, count, 100):
            await asyncio.gather(*(noop.kiq() for _ in range(min(100, count - start))))
        await broker.shutdown()

    asyncio.run(many())
