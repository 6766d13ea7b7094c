"""Places in the histories of all nodes: what an offset of the `events` source is.

    {"@since": 0, "4f2a…": "1785000123:64", "9be1…": "1785000125:8192"}

One entry per node, `segment:position` as in its cursors. A node that is not in it is one that joined or came back
later: it is read from its beginning, or from the time `@since` if the stream began at a time. A node that cannot be
reached keeps its place, and the others go on.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from holdfast.client.errors import BadRequest

SINCE: Final = "@since"


@dataclass(frozen=True, order=True)
class Place:
    """A place in one node's history."""

    segment: int
    position: int

    @classmethod
    def parse(cls, words: str) -> Place:
        """`segment:position`, with or without a node before it."""
        try:
            segment, position = words.split(":")[-2:]
            return cls(int(segment), int(position))
        except ValueError:
            raise BadRequest(f"{words!r} is no place in a history; one looks like 1785000123:64") from None

    def __str__(self) -> str:
        return f"{self.segment}:{self.position}"

    def cursor(self, node: str) -> str:
        return f"{node}:{self}"


def load(offset: dict[str, Any]) -> dict[str, Place]:
    """The places in an offset."""
    return {node: Place.parse(words) for node, words in offset.items() if node != SINCE}


def dump(places: dict[str, Place], since: int) -> dict[str, Any]:
    return {SINCE: since, **{node: str(places[node]) for node in sorted(places)}}
