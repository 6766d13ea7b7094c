"""The members of a cluster, as the node that is asked lists them (CLUSTER NODES)."""
from __future__ import annotations

from holdfast.client.members import NEAR, Member, read_text
from holdfast.client.queue import AsyncQueue

NodeView = Member
read_nodes = read_text

__all__ = ["NEAR", "NodeView", "nodes", "read_nodes", "told"]


async def nodes(asking: AsyncQueue) -> list[Member]:
    return await asking.nodes()


def told(members: list[Member], silent: list[str]) -> list[dict[str, str]]:
    """For those who follow the figures; a node that did not answer now is away, whatever it was before."""
    return [{"name": each.near, "where": each.where, "state": "away" if each.id in silent else each.state}
            for each in members]
