"""Story 7: all nodes restart, one after another, and nothing is lost.

There is no journal yet, so a node that was killed comes back with nothing: before the next one may go, all
jobs have their copies again.
"""
from __future__ import annotations

from cluster_harness import Cluster, drain, until


def short_of_copies(cluster: Cluster, queue: str, jobs: list[bytes]) -> list[bytes]:
    copies = cluster.copies(queue)
    return [job for job in jobs if len(copies.get(job, [])) < 3]


def test_every_node_restarts_and_no_job_is_lost(cluster: Cluster, queue: str) -> None:
    cluster.set({"heal-after-ms": "1000"})
    jobs = [job for node in cluster for job in node.add_many(queue, ["x"] * 20, "REPLICATE", 3, "RETRY", 2)]
    for node in cluster:
        node.kill()
        for other in cluster.living()[:3]:
            jobs.extend(other.add_many(queue, ["y"] * 5, "REPLICATE", 3, "RETRY", 2, "DELAY", 1))
        node.start()
        assert node.ask("CONFIG", "SET", "heal-after-ms", "1000") == b"OK"
        cluster.settle()

        until(lambda: not short_of_copies(cluster, queue, jobs), 12)
    assert set(jobs) <= set(drain(cluster, queue, jobs))
    cluster.wait_until_gone(*jobs)
