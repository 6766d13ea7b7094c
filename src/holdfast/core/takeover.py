"""How a slot gets its home, and another one when that is gone.

Nobody takes a slot because it does not see the one who has it: views differ without anybody being down. A node takes
slots over only if it sees most of those that may be alive, and the owner and every node before it in the order have
stopped, were replaced at their address, or are silent for node-timeout; where it sees only a few, after HOME_AFTER
node-timeouts of silence (membership.is_missed). And before that it asks all it can reach (SLOTASK). Who reaches the
owner, or knows a higher epoch, says so, and the slot stays where it is; everybody else sends what it has of the slot
(home.write_homed, KEYTAKEN), then SLOTGAVE. When all have answered, or time is up, the node raises the epoch, keeps
that, tells everybody (SLOTS), and opens: the jobs of each group get in line, the keys are known.

An owner that somebody still reaches is asked about again, first soon, since not all find out at the same moment, then
after as long as it has been silent by then.

A node that was started anew does the same with slots that are its own: its journal may lack the last moments.

Coming back is a handover, never a grab. The node that has a slot sees that an earlier one in its order is there
again. It stops handing out and taking in for the slot, sends all it knows, then HANDOVER; the other one keeps the
higher epoch and says so. Only then is the slot the other's; if nothing is heard, it is opened here again.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import batches, home, homecoming, links, membership, records
from holdfast.core.alarms import Chore
from holdfast.core.limits import NEVER
from holdfast.core.peers import ME, Peer
from holdfast.core.rows import NOBODY, SLOTS
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

HANDOVER_MS: Final = 2000
"""A node that is back gets its slots when it has been there this long: one that comes and goes gets none."""


ASK_AGAIN_MS: Final = 200


class Taking(Chore):
    """Slots that this node is about to take: whom it has asked."""

    def __init__(self, number: i64, slots: list[int], epochs: list[int]) -> None:
        super().__init__()
        self.number: i64 = number
        self.slots: list[int] = slots
        self.epochs: list[int] = epochs  # at the time
        self.asked: i64 = 0  # peers that have not answered yet
        self.refused: set[int] = set()

    def run(self, node: Node) -> None:
        if node.takeovers.taking is self:
            finish(node, self)


class Handing(Chore):
    """Slots that are on their way to another node."""

    def __init__(self, peer: Peer, slots: list[int]) -> None:
        super().__init__()
        self.peer: Peer = peer
        self.slots: list[int] = slots

    def run(self, node: Node) -> None:
        """Nothing was heard: they are ours still."""
        if node.takeovers.handing is self:
            take_back(node, self)


class Takeovers(Chore):
    """What is under way."""

    def __init__(self, first: i64) -> None:
        super().__init__()
        self.taking: Taking | None = None
        self.handing: Handing | None = None
        self.count: i64 = first
        self.wanted: dict[int, None] = {}  # slots somebody asked us about
        self.later: dict[int, int] = {}  # slots that are not to be asked about again before

    def run(self, node: Node) -> None:
        """Somebody may be gone, or a slot is to be asked about again."""
        beat(node)


# -- when ---------------------------------------------------------------------------------------------------------


def may_take(node: Node, slot: i64) -> bool:
    """Whether it is for this node to be the home of a slot."""
    homes = node.homes
    if homes.opened[slot]:
        return False
    if node.takeovers.later.get(int(slot), 0) > node.now:
        return False
    owner = homes.owners[slot]
    if owner == ME:
        handing = node.takeovers.handing
        if handing is not None and slot in handing.slots:
            return False
        return membership.sees_most(node) or node.now - node.start > membership.home_after(node)
    if owner != NOBODY and not membership.is_missed(node, node.peers[owner]):
        return False
    for index in home.order(node, slot):
        peer = node.peers[index]
        if index == ME:
            if not node.is_leaving:
                return True
        elif not membership.is_missed(node, peer) and not peer.is_leaving(node.now):
            return False
    return True


def beat(node: Node) -> None:
    """Once a second: slots to take, and slots to hand over."""
    homes = node.homes
    takeovers = node.takeovers
    if takeovers.taking is None:
        slots = [
            slot for slot in range(SLOTS)
            if not homes.opened[slot] and (homes.owners[slot] != NOBODY or slot in takeovers.wanted)
            and may_take(node, slot)
        ]
        if slots:
            start(node, slots)
    if takeovers.handing is None and takeovers.taking is None:
        hand_over(node)


def look_soon(node: Node) -> None:
    """Somebody may be gone: what it decided about is looked at now, not at the next beat."""
    node.alarms.at_latest(node.takeovers, node.now)


def want(node: Node, slot: i64) -> None:
    """A key of the slot is used, and perhaps nobody is its home yet."""
    takeovers = node.takeovers
    takeovers.wanted[int(slot)] = None
    if takeovers.taking is None and may_take(node, slot):
        start(node, [
            each for each in range(SLOTS)
            if each == slot or (node.homes.owners[each] == NOBODY and may_take(node, each))
        ])


# -- taking -------------------------------------------------------------------------------------------------------


def start(node: Node, slots: list[int]) -> None:
    takeovers = node.takeovers
    takeovers.count += 1
    taking = Taking(takeovers.count, slots, [node.homes.epochs[slot] for slot in slots])
    takeovers.taking = taking
    for slot in slots:
        takeovers.wanted.pop(slot, None)
    if not node.broken("takeover-asks-nobody"):
        for peer in node.peers:
            if peer.is_linked and peer.is_member:
                write_ask(node, peer, taking)
                taking.asked |= peer.bit
    node.count("slot-asks")
    if taking.asked == 0:
        finish(node, taking)
    else:
        node.alarms.set(taking, node.now + node.node_timeout)


def write_ask(node: Node, peer: Peer, taking: Taking) -> None:
    out = peer.out
    out.append(bus.SLOTASK)
    bus.write_i64(out, taking.number)
    bus.write_u16(out, len(taking.slots))
    for i in range(len(taking.slots)):
        bus.write_u16(out, taking.slots[i])
        bus.write_u32(out, taking.epochs[i])


def on_ask(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer wants to be the home of some slots: what we have of them, or why not."""
    homes = node.homes
    number = reader.long()
    granted: set[int] = set()
    refused: list[int] = []
    for _ in range(reader.u16()):
        slot = read_slot(reader)
        epoch = reader.u32()
        owner = homes.owners[slot]
        if homes.epochs[slot] > epoch or is_reached(node, peer, owner):
            refused.append(int(slot))
        else:
            granted.add(int(slot))
    write_rows(node, peer, [slot for slot in refused if homes.epochs[slot] > 0])
    if granted:
        homecoming.give_all(node, peer, granted)
    out = peer.out
    out.append(bus.SLOTGAVE)
    bus.write_i64(out, number)
    bus.write_u16(out, len(refused))
    for slot in refused:
        bus.write_u16(out, slot)


def is_reached(node: Node, asker: Peer, owner: i64) -> bool:
    """Whether the owner of a slot is there, for all we know."""
    if owner == NOBODY or owner == asker.index:
        return False
    if owner == ME:
        return True
    peer = node.peers[owner]
    return peer.is_member and peer.is_linked and not peer.is_suspect and not node.broken("takeover-grabs")


def on_gave(node: Node, peer: Peer, reader: Reader) -> None:
    number = reader.long()
    refused = [int(read_slot(reader)) for _ in range(reader.u16())]
    taking = node.takeovers.taking
    if taking is None or taking.number != number:
        return
    taking.refused.update(refused)
    answered(node, peer, taking)


def answered(node: Node, peer: Peer, taking: Taking) -> None:
    """It has said all it will."""
    taking.asked &= ~peer.bit
    if taking.asked == 0:
        finish(node, taking)


def finish(node: Node, taking: Taking) -> None:
    """All have answered, or time is up."""
    node.takeovers.taking = None
    taking.wake = NEVER
    slots: list[int] = []
    for i in range(len(taking.slots)):
        slot = taking.slots[i]
        if slot in taking.refused:
            again = node.now + ask_again_ms(node, slot)
            node.takeovers.later[slot] = int(again)
            node.alarms.at_latest(node.takeovers, again)
        elif node.homes.epochs[slot] == taking.epochs[i]:
            slots.append(slot)
    claim(node, slots)
    look_soon(node)  # somebody else may be gone since


def ask_again_ms(node: Node, slot: i64) -> i64:
    """Somebody reaches the owner, or did until a moment ago."""
    owner = node.homes.owners[slot]
    if owner == ME or owner == NOBODY:
        return node.node_timeout
    silent = node.now - node.peers[owner].heard - node.node_timeout
    return min(node.node_timeout, max(ASK_AGAIN_MS, silent))


def claim_all(node: Node) -> None:
    """A node without others is the home of everything."""
    claim(node, [slot for slot in range(SLOTS) if not node.homes.opened[slot]])


def claim(node: Node, slots: list[int]) -> None:
    """These are ours from now on: kept, told, opened."""
    if not slots:
        return
    homes = node.homes
    for slot in slots:
        homes.epochs[slot] += 1
        homes.owners[slot] = ME
        homes.open(slot)
        node.takeovers.later.pop(slot, None)
    node.count("slots-taken")
    records.slots(node, slots)
    node.must_sync = True
    tell(node, slots, 0)
    homecoming.open_slots(node, set(slots))


# -- the table ----------------------------------------------------------------------------------------------------


def tell(node: Node, slots: list[int], without: i64) -> None:
    """Rows that are news, to everybody; they pass them on, since not everybody may hear us."""
    for peer in node.peers:
        if peer.is_linked and not peer.bit & without:
            write_rows(node, peer, slots)


def write_rows(node: Node, peer: Peer, slots: list[int]) -> None:
    if not slots:
        return
    homes = node.homes
    mask: i64 = 0
    for slot in slots:
        mask |= node.peers[homes.owners[slot]].bit
    links.explain(node, peer, mask)
    out = peer.out
    out.append(bus.SLOTS)
    bus.write_u16(out, len(slots))
    for slot in slots:
        bus.write_u16(out, slot)
        bus.write_u32(out, homes.epochs[slot])
        bus.write_i8(out, homes.owners[slot])


def read_slot(reader: Reader) -> i64:
    slot = reader.u16()
    if slot >= SLOTS:
        raise BadFrame("a slot beyond the last")
    return slot


def on_slots(node: Node, peer: Peer, reader: Reader) -> None:
    """Rows of the table of a peer."""
    homes = node.homes
    news: list[int] = []
    lost: list[int] = []
    old: list[int] = []
    for _ in range(reader.u16()):
        slot = int(read_slot(reader))
        epoch = int(reader.u32())
        theirs = reader.u8()
        owner = links.read_index(node, peer, theirs)
        if owner < 0:
            continue
        known = homes.owners[slot]
        if epoch == homes.epochs[slot] and owner == known:
            continue
        if epoch < homes.epochs[slot] or (
            epoch == homes.epochs[slot] and known != NOBODY
            and node.peers[owner].node_id() < node.peers[known].node_id()
        ):
            old.append(slot)
            continue
        if homes.opened[slot]:
            lost.append(slot)
        if known == ME and owner != ME and node.broken("lower-epoch-goes-on"):
            continue
        homes.epochs[slot] = epoch
        homes.owners[slot] = owner
        homes.close(slot)
        news.append(slot)
    write_rows(node, peer, old)
    if news:
        records.slots(node, news)
        tell(node, news, peer.bit)
        batches.tell_homes(node, set(news) - set(lost))
    if lost and not node.broken("lower-epoch-goes-on"):
        node.count("slots-lost")
        homecoming.close_slots(node, set(lost))
        for to in node.peers:
            theirs_now = {slot for slot in lost if homes.owners[slot] == to.index}
            if theirs_now and to.is_linked and to.index != ME:
                homecoming.give_up(node, to, theirs_now)
    handing = node.takeovers.handing
    if handing is not None and all([homes.owners[slot] != ME for slot in handing.slots]):
        node.takeovers.handing = None
        handing.wake = NEVER


# -- handing over -------------------------------------------------------------------------------------------------


def heir(node: Node, slot: i64) -> i64:
    """Who should be the home of a slot of ours: the first in its order that is there, and has been for a while."""
    for index in home.order(node, slot):
        if index == ME:
            if not node.is_leaving:
                return ME
            continue
        peer = node.peers[index]
        if peer.is_reachable(node.now) and (node.is_leaving or node.now - peer.linked_at >= HANDOVER_MS):
            return index
    return ME


def hand_over(node: Node) -> None:
    """To one node at a time, all that should be its."""
    heirs: dict[int, list[int]] = {}
    for slot in range(SLOTS):
        if node.homes.opened[slot]:
            index = heir(node, slot)
            if index != ME:
                heirs.setdefault(int(index), []).append(slot)
    for index, slots in heirs.items():
        hand_over_to(node, node.peers[index], slots)
        return


def hand_over_to(node: Node, peer: Peer, slots: list[int]) -> None:
    handing = Handing(peer, slots)
    node.takeovers.handing = handing
    node.alarms.set(handing, node.now + node.node_timeout)
    node.count("slots-handed-over")
    for slot in slots:
        node.homes.close(slot)
    homecoming.close_slots(node, set(slots))
    if not node.broken("handover-forgets"):
        homecoming.give_up(node, peer, set(slots))
    out = peer.out
    out.append(bus.HANDOVER)
    bus.write_u16(out, len(slots))
    for slot in slots:
        bus.write_u16(out, slot)
        bus.write_u32(out, node.homes.epochs[slot])


def on_handover(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer gives us slots: all that it knew of them came before this."""
    homes = node.homes
    slots: list[int] = []
    old: list[int] = []
    for _ in range(reader.u16()):
        slot = int(read_slot(reader))
        epoch = int(reader.u32())
        if epoch >= homes.epochs[slot] and not homes.opened[slot] and not node.is_leaving:
            homes.epochs[slot] = epoch
            slots.append(slot)
        elif homes.owners[slot] != NOBODY:
            old.append(slot)
    write_rows(node, peer, old)
    claim(node, slots)


def take_back(node: Node, handing: Handing) -> None:
    """It was not heard that they are the other's."""
    node.takeovers.handing = None
    handing.wake = NEVER
    slots = [slot for slot in handing.slots if node.homes.owners[slot] == ME]
    for slot in slots:
        node.homes.open(slot)
    homecoming.open_slots(node, set(slots))


def has_slots(node: Node) -> bool:
    return any(node.homes.opened)


# -- links --------------------------------------------------------------------------------------------------------


def link_up(node: Node, peer: Peer) -> None:
    look_soon(node)
    write_rows(node, peer, [slot for slot in range(SLOTS) if node.homes.epochs[slot] > 0])


def link_down(node: Node, peer: Peer) -> None:
    takeovers = node.takeovers
    taking = takeovers.taking
    if taking is not None and taking.asked & peer.bit:
        answered(node, peer, taking)
    handing = takeovers.handing
    if handing is not None and handing.peer is peer:
        take_back(node, handing)
