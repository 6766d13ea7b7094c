"""Who belongs to the cluster, and who can be heard.

Nodes meet by a link (CLUSTER MEET, `--join`, or because a peer's gossip names somebody we don't know). Every
second (more often where node-timeout is short) a node tells each peer that it is there, and a few things about
others. A peer not heard for node-timeout is suspect; when a majority suspects it, it has failed, and everybody is
told. Both steer where copies go and what HELLO says, and the first frame from a failed node makes it whole again.

A majority is of places, which are addresses, and not of names: of several nodes that had one address after the other,
at most one is alive. Nodes that were not heard for two node-timeouts are not counted: a side of a cut goes on alone
after that time anyway, and members that died and were never forgotten must not stop those that live.

A node whose link is down, or says nothing, is dialed again and again, each time anew: TCP waits for up to two minutes
before it sends again what a cut has held up. Where the connection is refused, nobody listens: that process has ended.

An incarnation is one life of a node's data; a later life has a higher number. A known node that comes back under
a higher one has lost its copies and acks: it is taken out of every holder set, and healing brings back what is
missing. Who has not met the new life yet still counts the old one as a holder, and says so in the sets it sends;
so each bit is explained with its incarnation (NODE), bits of older lives are dropped where the new one is known,
and a bit that stands for a new life is explained anew.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import acks, federate, placement, records, requeue, takeover
from holdfast.core.effects import DIAL, DROP_LINK, MEET, UNREACHED, Request
from holdfast.core.job import ACKED
from holdfast.core.limits import NEVER
from holdfast.core.peers import (
    ME,
    NODES_MAX,
    OLD_LIFE,
    SOMEBODY,
    Invitation,
    Peer,
    PeerFacts,
    beat_ms,
    close_move,
)
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

DIAL_AT_ONCE_MS: Final = 50
"""After a link has ended: what the far end still says, such as a new link, comes first."""

DIAL_WAIT_MS: Final = 500
DIAL_WAIT_MS_AWAY: Final = 1000
"""Between two calls of a member that may be back at any moment, from whoever is to call."""

DIAL_WAIT_MS_MAX: Final = 5000
"""The same for who should be called by the other side, or was replaced at its address."""

STALLED_BEATS: Final = 3
"""A link that has said nothing for so many beats is replaced by a new one as soon as one can be made."""

MEET_WAIT_MS: Final = 250
MEET_MS: Final = 60_000
"""How long CLUSTER MEET goes on trying."""

FORGET_MS: Final = 60_000
"""A forgotten node is not met again for a minute, unless an operator says so: long enough that all can be told to
forget it."""

LEAVING_MS: Final = 180_000
"""How long a peer's word that it is leaving counts without being repeated."""

GOSSIP_ENTRIES: Final = 3

CALLS_IN_VAIN: Final = 4
"""So often a node that we were told of is called before the log says that it does not answer."""

STRANGERS_MAX: Final = 20
"""Nodes that we know by name only and have never met. They take up bits for good, so those that a job's history names
must not fill them all: the others are SOMEBODY."""

HOME_AFTER: Final = 2
"""Node-timeouts for which a home must not have been heard, where no majority is there to say that it has failed."""

FLAG_LEAVING: Final = 1
GOSSIP_SUSPECT: Final = 1


def meet(node: Node, facts: PeerFacts) -> Peer | None:
    """The peer that a link leads to, known or new; None if it is to stay a stranger."""
    if facts.node_id == node.node_id:
        return None
    is_invited = facts.dialed in node.invitations or address(facts) in node.invitations
    peer = node.by_id.get(facts.node_id)
    is_of_before = peer is not None and peer.is_banned()
    if (is_of_before or is_reset(node)) and not is_invited and not facts.is_invited:
        node.notice(facts.node_id, "turned away: this node was reset; CLUSTER MEET lets it in again")
        return None
    if is_of_before:
        lift_bans(node)
    if peer is None:
        peer = node.add_peer(facts)
        if peer is None:
            return None
    is_too_late = peer.needs_word and facts.incarnation == peer.facts.incarnation
    if (node.now < peer.forgotten_until or is_too_late) and not is_invited:
        node.notice(facts.node_id, "turned away: it was forgotten; CLUSTER MEET lets it in again")
        return None
    if facts.incarnation < peer.facts.incarnation:
        node.count("old-life-refused")
        node.notice(
            facts.node_id, "turned away: a newer process ran under its id; is its folder a copy, or its clock set back?"
        )
        return None
    is_known = peer.is_member and is_same(peer.facts, facts)
    begin_life(node, peer, facts.incarnation)
    peer.facts = facts
    if not peer.is_member:
        peer.member_since = node.now
    peer.is_member = True
    peer.forgotten_until = 0
    peer.needs_word = False
    if not is_known:
        changed(node, peer)
    return peer


def is_reset(node: Node) -> bool:
    """Whether this node was reset and is alone since: whoever has it for a member would pull it back by a call."""
    return any([peer.is_banned() for peer in node.peers]) and not any([peer.is_member for peer in node.peers[1:]])


def lift_bans(node: Node) -> None:
    """An operator brings this node together with one it knew before its reset: that is the same cluster."""
    for peer in node.peers:
        if peer.is_banned():
            peer.forgotten_until = node.now
            changed(node, peer)


def is_same(a: PeerFacts, b: PeerFacts) -> bool:
    return (
        a.incarnation == b.incarnation and a.host == b.host and a.port == b.port and a.bus_port == b.bus_port
        and a.host_id == b.host_id
    )


def changed(node: Node, peer: Peer) -> None:
    """Something about a member that must be known after a restart."""
    node.is_membership_changed = True
    placement.regard_hosts(node)
    if node.is_recording:
        records.member(node, peer)
        node.must_sync = True  # a node that forgets its cluster keeps acks for nobody


def begin_life(node: Node, peer: Peer, incarnation: int) -> None:
    """We hear of a life of that node: the one we know, the first we hear of, or a new one."""
    known = peer.facts.incarnation
    if incarnation == known:
        return
    peer.facts.incarnation = incarnation
    for each in node.peers:
        each.told &= ~peer.bit
    if known != 0 and not node.broken("incarnation-ignored"):
        lost_everything(node, peer)


def lost_everything(node: Node, peer: Peer) -> None:
    """It is the same node by name and has none of what it had."""
    node.count("new-incarnation")
    for each in node.peers:
        for index in range(len(each.table)):
            if each.table[index] == peer.index and each is not peer and not node.broken("old-life-counts"):
                each.table[index] = OLD_LIFE
    for job in node.all_jobs():
        if job.task is not None:
            job.task.confirmed &= ~peer.bit
        if job.holders & peer.bit:
            job.holders &= ~peer.bit
            acks.distrust(node, job)
            if job.state != ACKED and job.retry > 0:
                node.census.short += 1  # until the next walk has counted
            if job.state == ACKED:
                node.wake_at(job, node.now)  # it may have been the last that had to hear of the ending
    for tomb in node.tombs.values():
        tomb.holders &= ~peer.bit
    peer.vouched.clear()
    for number, job in list(peer.moves.items()):
        close_move(node, peer, number)
        federate.in_doubt(node, job)


def link_up(node: Node, peer: Peer) -> None:
    node.invitations.pop(peer.facts.dialed, None)
    node.invitations.pop(address(peer.facts), None)
    peer.linked_at = node.now
    peer.has_stopped = False
    if not peer.is_shy:
        peer.heard = node.now
        peer.is_suspect = False
        peer.is_failed = False
        peer.reports.clear()
    node.alarms.at_latest(node.beat, node.now + beat_ms(node))
    node.nap_ms = node.node_timeout // 2
    write_ping(node, peer)


def heard(node: Node, peer: Peer) -> None:
    peer.heard = node.now
    peer.is_shy = False
    peer.dial_wait = peer.calls = 0
    if peer.is_suspect or peer.is_failed:
        node.notice(peer.node_id(), "heard again")
        peer.is_suspect = peer.is_failed = False
        peer.reports.clear()


def link_down(node: Node, peer: Peer) -> None:
    """Call it at once: it may be there, and if it has stopped, a connection is refused."""
    if peer.is_member and not peer.is_shy and node.now - peer.linked_at >= DIAL_WAIT_MS:
        peer.dial_wait = 0
        peer.dial_at = node.now + DIAL_AT_ONCE_MS
        node.alarms.at_latest(node.beat, peer.dial_at)


def beat(node: Node) -> None:
    """Tell the others we are here, and see who can't be heard."""
    node.nap_ms = node.node_timeout // 2
    missed = [peer for peer in node.peers if is_silent(node, peer) and not peer.is_suspect]
    for peer in missed:
        peer.is_suspect = True
        node.notice(peer.node_id(), f"not heard for {node.now - peer.heard} ms")
        requeue.lost_sight(node, peer)
        takeover.look_soon(node)
    for peer in node.peers:
        if peer.index == ME or not peer.is_member:
            continue
        if not peer.is_linked:
            dial(node, peer)
        elif node.now - max(peer.heard, peer.linked_at) > node.node_timeout:
            node.requests.append(Request(DROP_LINK, None, b"", peer))
        else:
            write_ping(node, peer)
            if is_stalled(node, peer):
                dial(node, peer)
        if peer.is_suspect:
            judge(node, peer)
    node.alarms.set(node.beat, next_beat(node))


def next_beat(node: Node) -> i64:
    """In a while, or when somebody who is not heard becomes suspect, or is to be called."""
    when: i64 = node.now + beat_ms(node)
    for peer in node.peers:
        if peer.index == ME or not peer.is_member:
            continue
        if not peer.is_suspect:
            when = min(when, max(peer.heard + node.node_timeout, node.now) + 1)
        if not peer.is_linked or is_stalled(node, peer):
            when = min(when, max(peer.dial_at, node.now + 1))
        else:
            when = min(when, max(peer.heard, peer.linked_at) + stalled_ms(node) + 1)
    return when


def is_silent(node: Node, peer: Peer) -> bool:
    """Not heard for node-timeout."""
    return peer.index != ME and peer.is_member and node.now - peer.heard > node.node_timeout


def is_stalled(node: Node, peer: Peer) -> bool:
    """Whether nothing has come over a link for so long that a new one is better: a cut has held it up, and what was
    sent meanwhile is sent again by TCP when its own pause is over, which may be long after the cut."""
    silent = node.now - max(peer.heard, peer.linked_at)
    return silent > stalled_ms(node) and not node.broken("links-left-to-tcp")


def stalled_ms(node: Node) -> i64:
    return STALLED_BEATS * beat_ms(node)


def invite(node: Node, at: bytes, shown: str, until: i64) -> None:
    """Call whoever is at that address until there is a link, or the time is over."""
    node.is_joining = True
    if not any([peer.is_linked and address(peer.facts) == at for peer in node.peers]):
        number = 1 + max([each.number for each in node.invitations.values()], default=0)
        node.invitations[at] = Invitation(shown, until, number)
        call(node)


def met(node: Node, at: bytes) -> None:
    """The shell has found out who is at the address of an invitation: a peer we are linked with, or this node."""
    node.invitations.pop(at, None)


def call(node: Node) -> None:
    """Dial those we were told to meet, less and less often."""
    next_call: i64 = NEVER
    for at, invitation in list(node.invitations.items()):
        if node.now >= invitation.until:
            del node.invitations[at]
            node.requests.append(Request(UNREACHED, None, at))
            continue
        if node.now >= invitation.dial_at:
            node.requests.append(Request(MEET, None, at))
            invitation.dial_wait = min(DIAL_WAIT_MS_MAX, max(MEET_WAIT_MS, 2 * invitation.dial_wait))
            invitation.dial_at = node.now + invitation.dial_wait
        next_call = min(next_call, invitation.dial_at)
    node.alarms.set(node.calls, next_call)


def dial(node: Node, peer: Peer) -> None:
    """Ask the shell for a link. The node with the smaller id calls; the other only if it must wait long, or while the
    peer has not been away for long."""
    if node.now < peer.dial_at:
        return
    is_caller = node.node_id < peer.node_id()
    is_away = peer.is_member and not is_replaced(node, peer) and (is_caller or not is_silent(node, peer))
    wait: i64 = DIAL_WAIT_MS if is_caller or is_away else DIAL_WAIT_MS_MAX
    most: i64 = DIAL_WAIT_MS_AWAY if is_away and not node.broken("links-left-to-tcp") else DIAL_WAIT_MS_MAX
    peer.dial_wait = min(most, max(wait, 2 * peer.dial_wait))
    peer.dial_at = node.now + peer.dial_wait
    peer.calls += 1
    node.requests.append(Request(DIAL, None, address(peer.facts), peer))


def refused(node: Node, at: bytes) -> None:
    """The shell was refused a connection to that address, by the machine there: nobody listens."""
    if node.broken("refusal-unheard"):
        return
    for peer in node.peers[1:]:
        is_away = peer.is_member and not peer.is_linked and not peer.has_stopped
        if is_away and address(peer.facts) == at:
            peer.has_stopped = True
            node.notice(peer.node_id(), "has stopped: nobody listens at its address")
            takeover.look_soon(node)


def address(facts: PeerFacts) -> bytes:
    return bus_address(facts.host, facts.bus_port)


def bus_address(host: str, port: int) -> bytes:
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"{shown}:{port}".encode()


def judge(node: Node, peer: Peer) -> None:
    """A majority of those that could hear a node, and do not, makes it failed."""
    if peer.is_failed:
        return
    for index in list(peer.reports):
        if peer.reports[index] < node.now:
            del peer.reports[index]
    size = len(places(node, [each for each in node.peers if is_counted(node, each) and has_met(each, peer)]))
    if 1 + len(peer.reports) >= size // 2 + 1:
        peer.is_failed = True
        peer.failed_at = node.now
        node.notice(peer.node_id(), "has failed: most nodes do not hear it")
        node.count("failed")
        takeover.look_soon(node)
        for each in node.peers:
            if each.is_linked:
                each.out.append(bus.FAIL)
                each.out.write(peer.node_id())


def has_met(each: Peer, peer: Peer) -> bool:
    """Whether a node can say if it hears the other: not if it came when the other was already gone."""
    return each is peer or each.member_since <= peer.heard


def home_after(node: Node) -> i64:
    return HOME_AFTER * node.node_timeout


def places(node: Node, peers: list[Peer]) -> set[bytes]:
    """Where these nodes are, or were: of those that had one address, at most one is alive."""
    if node.broken("members-counted-by-name"):
        return {peer.node_id() for peer in peers}
    return {b"" if peer.index == ME else address(peer.facts) for peer in peers}


def is_counted(node: Node, peer: Peer) -> bool:
    """Whether a node counts where most must agree."""
    if peer.index == ME or peer.is_linked:
        return peer.is_member
    is_dead = node.now - max(peer.heard, peer.away_since) > home_after(node) and not node.broken("the-dead-count")
    return peer.is_member and not is_dead


def sees_majority(node: Node) -> bool:
    """Whether this node has links with most members, the dead among them."""
    members = [peer for peer in node.peers if peer.is_member]
    return is_most(node, members)


def sees_most(node: Node) -> bool:
    """Whether this node has links with most of those that may be alive."""
    return is_most(node, [peer for peer in node.peers if is_counted(node, peer)])


def is_most(node: Node, peers: list[Peer]) -> bool:
    linked = [peer for peer in peers if peer.index == ME or peer.is_linked]
    return len(places(node, linked)) >= len(places(node, peers)) // 2 + 1


def is_replaced(node: Node, peer: Peer) -> bool:
    """Whether we have a link with another node at its address: two cannot listen at one."""
    if node.broken("stranger-proves-nothing") or peer.is_linked:
        return False
    return any([
        each.is_linked and each is not peer and address(each.facts) == address(peer.facts) for each in node.peers[1:]
    ])


def is_gone(node: Node, peer: Peer) -> bool:
    """Whether a node is not there, as far as anybody can tell: most say so, or its process has ended, and what says
    that is not a firewall between a few and the rest."""
    if not peer.is_member:
        return True
    if peer.index == ME or peer.is_linked:
        return False
    if node.broken("home-by-sight"):
        return True
    if peer.is_failed:
        return True
    if (peer.has_stopped or is_replaced(node, peer)) and (sees_most(node) or node.broken("door-decides-alone")):
        return True
    return not sees_majority(node) and node.now - max(peer.heard, peer.away_since, node.start) > home_after(node)


def is_missed(node: Node, peer: Peer) -> bool:
    """Whether a node is gone, or silent for so long that it is time to ask the others: not all of them can say, since
    some may never have met it."""
    if is_gone(node, peer):
        return True
    is_asked = is_silent(node, peer) and not node.broken("silence-put-to-the-vote")
    return is_asked and not peer.is_linked and sees_most(node)


def write_ping(node: Node, peer: Peer) -> None:
    others = [each for each in node.peers if each.is_member and each.index != ME and each is not peer]
    chosen: list[Peer] = [each for each in others if each.is_suspect]
    living = [each for each in others if not each.is_suspect]
    most = max(GOSSIP_ENTRIES, len(others) // 10)
    if node.broken("gossip-of-the-dead-only"):
        most -= len(chosen)
    for _ in range(min(most, len(living))):
        chosen.append(living.pop(node.random_below(len(living))))
    out = peer.out
    out.append(bus.PING)
    bus.write_i8(out, FLAG_LEAVING if node.is_leaving else 0)
    bus.write_i64(out, node.wall)
    bus.write_u32(out, node.node_timeout)
    bus.write_i8(out, len(chosen))
    for each in chosen:
        out.write(each.node_id())
        bus.write_name(out, each.facts.host.encode())
        bus.write_u16(out, each.facts.port)
        bus.write_u16(out, each.facts.bus_port)
        bus.write_i8(out, GOSSIP_SUSPECT if each.is_suspect else 0)


def on_ping(node: Node, peer: Peer, reader: Reader) -> None:
    flags = reader.u8()
    wall = reader.long()
    if not 0 <= wall < NEVER:
        raise BadFrame("a time that no clock shows")
    peer.clock = wall - node.now
    note_timeout(node, peer, reader.u32())
    peer.leaving_until = node.now + LEAVING_MS if flags & FLAG_LEAVING else 0
    for _ in range(reader.u8()):
        node_id = reader.node_id()
        host = reader.name()
        port = reader.u16()
        bus_port = reader.u16()
        is_suspect = reader.u8() & GOSSIP_SUSPECT
        place = seen_from_here(peer, host.decode("ascii", "replace"))
        on_gossip(node, peer, PeerFacts(node_id, 0, place, port, bus_port), is_suspect != 0)


def note_timeout(node: Node, peer: Peer, ms: i64) -> None:
    """It should be the same everywhere: a node with a shorter one gives up links that the others hold for good."""
    if ms == peer.node_timeout:
        return
    peer.node_timeout = ms
    if ms != node.node_timeout:
        node.notice(
            peer.node_id(), f"cluster-node-timeout is {ms} ms there and {node.node_timeout} here: it should be the same"
        )


def of_other_timeout(node: Node) -> list[Peer]:
    """Members that say they have another node-timeout than this node."""
    return [
        peer for peer in node.peers
        if peer.is_member and peer.node_timeout != 0 and peer.node_timeout != node.node_timeout
    ]


def seen_from_here(teller: Peer, host: str) -> str:
    """A node that the teller knows by a loopback address is on the teller's machine."""
    return teller.facts.host if is_loopback(host) and not is_loopback(teller.facts.host) else host


def is_loopback(host: str) -> bool:
    return host.startswith("127.") or host == "::1" or host == "localhost"


def on_gossip(node: Node, teller: Peer, facts: PeerFacts, is_suspect: bool) -> None:
    if facts.node_id == node.node_id:
        return
    known = node.by_id.get(facts.node_id)
    if known is not None and known.is_banned():
        known.forgotten_until = node.now  # it is in the cluster that we were brought together with since our reset
    if known is None or (not known.is_member and node.now >= known.forgotten_until):
        if known is None:
            known = node.add_peer(facts)
        if known is not None and not known.is_linked:
            known.facts.host, known.facts.bus_port = facts.host, facts.bus_port
            dial(node, known)
            if known.calls == CALLS_IN_VAIN:
                known.calls += 1
                who = f"told of by node {teller.node_id()[:8].decode()},"
                node.notice(facts.node_id, f"{who} cannot be reached at {address(facts).decode()}")
        return
    if is_suspect:
        known.reports[int(teller.index)] = node.now + 2 * node.node_timeout
        if known.is_suspect:
            judge(node, known)
    else:
        known.reports.pop(int(teller.index), None)


def on_node(node: Node, peer: Peer, reader: Reader) -> None:
    """The peer explains one of its bits."""
    index = reader.u8()
    node_id = reader.node_id()
    incarnation = reader.long()
    if index > NODES_MAX or incarnation < 0:
        raise BadFrame("a node with an index beyond the last")
    if node_id == SOMEBODY:
        peer.table[index] = OLD_LIFE  # whoever named it there can tell us more
        return
    known = node.by_id.get(node_id) or stranger(node, node_id)
    if known.node_id() == SOMEBODY:
        peer.table[index] = int(known.index)
        return
    if incarnation > known.facts.incarnation:
        if known.index == ME or known is peer:
            raise BadFrame("a life of a node that it knows nothing of itself")
        if known.is_linked:
            node.link_down(known)  # to a life that is over
            node.requests.append(Request(DROP_LINK, None, b"", known))
        begin_life(node, known, int(incarnation))
        changed(node, known)
    is_over = 0 < incarnation < known.facts.incarnation and not node.broken("old-life-counts")
    peer.table[index] = OLD_LIFE if is_over else int(known.index)


def stranger(node: Node, node_id: bytes) -> Peer:
    """One we have never met, and perhaps never will: it is remembered, so that sets stay whole."""
    unmet = sum([1 for each in node.peers if not each.is_member and not each.is_forgotten()])
    if unmet >= STRANGERS_MAX and node.broken("strangers-refused"):
        raise BadFrame("too many nodes that nobody has met")
    known = node.add_peer(PeerFacts(node_id, 0, "", 0, 0)) if unmet < STRANGERS_MAX else None
    if known is None:
        known = node.by_id.get(SOMEBODY) or node.add_peer(PeerFacts(SOMEBODY, 0, "", 0, 0))
    assert known is not None
    return known


def on_fail(node: Node, peer: Peer, reader: Reader) -> None:
    failed = node.by_id.get(reader.node_id())
    if failed is not None and failed.index != ME and node.now - failed.heard > 2 * beat_ms(node):
        if not failed.is_suspect:
            requeue.lost_sight(node, failed)
        failed.failed_at = failed.failed_at if failed.is_failed else node.now
        failed.is_suspect = failed.is_failed = True
        takeover.look_soon(node)


def forget(node: Node, peer: Peer, until: i64) -> None:
    """CLUSTER FORGET: it is no longer counted, nor given copies. Which acks it missed is not forgotten."""
    peer.is_member = False
    peer.has_missed = True
    peer.forgotten_until = until
    changed(node, peer)
    if peer.is_linked:
        node.requests.append(Request(DROP_LINK, None, b"", peer))
