"""Story 9: JSCAN at the nodes of a cluster."""
from __future__ import annotations

from cluster_harness import Cluster, pairs


def test_all_jobs_by_steps_at_once_and_by_state(cluster: Cluster, queue: str) -> None:
    jobs = set(cluster[0].add_many(queue, ["x"] * 100, "REPLICATE", 3, "RETRY", 100))
    jobs |= set(cluster[1].add_many(queue, ["y"] * 20, "REPLICATE", 3, "RETRY", 100, "DELAY", 50))
    copies = cluster.copies(queue)
    assert copies.keys() == jobs
    assert min(len(nodes) for nodes in copies.values()) >= 3
    found: list[bytes] = []
    cursor = b"0"
    while True:
        cursor, some = cluster[0].ask("JSCAN", cursor, "COUNT", 7, "QUEUE", queue)
        found += some
        if cursor == b"0":
            break
    assert sorted(found) == sorted(job for job, nodes in copies.items() if cluster[0] in nodes)

    queued = [job for node in cluster for job in node.jobs(queue, "STATE", "queued")]
    active = [job for node in cluster for job in node.jobs(queue, "STATE", "active")]
    assert (len(queued), len(set(queued))) == (100, 100)
    assert len(active) >= 2 * 100 + 3 * 20  # more, where an answer took so long that one more node was asked
    shown = [pairs(row) for row in cluster[1].ask("JSCAN", "BUSYLOOP", "QUEUE", queue, "REPLY", "all")[1]]
    assert {row["queue"] for row in shown} == {queue.encode()}
    assert min(len(row["nodes-delivered"]) for row in shown) >= 2
    for node in cluster:
        node.ask("ACKJOB", *jobs)
    cluster.wait_until_gone(*jobs)
