"""What becomes of a job beyond being queued and handed out, and how all its holders come to know.

A job can fail and wait (failure.py), die, be sent back to its queue, or get another priority or queue. Each is
decided at one node and said to the others that hold a copy (FATE), or a holder that was not told would revive a dead
job when its timer says so. What holds when two nodes say different things, from the strongest:

    ended (acks.py)  >  a higher round  >  dead  >  anything else

where the round counts how often the job was sent back from the dead: so a dead job stays dead until somebody says
otherwise, and then no old word about its death counts any more. Deaths, returns and changes are said until every
holder has confirmed (GOTFATE), like endings. Failures are said once: tries are a set, united when copies meet, and the
count is a lower bound where a node was lost or cut off.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i16, i32, i64

from holdfast.core import (
    acks,
    books,
    bounds,
    failure,
    gates,
    groups,
    history,
    leases,
    links,
    peers,
    queues,
    records,
    replicate,
    requeue,
    results,
    rules,
    tombs,
)
from holdfast.core.copies import Copy, write_job_id
from holdfast.core.job import (
    ACKED,
    ACTIVE,
    BACKING_OFF,
    COUNTED,
    DEAD,
    GONE,
    MOVING,
    QUEUED,
    TOLD_UNTIL,
    WAIT_REPL,
    Job,
)
from holdfast.core.limits import DURATION_S_MAX, PRIORITY_MAX, QUEUE_NAME_BYTES_MAX
from holdfast.core.more import RELEASED, More, read
from holdfast.core.peers import ME, MY_BIT, Peer
from holdfast.core.queue import Queue
from holdfast.core.session import Session
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

# What FATE says.
TRIES: Final = 0  # how hand-outs ended; nothing else has changed
WAITS: Final = 1  # it failed, and waits at the sender for so many ms
DIES: Final = 2  # it is dead, and kept for so many ms
LIVES: Final = 3  # it is not, and lives for so many ms; or it has another priority or queue
UNKNOWN: Final = 4  # only in an answer: no such job here

RETRY_MS: Final = 1000
RETRY_MS_MAX: Final = 180_000


class Spread:
    """A fate that not every holder has confirmed."""

    def __init__(self) -> None:
        self.confirmed: i64 = MY_BIT
        self.at: i64 = 0  # when to say it again
        self.tries: i64 = 0


def die(node: Node, job: Job, cause: bytes, retention_ms: i64) -> None:
    """It is not handed out any more until somebody sends it back."""
    more = failure.own_more(node, job)
    more.cause = cause
    more.died = node.wall
    job.queue.died += 1
    if cause == failure.EXPIRED:
        job.queue.expired += 1
        node.expired += 1
    node.count("deaths")
    job.responsible = ME
    history.dead(node, job, cause, results.last_error(job) or b"")
    lie_down(node, job, retention_ms)
    spread(node, job)


def lie_down(node: Node, job: Job, retention_ms: i64) -> None:
    """The copy here is dead: it waits for nothing but the end of the time for which it is kept."""
    more = job.more
    assert more is not None
    if job.state == QUEUED:
        job.queue.remove(job)
    requeue.stop_asking(node, job)
    rules.let_go(node, job)
    if job.state != DEAD:
        node.account(len(more.cause))
        if more.life == 0:
            more.life = max(1000, job.expire - job.ctime // 1_000_000)
    job.flags &= ~(BACKING_OFF | TOLD_UNTIL | MOVING)
    job.state = DEAD
    job.qtime = 0
    job.expire = node.now + retention_ms
    node.dead[job] = None
    page = job.origin.find_page(job.seq)
    assert page is not None
    node.alarms.at_latest(page, job.expire)
    records.fate(node, job)
    gates.died(node, job)
    results.tell_end(node, job, results.DEAD)


def arrive(node: Node, job: Job) -> None:
    """A copy of a dead job, new here."""
    job.state = DEAD
    job.qtime = 0
    node.dead[job] = None


def meet(node: Node, peer: Peer, job: Job, copy: Copy) -> None:
    """A peer sends a copy of a job that is here: they may differ in what became of it."""
    theirs = copy.more
    if job.state == WAIT_REPL or (theirs is None and job.more is None):
        return
    if theirs is not None and theirs.cause and job.state != DEAD and own_round(job) <= i64(theirs.round):
        write(node, peer, job, LIVES)  # to which it says that the job is dead, in the words for that
    elif job.state == DEAD and (theirs is None or not theirs.cause):
        write(node, peer, job, DIES)
    elif theirs is not None:
        unite(node, job, theirs)


def own_round(job: Job) -> i64:
    return 0 if job.more is None else i64(job.more.round)


def rise(node: Node, job: Job, life_ms: i64) -> None:
    """The copy here is alive again; the caller says what is done with it."""
    more = job.more
    assert more is not None
    node.dead.pop(job, None)
    node.account(-len(more.cause))
    more.cause = b""
    more.died = 0
    job.state = ACTIVE
    job.expire = node.now + life_ms
    page = job.origin.find_page(job.seq)
    assert page is not None
    node.alarms.at_latest(page, job.expire)


def send_back(node: Node, job: Job, session: Session | None) -> None:
    """Somebody wants a dead job to be tried again: with all its attempts, and a life as long as its first."""
    more = job.more
    assert more is not None
    history.revived(node, job, session)
    node.count("revivals")
    rise(node, job, more.life)
    if not node.broken("retry-without-round"):
        more.round += 1
    more.failures = 0
    more.lost = 0
    job.responsible = ME
    job.hops = 0
    leases.forget(node, job)
    records.fate(node, job)
    spread(node, job)
    node.queue_again(job)


def change(node: Node, job: Job, priority: i64, queue: Queue) -> None:
    """Another priority, another queue: the last word counts, by the clock of whoever said it."""
    more = failure.own_more(node, job)
    more.changed = max(node.wall, more.changed + 1)
    is_queued = job.state == QUEUED or groups.is_held(job)
    put_elsewhere(node, job, priority, queue)
    if queue.total_most > 0:
        bounds.count(node, job)
    records.fate(node, job)
    spread(node, job)
    if is_queued:
        node.enqueue(job)


def put_elsewhere(node: Node, job: Job, priority: i64, queue: Queue) -> None:
    """Out of its place; if it was queued the caller sees to it that it is again."""
    if job.state == QUEUED:
        job.queue.remove(job)
        job.queue.jobs_in -= 1
        job.state = ACTIVE
    job.priority = i16(priority)
    if queue is not job.queue:
        was_out = job.flags & COUNTED != 0
        rules.let_go(node, job)
        bounds.ended(node, job)
        gates.leaves(node, job)
        job.queue.held -= 1
        queue.held += 1
        queue.used = node.now
        old = job.queue
        job.queue = queue
        if was_out:
            rules.count_out(node, job)
        if old.book is not queue.book:
            books.change(node, job, old)


# -- telling the other holders ----------------------------------------------------------------------------


def is_to_be_told(job: Job) -> bool:
    """Whether something holds for a living job that a holder may not have heard of before our restart."""
    more = job.more
    return more is not None and (more.round > 0 or more.changed > 0)


def spread(node: Node, job: Job) -> None:
    """Say it until every holder has confirmed."""
    if job.holders == MY_BIT or (job.state == DEAD and node.broken("dead-not-spread")):
        return
    node.spreading[job] = Spread()
    say(node, job, node.spreading[job])
    if job.state == DEAD and node.broken("death-told-once"):
        node.spreading.pop(job, None)


def say(node: Node, job: Job, spread: Spread) -> None:
    missing = job.holders & ~spread.confirmed & ~peers.forgotten(node)
    if missing == 0:
        del node.spreading[job]
        return
    for peer in node.peers:
        if peer.bit & missing and peer.is_linked:
            write(node, peer, job, DIES if job.state == DEAD else LIVES)
    spread.at = node.now + min(RETRY_MS_MAX, RETRY_MS << min(8, spread.tries))
    spread.tries += 1


def tell(node: Node, job: Job, kind: i64) -> None:
    """Say it once to whoever can be heard."""
    for peer in node.peers:
        if peer.bit & job.holders & ~MY_BIT and peer.is_linked:
            write(node, peer, job, kind)


def write(node: Node, peer: Peer, job: Job, kind: i64) -> None:
    out = peer.out
    more = job.more
    links.explain(node, peer, job.holders)
    out.append(bus.FATE)
    write_job_id(out, job)
    bus.write_i8(out, kind)
    bus.write_i64(out, max(0, (job.qtime if kind == WAITS else job.expire) - node.now))
    bus.write_u32(out, i64(job.nacks))
    bus.write_u32(out, i64(job.deliveries))
    bus.write_i8(out, i64(job.priority))
    bus.write_i64(out, job.holders)
    bus.write_name(out, job.queue.name)
    bus.write_name(out, b"" if more is None else more.fate())


def beat(node: Node) -> None:
    """Once a second: what is not confirmed yet."""
    for job, spread in list(node.spreading.items()):
        if job.state == GONE or job.state == ACKED:
            del node.spreading[job]
        elif node.now >= spread.at:
            say(node, job, spread)


def link_up(node: Node, peer: Peer) -> None:
    for job, spread in node.spreading.items():
        if peer.bit & job.holders & ~spread.confirmed and job.state != GONE and job.state != ACKED:
            write(node, peer, job, DIES if job.state == DEAD else LIVES)


# -- hearing of it ----------------------------------------------------------------------------------------


class Said:
    """A FATE message, read and checked."""

    def __init__(self, node: Node, peer: Peer, reader: Reader) -> None:
        self.jid: bytes = reader.job_id()
        self.kind: i64 = reader.u8()
        self.ms: i64 = max(0, reader.long() - peer.late)
        self.nacks: i64 = reader.u32()
        self.deliveries: i64 = reader.u32()
        self.priority: i64 = reader.u8()
        self.holders: i64 = links.read_mask(node, peer, reader) | peer.bit
        self.queue: bytes = reader.name()
        self.more: More = read(reader.name())
        if (
            self.kind > LIVES or self.ms > DURATION_S_MAX * 1000 or self.nacks > DURATION_S_MAX
            or self.deliveries > DURATION_S_MAX or self.priority > PRIORITY_MAX
            or len(self.queue) > QUEUE_NAME_BYTES_MAX
        ):
            raise BadFrame("a fate that no job can have")


def on_fate(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer says what became of a job."""
    said = Said(node, peer, reader)
    if acks.answer_from_tomb(node, peer, said.jid, said.holders):
        return
    job = node.find(said.jid)
    if job is None:
        if said.kind >= DIES:
            write_got(node, peer, said.jid, UNKNOWN, 0, 0, 0)
        return
    tombs.learn_holders(node, job, said.holders)
    if job.state == ACKED:
        acks.answer_ended(node, peer, job)
        return
    if job.state == WAIT_REPL:
        return  # whoever adds it will hear of the job's fate when it is accepted, or of its end
    mine = own_round(job)
    theirs = i64(said.more.round)
    if theirs < mine or (theirs == mine and job.state == DEAD and said.kind != DIES):
        write(node, peer, job, DIES if job.state == DEAD else LIVES)  # what we know is later, or stronger
        asking = node.asking.get(job)
        if asking is not None:
            requeue.nothing_against(node, peer, job, asking)  # it has only what is no longer true
        return
    is_nacked = said.nacks > i64(job.nacks)
    merge(node, job, said)
    if said.kind == DIES:
        take_death(node, peer, job, said)
    elif job.state == DEAD:
        rise(node, job, said.ms)
        follow(node, peer, job, i64(job.retry) * 1000)
    elif theirs > mine:
        job.expire = max(job.expire, node.now + said.ms)
    if said.kind == WAITS and job.state != DEAD:
        if requeue.is_leased(node, job) and not is_nacked:
            requeue.write_state(node, peer, said.jid, requeue.IS_LEASED, job.qtime - node.now, job.holders)
        else:
            leases.forget(node, job)
            follow(node, peer, job, said.ms)
    records.fate(node, job)
    if said.kind >= DIES:
        node.must_sync = True  # the answer says that it is kept
        more = failure.own_more(node, job)
        write_got(node, peer, said.jid, said.kind, i64(more.round), more.changed, job.holders)


def take_death(node: Node, peer: Peer, job: Job, said: Said) -> None:
    more = failure.own_more(node, job)
    if job.state == DEAD:
        job.expire = max(job.expire, node.now + said.ms)
        return
    more.cause = said.more.cause or failure.REJECTED
    more.died = said.more.died
    more.life = said.more.life
    job.responsible = int(peer.index)
    if not node.broken("death-keeps-lease"):
        leases.forget(node, job)  # or it would end when the job is alive again, and count as its next failure
    lie_down(node, job, said.ms)


def follow(node: Node, peer: Peer, job: Job, ms: i64) -> None:
    """The peer sees to the job: we wait at least so long."""
    if job.state == QUEUED:
        job.queue.remove(job)
        job.state = ACTIVE
    requeue.stop_asking(node, job)
    rules.let_go(node, job)
    job.flags &= ~(MOVING | BACKING_OFF | TOLD_UNTIL)
    job.responsible = int(peer.index)
    job.asks = 0
    node.wake_at(job, node.now + ms + i64(job.retry) * 1000 + node.jitter())


def merge(node: Node, job: Job, said: Said) -> None:
    """Unite what two copies know."""
    job.nacks = i32(max(i64(job.nacks), said.nacks))
    job.deliveries = i32(max(i64(job.deliveries), said.deliveries))
    unite(node, job, said.more)
    more = failure.own_more(node, job)
    if said.more.changed > more.changed:
        more.changed = said.more.changed
        queue = queues.queue_or_none(node, said.queue)
        is_queued = job.state == QUEUED
        put_elsewhere(node, job, said.priority, job.queue if queue is None else queue)
        if is_queued:
            node.enqueue(job)


def unite(node: Node, job: Job, theirs: More) -> None:
    """Tries are a set, the number of failures never gets less within a round."""
    more = failure.own_more(node, job)
    before = more.cost()
    failures: i64 = 0
    lost: i64 = 0
    if node.broken("tries-stay"):
        return
    for each in theirs.tries:
        if more.note_try(each) and each.how != RELEASED:
            failures += 1
            lost += 1 if each.how != 1 else 0
    if theirs.round > more.round:
        more.round = theirs.round
        more.failures = theirs.failures
        more.lost = theirs.lost
    elif theirs.round == more.round:
        more.failures = i32(max(i64(theirs.failures), i64(more.failures) + failures))
        more.lost = i32(max(i64(theirs.lost), i64(more.lost) + lost))
    more.life = max(more.life, theirs.life)
    node.account(more.cost() - before)


def write_got(node: Node, peer: Peer, jid: bytes, kind: i64, round: i64, changed: i64, holders: i64) -> None:
    links.explain(node, peer, holders)
    out = peer.out
    out.append(bus.GOTFATE)
    out.write(jid)
    bus.write_i8(out, kind)
    bus.write_u32(out, round)
    bus.write_i64(out, changed)
    bus.write_i64(out, holders)


def on_gotfate(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer has kept what we said; if it is still what holds, that peer need not be told any more."""
    job = node.find(reader.job_id())
    kind = reader.u8()
    round = reader.u32()
    changed = reader.long()
    holders = links.read_mask(node, peer, reader)
    if job is None or job.state == ACKED or job.state == WAIT_REPL:
        return
    spread = node.spreading.get(job)
    if spread is None:
        return
    if kind == UNKNOWN:
        if job.retry > 0 and not links.is_copy_flying(peer, job):
            replicate.send_copy(node, peer, job)  # taken for a holder, which it is to be
        return
    tombs.learn_holders(node, job, holders | peer.bit)
    more = failure.own_more(node, job)
    is_mine = (kind == DIES) == (job.state == DEAD)
    if is_mine and round == i64(more.round) and changed >= more.changed:
        spread.confirmed |= peer.bit
        if job.holders & ~spread.confirmed & ~peers.forgotten(node) == 0:
            del node.spreading[job]
