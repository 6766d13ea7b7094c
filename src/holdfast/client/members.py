"""The members of a cluster as one node lists them (CLUSTER NODES): where each is, and whether it can be heard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .resp import Reply
from .values import fields, items, text, unexpected, whole

NEAR: Final = 8
"""Digits of an id that people see: those that the ids of its jobs begin with."""
MYSELF, HANDSHAKE, LEAVING, FAIL, SUSPECT = "myself", "handshake", "leaving", "fail", "fail?"


@dataclass(frozen=True, slots=True)
class Named:
    """A node, and where it is."""

    id: str
    host: str
    """Empty where nobody has told the node how it is called from outside."""
    port: int

    @property
    def near(self) -> str:
        return self.id[:NEAR]

    @property
    def where(self) -> str:
        return f"{self.host}:{self.port}" if self.host else f"port {self.port}"


@dataclass(frozen=True, slots=True)
class Member(Named):
    flags: str
    is_linked: bool
    """The node that was asked, too."""
    heard_ms: int = 0
    """Unix time at which the node that was asked last heard it; 0: it does not say."""

    def has(self, flag: str) -> bool:
        return flag in self.flags.split(",")

    @property
    def state(self) -> str:
        """One word for people: up, down, leaving, or `meeting` where nobody has answered yet."""
        if self.has(HANDSHAKE):
            return "meeting"
        if not self.is_linked or self.has(FAIL):
            return "down"
        return "leaving" if self.has(LEAVING) else "up"


@dataclass(frozen=True, slots=True)
class Away(Named):
    """A node that others do not hear (CLUSTER AWAY), and the jobs that wait for it."""

    away_s: float
    """At the longest."""
    fails_in_s: float
    """Until it counts as failed, at the earliest; 0: it does."""
    jobs: int

    @property
    def words(self) -> str:
        return f"node {self.near} at {self.where} (away {self.away_s:.0f} s)"

    @property
    def next(self) -> str:
        """What happens next, and when."""
        then = "its jobs are queued at other nodes, each as soon as no worker can have it any more"
        if self.fails_in_s > 0:
            return f"if it stays away, it counts as failed in {self.fails_in_s:.0f} s; then {then}"
        return f"it counts as failed: {then}"


def read_away(reply: Reply) -> list[Away]:
    """Nodes that are away, those with most jobs first."""
    page = items(reply)
    if len(page) != 2:
        raise unexpected("nodes that are away, nodes that did not answer", page)
    found = []
    for row in map(fields, items(page[0])):
        numbers = {name: whole(row.get(name)) for name in ("port", "away-ms", "fails-in-ms", "jobs")}
        found.append(Away(text(row.get("node")), text(row.get("host")), numbers["port"], numbers["away-ms"] / 1000,
                          numbers["fails-in-ms"] / 1000, numbers["jobs"]))
    return sorted(found, key=lambda each: (-each.jobs, each.id))


def read(reply: Reply) -> list[Member]:
    return read_text(text(reply))


def read_text(lines: str) -> list[Member]:
    found = []
    for line in lines.splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        host, _, port = words[1].rpartition(":")
        found.append(Member(words[0], host, int(port.partition("@")[0] or 0), words[2],
                            MYSELF in words[2] or "connected" in words or "linked" in words,
                            int(words[4]) if len(words) > 4 and words[4].isdigit() else 0))
    return found
