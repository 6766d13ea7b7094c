"""Story 5: an acknowledgement reaches every owner, whoever gets it and whoever sleeps meanwhile."""
from __future__ import annotations

import pytest
from cluster_harness import Cluster, Member, until


def outsider(cluster: Cluster, job: bytes) -> Member:
    return cluster.strangers(job)[0]


@pytest.mark.parametrize("word", ["ACKJOB", "FASTACK"])
def test_at_an_owner_and_at_a_stranger(cluster: Cluster, queue: str, word: str) -> None:
    mine, replicas, strangers = (cluster[0].add_many(queue, ["x"] * 5, "REPLICATE", 3, "RETRY", 60) for _ in range(3))
    took = [cluster[0].get(queue) for _ in range(15)]
    assert sorted(took) == sorted([*mine, *replicas, *strangers])
    assert cluster[0].ask(word, *mine) == 5
    for job in replicas:
        replica = next(node for node in cluster.holders(job) if node is not cluster[0])
        assert replica.ask(word, job) == 1
    for job in strangers:
        assert outsider(cluster, job).ask(word, job) == 0
    cluster.wait_until_gone(*took)
    assert all(node.has_none(queue) for node in cluster)


def test_owners_that_sleep_learn_of_it_and_do_not_deliver_again(cluster: Cluster, queue: str) -> None:
    """They sleep for longer than the retry time: the first thing they want when they wake is to queue the job."""
    jobs = [cluster[0].add(queue, "x", "REPLICATE", 3, "RETRY", 1) for _ in range(5)]
    owners = {job: cluster.holders(job) for job in jobs}
    sleepers = {node for job in jobs for node in owners[job] if node is not cluster[0]}
    sleepers = set(sorted(sleepers, key=lambda node: node.number)[:4])
    awake = next(node for node in cluster.nodes[1:] if node not in sleepers)
    for node in sleepers:
        node.freeze()
    took = [cluster[0].get(queue) for _ in jobs]
    assert sorted(took) == sorted(jobs)
    for number, job in enumerate(jobs):
        (cluster[0] if number % 2 else awake).ask("ACKJOB", job)
    for node in sleepers:
        until(lambda node=node: cluster.sees(node, "fail?") or cluster.sees(node, "fail"))
    for node in sleepers:
        node.thaw()
    cluster.wait_until_gone(*jobs)
    cluster.settle()
    assert all(node.has_none(queue) for node in cluster)
    until(lambda: cluster.count("cluster_endings_uncollected") == 0)


def test_all_owners_sleep_and_a_stranger_keeps_the_ack(cluster: Cluster, queue: str) -> None:
    job = cluster[0].add(queue, "x", "REPLICATE", 3, "RETRY", 2)
    owners = cluster.holders(job)
    stranger = outsider(cluster, job)
    assert cluster[0].get(queue) == job
    for node in owners:
        node.freeze()
    assert stranger.ask("ACKJOB", job) == 0
    assert stranger.counters()["cluster_endings_uncollected"] >= 1
    for node in owners:
        until(lambda node=node: {"fail?", "fail"} & stranger.flags()[node.id])
    for node in owners:
        node.thaw()
    cluster.wait_until_gone(job)
    until(lambda: cluster.count("cluster_endings_uncollected") == 0)
    assert all(node.has_none(queue) for node in cluster)


def test_an_owner_that_died_keeps_no_ack_alive(cluster: Cluster, queue: str) -> None:
    """It comes back with nothing: a new life, which cannot hold the copy."""
    job = cluster[0].add(queue, "x", "REPLICATE", 3, "RETRY", 60)
    dead = next(node for node in cluster.holders(job) if node is not cluster[0])
    dead.kill()
    assert cluster[0].get(queue) == job
    assert cluster[0].ask("ACKJOB", job) == 1
    assert cluster[0].show(job)["state"] == b"acked"
    dead.start()
    cluster.wait_until_gone(job)
    until(lambda: cluster.count("cluster_endings_uncollected") == 0)
