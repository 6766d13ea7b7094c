"""Story 0: seven nodes are one cluster."""
from __future__ import annotations

from cluster_harness import Cluster


def test_all_know_all_under_ids_of_their_own(cluster: Cluster) -> None:
    ids = {node.id for node in cluster}
    assert len(ids) == 7 and all(len(node_id) == 40 for node_id in ids)
    for node in cluster:
        assert set(node.flags()) == set(node.priorities()) == ids
        assert set(node.priorities().values()) == {1}
        facts = node.counters()
        assert facts["cluster_known_nodes"] == facts["cluster_size"] == 7
        assert facts["cluster_reachable_nodes"] == 6


def test_hello_tells_where_everybody_is(cluster: Cluster) -> None:
    ports = {node.id: str(node.port).encode() for node in cluster}
    for node in cluster:
        version, my_id, *rows = node.ask("HELLO")
        assert version == 1 and my_id == node.id
        assert {row[0]: row[2] for row in rows} == ports
        assert all(row[1] == b"127.0.0.1" for row in rows if row[0] != node.id)
