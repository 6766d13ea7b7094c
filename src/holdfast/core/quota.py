"""Bounds for the whole cluster, kept exactly: each node has a part of the bound, lent by its home.

`totalmaxlen` of a queue and CONCURRENCY are numbers for all nodes together. Counting what everybody has would be too
late: while the figures travel, all accept one more. So the home of the bound (home.py) lends each node a level, so
many it may have, and the levels add up to no more than the bound. Within its level a node decides alone. One that needs
more says so (QUOTA); the home gives what is left, in portions, and when nothing is left asks the others for what they
do not use (RECALL). A level is an absolute number and every word of the home has its own number, which a node repeats:
a word about an older level than the last one sent is not believed. Each home has numbers of its own, and while members
disagree about who that is a node may hear of two: it knows those of both. Who was asked to give back keeps nothing that
it does not use until it is lent more; so a bound that was lowered is reached as jobs end, the home having asked all.
Who has more than it was lent, because the bound is new or it was started anew, has that much all the same, and says so.

A new home knows nothing: it first asks all members it can reach for their levels, and until one has answered it may
have everything. Members it cannot reach, or not any more, keep theirs, of which it knows as much as it has copies of
their jobs; so the bound is exact in calm times, and per home while members disagree about who that is.

An ADDJOB for which the level here is too low waits until the home has answered: the command is kept and run again.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import bounds, home, rules, takeover, waiting
from holdfast.core.alarms import Chore
from holdfast.core.limits import KEY_BYTES_MAX, NEVER, QUEUE_NAME_BYTES_MAX
from holdfast.core.peers import ME, Peer
from holdfast.core.session import FOR_QUOTA, NOTHING, Session
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

# What is bounded.
JOBS: Final = 0  # of a queue
OUT_OF_QUEUE: Final = 1  # jobs of a queue that are out
OUT_OF_DOMAIN: Final = 2  # jobs of a domain that are out

YES: Final = 1
NO: Final = 0
WAIT: Final = -1
NO_HOME: Final = -2

ANSWER_MS: Final = 500
"""How long word of the home, or of those it asks, is waited for."""

FULL_MS: Final = 50
"""After the home said that nothing is left it is not asked again for so long: a full queue must refuse cheaply."""

NEED_MS: Final = 2000
"""Whoever has not said for so long that it needs more does not any more; those who do repeat it."""

AWAY_MS: Final = 30_000
"""After so long the jobs that a node had out when it was last heard are no longer counted as out."""

SILENCES_MAX: Final = 6
"""Then an ADDJOB is told that nobody can say: three seconds."""

LEVEL_MAX: Final = 2**40


class Row:
    """What the home knows of one node."""

    def __init__(self) -> None:
        self.level: i64 = 0
        self.number: i64 = 0  # of the last word sent to it
        self.need: i64 = 0  # more that it could use
        self.need_at: i64 = 0  # when it said so
        self.away_since: i64 = NEVER
        self.is_known: bool = True  # False: it has not said yet what it has, and may have anything
        self.is_asked: bool = False  # to say what it does not use
        self.is_tried: bool = False  # the others were asked on its behalf


class Quota(Chore):
    def __init__(self, kind: i64, name: bytes, slot: i64) -> None:
        super().__init__()
        self.kind: i64 = kind
        self.name: bytes = name
        self.slot: i64 = slot
        self.most: i64 = 0  # for all nodes together
        # Here.
        self.used: i64 = 0
        self.level: i64 = 0
        self.numbers: dict[int, int] = {}  # of the last word of each that was the home, or took itself to be
        self.told_by: i64 = -1  # the peer that said the last
        self.is_recalled: bool = False  # what we do not use is not ours any more
        self.full_until: i64 = 0
        self.silences: i64 = 0  # times that the home was asked, or looked for, in vain
        self.waiters: dict[Session, None] = {}
        # At the home.
        self.epoch: i64 = -1
        self.rows: dict[int, Row] = {}

    def run(self, node: Node) -> None:
        """Whoever was asked has not answered."""
        if self.epoch >= 0 and is_home(node, self):
            for row in self.rows.values():
                row.is_asked = False
            share_out(node, self, True)
            self.full_until = node.now + FULL_MS
        else:
            self.silences += 1
        release(node, self)


def find(node: Node, kind: i64, name: bytes) -> Quota:
    key = (int(kind), name)
    found = node.quotas.get(key)
    if found is None:
        found = Quota(kind, name, home.slot_of(home.QUOTA, b"%d" % int(kind), name))
        found.most = bounds.most_of(node, kind, name)
        node.quotas[key] = found
    return found


def set_most(node: Node, quota: Quota, most: i64) -> None:
    """The bound has changed. Of a lower one more may be lent than there is: the home takes back what is not used. Of a
    new one nobody knows what there is: the home asks."""
    is_lower = most < quota.most
    if most != quota.most:
        quota.full_until = 0  # that nothing is left was said of the other bound
    if quota.most == 0 and most > 0 and not node.broken("new-bound-unasked"):
        quota.epoch = -1
    quota.most = most
    if is_lower and len(node.peers) > 1 and is_home(node, quota) and not node.broken("lower-bound-not-recalled"):
        quota.level = min(quota.level, quota.used)
        quota.is_recalled = True
        for row in quota.rows.values():
            row.is_asked = False  # not about this bound
        recall(node, quota)


def is_home(node: Node, quota: Quota) -> bool:
    if not home.is_open(node, quota.slot):
        if quota.epoch >= 0:
            quota.epoch = -1
            quota.rows.clear()
        return False
    epoch: i64 = node.homes.epochs[quota.slot]
    if quota.epoch != epoch:
        quota.epoch = epoch
        before = quota.rows
        quota.rows = {}
        keep_used(node, quota)
        for peer in node.peers:
            if peer.index == ME or not peer.is_member:
                continue
            row = Row()
            row.number = before[int(peer.index)].number if int(peer.index) in before else 0
            quota.rows[int(peer.index)] = row
            if peer.is_linked:
                row.is_asked = True
                row.is_known = False
                row.level = quota.most
                write_recall(peer, quota)
            elif quota.kind == JOBS:
                row.level = bounds.copies_from(node, quota.name, peer)
        node.alarms.at_latest(quota, node.now + ANSWER_MS)
    return True


def room(node: Node, quota: Quota, count: i64) -> i64:
    """Whether so many more may be had here; WAIT if somebody was asked who may know."""
    if len(node.peers) == 1 or node.broken("total-by-sizes"):
        return YES if quota.used + count <= quota.most else NO
    if quota.used + count <= quota.level:
        return YES
    if count > quota.most or (node.now < quota.full_until and quota.kind == JOBS):
        return NO
    missing = quota.used + count - quota.level
    if quota.silences >= SILENCES_MAX and quota.kind == JOBS and not home.is_open(node, quota.slot):
        quota.silences = 0
        return NO_HOME
    if is_home(node, quota):
        quota.silences = 0
        spare = left(node, quota)
        if spare >= missing:
            quota.level += missing
            quota.is_recalled = False
            return YES
        if quota.kind != JOBS and not node.broken("first-is-always-first"):
            row = quota.rows.setdefault(ME, Row())
            row.need = missing
            row.need_at = node.now
        if recall(node, quota):
            return WAIT
        if any([row.is_asked for row in quota.rows.values()]):
            return WAIT
        if quota.kind != JOBS and quota.used < quota.most and not node.broken("away-not-outwaited"):
            node.alarms.at_latest(quota, node.now + ANSWER_MS)  # who has the rest is away, and will not tell
        return NO
    owner = home.owner(node, quota.slot)
    if owner == ME:
        takeover.want(node, quota.slot)
    elif node.peers[owner].is_linked:
        if quota.wake < NEVER and quota.kind == JOBS:
            return WAIT  # it was asked
        write_quota(node, node.peers[owner], quota, missing)
    node.alarms.at_latest(quota, node.now + ANSWER_MS)
    return WAIT


def left(node: Node, quota: Quota) -> i64:
    """What is not lent. Places of jobs that are out are given to others when a node has been away for a while."""
    lent: i64 = quota.level
    for index, row in quota.rows.items():
        if not node.peers[index].is_member and not node.broken("forgotten-keeps-its-part"):
            continue  # nobody will ever say what became of it
        if quota.kind == JOBS or node.now < row.away_since or node.now - row.away_since < AWAY_MS:
            lent += row.level
    return max(0, quota.most - lent)


def recall(node: Node, quota: Quota) -> bool:
    """Ask those who have something for what they do not use. False if there is nobody to ask."""
    is_asked = False
    for index, row in quota.rows.items():
        peer = node.peers[index]
        if row.level > 0 and not row.is_asked and peer.is_linked:
            row.is_asked = True
            write_recall(peer, quota)
            is_asked = True
    if is_asked:
        node.alarms.at_latest(quota, node.now + ANSWER_MS)
    return is_asked


# -- the home --------------------------------------------------------------------------------------------------------


def on_quota(node: Node, peer: Peer, reader: Reader) -> None:
    """A node says what it has, and what it needs."""
    quota = read_quota(node, reader)
    level = reader.long()
    number = reader.long()
    need = reader.long()
    if not 0 <= level <= LEVEL_MAX or not 0 <= need <= LEVEL_MAX:
        raise BadFrame("a level that nobody can have")
    if not is_home(node, quota):
        if home.owner(node, quota.slot) == ME:
            takeover.want(node, quota.slot)  # they think that we should be; they ask again
        return
    row = quota.rows.get(int(peer.index))
    if row is None:
        row = Row()
        quota.rows[int(peer.index)] = row
        row.number = number
    if row.number == 0:
        row.number = number  # a level that the last home gave
    if number == row.number:
        row.level = level
        row.is_known = True
        row.away_since = NEVER
        row.is_asked = False
    if need > 0:  # an answer to RECALL needs nothing, and takes nothing back that was asked before
        row.need = need
        row.need_at = node.now
        if not any([each.is_asked for each in quota.rows.values()]):
            row.is_tried = False
    share_out(node, quota, False)
    if quota.kind != JOBS or left(node, quota) > 0:
        release(node, quota)


def share_out(node: Node, quota: Quota, is_final: bool) -> None:
    """Give those who need more what is left; where nothing is, the others are asked. `is_final`: they were.

    In turn, the home among them, where there is little to give: who was served is the last from then on.
    """
    spare = left(node, quota)
    for index, row in list(quota.rows.items()):
        if row.need == 0:
            continue
        peer = node.peers[index]
        if index == ME:
            given = min(spare, row.need)
            if given > 0:
                spare -= given
                quota.level += given
                quota.is_recalled = False
                row.need = 0
                row.need_at = node.now
                be_last(quota, index)
            continue
        if not peer.is_linked or node.now - row.need_at > NEED_MS:
            row.need = 0
            continue
        if spare > 0:
            portion = max(row.need, spare // (2 * (1 + len(quota.rows)))) if quota.kind == JOBS else row.need
            given = min(spare, portion)
            spare -= given
            row.level += given
            row.need = 0
            row.is_tried = False
            write_level(node, peer, quota, row, False)
            if not node.broken("first-is-always-first"):
                be_last(quota, index)
            continue
        if quota.level > quota.used and not is_served(node, quota):
            quota.level = quota.used  # what we do not use ourselves
            share_out(node, quota, is_final)
            return
        if not row.is_tried:
            row.is_tried = True
            recall(node, quota)
        is_over = is_final or not any([each.is_asked for each in quota.rows.values()])
        if is_over and quota.kind == JOBS:
            row.need = 0
            row.is_tried = False
            write_level(node, peer, quota, row, True)


def is_served(node: Node, quota: Quota) -> bool:
    """Whether it was the turn of the home itself just now, which is about to use what it has."""
    row = quota.rows.get(ME)
    return row is not None and row.need == 0 and node.now - row.need_at < FULL_MS


def be_last(quota: Quota, index: int) -> None:
    quota.rows[index] = quota.rows.pop(index)


def write_level(node: Node, peer: Peer, quota: Quota, row: Row, is_all: bool) -> None:
    row.number += 1
    peer.out.append(bus.LEVELS)
    write_key(peer, quota)
    bus.write_i64(peer.out, row.level)
    bus.write_i64(peer.out, row.number)
    bus.write_i8(peer.out, 1 if is_all else 0)


def write_recall(peer: Peer, quota: Quota) -> None:
    peer.out.append(bus.RECALL)
    write_key(peer, quota)


# -- the others --------------------------------------------------------------------------------------------------------


def write_quota(node: Node, peer: Peer, quota: Quota, need: i64) -> None:
    if quota.told_by != peer.index and node.broken("numbers-of-one-home"):
        quota.numbers.clear()
    quota.told_by = peer.index
    peer.out.append(bus.QUOTA)
    write_key(peer, quota)
    bus.write_i64(peer.out, quota.level)
    bus.write_i64(peer.out, quota.numbers.get(int(peer.index), 0))
    bus.write_i64(peer.out, need)


def on_recall(node: Node, peer: Peer, reader: Reader) -> None:
    """Others need what we do not use."""
    quota = read_quota(node, reader)
    if quota.epoch >= 0 and home.is_open(node, quota.slot):
        return  # we are the home, as far as we know
    keep_used(node, quota)
    write_quota(node, peer, quota, 0)


def keep_used(node: Node, quota: Quota) -> None:
    """What is not used here is not ours any more. Who asks may know of a bound that is news to us."""
    bounds.recount(node, quota)
    quota.level = min(quota.level, quota.used)
    quota.is_recalled = True


def use(node: Node, quota: Quota, count: i64) -> None:
    """So many are used here. What was not lent is ours only as long as we use it."""
    quota.used = count
    if count > quota.level and not node.broken("unlent-untold"):
        quota.level = count
        quota.is_recalled = True


def on_levels(node: Node, peer: Peer, reader: Reader) -> None:
    """The home says how many we may have."""
    quota = read_quota(node, reader)
    level = reader.long()
    number = reader.long()
    is_all = reader.u8() == 1
    if not 0 <= level <= LEVEL_MAX:
        raise BadFrame("a level that nobody can have")
    quota.told_by = peer.index
    quota.numbers[int(peer.index)] = int(number)
    quota.level = level
    quota.is_recalled = False
    quota.silences = 0
    quota.wake = NEVER
    if is_all:
        quota.full_until = node.now + FULL_MS
    release(node, quota)


def freed(node: Node, quota: Quota) -> None:
    """One less is used here. If others wait for it they get it."""
    if len(node.peers) == 1:
        return
    if quota.is_recalled:
        quota.level = min(quota.level, quota.used)
    if is_home(node, quota):
        if any([row.need > 0 for row in quota.rows.values()]):
            share_out(node, quota, False)
    elif quota.is_recalled and quota.told_by >= 0 and quota.kind != JOBS and node.peers[quota.told_by].is_linked:
        write_quota(node, node.peers[quota.told_by], quota, 0)


def release(node: Node, quota: Quota) -> None:
    """Whoever waited tries again."""
    if quota.kind == OUT_OF_QUEUE:
        queue = node.queues.get(quota.name)
        if queue is not None and queue.rules is not None and queue.rules.throttle is not None:
            rules.wake(node, queue.rules.throttle)
    elif quota.kind == OUT_OF_DOMAIN:
        throttle = node.domains.table.get(quota.name)
        if throttle is not None:
            rules.wake(node, throttle)
    waiters = quota.waiters
    quota.waiters = {}
    for session in waiters:
        if session.blocked == FOR_QUOTA:
            waiting.unblock(node, session)
            node.wakeups.append((session, b""))


def postpone(node: Node, quota: Quota, session: Session) -> None:
    """Its command is kept, and run again when there is word."""
    quota.waiters[session] = None
    if session.blocked == NOTHING:
        waiting.block(node, session, FOR_QUOTA)


def link_up(node: Node, peer: Peer) -> None:
    """What we said last may be lost with the last link, or the peer may have lost all: it says anew what it has."""
    for quota in node.quotas.values():
        row = quota.rows.get(int(peer.index))
        if row is not None:
            row.number = 0
            if quota.most > 0:
                row.is_asked = True
                write_recall(peer, quota)
                node.alarms.at_latest(quota, node.now + ANSWER_MS)


def link_down(node: Node, peer: Peer) -> None:
    """What it had it keeps; nothing is to be had from it now."""
    for quota in node.quotas.values():
        row = quota.rows.get(int(peer.index))
        if row is not None:
            row.is_asked = False
            row.need = 0
            row.away_since = node.now
            if not row.is_known and quota.kind == JOBS and not node.broken("silent-has-everything"):
                row.level = bounds.copies_from(node, quota.name, peer)


def write_key(peer: Peer, quota: Quota) -> None:
    bus.write_i8(peer.out, quota.kind)
    bus.write_name(peer.out, quota.name)


def read_quota(node: Node, reader: Reader) -> Quota:
    kind = reader.u8()
    name = reader.name()
    if kind > OUT_OF_DOMAIN or len(name) > (KEY_BYTES_MAX if kind == OUT_OF_DOMAIN else QUEUE_NAME_BYTES_MAX):
        raise BadFrame("a bound of nothing")
    return find(node, kind, name)
