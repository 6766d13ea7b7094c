"""The members of a cluster as one node lists them (CLUSTER NODES): where each is, and whether it can be heard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .resp import Reply
from .values import text

NEAR: Final = 8
"""Digits of an id that people see: those that the ids of its jobs begin with."""
MYSELF, HANDSHAKE, LEAVING, FAIL, SUSPECT = "myself", "handshake", "leaving", "fail", "fail?"


@dataclass(frozen=True, slots=True)
class Member:
    id: str
    host: str
    """Empty where nobody has told the node how it is called from outside."""
    port: int
    flags: str
    is_linked: bool
    """The node that was asked, too."""
    heard_ms: int = 0
    """Unix time at which the node that was asked last heard it; 0: it does not say."""

    @property
    def near(self) -> str:
        return self.id[:NEAR]

    @property
    def where(self) -> str:
        return f"{self.host}:{self.port}" if self.host else f"port {self.port}"

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
