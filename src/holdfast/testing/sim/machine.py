"""What the simulator needs of a node, and how it comes by one.

`Machine` is the part of `holdfast.core.node.Node` that a shell uses: events in, effects out. There are two
kinds: the real node (real.py), and the model in our own tests on which the simulator and the checkers are
themselves tested. A `Kind` makes machines from what a shell would know at start, and looks inside them.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from holdfast.core.config import Config
from holdfast.core.effects import Request
from holdfast.core.session import Session
from holdfast.testing.checkers.whitebox import Copy

Peer: TypeAlias = Any
"""A machine's own idea of a peer: given by `link_up`, handed back with every event of that link."""


class Machine(Protocol):
    """One node. The lists are the same objects for its whole life and are drained in place."""

    @property
    def wakeups(self) -> list[tuple[Session, bytes]]: ...
    @property
    def requests(self) -> list[Request]: ...
    @property
    def frames(self) -> list[tuple[Peer, bytes]]: ...
    @property
    def faults(self) -> list[str]: ...

    def load(self, records: list[bytes]) -> None: ...
    def set_time(self, now_ms: int, wall_ms: int) -> None: ...
    def connect(self, address: str) -> Session: ...
    def execute(self, session: Session, argv: list[bytes]) -> bool: ...
    def disconnect(self, session: Session) -> None: ...
    def tick(self) -> None: ...
    def next_wake(self) -> int: ...
    def take_output(self) -> bytes: ...
    def link_up(self, facts: Any) -> Peer | None: ...
    def link_down(self, peer: Peer) -> None: ...
    def frame(self, peer: Peer, data: bytes) -> bool: ...
    def flush(self) -> None: ...
    def take_records(self) -> list[bytes]: ...


class Walking(Protocol):
    """A walk over the state of a machine, for a rewrite of its journal."""

    @property
    def is_done(self) -> bool: ...
    def take_records(self, bytes_most: int) -> list[bytes]: ...


@dataclass(frozen=True, slots=True)
class Birth:
    """What a shell knows when it starts a node."""

    node_id: bytes
    incarnation: int
    host: str
    port: int
    bus_port: int
    host_id: bytes
    zone: bytes
    start_ms: int
    random: Callable[[int], bytes]
    settings: tuple[tuple[str, str], ...]
    mutants: frozenset[str]

    def config(self) -> Config:
        config = Config()
        for name, value in (("port", str(self.port)), *self.settings):
            config.set(name, value)
        return config


class Kind(Protocol):
    """A kind of machine: how to make one, what a handshake tells of it, and how to look inside."""

    def build(self, birth: Birth) -> Machine: ...
    def facts(self, birth: Birth) -> Any: ...
    def id_of(self, facts: Any) -> bytes: ...
    def must_sync(self, machine: Any) -> bool:
        """Whether the records of this turn must be synced before its frames leave, whatever the policy."""
        ...
    def take_told(self, machine: Any) -> list[tuple[str, str]]:
        """What its history says of this turn: events and jobs; nothing if it has none."""
        ...
    def make_room(self, machine: Any) -> None:
        """The end of a turn: what memory has no room for goes to disk (core/overflow.py)."""
        ...
    def walk(self, machine: Any) -> Walking | None:
        """Begin a rewrite of its journal; None if it knows of none."""
        ...
    def refuse(self, machine: Any, why: bytes) -> None:
        """Its disk is full: what would change something is refused, with these words; empty if there is room again."""
        ...
    def refused(self, machine: Any, address: str) -> None:
        """The machine at that address has refused a connection: nobody listens."""
        ...
    def is_stalled(self, machine: Any, peer: Any) -> bool:
        """Whether a link has said nothing for so long that it is replaced by a new one."""
        ...
    def expects(self, machine: Any, peer: Any, node_id: bytes) -> bool:
        """Whether a link with that node is wanted where the peer is dialed."""
        ...
    def remember(self, machine: Any, known: list[Any]) -> None:
        """Before it loads what is damaged: the facts of nodes that its shell knows of."""
        ...
    def all_records(self, machine: Any) -> list[bytes]:
        """Everything that it must know after a restart."""
        ...
    def force_holders(self, machine: Any, node_ids: list[bytes] | None) -> None: ...
    def look(self, machine: Any) -> dict[str, Copy]: ...
    def tell(self, machine: Any, job: str) -> str:
        """All that it knows of one job, in a line; empty if nothing. What follows a bar is no news by itself."""
        ...
    def counters(self, machine: Any) -> dict[str, int]: ...
    def consumers(self, machine: Any) -> dict[str, list[tuple[int, int]]]:
        """By queue, the sessions that wait and would be given a job, and until when: another time is another wait."""
        ...
    def homes(self, machine: Any) -> list[bool]:
        """For each slot, whether it believes to be its home; nothing where there are none (core/home.py)."""
        ...
    def figures(self, machine: Any) -> dict[str, int]:
        """By queue, the sum of its figures: jobs in any state, as this node counts them."""
        ...

    def owned(self, machine: Any) -> list[bool]:
        """For each slot, whether it knows who decides about it, or did."""
        ...
    def wrong_books(self, machine: Any, bounds: Any, is_whole: bool) -> list[tuple[str, str]]:
        """What of its own counts is not so (books.py, which also has what `bounds` are: ours to keep)."""
        ...
    def digest(self, machine: Any) -> int:
        """Of the settings of the whole cluster."""
        ...

    def merged(self, machine: Any) -> dict[str, str]:
        """Jobs that turned out to be the same as others (core/unique.py)."""
        ...
    def mentions(self, data: bytes, job: str) -> bool:
        """Whether a frame or a record is about that job."""
        ...
    def describe(self, data: bytes, job: str, is_record: bool) -> str:
        """What a frame, or a record, says about that job, in a few words."""
        ...
