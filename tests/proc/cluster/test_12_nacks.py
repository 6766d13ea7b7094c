"""Story 12: NACK, and counters that travel with the job."""
from __future__ import annotations

from typing import Any

from cluster_harness import Cluster, until


def fetch(cluster: Cluster, number: int, queue: str) -> tuple[bytes, int, int]:
    """The job, its nacks and its additional deliveries, from a node that waits for it."""
    with cluster[number].client() as client:
        row: list[Any] = client.ask("GETJOB", "TIMEOUT", 12_000, "WITHCOUNTERS", "FROM", queue)[0]
    assert (row[3], row[5]) == (b"nacks", b"additional-deliveries")
    return row[1], row[4], row[6]


def test_nacks_are_counted_at_all_owners_and_told_everywhere(cluster: Cluster, queue: str) -> None:
    job = cluster[0].add(queue, "x", "REPLICATE", 3, "RETRY", 60)
    owners = cluster.holders(job)
    for nacks in range(3):
        assert fetch(cluster, 0, queue) == (job, nacks, 0)
        assert cluster[0].ask("NACK", job) == 1
        until(lambda nacks=nacks: {node.show(job)["nacks"] for node in owners} == {nacks + 1})
    stranger = cluster.strangers(job)[0]
    assert fetch(cluster, stranger.number, queue) == (job, 3, 0)
    assert stranger.ask("NACK", job) == 1
    for number in range(7):
        assert fetch(cluster, number, queue) == (job, 4 + number, 0)
        assert cluster[number].ask("NACK", job) == 1
    until(lambda: cluster.queued(queue) == 1)  # it may be on its way to a node where somebody waited a moment ago
    cluster[3].ask("ACKJOB", job)
    cluster.wait_until_gone(job)


def test_deliveries_are_counted_wherever_the_job_comes_back(cluster: Cluster, queue: str) -> None:
    job = cluster[0].add(queue, "x", "REPLICATE", 3, "RETRY", 1)
    for number in range(4):
        assert fetch(cluster, number, queue) == (job, 0, number)
    cluster[3].ask("ACKJOB", job)
    cluster.wait_until_gone(job)


def test_an_owner_that_takes_over_knows_the_counters(cluster: Cluster, queue: str) -> None:
    job = cluster[0].add(queue, "x", "REPLICATE", 3, "RETRY", 2)
    owners = cluster.holders(job)
    for _ in range(2):
        assert fetch(cluster, 0, queue)[0] == job
        assert cluster[0].ask("NACK", job) == 1
    until(lambda: {node.show(job)["nacks"] for node in owners} == {2})
    cluster[0].kill()
    assert fetch(cluster, owners[-1].number, queue) == (job, 2, 1)
    owners[-1].ask("ACKJOB", job)


def test_a_nack_at_an_owner_that_did_not_hand_it_out(cluster: Cluster, queue: str) -> None:
    job = cluster[0].add(queue, "x", "REPLICATE", 3, "RETRY", 60)
    other = next(node for node in cluster.holders(job) if node is not cluster[0])
    assert cluster[0].get(queue) == job
    assert other.ask("NACK", job) == 1
    assert fetch(cluster, 0, queue) == (job, 1, 0)
    assert cluster.queued(queue) == 0
    cluster[0].ask("ACKJOB", job)
    cluster.wait_until_gone(job)
