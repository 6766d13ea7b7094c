"""Story 10: a node leaves: it gives away what it has, takes nothing, and says when it may be stopped."""
from __future__ import annotations

from cluster_harness import Cluster, drain, until

LEAVING = b"LEAVING This node is leaving the cluster, please connect to a different one"


def test_a_node_leaves_and_nothing_is_lost(cluster: Cluster, queue: str) -> None:
    leaver, rest = cluster[2], [node for node in cluster if node is not cluster[2]]
    jobs = leaver.add_many(queue, ["x"] * 60, "REPLICATE", 3, "RETRY", 100)
    jobs += leaver.add_many(queue, ["alone"] * 20, "REPLICATE", 1, "RETRY", 100)
    jobs += leaver.add_many(queue, ["once"] * 20, "RETRY", 0)
    jobs += leaver.add_many(queue, ["later"] * 5, "REPLICATE", 2, "RETRY", 2, "DELAY", 3)
    with leaver.client() as consumer:
        consumer.send("GETJOB", "FROM", "nothing here")
        until(lambda: leaver.qstat("nothing here").get("blocked") == 1)
        assert (leaver.ask("CLUSTER", "LEAVING"), leaver.ask("CLUSTER", "LEAVING", "status")) == (b"no", b"no")
        assert leaver.ask("CLUSTER", "LEAVING", "yes") == b"OK"
        assert consumer.read() == LEAVING
        assert consumer.ask("GETJOB", "FROM", "nothing here") == LEAVING
        assert consumer.ask("GETJOB", "NOHANG", "FROM", "nothing here") is None
    assert leaver.ask("CLUSTER", "LEAVING") == b"yes"
    until(lambda: all(node.priorities()[leaver.id] == 100 for node in cluster))
    assert cluster.sees(leaver, "leaving")

    outside = leaver.add(queue, "outside", "REPLICATE", 3, "RETRY", 100)
    assert outside[2:10] == leaver.id[:8] and leaver not in cluster.holders(outside)
    assert leaver.ask("ADDJOB", queue, "x", 500, "REPLICATE", 7).endswith(b"I'm leaving the cluster")
    assert rest[0].ask("ADDJOB", queue, "x", 500, "REPLICATE", 7).startswith(b"NOREPL Not enough reachable")
    until(lambda: rest[0].counters()["cluster_reachable_nodes"] == 5)
    everywhere = rest[0].add(queue, "x", "REPLICATE", "all", "RETRY", 100)
    assert leaver not in cluster.holders(everywhere)
    jobs += [outside, everywhere]

    until(lambda: leaver.ask("CLUSTER", "LEAVING", "status") == b"safe")
    leaver.kill()
    assert sorted(drain(cluster, queue, jobs)) == sorted(jobs)


def test_delayed_jobs_of_a_node_that_left_come_in_time(cluster: Cluster, queue: str) -> None:
    """It was to queue them; whoever holds them now does, and not a retry time later."""
    job = cluster[2].add(queue, "later", "REPLICATE", 2, "RETRY", 100, "DELAY", 2)
    assert cluster[2].ask("CLUSTER", "LEAVING", "yes") == b"OK"
    until(lambda: cluster[2].ask("CLUSTER", "LEAVING", "status") == b"safe")
    cluster[2].kill()
    assert cluster[0].get(queue, 6) == job


def test_a_node_short_of_memory_can_leave(cluster: Cluster, queue: str) -> None:
    leaver = cluster[2]
    job = leaver.add(queue, bytes(850_000), "REPLICATE", 1, "RETRY", 100)
    assert leaver.ask("CONFIG", "SET", "maxmemory", "1mb") == b"OK"
    assert leaver.ask("CLUSTER", "LEAVING", "yes") == b"OK"
    until(lambda: leaver.ask("CLUSTER", "LEAVING", "status") == b"safe", 8)
    leaver.kill()
    assert drain(cluster, queue, [job]) == [job]


def test_a_node_may_change_its_mind(cluster: Cluster, queue: str) -> None:
    assert cluster[2].ask("CLUSTER", "LEAVING", "yes") == b"OK"
    until(lambda: cluster.sees(cluster[2], "leaving"))
    assert cluster[2].ask("CLUSTER", "LEAVING", "no") == b"OK"
    cluster.settle()
    assert len(cluster.holders(cluster[0].add(queue, "x", "REPLICATE", 7))) == 7


def test_jobs_that_are_at_all_nodes_keep_nobody_from_leaving(cluster: Cluster, queue: str) -> None:
    """Seven copies cannot be had without this node: it is enough that all who stay have one."""
    job = cluster[0].add(queue, "x", "REPLICATE", "all", "RETRY", 100)
    assert cluster[2].ask("CLUSTER", "LEAVING", "yes") == b"OK"
    until(lambda: cluster[2].ask("CLUSTER", "LEAVING", "status") == b"safe", 8)
    assert cluster[0].ask("ACKJOB", job) == 1
