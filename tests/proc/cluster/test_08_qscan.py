"""Story 8: QSCAN at a node of a cluster."""
from __future__ import annotations

from cluster_harness import Cluster


def test_all_queues_of_a_node_by_steps_and_at_once(cluster: Cluster, queue: str) -> None:
    names = {f"{queue}-{number}".encode() for number in range(150)}
    for number, name in enumerate(sorted(names)):
        for _ in range(1 + number % 3):
            cluster[2].ask("ADDJOB", name, "x", 0, "REPLICATE", 1, "TTL", 60)
    found: list[bytes] = []
    cursor = b"0"
    while True:
        cursor, some = cluster[2].ask("QSCAN", cursor, "COUNT", 10)
        found += some
        if cursor == b"0":
            break
    mine = [name for name in found if name in names]
    assert set(mine) == names and len(mine) == len(names)
    assert names <= set(cluster[2].ask("QSCAN", "BUSYLOOP")[1])
    longer = [name for name in cluster[2].ask("QSCAN", "BUSYLOOP", "MINLEN", 2)[1] if name in names]
    both = [name for name in cluster[2].ask("QSCAN", "BUSYLOOP", "MINLEN", 2, "MAXLEN", 2)[1] if name in names]
    assert (len(longer), len(both)) == (100, 50)
    assert names.isdisjoint(cluster[3].ask("QSCAN", "BUSYLOOP", "MINLEN", 1)[1])
