"""Story 6: jobs go to where consumers wait."""
from __future__ import annotations

import statistics
import time

import pytest
from cluster_harness import Cluster, Consumer, drain, until


@pytest.mark.parametrize("options", [("REPLICATE", 3, "RETRY", 100), ("REPLICATE", 1, "RETRY", 100), ("RETRY", 0)])
def test_consumers_elsewhere_get_every_job_once(cluster: Cluster, queue: str, options: tuple[str | int, ...]) -> None:
    consumers = [Consumer([node], queue) for node in cluster.nodes[1:]]
    jobs = [cluster[0].add(queue, str(number), *options) for number in range(50)]
    jobs += cluster[0].add_many(queue, map(str, range(200)), *options)
    try:
        until(lambda: sum(len(consumer.got) for consumer in consumers) >= len(jobs))
    finally:
        for consumer in consumers:
            consumer.end()
    assert sorted(job for consumer in consumers for job in consumer.got) == sorted(jobs)
    assert all(consumer.got for consumer in consumers)
    until(lambda: not cluster.copies(queue))


def test_a_consumer_that_waits_is_served_within_one_message(cluster: Cluster, queue: str) -> None:
    times = []
    with cluster[4].client() as consumer:
        for number in range(30):
            consumer.send("GETJOB", "TIMEOUT", 10_000, "FROM", queue)
            until(lambda: cluster[4].qstat(queue).get("blocked") == 1)
            begin = time.monotonic()
            retry = (0, 60)[number % 2]
            job = cluster[number % 3].add(queue, "x", "RETRY", retry, "REPLICATE", 1)
            assert consumer.read()[0][1] == job
            times.append(time.monotonic() - begin)
            consumer.ask("ACKJOB", job)
    assert statistics.median(times) < 0.1, times
    shown = cluster[4].qstat(queue)
    assert set(shown["import-from"]) == {node.id for node in cluster.nodes[:3]}
    assert shown["import-rate"] > 0
    assert [queue.encode()] == cluster[4].ask("QSCAN", "BUSYLOOP", "IMPORTRATE", 1)[1]
    until(lambda: not cluster.copies(queue))


def test_queues_fetched_from_without_waiting(cluster: Cluster, queue: str) -> None:
    """One who only asks with NOHANG at a node that has none gets nothing; one who waits gets all, one by one."""
    jobs = cluster[0].add_many(queue, ["x"] * 20, "REPLICATE", 2, "RETRY", 100)
    took = [cluster[6].get(queue) for _ in range(10)]
    assert len(set(took)) == 10
    assert cluster[6].ask("ACKJOB", *took) == 10
    drain(cluster, queue, set(jobs) - set(took))
    until(lambda: not cluster.copies(queue))
