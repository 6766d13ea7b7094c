"""Places in the histories of all nodes: what an offset of the `events` source is. Pure: nothing here asks a node.

    {"@since": 0, "4f2a…": "1785000123:64", "9be1…": "1785000125:8192"}

One entry per node, `segment:position` as in its cursors: everything before it was read. What an offset says must be
enough to read the same rows again, whatever the cluster looks like by then. So each way in which a node can be missing
has one meaning:

    in neither                 it was never seen: read later, from the time `@since`
    in the end, `@joined`      it was seen first here: this place is its beginning, and nothing of it was read yet
    in the end, not joined     nobody can say what was read of it: an error
    in the start only          an end never forgets a node: an error
    away                       it keeps its place

A stream begins with `INITIAL`, which names no place: Spark asks for it again when it repeats the first batch, and by
then other nodes may answer. The first end pins the beginnings, and is in Spark's log before a row is read.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.client.errors import BadRequest

SINCE: Final = "@since"
JOINED: Final = "@joined"
INITIAL: Final[dict[str, Any]] = {SINCE: None}


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


class NotReplayable(RuntimeError):
    """Two offsets do not say what lies between them."""


@dataclass(frozen=True)
class Offset:
    """How far the histories of all nodes were read."""

    places: Mapping[str, Place] = field(default_factory=dict)
    since: int | None = None
    """From which time (unix milliseconds, 0: from the beginning) a node is read that joins; None before the first."""
    joined: frozenset[str] = frozenset()
    """Nodes whose place here is where they begin."""

    @classmethod
    def load(cls, said: Mapping[str, Any]) -> Offset:
        """From what `dump` gave; a source keeps it as JSON."""
        since = said.get(SINCE, 0)
        places = {node: Place.parse(str(words)) for node, words in said.items() if not node.startswith("@")}
        return cls(places, None if since is None else int(since), frozenset(said.get(JOINED, ())))

    def dump(self) -> dict[str, Any]:
        said: dict[str, Any] = {SINCE: self.since}
        if self.joined:
            said[JOINED] = sorted(self.joined)
        return said | {node: str(self.places[node]) for node in sorted(self.places)}

    def is_initial(self) -> bool:
        return self.since is None

    def ahead(self, lasts: Mapping[str, Place]) -> dict[str, tuple[Place, Place]]:
        """What can be read of the nodes it names, if their histories end at `lasts`: from where to where."""
        return {node: (self.places[node], last) for node, last in lasts.items()
                if node in self.places and self.places[node] < last}

    def advanced(self, read: Mapping[str, Place], joined: Mapping[str, Place], since: int | None = None) -> Offset:
        """The offset after nodes were read that far, and others joined with these beginnings; itself if neither."""
        if not read and not joined and not self.is_initial():
            return self
        if unknown := [node for node in read if node not in self.places]:
            raise NotReplayable(f"node {unknown[0][:8]} was read and has no beginning")
        return Offset({**self.places, **read, **joined}, self.since if since is None else since, frozenset(joined))

    def until(self, end: Offset) -> dict[str, tuple[Place, Place]]:
        """What lies between this offset and a later one, by node: from where to where."""
        pieces: dict[str, tuple[Place, Place]] = {}
        for node, last in end.places.items():
            begin = self.places.get(node)
            if begin is None and node not in end.joined:
                raise NotReplayable(f"the offset does not say from where node {node[:8]} is read up to {last}: it is "
                                    "of a stream that began with an earlier version, or was changed")
            if begin is not None and last < begin:
                raise NotReplayable(f"node {node[:8]} was read up to {begin}, and is to be read up to {last}")
            if begin is not None and begin < last:
                pieces[node] = (begin, last)
        if missing := [node for node in self.places if node not in end.places]:
            raise NotReplayable(f"the offset does not say how far node {missing[0][:8]} is read")
        return pieces
