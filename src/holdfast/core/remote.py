"""Hand-outs at another node: a job with keys goes to a consumer that waits there, and stays at its home.

A plain job that somebody waits for elsewhere is moved (federate.py). A job with keys is not: its home would not know
any more when the next of its group may go. So it is lent (LEND): handed out here, with its lease and its token, but
the reply is written by the node where the consumer waits, which says who has it (BORROWED), or, if nobody waits
there any more, that it has not been handed out at all (RETURNED). Either may come when that lease is over and the job
was handed out again, so a loan is known by the number of its lease. It is never queued there. Where that node has a
copy of its own it may know more than the home, which it could not hear for a while: a job that has ended there, or is
out with a consumer since that node was the home, is not handed out, and the home is told; the counters that a consumer
is shown are those of both.

What the consumer says of it there, NACK (handback.py) or WORKING, is passed on to its home; acks find their way by
themselves.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import (
    acks,
    fate,
    federate,
    forward,
    gates,
    history,
    leases,
    links,
    records,
    replicate,
    requeue,
    rules,
    times,
    tombs,
)
from holdfast.core.copies import Copy, write_copy
from holdfast.core.ids import id_random, id_seq
from holdfast.core.job import ACKED, ACTIVE, DEAD, HANDED_OUT, SPECIAL, Job, Lease
from holdfast.core.peers import Peer
from holdfast.core.queue import PAUSE_OUT, Queue
from holdfast.core.reply import write_number
from holdfast.core.session import Session
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

BORROWED_MAX: Final = 100_000
"""Jobs of other homes with consumers here, so that what those say of them can be passed on; the oldest go."""


class Borrowed:
    def __init__(self, home: i64, retry: i64, until: i64) -> None:
        self.home: i64 = home
        self.retry: i64 = retry
        self.until: i64 = until


def lend(node: Node, job: Job, peer: Peer) -> None:
    """Hand out a job, just taken from its queue, to whoever waits at a peer."""
    node.count("lent")
    job.state = ACTIVE
    is_first = not job.flags & HANDED_OUT
    times.handed_out(node, job)
    job.flags |= HANDED_OUT | SPECIAL
    job.taker = 0
    leases.forget(node, job)
    node.handouts += 1
    ms = i64(job.retry) * 1000
    lease = Lease(node.start, node.handouts, b"", peer.node_id(), node.now, ms)
    lease.is_first = is_first
    leases.give(node, job, lease)
    records.lease(node, job, lease, ms)
    if job.retry > 0:
        node.lease(job, ms)
    else:
        job.qtime = 0
    peer.lent[int(lease.number)] = job
    links.explain(node, peer, job.holders)
    out = peer.out
    out.append(bus.LEND)
    bus.write_i64(out, lease.number)
    bus.write_name(out, leases.token(node, lease))
    write_copy(node, out, job, job.holders, 0)


def on_lend(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer hands out a job to a consumer here, if there is one."""
    number = reader.long()
    token = reader.name()
    copy = replicate.read_copy(node, peer, reader)
    queue = node.queues.get(copy.queue)
    if knows_better(node, peer, copy):
        give_back(peer, number)
        if queue is not None and queue.waiting:
            federate.announce(node, queue)  # for another: the peer thinks that it has sent one
        return
    if queue is None or not queue.waiting or queue.paused & PAUSE_OUT:
        give_back(peer, number)
        return
    session = queue.waiting.popitem(last=False)[1]
    ms = session.lease_ms if session.lease_ms > 0 and copy.retry > 0 else copy.retry * 1000
    peer.out.append(bus.BORROWED)
    bus.write_i64(peer.out, number)
    bus.write_i64(peer.out, ms)
    bus.write_name(peer.out, session.name)
    bus.write_name(peer.out, session.where)
    node.borrowed[copy.jid] = Borrowed(peer.index, copy.retry, node.now + ms)
    if len(node.borrowed) > BORROWED_MAX:
        del node.borrowed[next(iter(node.borrowed))]
    node.answer(session, handed_out(node, queue, copy, token, session.form))
    if queue.waiting:
        federate.announce(node, queue)


def knows_better(node: Node, peer: Peer, copy: Copy) -> bool:
    """Whether a job that we are lent has ended or died, or a consumer has it from us; the peer hears of it. If not, the
    counters are united."""
    if node.broken("lent-blindly"):
        return False
    holders = copy.holders | peer.bit
    if acks.answer_from_tomb(node, peer, copy.jid, holders):
        return True
    job = node.find(copy.jid)
    if job is None:
        return False
    tombs.learn_holders(node, job, holders)
    if job.state == ACKED:
        acks.answer_ended(node, peer, job)
        return True
    if job.state == DEAD:
        fate.write(node, peer, job, fate.DIES)  # to which it says if that is no longer true
        return True
    if requeue.is_leased(node, job) and not node.broken("lent-while-out"):
        requeue.write_state(node, peer, copy.jid, requeue.IS_LEASED, job.qtime - node.now, job.holders)
        return True
    requeue.learn_counts(node, job, copy.nacks, copy.deliveries)
    copy.nacks, copy.deliveries = i64(job.nacks), i64(job.deliveries)
    return False


def give_back(peer: Peer, number: i64) -> None:
    peer.out.append(bus.RETURNED)
    bus.write_i64(peer.out, number)


def handed_out(node: Node, queue: Queue, copy: Copy, token: bytes, form: i64) -> bytes:
    """The reply of GETJOB for a job that is not here."""
    out = BytesWriter()
    out.write(b"*1\r\n*%d" % leases.elements(form) + queue.header[2:])
    job = Job(
        id_seq(copy.jid), id_random(copy.jid), node.own, queue, copy.body, node.now * 1_000_000, node.now, 0
    )
    job.nacks, job.deliveries, job.priority = int(copy.nacks), int(copy.deliveries), int(copy.priority)
    job.more = copy.more
    out.write(copy.jid)
    out.write(b"\r\n$")
    write_number(out, len(copy.body))
    out.write(copy.body)
    out.write(b"\r\n")
    leases.write_rest(node, out, job, form, token)
    return out.getvalue()


def loan(node: Node, peer: Peer, number: i64) -> Job | None:
    """The job of a loan of which its peer speaks for the first time; None if it is out under that lease no more."""
    job = peer.lent.pop(int(number), None)
    if job is None or not node.is_here(job) or job.lease is None or job.state != ACTIVE:
        return None
    return job if job.lease.number == number or node.broken("loans-confused") else None


def is_lent_to(peer: Peer, job: Job) -> bool:
    """Whether its lease is a loan of which the peer has said nothing yet."""
    return job.lease is not None and peer.lent.get(int(job.lease.number)) is job


def on_borrowed(node: Node, peer: Peer, reader: Reader) -> None:
    """A consumer of a peer has it."""
    job = loan(node, peer, reader.long())
    ms = reader.long()
    worker = reader.name()
    address = reader.name()
    if ms < 0 or ms > leases.LEASE_MS_MAX:
        raise BadFrame("a lease that no consumer can ask for")
    if job is None:
        return
    lease = job.lease
    assert lease is not None
    lease.worker = worker
    lease.address = address
    gates.handed_out(node, job)
    session = Session(0, address.decode("latin-1"), node.now, True)
    session.name = worker
    history.handed_out(node, job, session, ms)
    if job.retry == 0:
        node.spend(job)
    elif ms != lease.ms:
        leases.extend(node, job, ms)


def take_back(node: Node, job: Job) -> None:
    """A loan that was not handed out: as if there had been none."""
    assert job.lease is not None
    if job.lease.is_first:
        job.flags &= ~HANDED_OUT
    leases.forget(node, job)
    rules.unpay(node, job)


def on_returned(node: Node, peer: Peer, reader: Reader) -> None:
    """Nobody waits there any more: it was not handed out."""
    job = loan(node, peer, reader.long())
    if job is None:
        return
    take_back(node, job)
    requeue.stop_asking(node, job)  # its lease ended while it was on its way back; nobody need say anything now
    records.back(node, job)
    job.queue.interest.pop(int(peer.index), None)  # until it says so again
    node.enqueue(job)


def link_down(node: Node, peer: Peer) -> None:
    """Whether a consumer has it nobody can say: as if one had."""
    for job in peer.lent.values():
        if node.is_here(job) and job.retry == 0:
            gates.handed_out(node, job)
            node.spend(job)
    peer.lent.clear()


def pass_on(node: Node, jid: bytes, argv: list[bytes]) -> bool:
    """A consumer here says something of a job that it was lent: its home hears it. False if it is none of these."""
    borrowed = node.borrowed.get(jid)
    if borrowed is None:
        return False
    peer = node.peers[borrowed.home]
    if not peer.is_linked:
        return False
    forward.pass_on(node, peer, argv)
    return True


def beat(node: Node) -> None:
    """Once a second: leases that are over in any case."""
    while node.borrowed:
        first = next(iter(node.borrowed))
        if node.borrowed[first].until + leases.LEASE_MS_SLACK > node.now:
            break
        del node.borrowed[first]
