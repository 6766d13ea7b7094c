"""Who decides about a key: the order of members, and what changes in it."""
from __future__ import annotations

from collections import Counter

from tests.unit.core.making import Bench

from holdfast.core import home
from holdfast.core.home import SLOTS
from holdfast.core.peers import ME, PeerFacts


def cluster(hosts: list[bytes]) -> Bench:
    """A node on the first machine that knows one member for each of the others."""
    bench = Bench()
    bench.node.peers[0].facts.host_id = hosts[0]
    for number, host in enumerate(hosts[1:], start=1):
        node_id = b"%040x" % (number * 0x1234567890ABCDEF)
        bench.node.link_up(PeerFacts(node_id, 1, "10.0.0.1", 7711, 17711, host))
    return bench


def test_alone_everything_is_at_home_here() -> None:
    assert home.of(Bench().node, home.GROUP, b"q", b"key") == ME


def test_all_nodes_agree_on_the_order() -> None:
    one = cluster([b"a", b"b", b"c"])
    ids = [peer.node_id() for peer in one.node.peers]
    other = Bench()
    other.node.peers[0].facts.host_id = b"a"
    for node_id, host in [(ids[2], b"c"), (ids[1], b"b")]:
        other.node.link_up(PeerFacts(node_id, 1, "10.0.0.1", 7711, 17711, host))
    for slot in range(SLOTS):
        here = [one.node.peers[i].node_id() for i in home.order(one.node, slot)]
        there = [other.node.peers[i].node_id() for i in home.order(other.node, slot)]
        assert here == there


def test_the_next_home_is_on_another_machine() -> None:
    bench = cluster([b"a", b"a", b"a", b"b", b"b"])
    for slot in range(SLOTS):
        first, second, *_ = home.order(bench.node, slot)
        assert bench.node.peers[first].facts.host_id != bench.node.peers[second].facts.host_id


def test_shares_are_about_equal() -> None:
    bench = cluster([b"%d" % i for i in range(8)])
    shares = Counter(home.order(bench.node, slot)[0] for slot in range(SLOTS))
    assert min(shares.values()) > SLOTS / 8 * 0.6, shares
    assert max(shares.values()) < SLOTS / 8 * 1.5, shares


def test_a_member_that_goes_moves_only_its_own_slots() -> None:
    bench = cluster([b"a", b"b", b"c", b"d"])
    before = {slot: home.order(bench.node, slot)[0] for slot in range(SLOTS)}
    gone = bench.node.peers[2]
    gone.is_member = False
    for slot, was in before.items():
        now = home.order(bench.node, slot)[0]
        assert now == was or was == 2


def test_kinds_are_told_apart_and_names_do_not_run_together() -> None:
    assert home.slot_of(home.GROUP, b"a", b"bc") != home.slot_of(home.GROUP, b"ab", b"c")
    assert home.slot_of(home.GROUP, b"a", b"b") != home.slot_of(home.UNIQUE, b"a", b"b")
