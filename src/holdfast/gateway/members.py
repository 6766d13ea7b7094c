"""The members of a cluster, as the node that is asked lists them (CLUSTER NODES)."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.client.queue import AsyncQueue
from holdfast.gateway import models

NEAR: Final = 8
"""Digits of an id that people see: those that the ids of its jobs begin with."""


@dataclass(frozen=True)
class NodeView:
    id: str
    host: str
    port: int
    flags: str
    is_linked: bool

    @property
    def near(self) -> str:
        return self.id[:NEAR]

    @property
    def where(self) -> str:
        return f"{self.host}:{self.port}" if self.host else f"port {self.port}"

    @property
    def state(self) -> str:
        """One word for people."""
        if not self.is_linked or "fail" in self.flags.split(","):
            return "down"
        return "leaving" if "leaving" in self.flags else "up"


async def nodes(asking: AsyncQueue) -> list[NodeView]:
    return read_nodes(models.plain(await asking.call("CLUSTER", "NODES")))


def read_nodes(text: str) -> list[NodeView]:
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        host, _, port = words[1].rpartition(":")
        flags = words[2]
        found.append(NodeView(words[0], host, int(port.partition("@")[0] or 0), flags,
                              "myself" in flags or "connected" in words or "linked" in words))
    return found


def told(members: list[NodeView], silent: list[str]) -> list[dict[str, str]]:
    """For those who follow the figures; a node that did not answer now is away, whatever it was before."""
    return [{"name": each.near, "where": each.where, "state": "away" if each.id in silent else each.state}
            for each in members]
