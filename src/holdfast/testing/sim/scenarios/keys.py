"""Names of groups and unique keys whose homes are the nodes that a scenario wants."""
from __future__ import annotations

from holdfast.core import home
from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.scenarios.scenario import node_of


def group_at(sim: Cluster, order: str) -> str:
    """A group of the queue q whose order of homes begins so."""
    return key_at(sim, home.GROUP, order)


def unique_at(sim: Cluster, order: str) -> str:
    return key_at(sim, home.UNIQUE, order)


def key_at(sim: Cluster, kind: bytes, order: str, queue: bytes = b"q") -> str:
    node = node_of(sim, order[0])
    names = {host.node_id: name for name, host in sim.hosts.items()}
    for number in range(100_000):
        slot = home.slot_of(kind, queue, b"k%d" % number)
        if "".join(names[node.peers[i].node_id()] for i in home.order(node, slot)).startswith(order):
            return f"k{number}"
    raise AssertionError(f"no key whose homes are {order}")


def owner_of(sim: Cluster, at: str, kind: bytes, key: str, queue: bytes = b"q") -> str:
    """Who is the home of a key, as one node sees it."""
    node = node_of(sim, at)
    found = node.peers[home.of(node, kind, queue, key.encode())].node_id()
    return next(name for name, host in sim.hosts.items() if host.node_id == found)
