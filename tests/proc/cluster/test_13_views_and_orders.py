"""Beyond Disque's stories: figures of the whole cluster, PAUSE for all, FORGET, and crashes under load."""
from __future__ import annotations

import random
from typing import Any

import pytest
from cluster_harness import Cluster, Consumer, Producer, drain, pairs, until


def whole(cluster: Cluster, number: int, queue: str) -> tuple[dict[str, dict[str, Any]], set[bytes]]:
    rows, missing = cluster[number].ask("CLUSTER", "QSTAT", queue)
    return {pairs(row)["name"].decode(): pairs(row) for row in rows}, set(missing)


def test_figures_of_the_whole_cluster(cluster: Cluster, queue: str) -> None:
    for node in cluster:
        node.add_many(queue, ["x"] * 10, "REPLICATE", 1, "RETRY", 100)
    cluster[1].add_many(queue + "-2", ["x"] * 3, "REPLICATE", 1, "RETRY", 100)
    assert cluster[0].get(queue)
    rows, missing = whole(cluster, 3, queue)
    assert missing == set() and set(rows) == {queue}
    assert (rows[queue]["len"], rows[queue]["jobs-in"], rows[queue]["jobs-out"]) == (69, 70, 1)
    rows, missing = whole(cluster, 4, "*")
    assert missing == set()
    assert (rows[queue]["len"], rows[queue + "-2"]["len"]) == (69, 3)
    assert whole(cluster, 4, "no such queue") == ({}, set())

    cluster[6].freeze()
    for number in (0, 3):
        rows, missing = whole(cluster, number, queue)
        assert missing == {cluster[6].id}
        assert rows[queue]["len"] == 59
    cluster[6].thaw()
    until(lambda: whole(cluster, 0, "*")[1] == set())
    cluster[5].kill()
    until(lambda: whole(cluster, 0, queue)[1] == {cluster[5].id})
    assert whole(cluster, 0, queue)[0][queue]["len"] == 59


def test_a_pause_for_all(cluster: Cluster, queue: str) -> None:
    assert cluster[0].ask("PAUSE", queue, "in", "bcast") == b"in"
    until(lambda: all(node.ask("PAUSE", queue, "state") == b"in" for node in cluster))
    for node in cluster:
        assert node.ask("ADDJOB", queue, "x", 100).startswith(b"PAUSED ")
    assert cluster[3].ask("PAUSE", queue, "none", "out", "bcast") == b"out"
    until(lambda: all(node.ask("PAUSE", queue, "state") == b"out" for node in cluster))
    job = cluster[5].add(queue, "x", "REPLICATE", 3, "RETRY", 100)
    with cluster[6].client() as far, cluster[5].client() as near:
        for client in (near, far):
            client.send("GETJOB", "TIMEOUT", 10_000, "FROM", queue)
        until(lambda: cluster[6].qstat(queue)["blocked"] == cluster[5].qstat(queue)["blocked"] == 1)
        assert near.is_quiet() and far.is_quiet()
        assert cluster[0].ask("PAUSE", queue, "none", "bcast") == b"none"
        assert near.read()[0][1] == job
        assert near.ask("ACKJOB", job) == 1
        assert far.is_quiet()
    cluster.wait_until_gone(job)


def test_a_pause_is_lifted_for_all_by_a_node_that_never_knew_the_queue(cluster: Cluster, queue: str) -> None:
    assert cluster[0].ask("PAUSE", queue, "all") == b"all"
    assert cluster[3].ask("PAUSE", queue, "none", "bcast") == b"none"
    until(lambda: cluster[0].ask("PAUSE", queue, "state") == b"none", 5)


def test_a_paused_owner_takes_no_copies(cluster: Cluster, queue: str) -> None:
    assert cluster[6].ask("PAUSE", queue, "in") == b"in"
    reply = cluster[0].ask("ADDJOB", queue, "x", 300, "REPLICATE", 7)
    assert reply.startswith(b"NOREPL Timeout")
    assert len(cluster.holders(cluster[0].add(queue, "x", "REPLICATE", 6, "RETRY", 100))) == 6
    assert cluster[6].ask("PAUSE", queue, "none") == b"none"


def test_a_forgotten_node_is_no_longer_counted_and_its_jobs_get_new_copies(cluster: Cluster, queue: str) -> None:
    """An eighth node comes, takes copies, dies and is forgotten by all."""
    seven = list(cluster)
    eighth = cluster.grow()
    try:
        eighth.start()
        cluster.settle()
        job = eighth.add(queue, "x", "REPLICATE", 3, "RETRY", 2)
        acked = cluster[0].add(queue + "-2", "x", "REPLICATE", 8, "RETRY", 100)
        eighth.kill()
        assert cluster[0].get(queue + "-2") == acked
        assert cluster[0].ask("ACKJOB", acked) == 1
        until(lambda: len(cluster.holders(acked)) == 7 and cluster[3].show(acked)["state"] == b"acked")
        for node in seven:
            assert node.ask("CLUSTER", "FORGET", eighth.id) == b"OK"
        assert seven[0].ask("CLUSTER", "FORGET", eighth.id).startswith(b"ERR Unknown node")
        assert seven[0].ask("CLUSTER", "FORGET", seven[0].id).startswith(b"ERR I tried hard")
        assert seven[0].ask("CLUSTER", "FORGET", "no id") == b"ERR Invalid node identifier"
        assert all(eighth.id not in node.flags() for node in seven)
        assert cluster[0].ask("ADDJOB", queue, "x", 100, "REPLICATE", 8).startswith(b"NOREPL Not enough")
        until(lambda: len(cluster.holders(job)) >= 3)
        cluster.wait_until_gone(acked)
        assert drain(cluster, queue, [job]) == [job]
        assert all(eighth.id not in node.flags() for node in seven)
    finally:
        eighth.stop()
        cluster.nodes[:] = seven


@pytest.mark.parametrize("seed", [1, 2])
def test_two_nodes_of_three_copies_die_under_load_and_nothing_is_lost(cluster: Cluster, queue: str, seed: int) -> None:
    """And the producers go on within five seconds, at another node if theirs is dead."""
    chance = random.Random(seed)
    order = chance.sample(cluster.nodes, 7)
    producers = [Producer(order[i:] + order[:i], queue, "REPLICATE", 3, "RETRY", 2) for i in range(3)]
    consumers = [Consumer(order[i:] + order[:i], queue) for i in (0, 3, 5)]
    try:
        until(lambda: all(len(producer.added) > 50 for producer in producers))
        doomed = [order[0], chance.choice(order[1:])]  # one of a producer and a consumer, and any other
        for node in doomed:
            node.kill()
        counts = [len(producer.added) for producer in producers]
        until(lambda: all(len(p.added) > count + 100 for p, count in zip(producers, counts)))
        for producer in producers:
            producer.end()
        added = {job for producer in producers for job in producer.added}
        until(lambda: added <= {job for consumer in consumers for job in consumer.got})
        for node in doomed:
            node.start()  # until then the others keep the ends of its jobs for it
        # An ack that only a node in memory knew of has died with it: then the job comes again, and has to be taken.
        until(lambda: not added & cluster.copies(queue).keys())
    finally:
        for worker in [*producers, *consumers]:
            worker.end()
    assert max(producer.longest_gap_s() for producer in producers) < 5
