"""Story 4: a job ends with its time to live, wherever it is."""
from __future__ import annotations

import time

from cluster_harness import Cluster, until


def test_thousands_of_jobs_expire_everywhere(cluster: Cluster, queue: str) -> None:
    begin = time.monotonic()
    jobs: list[bytes] = []
    for node in cluster.nodes[:3]:
        jobs += node.add_many(queue, ["x"] * 1000, "REPLICATE", 3, "TTL", 5, "RETRY", 1)
    took = [cluster[5].get(queue) for _ in range(3)]
    assert set(took) <= set(jobs)
    assert sum(len(node.jobs(queue)) for node in cluster) >= 3 * len(jobs) or time.monotonic() - begin > 4
    until(lambda: not any(node.jobs(queue) for node in cluster))
    assert time.monotonic() - begin >= 4
    assert cluster.queued(queue) == 0
    assert all(node.has_none(queue) for node in cluster)


def test_a_delay_is_kept_and_the_job_comes_once(cluster: Cluster, queue: str) -> None:
    begin = time.monotonic()
    job = cluster[0].add(queue, "x", "REPLICATE", 3, "DELAY", 1, "RETRY", 30)
    assert cluster.queued(queue) == 0
    assert cluster[3].get(queue) == job
    assert time.monotonic() - begin >= 0.9
    cluster[3].ask("ACKJOB", job)
    cluster.wait_until_gone(job)


def test_a_job_that_waits_for_copies_ends_with_its_time(cluster: Cluster, queue: str) -> None:
    cluster[6].freeze()
    reply = cluster[0].ask("ADDJOB", queue, "x", 15_000, "REPLICATE", 7, "TTL", 1)
    assert reply == b"NOREPL job removed (expired?) before the requested replication level was achieved"


def test_the_node_that_had_it_is_gone_and_it_is_among_the_dead(cluster: Cluster, queue: str) -> None:
    """Three nodes hold it, the one that had it queued is killed, and nobody takes it in time: another one decides that,
    and every holder says so."""
    job = cluster[0].add(queue, "x", "REPLICATE", 3, "RETRY", 1, "TTL", 3, "ONEXPIRE", "dead")
    others = [node for node in cluster.holders(job) if node is not cluster[0]]
    cluster[0].kill()
    (row,) = until(lambda: others[0].ask("DEAD", "LIST", "QUEUE", queue)[1])
    assert (row[0], row[2], row[5]) == (job, b"expired", b"its time was over before it was done")
    cluster[0].start()
    until(lambda: all((node.show(job) or {}).get("state") == b"dead" for node in others))
    assert others[1].ask("DEAD", "RETRY", job) == 1
    assert cluster[3].get(queue) == job
    assert cluster[3].ask("ACKJOB", job) == 1
    cluster.wait_until_gone(job)
