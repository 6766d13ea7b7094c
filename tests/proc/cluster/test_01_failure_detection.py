"""Story 1: who cannot be heard is suspect, then failed, and whole again once it is heard."""
from __future__ import annotations

from cluster_harness import Cluster, until


def test_a_killed_and_a_stopped_node_fail_and_come_back(cluster: Cluster) -> None:
    killed, stopped = cluster[5], cluster[6]
    names = killed.id, stopped.id
    killed.kill()
    stopped.freeze()
    for node in (killed, stopped):
        until(lambda node=node: cluster.sees(node, "fail"))
    for node in cluster.living():
        assert [node.priorities()[name] for name in names] == [100, 100]
        assert node.counters()["cluster_reachable_nodes"] == 4
    killed.start()
    stopped.thaw()
    cluster.settle()
    assert (killed.id, stopped.id) == names


def test_one_node_alone_can_only_suspect(cluster: Cluster) -> None:
    """A node that hears nobody is no majority: the others are `fail?` for it, and it is `fail` for them."""
    rest = cluster.nodes[1:]
    for node in rest:
        node.freeze()
    until(lambda: all({"fail?", "fail"} & cluster[0].flags()[node.id] for node in rest))
    # What others said of the last two in the test before this one may still count.
    assert not any("fail" in cluster[0].flags()[node.id] for node in rest[:4])
    assert cluster[0].priorities()[rest[0].id] == 10
    assert cluster[0].ask("ADDJOB", "alone", "x", 100, "REPLICATE", 2).startswith(b"NOREPL Not enough reachable")
    alone = cluster[0].add("alone", "x", "RETRY", 60)  # the default needs whom it can reach, and wants more
    assert cluster[0].show(alone)["repl"] == 3
    assert cluster[0].ask("ACKJOB", alone) == 1
    for node in rest:
        node.thaw()
    cluster.settle()
