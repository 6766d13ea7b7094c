"""The other nodes as this one knows them, and the links to them.

Every node ever heard of has a small number here, its index; 0 is this node itself. A set of nodes, such as
those that may hold a copy of a job, is a mask of bits 1 << index in a machine word: cheap to keep in every
job, to unite and to compare. Indexes are not given to another node while this one runs, or a mask would
begin to lie.

A link is one epoch of talking: frames in order, none twice. When it breaks, the epoch is over, and what was
sent and not acknowledged may have arrived or not: each part of the protocol repairs its own doubt when the
next epoch begins (`link_up` in the files beside this one).
"""
from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core.job import Job
from holdfast.core.limits import NEVER

if TYPE_CHECKING:
    from holdfast.core.node import Node

NODES_MAX: Final = 62
"""Bits in a machine word, less the sign. A full mesh of more nodes would be too many links anyway."""

ME: Final = 0
MY_BIT: Final = 1
HIGHEST_BIT: Final = 1 << 62

SOMEBODY: Final = b"0" * 40
"""Stands in our sets for all nodes that others have named and that we cannot number. It never answers, so we collect
no ending that it should hear of: those who named it to us know better, and do."""

BEATS_PER_TIMEOUT: Final = 4
BEAT_MS_MAX: Final = 1000

# What a peer's bit stands for when it stands for none of our peers.
UNEXPLAINED: Final = -1
OLD_LIFE: Final = -2  # a life of a node that is over: whatever it held is gone


def bit_of(index: i64) -> i64:
    """What stands for the node with that index in a set. Not 1 << index: compiled, that is a shift of 32 bits."""
    return HIGHEST_BIT >> (NODES_MAX - index)


class PeerFacts:
    """What a handshake tells about the other side."""

    def __init__(
        self, node_id: bytes, incarnation: int, host: str, port: int, bus_port: int,
        host_id: bytes = b"", zone: bytes = b"", dialed: bytes = b"", is_invited: bool = False,
    ) -> None:
        self.node_id: bytes = node_id
        self.incarnation: int = incarnation
        self.host: str = host
        self.port: int = port
        self.bus_port: int = bus_port
        self.host_id: bytes = host_id
        self.zone: bytes = zone
        self.dialed: bytes = dialed  # the address by which it was found, where we have called
        self.is_invited: bool = is_invited  # it has called because an operator told it to


class Peer:
    def __init__(self, index: i64, facts: PeerFacts) -> None:
        self.index: i64 = index
        self.bit: i64 = bit_of(index)
        self.facts: PeerFacts = facts
        # Membership.
        self.is_member: bool = True  # False: forgotten, or only heard of
        self.is_linked: bool = False
        self.is_suspect: bool = False  # we have not heard of it for too long
        self.is_failed: bool = False  # a majority has not
        self.failed_at: i64 = 0  # since when, the last time
        self.has_stopped: bool = False  # its address has refused a connection since its last link
        self.member_since: i64 = 0  # by our clock; 0: since before our start
        self.leaving_until: i64 = 0
        self.heard: i64 = 0
        self.linked_at: i64 = 0
        self.is_shy: bool = False  # its last link ended before it had said anything: it turns us away
        self.away_since: i64 = 0
        self.forgotten_until: i64 = 0  # not let in before that; NEVER: it was known before this node's RESET
        self.needs_word: bool = False  # was forgotten, and has missed more than anybody remembers
        self.has_missed: bool = False  # was forgotten, so endings were collected without it
        self.clock: i64 = NEVER  # its wall clock less our steady one, at its last word; NEVER: it said none yet
        self.node_timeout: i64 = 0  # its own; 0: it said none yet
        self.full_until: i64 = 0  # it has refused a copy: no more are made there for a while
        self.awaited: i64 = 0  # the last frame to it when an answer was late: it is slow until it acknowledges that one
        self.dial_at: i64 = 0
        self.dial_wait: i64 = 0
        self.calls: i64 = 0  # since it was last heard
        self.reports: dict[int, int] = {}  # who else says it is not to be heard: index -> until when that counts
        # The link.
        self.out: BytesWriter = BytesWriter()  # messages of this turn
        self.sent: i64 = 0  # frames, in this epoch
        self.acked: i64 = 0
        self.received: i64 = 0
        self.owes_ack: bool = False
        self.late: i64 = 0  # ms that the frame being read took longer than the fastest
        self.fastest: i64 = NEVER  # what that took, by two clocks that differ; NEVER: none came yet in this epoch
        self.fastest_at: i64 = 0  # up to when the drift of the two clocks is allowed for in it
        self.flying: deque[tuple[int, list[Job]]] = deque()  # copies in frames that are not acknowledged yet
        self.boarding: list[Job] = []  # copies in the frame that is being made
        self.doubted: dict[Job, None] = {}  # copies that were on their way when a link ended
        self.telling: deque[tuple[int, Job]] = deque()  # jobs said to be queued here, in such frames
        self.unheard: list[tuple[int, bytes]] = []  # only ever used by a mutant
        self.told: i64 = 0  # nodes whose index we have explained in this epoch
        self.taken: dict[int, int] = {}  # its moves that we took, until it has heard so: until when we must remember
        self.taking: deque[tuple[int, int]] = deque()  # of these, by the frame that said so
        self.refused: dict[int, int] = {}  # its moves that we never will
        self.table: list[int] = [UNEXPLAINED] * (NODES_MAX + 1)  # its numbering to ours
        self.lent: dict[int, Job] = {}  # by lease: for a consumer of its, of whom it has not said that it has it
        self.moves: dict[int, Job] = {}  # what we gave it and it has not said it took
        self.vouched: dict[Job, bool] = {}  # while we leave: jobs it was asked about; True: it says that it holds them

    def node_id(self) -> bytes:
        return self.facts.node_id

    def is_forgotten(self) -> bool:
        return self.forgotten_until != 0 and not self.is_member

    def is_banned(self) -> bool:
        return self.forgotten_until == NEVER and not self.is_member

    def is_leaving(self, now: i64) -> bool:
        return now < self.leaving_until

    def is_reachable(self, now: i64) -> bool:
        """Worth giving copies to."""
        return (
            self.is_member and self.is_linked and not self.is_shy and not self.is_suspect and not self.is_failed
            and now >= self.leaving_until
        )


    def is_slow(self) -> bool:
        """Whether an answer is late, and nothing has come since that shows that it goes on."""
        return self.acked < self.awaited

    def is_expected(self, now: i64) -> bool:
        """Reachable, or away for less than its node-timeout: it may be back in a moment."""
        return (
            self.index != ME and self.is_member and not self.is_suspect and not self.is_failed
            and now >= self.leaving_until
        )


class Invitation:
    """An address at which we were told to meet somebody."""

    def __init__(self, shown: str, until: i64, number: i64) -> None:
        self.shown: str = shown  # its clients' port, as the operator gave it
        self.until: i64 = until
        self.number: i64 = number  # stands in for the id that nobody knows yet
        self.dial_at: i64 = 0
        self.dial_wait: i64 = 0


class Tomb:
    """An id that must not come back: how it ended, who may still have a copy, until when we remember."""

    def __init__(self, why: i64, holders: i64, until: i64) -> None:
        self.why: i64 = why
        self.holders: i64 = holders
        self.until: i64 = until


def number(node: Node, facts: PeerFacts) -> Peer | None:
    """A node heard of for the first time gets its index; None if there are more than can be numbered."""
    most = NODES_MAX if facts.node_id == SOMEBODY else NODES_MAX - 1
    if len(node.peers) > most:
        if "too-many-nodes" not in node.counters:
            node.notice(
                node.node_id, f"knows {len(node.peers)} nodes since its start, and can know no more: restart it to let "
                "go of the forgotten; BGREWRITEAOF before that, where there is a journal"
            )
        node.count("too-many-nodes")
        return None
    peer = Peer(len(node.peers), facts)
    peer.is_member = False
    peer.heard = node.now
    node.peers.append(peer)
    node.by_id[facts.node_id] = peer
    return peer


def beat_ms(node: Node) -> i64:
    """How often nodes say that they are there. Several in a node-timeout: a late one is no reason to give up a link."""
    return min(BEAT_MS_MAX, node.node_timeout // BEATS_PER_TIMEOUT)


def is_heard(node: Node, peer: Peer) -> bool:
    """Whether it has said something in the last few beats."""
    return node.now - peer.heard < BEATS_PER_TIMEOUT * beat_ms(node)


def count_bits(mask: i64) -> i64:
    n: i64 = 0
    while mask != 0:
        mask = mask & (mask - 1)
        n += 1
    return n


def longest_timeout(node: Node) -> i64:
    """After how long at most a link that says nothing has ended at both ends."""
    longest = node.node_timeout
    for peer in node.peers:
        if peer.is_member:
            longest = max(longest, peer.node_timeout)
    return longest


def open_move(node: Node, peer: Peer, number: int, job: Job) -> None:
    """A job is given to a peer, who is to say whether it took it. Earlier moves of it may still be open."""
    peer.moves[number] = job
    node.moving[job] = number


def close_move(node: Node, peer: Peer, number: int) -> Job | None:
    """The peer has said so, or need not any more. The job, if that was still open."""
    job = peer.moves.pop(number, None)
    if job is not None and node.moving.get(job) == number:
        del node.moving[job]
    return job


def order_of(node_id: bytes) -> int:
    """Where a node stands in an order of nodes, before that is mixed for a job (requeue.order_key)."""
    return int(node_id[:15], 16)


def order_in(job: Job) -> int:
    """What a job mixes it with."""
    return (job.rnd >> 4) & 0xFFFFFFFFFFFFFFF


def everybody(node: Node) -> i64:
    """All members, this node among them."""
    mask: i64 = 1
    for peer in node.peers:
        if peer.is_member:
            mask |= peer.bit
    return mask


def linked(node: Node) -> i64:
    mask: i64 = 0
    for peer in node.peers:
        if peer.is_linked:
            mask |= peer.bit
    return mask


def forgotten(node: Node) -> i64:
    """Nodes that were members. They are told nothing; their copies die with their jobs.

    Not those we have only heard of: they may be members that we are still to meet.
    """
    mask: i64 = 0
    for peer in node.peers:
        if peer.is_forgotten():
            mask |= peer.bit
    return mask


def reachable(node: Node) -> i64:
    """Other nodes that can be given copies."""
    n: i64 = 0
    for peer in node.peers:
        if peer.is_reachable(node.now):
            n += 1
    return n


def expected(node: Node) -> i64:
    """Other nodes that can be given copies, now or when they are back from a restart."""
    return sum([1 for peer in node.peers if peer.is_expected(node.now)])
