"""Tokens for the whole cluster: the home of a rate lends them to nodes that have jobs and somebody who waits.

A rate holds for all nodes together, and jobs of a domain may be at any of them. The bucket is at one, the home of the
domain's name (home.py). A node at which a job could go out but for a token says how many it could use (WANT); the home
gives what it has, to those who want in turn and to itself among them (GRANT), a few at a time and for a second. A node
says for each token that it used it (SPENT), and gives back what it did not use in time (UNSPENT). No grant is
ever made longer. A job that has paid and is given to a node where nobody waits any more is queued there and pays
again: what it had paid goes back to the home (REFUND).

A token on loan is still in the bucket: as long as `lent` are out, the bucket may fill up to burst - lent and no
further. So at each instant what could go out at once is at most `burst`, wherever the tokens are, and in no window of w
seconds do more than rate × w + burst go out. A loan of which nothing is heard is over after its time and a little more,
and counts as spent.

A new home begins with an empty bucket: what the last one gave away nobody knows. That costs one interval, and never
exceeds a rate. For slow rates, where one interval is long, the home tells everybody how full its bucket is (LEVEL),
and whoever is the next home begins with that; else homes that come and go would starve them.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import domains, home, queues, rules, settings, takeover
from holdfast.core.limits import KEY_BYTES_MAX, NEVER, QUEUE_NAME_BYTES_MAX
from holdfast.core.peers import ME, Peer
from holdfast.core.throttle import NS, Throttle, now_ns
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

GRANT_MS: Final = 1000
"""How long a token that was lent may be used."""

SLACK_MS: Final = 1000
"""How much longer its home waits for word of it: frames take time."""

NOT_HOME_MS: Final = 200
"""Whoever asked one that is not the home looks for it again after this."""

AGAIN_MS: Final = 5000
"""A home that has said nothing for so long is asked again."""

GRANT_MOST: Final = 1000
"""Tokens in one grant."""

SLOW_MS: Final = 5000
"""A rate with a longer interval than this is slow: its level is told to all nodes with each token."""

FIRST_EPOCH: Final = 1
"""Of a slot that nobody was the home of before: nothing was given away."""

# What a throttle is of, on the wire.
OF_DOMAIN: Final = 0
OF_QUEUE: Final = 1


class Loan:
    def __init__(self, index: i64, count: i64, until: i64) -> None:
        self.index: i64 = index  # of the peer that has the tokens
        self.count: i64 = count
        self.until: i64 = until


class Share:
    """What a throttle with a rate has to do with other nodes."""

    def __init__(self, slot: i64) -> None:
        self.slot: i64 = slot
        self.epoch: i64 = -1  # of the slot, when the bucket here was that of its home
        # At the home.
        self.wanted: dict[int, int] = {}  # by peer: tokens it could use; the one served last at the end
        self.loans: list[Loan] = []
        # At every node, the home among them.
        self.granted: i64 = 0  # tokens that we may use
        self.granted_until: i64 = 0
        self.granted_by: i64 = ME
        self.asked: i64 = 0  # tokens that we have asked for and have not got
        self.asked_of: i64 = -1  # of that peer
        self.asked_at: i64 = 0
        self.level_at: i64 = -1  # told by the home: when its bucket is full again, by our clock, ns


def share_of(node: Node, throttle: Throttle) -> Share:
    share = throttle.shared
    if share is None:
        queue = throttle.queue
        if queue is None:
            share = Share(home.slot_of(home.DOMAIN, b"", throttle.name))
        else:
            share = Share(home.slot_of(home.DOMAIN, queue.name, b""))
        throttle.shared = share
    return share


def is_home(node: Node, throttle: Throttle, share: Share) -> bool:
    """Whether the bucket is here. One that we have just become the home of is empty, or as full as we were told."""
    if not home.is_open(node, share.slot):
        return False
    epoch: i64 = node.homes.epochs[share.slot]
    if share.epoch != epoch:
        share.epoch = epoch
        share.wanted.clear()
        share.loans.clear()
        share.asked = 0
        throttle.lent = 0
        throttle.full_at = 0
        if share.level_at >= 0 and throttle.interval > SLOW_MS * NS:
            throttle.full_at = share.level_at
        elif epoch > FIRST_EPOCH and not node.broken("new-home-full"):
            throttle.empty(now_ns(node))
        share.level_at = -1
    return True


# -- asked by rules.py ---------------------------------------------------------------------------------------------


def has_token(node: Node, throttle: Throttle) -> bool:
    """Whether a job may pass here and now; if not, whoever can help is asked."""
    if len(node.peers) == 1:
        return is_filled(node, throttle)
    share = share_of(node, throttle)
    if share.granted > 0 and node.now < share.granted_until:
        return True
    if is_home(node, throttle, share):
        end_loans(node, throttle, share)
        if not share.wanted:
            return is_filled(node, throttle)
        share.wanted[ME] = int(appetite(throttle))
        deal(node, throttle, share)
        return share.granted > 0
    ask(node, throttle, share)
    return False


def is_filled(node: Node, throttle: Throttle) -> bool:
    """Whether there is a token in the bucket; if not, that is a matter of time, and the throttle wakes us then."""
    now = now_ns(node)
    if throttle.has_token(now):
        return True
    node.alarms.set(throttle, node.start + (throttle.next_at(now) + NS - 1) // NS)
    return False


def take(node: Node, throttle: Throttle) -> None:
    """A job passes: `has_token` was asked just before."""
    share = share_of(node, throttle)
    if share.granted > 0 and node.now < share.granted_until:
        share.granted -= 1
        if share.granted_by == ME:
            settle(node, throttle, share, ME, 1, True)
        else:
            tell(node, throttle, share.granted_by, bus.SPENT, 1)
        return
    throttle.take(now_ns(node))
    tell_level(node, throttle)


def appetite(throttle: Throttle) -> i64:
    """How many tokens could be used here now: jobs that wait, and somebody who would take them."""
    queue = throttle.queue
    if queue is not None:
        return max(1, min(queue.size, queue.asked_for, GRANT_MOST))
    takers: i64 = 0
    for bin in throttle.bins:
        takers += bin.line.rules.queue.asked_for
        if takers >= GRANT_MOST:
            break
    return max(1, min(throttle.waiting, takers, GRANT_MOST))


# -- at a node that is not the home --------------------------------------------------------------------------------


def ask(node: Node, throttle: Throttle, share: Share) -> None:
    """Say how many tokens we could use, if the home does not know."""
    owner = home.owner(node, share.slot)
    if owner == ME:
        takeover.want(node, share.slot)
        node.alarms.set(throttle, node.now + NOT_HOME_MS)
        return
    peer = node.peers[owner]
    if not peer.is_linked:
        node.alarms.set(throttle, node.now + NOT_HOME_MS)
        return
    count = appetite(throttle)
    if count > share.asked or share.asked_of != owner or node.now - share.asked_at >= AGAIN_MS:
        share.asked = count
        share.asked_of = owner
        share.asked_at = node.now
        tell(node, throttle, owner, bus.WANT, count)
    node.alarms.set(throttle, node.now + AGAIN_MS)  # a home that has changed, or forgot, is asked again


def on_grant(node: Node, peer: Peer, reader: Reader) -> None:
    """Tokens from the home."""
    throttle = read_throttle(node, reader)
    count = reader.u32()
    ms = reader.u32() - peer.late
    if count > GRANT_MOST:
        raise BadFrame("more tokens than there are")
    if throttle is None or throttle.interval == 0:
        return  # its time is over by itself
    share = share_of(node, throttle)
    share.asked = max(0, share.asked - count)
    if count == 0:
        share.asked = 0
        node.alarms.set(throttle, node.now + NOT_HOME_MS)
    if ms <= 0 or count == 0:
        return
    if share.granted > 0 and share.granted_by != peer.index:
        give_back(node, throttle, share)
    until = node.now + ms
    share.granted_until = until if share.granted == 0 else min(share.granted_until, until)
    share.granted += count
    share.granted_by = peer.index
    rules.opened(node, throttle)
    if share.granted > 0:
        node.alarms.at_latest(throttle, share.granted_until)


def give_back(node: Node, throttle: Throttle, share: Share) -> None:
    """Tokens that were not used."""
    count = share.granted
    share.granted = 0
    if count > 0 and share.granted_by == ME:
        settle(node, throttle, share, ME, count, False)
    elif count > 0:
        tell(node, throttle, share.granted_by, bus.UNSPENT, count)
        share.asked = 0


def woke(node: Node, throttle: Throttle) -> bool:
    """The throttle's alarm: what was lent to us may be over. False if there is nothing more to do."""
    share = share_of(node, throttle)
    if share.granted > 0 and node.now >= share.granted_until:
        if node.broken("grants-renewed"):
            share.granted_until = node.now + 60 * GRANT_MS
        else:
            give_back(node, throttle, share)
    if is_home(node, throttle, share) and share.wanted:
        deal(node, throttle, share)
    return True


# -- at the home -------------------------------------------------------------------------------------------------


def on_want(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer has a job that could go out."""
    throttle = read_throttle(node, reader)
    count = reader.u32()
    if throttle is None or throttle.interval == 0:
        return
    share = share_of(node, throttle)
    if not is_home(node, throttle, share):
        if home.owner(node, share.slot) == ME:
            takeover.want(node, share.slot)
        tell(node, throttle, peer.index, bus.GRANT, 0)  # it asks again in a moment, whoever is the home then
        bus.write_u32(peer.out, 0)
        return
    if count == 0:
        share.wanted.pop(int(peer.index), None)
    else:
        share.wanted[int(peer.index)] = int(min(count, GRANT_MOST))
    deal(node, throttle, share)


def deal(node: Node, throttle: Throttle, share: Share) -> None:
    """Give what there is to those who want it, in turn."""
    end_loans(node, throttle, share)
    now = now_ns(node)
    is_for_me = False
    while share.wanted and throttle.has_token(now):
        index = next(iter(share.wanted))
        count: i64 = share.wanted.pop(index)
        if index != ME and not node.peers[index].is_linked:
            continue
        given: i64 = min(count, max(1, throttle.tokens(now) // (1 + len(share.wanted))), GRANT_MOST)
        for _ in range(given):
            throttle.take(now)
        if not node.broken("loans-not-counted"):
            throttle.lent += given
        if index == ME:
            share.granted_until = node.now + GRANT_MS if share.granted == 0 else share.granted_until
            share.granted += given
            share.granted_by = ME
            share.loans.append(Loan(ME, given, NEVER))
            is_for_me = True
        else:
            share.loans.append(Loan(index, given, node.now + GRANT_MS + SLACK_MS))
            tell(node, throttle, index, bus.GRANT, given)
            bus.write_u32(node.peers[index].out, GRANT_MS)
            if count > given:
                share.wanted[index] = int(count - given)
        tell_level(node, throttle)
    if share.wanted:
        node.alarms.at_latest(throttle, node.start + (throttle.next_at(now) + NS - 1) // NS)
    if is_for_me:
        node.alarms.at_latest(throttle, node.now)  # it is served then: whoever asked may be in the middle of it


def settle(node: Node, throttle: Throttle, share: Share, index: i64, count: i64, is_spent: bool) -> None:
    """Word of tokens that were lent: used, or not."""
    now = now_ns(node)
    throttle.fill(now)
    for loan in list(share.loans):
        if loan.index == index and count > 0:
            told = min(count, loan.count)
            count -= told
            loan.count -= told
            throttle.lent = max(0, throttle.lent - told)
            if not is_spent:
                for _ in range(told):
                    throttle.give_back(now)
            if loan.count == 0:
                share.loans.remove(loan)
    if share.wanted:
        deal(node, throttle, share)


def end_loans(node: Node, throttle: Throttle, share: Share) -> None:
    """Of those whose time is over nothing was heard: they count as spent."""
    if not share.loans:
        return
    throttle.fill(now_ns(node))
    for loan in list(share.loans):
        if loan.until <= node.now:
            throttle.lent = max(0, throttle.lent - loan.count)
            share.loans.remove(loan)


def on_spent(node: Node, peer: Peer, reader: Reader) -> None:
    hear(node, peer, reader, True)


def on_unspent(node: Node, peer: Peer, reader: Reader) -> None:
    hear(node, peer, reader, False)


def hear(node: Node, peer: Peer, reader: Reader, is_spent: bool) -> None:
    throttle = read_throttle(node, reader)
    count = reader.u32()
    if throttle is None or throttle.interval == 0:
        return
    share = share_of(node, throttle)
    if is_home(node, throttle, share):
        if not is_spent:
            share.wanted.pop(int(peer.index), None)
        settle(node, throttle, share, peer.index, count, is_spent)


def refund(node: Node, throttle: Throttle, count: i64) -> None:
    """Tokens that were spent on jobs which were not handed out in the end: as if they had not been taken. One of which
    its home does not know yet that it was spent is lost, and so is one whose home cannot be heard."""
    share = share_of(node, throttle)
    if not is_home(node, throttle, share):
        tell(node, throttle, home.owner(node, share.slot), bus.REFUND, count)
        return
    now = now_ns(node)
    for _ in range(count):
        throttle.give_back(now)
    tell_level(node, throttle)
    if share.wanted:
        deal(node, throttle, share)


def on_refund(node: Node, peer: Peer, reader: Reader) -> None:
    throttle = read_throttle(node, reader)
    count = reader.u32()
    if count > GRANT_MOST:
        raise BadFrame("more tokens than there are")
    if throttle is not None and throttle.interval != 0 and is_home(node, throttle, share_of(node, throttle)):
        refund(node, throttle, count)


def tell_level(node: Node, throttle: Throttle) -> None:
    """A slow rate: everybody knows how full the bucket is."""
    if throttle.interval <= SLOW_MS * NS:
        return
    for peer in node.peers:
        if peer.is_linked:
            tell(node, throttle, peer.index, bus.LEVEL, 0)
            bus.write_i64(peer.out, throttle.full_at - now_ns(node))


def on_level(node: Node, peer: Peer, reader: Reader) -> None:
    throttle = read_throttle(node, reader)
    reader.u32()
    left = reader.long()
    if left < -NEVER // 2 or left > NEVER // 2:
        raise BadFrame("a bucket that is never full")
    if throttle is not None:
        share = share_of(node, throttle)
        share.level_at = max(0, now_ns(node) + left)


# -- on the wire -----------------------------------------------------------------------------------------------------


def tell(node: Node, throttle: Throttle, index: i64, kind: i64, count: i64) -> None:
    peer = node.peers[index]
    if not peer.is_linked:
        return
    out = peer.out
    out.append(int(kind))
    bus.write_i8(out, OF_DOMAIN if throttle.queue is None else OF_QUEUE)
    bus.write_name(out, throttle.name)
    bus.write_u32(out, count)


def read_throttle(node: Node, reader: Reader) -> Throttle | None:
    """The throttle that a peer means. None if there is none here, and none is set for it."""
    is_of_queue = reader.u8() == OF_QUEUE
    name = reader.name()
    if is_of_queue:
        if len(name) > QUEUE_NAME_BYTES_MAX:
            raise BadFrame("a queue name longer than there are")
        queue = node.queues.get(name)
        if queue is None and settings.queue_setting(node, name, b"rate") is not None:
            queue = queues.queue_or_none(node, name)
        return None if queue is None or queue.rules is None else queue.rules.throttle
    if len(name) > KEY_BYTES_MAX:
        raise BadFrame("a key longer than there are")
    found = node.domains.table.get(name)
    if found is None and domains.pattern_for(node, name):
        found = domains.find(node, name)
    return found


def link_down(node: Node, peer: Peer) -> None:
    """It wants nothing any more, and what we asked of it is not known to have arrived. Loans run out by themselves."""
    for throttle in rules.all_throttles(node):
        share = throttle.shared
        if share is not None:
            share.wanted.pop(int(peer.index), None)
            if share.asked_of == peer.index:
                share.asked = 0


def slow_down(node: Node, throttle: Throttle, ms: i64) -> None:
    """A worker was told to slow down: the home does so for everybody."""
    if not throttle.adapts or throttle.interval == 0:
        return
    share = share_of(node, throttle)
    if is_home(node, throttle, share):
        throttle.slow_down(now_ns(node), ms)
        if throttle.wake < NEVER:
            node.alarms.set(throttle, node.start + (throttle.next_at(now_ns(node)) + NS - 1) // NS)
    else:
        tell(node, throttle, home.owner(node, share.slot), bus.SLOW, ms)


def on_slow(node: Node, peer: Peer, reader: Reader) -> None:
    throttle = read_throttle(node, reader)
    ms = reader.u32()
    if throttle is not None and is_home(node, throttle, share_of(node, throttle)):
        slow_down(node, throttle, ms)
