"""One class per broker: how a Python program adds, takes and acknowledges there, singly and in its best batch way.

Run as a program in a process of its own: `python -m bench.peers.brokers NAME PORT PHASE COUNT` prints seconds of wall
time and of this process's CPU. The loops are the same for all; only these few methods differ.
"""
from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from typing import Any

BODY = b"x" * 64
BULK = 500
GIVE_UP_S = 60.0


class Broker:
    """Sync client. `put`, `put_many(n)`, `take_ack`, `take_ack_many(n) -> how many`."""

    server = ""

    def __init__(self, port: int) -> None:
        raise NotImplementedError

    def create(self) -> None:
        """Once, before anything is added."""

    def flush(self) -> None:
        """Wait until what was sent without an answer has arrived."""

    def add_single(self, count: int) -> None:
        for _ in range(count):
            self.put()

    def add_bulk(self, count: int) -> None:
        for _ in range(0, count, BULK):
            self.put_many(BULK)

    def take_single(self, count: int) -> None:
        for _ in range(count):
            self.take_ack()
        self.flush()

    def take_batch(self, count: int) -> None:
        end = time.monotonic() + GIVE_UP_S
        while count > 0:
            count -= self.take_ack_many(min(BULK, count))
            if time.monotonic() > end:
                raise TimeoutError(f"{count} jobs never came")
        self.flush()

    def put(self) -> None:
        raise NotImplementedError

    def put_many(self, count: int) -> None:
        raise NotImplementedError

    def take_ack(self) -> None:
        raise NotImplementedError

    def take_ack_many(self, count: int) -> int:
        raise NotImplementedError


class Holdfast(Broker):
    """Our client, with tokens: a job whose lease was lost is not acknowledged."""

    server = "holdfast"
    fenced = True

    def __init__(self, port: int) -> None:
        import holdfast

        self.q = holdfast.open(f"holdfast://127.0.0.1:{port}")

    def put(self) -> None:
        self.q.add("q", BODY)

    def put_many(self, count: int) -> None:
        self.q.add_many("q", [BODY] * count)

    def take_ack(self) -> None:
        self.q.done(self.q.take("q", count=1, timeout=20, fenced=self.fenced)[0])

    def take_ack_many(self, count: int) -> int:
        jobs = self.q.take("q", count=count, timeout=0.1, fenced=self.fenced)
        return self.q.done(*jobs)


class HoldfastPlain(Holdfast):
    """The same without tokens, as Disque does it."""

    fenced = False


class RedisList(Broker):
    """LPUSH; BLMOVE to a list of jobs in work, LREM. No leases: a job in work stays there when its worker dies."""

    server = "redis"

    def __init__(self, port: int) -> None:
        import redis

        self.r = redis.Redis(port=port)
        self.pop = self.r.register_script(
            "local x=redis.call('RPOP',KEYS[1],ARGV[1]); if not x then return 0 end; "
            "redis.call('RPUSH',KEYS[2],unpack(x)); return x"
        )

    def put(self) -> None:
        self.r.lpush("q", BODY)

    def put_many(self, count: int) -> None:
        self.r.lpush("q", *[BODY] * count)

    def take_ack(self) -> None:
        job = self.r.blmove("q", "p", 20, "RIGHT", "LEFT")
        self.r.lrem("p", 1, job)

    def take_ack_many(self, count: int) -> int:
        jobs: Any = self.pop(keys=["q", "p"], args=[count])
        self.r.delete("p")
        return len(jobs or [])


class RedisStream(Broker):
    """XADD; XREADGROUP, then XACK and XDEL in one pipeline."""

    server = "redis"

    def __init__(self, port: int) -> None:
        import redis

        self.r = redis.Redis(port=port)

    def create(self) -> None:
        self.r.xgroup_create("s", "g", "0", mkstream=True)

    def put(self) -> None:
        self.r.xadd("s", {b"b": BODY})

    def put_many(self, count: int) -> None:
        pipe = self.r.pipeline(transaction=False)
        for _ in range(count):
            pipe.xadd("s", {b"b": BODY})
        pipe.execute()

    def _take(self, count: int) -> int:
        found: Any = self.r.xreadgroup("g", "c", {"s": ">"}, count=count, block=20_000)
        if not found:
            return 0
        messages = found[0][1] if isinstance(found, list) else next(iter(found.values()))
        if messages and isinstance(messages[0], list) and isinstance(messages[0][0], list | tuple):
            messages = messages[0]
        ids = [each[0] for each in messages]
        pipe = self.r.pipeline(transaction=False)
        pipe.xack("s", "g", *ids)
        pipe.xdel("s", *ids)
        pipe.execute()
        return len(ids)

    def take_ack(self) -> None:
        self._take(1)

    def take_ack_many(self, count: int) -> int:
        return self._take(count)


class Beanstalkd(Broker):
    """greenstalk for single calls; it has no bulk calls, so those are pipelined by hand on a socket."""

    server = "beanstalkd"

    def __init__(self, port: int) -> None:
        import greenstalk

        self.client = greenstalk.Client(("127.0.0.1", port), encoding=None)
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb", 1 << 16)

    def put(self) -> None:
        self.client.put(BODY)

    def put_many(self, count: int) -> None:
        self.socket.sendall(b"put 65536 0 60 %d\r\n%b\r\n" % (len(BODY), BODY) * count)
        for _ in range(count):
            if not self.file.readline().startswith(b"INSERTED"):
                raise RuntimeError("put failed")

    def take_ack(self) -> None:
        self.client.delete(self.client.reserve(timeout=20))

    def take_ack_many(self, count: int) -> int:
        self.socket.sendall(b"reserve-with-timeout 0\r\n" * count)
        ids = []
        for _ in range(count):
            words = self.file.readline().split()
            if words[0] == b"RESERVED":
                self.file.read(int(words[2]) + 2)
                ids.append(words[1])
        self.socket.sendall(b"".join(b"delete %b\r\n" % each for each in ids))
        for _ in ids:
            if self.file.readline() != b"DELETED\r\n":
                raise RuntimeError("delete failed")
        return len(ids)


class RabbitMQ(Broker):
    """pika: a durable queue, persistent messages, each publish confirmed; bulk on a channel without confirms in a
    transaction of its own; batches by prefetch and one acknowledgement for all."""

    server = "rabbitmq"

    def __init__(self, port: int) -> None:
        import pika

        self.pika = pika
        parameters = pika.ConnectionParameters("127.0.0.1", port, connection_attempts=20, retry_delay=1)
        self.channel = pika.BlockingConnection(parameters).channel()
        self.channel.queue_declare("q", durable=True)
        self.channel.confirm_delivery()
        self.bulk = pika.BlockingConnection(parameters).channel()
        self.bulk.tx_select()
        self.properties = pika.BasicProperties(delivery_mode=2)

    def put(self) -> None:
        self.channel.basic_publish("", "q", BODY, self.properties)

    def put_many(self, count: int) -> None:
        for _ in range(count):
            self.bulk.basic_publish("", "q", BODY, self.properties)
        self.bulk.tx_commit()

    def take_ack(self) -> None:
        while True:
            method, _, _ = self.channel.basic_get("q")
            if method is not None:
                self.channel.basic_ack(method.delivery_tag)
                return

    def take_batch(self, count: int) -> None:
        self.channel.basic_qos(prefetch_count=BULK)
        for taken, (method, _, _) in enumerate(self.channel.consume("q", inactivity_timeout=20), 1):
            if method is None:
                raise TimeoutError(f"{count - taken + 1} jobs never came")
            if taken % BULK == 0 or taken == count:
                self.channel.basic_ack(method.delivery_tag, multiple=True)
            if taken == count:
                break
        self.channel.cancel()


class Nats(Broker):
    """nats-py: a JetStream stream in a file as a work queue, a durable pull consumer."""

    server = "nats"

    def __init__(self, port: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self._connect(port))

    async def _connect(self, port: int) -> None:
        import nats

        self.nc = await nats.connect(f"nats://127.0.0.1:{port}")
        self.js = self.nc.jetstream()
        await self.js.add_stream(name="S", subjects=["q"], retention="workqueue")
        self.sub = await self.js.pull_subscribe("q", "w")

    def put(self) -> None:
        self.loop.run_until_complete(self.js.publish("q", BODY))

    def put_many(self, count: int) -> None:
        async def many() -> None:
            await asyncio.gather(*(self.js.publish("q", BODY) for _ in range(count)))

        self.loop.run_until_complete(many())

    def take_ack(self) -> None:
        async def one() -> None:
            (message,) = await self.sub.fetch(1, timeout=20)
            await message.ack()

        self.loop.run_until_complete(one())

    def take_ack_many(self, count: int) -> int:
        async def some() -> int:
            messages = await self.sub.fetch(count, timeout=20)
            for message in messages:
                await message.ack()
            return len(messages)

        return self.loop.run_until_complete(some())

    def flush(self) -> None:
        self.loop.run_until_complete(self.nc.flush())


BROKERS: dict[str, type[Broker]] = {
    "holdfast": Holdfast, "holdfast, no tokens": HoldfastPlain, "redis list": RedisList, "redis stream": RedisStream,
    "beanstalkd": Beanstalkd, "rabbitmq": RabbitMQ, "nats jetstream": Nats,
}
PHASES = ("add_single", "take_single", "add_bulk", "take_batch")


def main() -> None:
    name, port, phase, count = sys.argv[1:]
    broker = BROKERS[name](int(port))
    if phase == "create":
        broker.create()
        print(json.dumps({}))
        return
    cpu, wall = sum(os.times()[:2]), time.monotonic()
    getattr(broker, phase)(int(count))
    print(json.dumps({"wall": time.monotonic() - wall, "cpu": sum(os.times()[:2]) - cpu}), flush=True)
    os._exit(0)  # Some clients take seconds to say goodbye.


if __name__ == "__main__":
    main()
