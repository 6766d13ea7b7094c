"""How late a frame is, by two clocks that differ and drift."""
from __future__ import annotations

import pytest

from holdfast.core import links
from holdfast.core.peers import NODES_MAX, Peer, PeerFacts

from .making import Bench


class Link(Bench):
    """A link with a node whose clock shows another time, and runs at another rate."""

    def __init__(self, differs_ms: int, ppm: int = 0) -> None:
        super().__init__()
        self.begin = self.now
        self.differs_ms = differs_ms
        self.ppm = ppm
        peer = self.node.link_up(PeerFacts(b"1" * 40, 1, "10.0.0.2", 7711, 17711))
        assert peer is not None
        self.peer: Peer = peer

    def frame(self, sent_at: int, took: int) -> int:
        """One that was made so many ms after the beginning, and took so long; how late it seems."""
        self.node.set_time(self.begin + sent_at + took, self.begin + sent_at + took)
        theirs = self.begin + self.differs_ms + sent_at + sent_at * self.ppm // 1_000_000
        links.note_time(self.node, self.peer, theirs)
        return int(self.peer.late)


@pytest.mark.parametrize("differs_ms", [0, 1, -5_000, 3_600_000])
def test_late_is_what_took_longer_than_the_fastest(differs_ms: int) -> None:
    link = Link(differs_ms)
    assert link.frame(0, 40) == 0, "the first is the fastest so far"
    assert link.frame(10, 1_040) == 1_000 - 101, "a tenth of the time since then may be drift"
    assert link.frame(1_050, 5) == 0
    assert link.frame(1_050, 25) == 20 - 2


def test_a_new_link_compares_anew() -> None:
    link = Link(0)
    link.frame(0, 5)
    assert link.frame(10, 2_005) > 1_700
    peer = link.node.link_up(link.peer.facts)
    assert peer is link.peer
    assert link.frame(4_000, 2_000) == 0


@pytest.mark.parametrize("ppm", [-90_000, -200, 0, 200, 90_000])
def test_drift_is_not_taken_for_lateness(ppm: int) -> None:
    """However often frames come, and however long the link lasts."""
    link = Link(77, ppm)
    every = [1, 3, 10, 999]
    at = 0
    for number in range(4_000):
        assert link.frame(at, 5) <= 1, "as fast as all the others"
        at += every[number % len(every)]
    assert 0.8 * 2_000 < link.frame(at, 2_005) <= 2_000 + 90


def test_a_time_that_no_clock_shows_ends_the_link() -> None:
    for time in (-1, 1 << 62):
        link = Link(0)
        frame = (1).to_bytes(8, "little") + bytes(8) + time.to_bytes(8, "little", signed=True)
        assert not link.node.frame(link.peer, frame)


def test_each_of_many_nodes_has_a_bit_of_its_own() -> None:
    """Compiled, too, where a number written down has 32 bits."""
    facts = PeerFacts(b"1" * 40, 1, "10.0.0.2", 7711, 17711)
    assert [Peer(index, facts).bit for index in range(NODES_MAX + 1)] == [1 << index for index in range(NODES_MAX + 1)]
