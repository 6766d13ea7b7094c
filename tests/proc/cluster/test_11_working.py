"""Story 11: a consumer that asks for more time gets it at all owners."""
from __future__ import annotations

import time

from cluster_harness import Cluster, until


def test_working_postpones_everywhere(cluster: Cluster, queue: str) -> None:
    """Again and again, for longer than several retry times; then it stops, and the job comes back."""
    job = cluster[0].add(queue, "x", "REPLICATE", 3, "RETRY", 2)
    owners = cluster.holders(job)
    assert cluster[0].get(queue) == job
    begin = time.monotonic()
    while time.monotonic() - begin < 3:
        until(lambda: cluster[0].show(job)["next-requeue-within"] < 1000)
        assert cluster[0].ask("WORKING", job) == 2
        until(lambda: all(node.show(job)["next-requeue-within"] > 1200 for node in owners), 1)
        assert {node.show(job)["state"] for node in owners} == {b"active"}
        assert cluster.queued(queue) == 0
    assert {node.show(job)["additional-deliveries"] for node in owners} == {0}
    assert cluster[3].get(queue) == job
    cluster[3].ask("ACKJOB", job)
    cluster.wait_until_gone(job)


def test_at_another_owner_and_at_a_stranger(cluster: Cluster, queue: str) -> None:
    job = cluster[0].add(queue, "x", "REPLICATE", 3, "RETRY", 3)
    owners = cluster.holders(job)
    assert cluster[0].get(queue) == job
    other = next(node for node in owners if node is not cluster[0])
    until(lambda: cluster[0].show(job)["next-requeue-within"] < 2000)
    assert other.ask("WORKING", job) == 3
    until(lambda: all(node.show(job)["next-requeue-within"] > 2000 for node in owners), 1)
    stranger = cluster.strangers(job)[0]
    assert stranger.ask("WORKING", job).startswith(b"NOJOB ")
    assert cluster[0].ask("ACKJOB", job) == 1


def test_the_second_half_of_its_life_is_too_late(cluster: Cluster, queue: str) -> None:
    begin = time.monotonic()
    job = cluster[0].add(queue, "x", "REPLICATE", 3, "RETRY", 1, "TTL", 4)
    owners = cluster.holders(job)
    for node in owners:
        until(lambda node=node: node.ask("WORKING", job) != 1)
        assert node.ask("WORKING", job).startswith(b"TOOLATE ")
    assert time.monotonic() - begin >= 1.9
