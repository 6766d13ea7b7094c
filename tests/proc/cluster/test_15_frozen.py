"""A node that is stopped (SIGSTOP): whoever knows of others goes on there, within seconds."""
from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.proc.cluster_harness import Cluster, until

import holdfast
from holdfast.client.errors import Error, NoAnswer

A_FEW_S = 15.0
"""It takes three to eight, on a machine with nothing else to do; without notice it would be thirty."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, 3)
    yield cluster
    cluster.stop()


def url_of(cluster: Cluster) -> str:
    return "holdfast://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster)


def test_a_queue_goes_on_at_other_nodes(cluster: Cluster) -> None:
    """A question is asked again elsewhere; an add that was sent is Unknown, and the next one is not sent there."""
    with holdfast.open(url_of(cluster)) as queue:
        queue.add("q", "before")
        cluster[0].freeze()
        began = time.monotonic()
        with pytest.raises(NoAnswer):
            queue.add("q", "one", timeout=1)
        assert queue.call("PING") == b"PONG"
        assert time.monotonic() - began < A_FEW_S
        until(lambda: adds(queue))
        began = time.monotonic()
        for number in range(10):
            queue.add("q", str(number))
        assert time.monotonic() - began < A_FEW_S
        cluster[0].thaw()
        first = f"tcp_port:{cluster[0].port}".encode()
        until(lambda: first in queue.call("INFO", "server"))  # type: ignore[operator]


def test_tasks_of_an_event_loop_go_on_at_other_nodes(cluster: Cluster) -> None:
    async def main() -> None:
        queue = await holdfast.aopen(url_of(cluster))
        await queue.add("q", "before")
        cluster[0].freeze()
        began = time.monotonic()
        with pytest.raises(NoAnswer):
            await queue.add("q", "one", timeout=1)
        assert await queue.call("PING") == b"PONG"
        assert time.monotonic() - began < A_FEW_S
        cluster[0].thaw()
        await queue.close()

    asyncio.run(main())


def test_the_command_line_goes_on_at_other_nodes(cluster: Cluster) -> None:
    cluster[0].freeze()
    began = time.monotonic()
    words = [sys.executable, "-m", "holdfast", "queues", "--json", "--connect", url_of(cluster)]
    ran = subprocess.run(words, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert ran.returncode == 0, ran.stderr
    assert time.monotonic() - began < A_FEW_S
    cluster[0].thaw()


def adds(queue: holdfast.Queue) -> bool:
    """Refused while the others have not missed it: they would copy to it."""
    try:
        queue.add("q", "two")
    except Error:
        return False
    return True
