"""Story 7: all nodes restart, one after another, and nothing is lost.

There is no journal yet, so a node that was killed comes back with nothing: before the next one may go, all
jobs have their copies again.
"""
from __future__ import annotations

from cluster_harness import Cluster, Producer, drain, until


def test_every_node_restarts_and_no_job_is_lost(cluster: Cluster, queue: str) -> None:
    cluster.set({"heal-after-ms": "1000"})
    jobs = [job for node in cluster for job in node.add_many(queue, ["x"] * 30, "REPLICATE", 3, "RETRY", 2)]
    producer = Producer([cluster[1], cluster[0], cluster[4]], queue, "REPLICATE", 3, "RETRY", 2, "DELAY", 1)
    try:
        for node in cluster:
            node.kill()
            until(lambda: cluster.living()[0].counters()["cluster_reachable_nodes"] == 5)
            node.start()
            assert node.ask("CONFIG", "SET", "heal-after-ms", "1000") == b"OK"
            cluster.settle()
            wanted = set(jobs) | set(producer.added)

            def is_healed(wanted: set[bytes] = wanted) -> bool:
                copies = cluster.copies(queue)
                return all(len(copies.get(job, [])) >= 3 for job in wanted)

            until(is_healed, 30)
    finally:
        producer.end()
    wanted = set(jobs) | set(producer.added)
    assert len(wanted) > len(jobs)
    assert wanted <= set(drain(cluster, queue, wanted))
    until(lambda: not wanted & cluster.copies(queue).keys())
