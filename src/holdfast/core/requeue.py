"""Back to the queue: at most one of a job's holders queues it, after asking the others.

Each copy has somebody responsible for it: the node that last said it has the job queued or leased. The
others wait. When a copy's time comes (a lease that ended here, or a responsible node that has been silent
for a whole retry time) its holder asks all others (WILLQUEUE) and waits until all that can be heard have
answered. A holder that comes first in the job's own order of nodes takes it upon itself, so that two do not
queue it at the same time, however long messages take. Any answer but "I have it lying here" makes the asker
wait again; "it has ended" ends it here, too. Whoever queues it tells the others (QUEUED), and if two did, all
but the first in the order take it out again.

Silence is not permission: while the responsible node cannot be heard, its last lease may still run, and the
earliest time to act is when we last heard of it plus the retry time.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i32, i64

from holdfast.core import (
    acks,
    asleep,
    delay,
    failure,
    fate,
    gates,
    groups,
    history,
    home,
    leases,
    links,
    loaded_leases,
    orphans,
    peers,
    records,
    remote,
    replicate,
    rules,
    salvage,
    tombs,
    twins,
    unique,
)
from holdfast.core.copies import write_job_id
from holdfast.core.job import (
    ACKED,
    ACTIVE,
    ASKING,
    BACKING_OFF,
    DEAD,
    GIVEN,
    HANDED_OUT,
    IN_DOUBT,
    MOVING,
    QUEUED,
    QUEUED_BEFORE,
    SPECIAL,
    TOLD_UNTIL,
    TWIN,
    WAIT_REPL,
    Job,
)
from holdfast.core.limits import DURATION_S_MAX
from holdfast.core.peers import ME, MY_BIT, Peer
from holdfast.core.queue import PAUSE_IN
from holdfast.core.walks import TURN_MS
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

RANK_MS: Final = 500
SLACK_MS: Final = 1000
"""A lease told by its node is believed a little longer than it said: the message took time."""

QUARANTINE_MS: Final = 90_000
QUARANTINE_STEP_MS: Final = 1000
"""A node that comes back with its jobs may have missed how they ended, and may have been forgotten, in which case
nobody talks to it for a minute (membership.FORGET_MS). So long it queues nothing that others hold without having
asked one of them; then they are taken for lost."""

QUEUED_MS_MAX: Final = 600_000
"""A job that stays queued elsewhere is asked after more and more rarely, but at least this often."""

REQUEUED_FEW: Final = 1000
"""So many jobs that were queued again are kept in mind without looking whether they still need to be."""

LEFT_MS_MAX: Final = 2 * DURATION_S_MAX * 1000
"""Of a lease or a delay: the longest there is, and what is added so that not all end at once."""

# Answers to WILLQUEUE.
IS_UNKNOWN: Final = 0
IS_QUEUED: Final = 1
IS_LEASED: Final = 2
IS_DELAYED: Final = 3
IS_HELD: Final = 4
IS_IDLE: Final = 5
IS_OUT: Final = 6  # with a consumer of a third node, which cannot be heard


class Asking:
    """Who was asked whether a job may be queued and has not answered. An answer names the question that it is to: one
    to an earlier question may still be on its way, and what it says may be true no more."""

    def __init__(self, number: i64) -> None:
        self.number: i64 = number
        self.waiting: i64 = 0


def due(node: Node, job: Job) -> None:
    """The time of a job that is not queued here has come."""
    retry_ms = i64(job.retry) * 1000
    if job.qtime <= node.now:
        job.flags &= ~TOLD_UNTIL
    if job.retry == 0 and job.flags & (HANDED_OUT | MOVING | IN_DOUBT):
        job.qtime = 0
        return
    if salvage.is_doubtful(node, job):
        salvage.hold(node, job)
        return
    if job.queue.paused & PAUSE_IN and job.retry > 0:
        node.wake_at(job, node.now + retry_ms)
        return
    if job.flags & SPECIAL and gates.defers(node, job):
        return
    if loaded_leases.is_open(node, job):
        return
    others = job.holders & ~MY_BIT
    if others == 0 or (job.responsible == ME and not may_be_elsewhere(node, job)):
        again(node, job)
        return
    if not may_act(node, job, retry_ms):
        return
    if orphans.is_alone_with(node, job):
        node.wake_at(job, node.now + QUARANTINE_STEP_MS)
        return
    if job.flags & ASKING:
        if is_answer_due(node, job):
            node.wake_at(job, node.now + node.node_timeout)
            return
        stop_asking(node, job)
        if again(node, job):
            tell_queued(node, job, others)
        return
    job.flags = (job.flags & ~GIVEN) | ASKING
    node.question_count += 1
    node.asking[job] = Asking(node.question_count)
    node.count("willqueue")
    # With all others gone somebody else may have got a copy from one of them, or know how it ended.
    ask_holders(node, job, others if others & peers.linked(node) else peers.linked(node) & ~MY_BIT)


def may_be_elsewhere(node: Node, job: Job) -> bool:
    """Of a job with other holders that we are to queue: whether one of them may have had it in its queue. Not while it
    is new and we were awake all the time: as long as they hear us they leave it to us."""
    if job.flags & QUEUED_BEFORE or twins.must_ask(node, job):
        return True
    return asleep.is_just_awake(node) and not node.broken("sleeper-begins")


def ask_holders(node: Node, job: Job, others: i64) -> None:
    """Say that we are about to queue it, and give them time to object."""
    asking = node.asking[job]
    for peer in node.peers:
        if peer.bit & others and peer.is_linked:
            write_willqueue(node, peer, job, asking.number)
            asking.waiting |= peer.bit
    # So long at least: a link that has just ended may be there again by then.
    wait: i64 = node.node_timeout if asking.waiting != 0 or asleep.is_just_awake(node) else 0
    node.wake_at(job, node.now + wait + rank(node, job) * RANK_MS)


def write_willqueue(node: Node, peer: Peer, job: Job, number: i64) -> None:
    links.explain(node, peer, job.holders)
    peer.out.append(bus.WILLQUEUE)
    write_job_id(peer.out, job)
    bus.write_i64(peer.out, job.holders)
    bus.write_i8(peer.out, 1 if claims(node, job) else 0)
    bus.write_i64(peer.out, number)


def claims(node: Node, job: Job) -> bool:
    """Whether we had the job out, and know how that ended: who does counts its failures, and goes before all others.

    So does who has counted already, and waits until it may be tried again. What has a home is queued by that.
    """
    has_waited = job.flags & BACKING_OFF != 0 and not home.is_keyed(job) and not node.broken("wait-is-no-claim")
    return (job.lease is not None or has_waited) and job.responsible == ME and not node.broken("no-claim")


def stop_asking(node: Node, job: Job) -> None:
    job.flags &= ~ASKING
    node.asking.pop(job, None)


def is_answer_due(node: Node, job: Job) -> bool:
    """Whether somebody who was asked, and can be heard, has not answered: it will, or its link will end.

    How long that takes is for the network to say. A lease that was told too late is no lease.
    """
    asking = node.asking.get(job)
    return asking is not None and asking.waiting & peers.linked(node) != 0 and not node.broken("answers-not-awaited")


def nothing_against(node: Node, peer: Peer, job: Job, asking: Asking) -> None:
    """A peer has no reason why we should not queue it. When all have said so, our turn comes by rank."""
    if not asking.waiting & peer.bit:
        return
    asking.waiting &= ~peer.bit
    if asking.waiting == 0:
        node.wake_at(job, node.now + rank(node, job) * RANK_MS)


def may_act(node: Node, job: Job, retry_ms: i64) -> bool:
    """Not while the lease of a node that cannot be heard may still run."""
    earliest = orphans.silent_until(node, job, retry_ms)
    if node.now >= earliest or node.broken("silence-is-permission"):
        return True
    node.wake_at(job, earliest)
    return False


def soon(node: Node, job: Job) -> bool:
    """Nobody seems to have a copy's job: the first in its order asks first. False: it is its turn soon anyway."""
    when = node.now + max(rank(node, job) * RANK_MS, delay.left(node, job))
    if job.qtime != 0 and job.qtime <= when:
        return False
    job.asks = 0
    node.wake_at(job, when)
    return True


def rank(node: Node, job: Job) -> i64:
    """How many of the holders that can be heard come before this node in the job's order."""
    if job.responsible == ME or node.broken("no-holder-order") or home.is_keyed(job):
        return 0
    mine = order_key(job, node.node_id)
    before: i64 = 0
    for peer in node.peers:
        if peer.bit & job.holders and peer.is_linked and order_key(job, peer.node_id()) < mine:
            before += 1
    return before


def order_key(job: Job, node_id: bytes) -> int:
    """Each job has its own order of nodes, the same everywhere: ids mixed with the job's random part."""
    return peers.order_of(node_id) ^ peers.order_in(job)


def again(node: Node, job: Job) -> bool:
    """Queue it here. False: it failed, and what comes of that was seen to."""
    is_first = not job.flags & QUEUED_BEFORE and job.responsible == ME
    has_waited = job.flags & BACKING_OFF
    was_out = job.responsible == ME and job.flags & HANDED_OUT and not has_waited
    if job.responsible != ME:
        history.lease_lost(node, job, b"node-silent")
    elif was_out:
        history.lease_lost(node, job, b"lease-ended")
    job.responsible = ME
    stop_asking(node, job)
    job.flags &= ~(MOVING | BACKING_OFF | TOLD_UNTIL | TWIN)
    job.asks = 0
    job.hops = 0
    if was_out and failure.lease_ended(node, job):
        return False
    if (job.flags & SPECIAL or job.expire <= node.now) and failure.dies(node, job):
        return False
    if not is_first and not has_waited:
        job.deliveries += 1
        records.counts(node, job)
    if not is_first and not node.broken("requeue-not-recorded"):
        records.back(node, job)
    node.count("requeues")
    node.enqueue(job)
    return True


def tell_queued(node: Node, job: Job, others: i64) -> None:
    """The other holders must not queue it as well; those away are told when they are back."""
    if job.flags & MOVING:
        return  # somebody waited for it and it is on its way there: the taker tells them
    is_somebody_away = False
    for peer in node.peers:
        if peer.bit & others:
            if peer.is_linked:
                write_queued(node, peer, job)
            else:
                is_somebody_away = True
    if is_somebody_away:
        node.requeued[job] = None


def write_queued(node: Node, peer: Peer, job: Job) -> None:
    """Said once more over the next link if this one ends before the frame is acknowledged."""
    peer.telling.append((peer.sent + 1, job))
    if node.broken("nack-keeps-lease"):
        fate.write(node, peer, job, fate.TRIES)
    peer.out.append(bus.QUEUED)
    write_job_id(peer.out, job)
    bus.write_u32(peer.out, i64(job.nacks))
    bus.write_u32(peer.out, i64(job.deliveries))
    if job.more is not None and job.more.tries:
        fate.write(node, peer, job, fate.TRIES)  # after it: they have the counts, too, by which a NACK is known


def is_leased(node: Node, job: Job) -> bool:
    """Handed out by this node, and the consumer still has time."""
    return (
        job.state == ACTIVE and job.responsible == ME and job.flags & HANDED_OUT != 0
        and job.flags & (ASKING | MOVING | BACKING_OFF) == 0 and job.qtime > node.now
    )


def on_willqueue(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer is about to queue a job: say what we know."""
    jid = reader.job_id()
    holders = links.read_mask(node, peer, reader) | peer.bit
    has_claim = reader.u8() != 0
    number = reader.long()
    job = node.find(jid)
    if job is None:
        if not acks.answer_from_tomb(node, peer, jid, holders):
            write_state(node, peer, jid, IS_UNKNOWN, 0, 0, number)
        return
    say_how_it_is(node, peer, job, holders, has_claim, number)


def say_how_it_is(node: Node, peer: Peer, job: Job, holders: i64, has_claim: bool = False, number: i64 = 0) -> None:
    """A peer names a job that is here, and who may hold it: whether it may be queued there, and why not."""
    jid = node.id_text(job)
    if job.state == QUEUED:
        for each in node.peers:
            if each.bit & holders & ~job.holders and each.is_linked and each is not peer:
                write_queued(node, each, job)  # it may have it queued as well: one of us takes it out again
    if job.state != ACKED or not node.broken("h9-deaf-while-acked"):
        tombs.learn_holders(node, job, holders)
    if job.state == ACKED:
        acks.answer_ended(node, peer, job)
    elif job.state == DEAD:
        fate.write(node, peer, job, fate.DIES)
    elif job.state != QUEUED and node.broken("willqueue-unanswered"):
        write_state(node, peer, jid, IS_IDLE, 0, job.holders, number)
    elif job.state == QUEUED:
        write_state(node, peer, jid, IS_QUEUED, i64(job.retry) * 1000, job.holders)
    elif job.state == WAIT_REPL:
        write_state(node, peer, jid, IS_HELD, SLACK_MS, job.holders)
    elif job.flags & SPECIAL and groups.is_held(job):
        write_state(node, peer, jid, IS_QUEUED, i64(job.retry) * 1000, job.holders)
    elif is_leased(node, job):
        write_state(node, peer, jid, IS_LEASED, job.qtime - node.now, job.holders)
    elif (
        job.responsible == ME and job.qtime > node.now and not job.flags & ASKING
        and not gates.is_elsewhere(node, job)
    ):
        write_state(node, peer, jid, IS_DELAYED, job.qtime - node.now, job.holders)
    elif not has_claim and is_out_elsewhere(node, job, peer):
        write_state(node, peer, jid, IS_OUT, job.qtime - node.now - SLACK_MS, job.holders)  # which is added there, too
    elif not has_claim and is_with_taker(node, job, peer):
        write_state(node, peer, jid, IS_HELD, min(job.qtime - node.now, i64(job.retry) * 1000), job.holders)
    elif (
        goes_first(node, job, peer, has_claim) and may_see_to(node, job) and not job.queue.paused & PAUSE_IN
        and not node.broken("no-holder-order") and not gates.is_elsewhere(node, job)
    ):
        # Ours to queue before theirs: they wait, however long messages take, and we see to it now.
        write_state(node, peer, jid, IS_HELD, i64(job.retry) * 1000, job.holders)
        if not job.flags & ASKING and not job.flags & MOVING:
            due(node, job)
    else:
        write_state(node, peer, jid, IS_IDLE, 0, job.holders, number)


def is_with_taker(node: Node, job: Job, asker: Peer) -> bool:
    """Whether the job went from here to a third node, which has it or soon will.

    The asker may not have heard of that yet, and what the taker has answered it may be from before. Only until our
    own time comes and we ask, too: two who believe in each other's takers must not wait for each other for ever.
    """
    return (
        job.flags & GIVEN != 0 and job.responsible != ME and job.responsible != asker.index
        and node.peers[job.responsible].is_linked and job.qtime > node.now and not gates.is_elsewhere(node, job)
        and not node.broken("gift-untold")
    )


def is_out_elsewhere(node: Node, job: Job, asker: Peer) -> bool:
    """Whether we were told that a third node has it out, and that one cannot be heard. The asker may not know."""
    peer = node.peers[job.responsible]
    return (
        job.flags & TOLD_UNTIL != 0 and not job.flags & ASKING and peer.index != ME and peer is not asker
        and not peer.is_linked and job.qtime > node.now + SLACK_MS and not node.broken("lease-kept-to-oneself")
    )


def goes_first(node: Node, job: Job, peer: Peer, has_claim: bool) -> bool:
    """Whether a job that both of us want to queue is ours."""
    is_mine = claims(node, job)
    if is_mine != has_claim:
        return is_mine
    return order_key(job, node.node_id) < order_key(job, peer.node_id())


def may_see_to(node: Node, job: Job) -> bool:
    """Who has to wait, not hearing the responsible node, does not keep from it one that hears it, and has asked it."""
    return node.now >= orphans.silent_until(node, job, i64(job.retry) * 1000) or node.broken("held-by-the-deaf")


def write_state(node: Node, peer: Peer, jid: bytes, state: i64, ms: i64, holders: i64, number: i64 = 0) -> None:
    """How it is with a job here. That there is nothing against queueing it names the question."""
    links.explain(node, peer, holders)
    peer.out.append(bus.STATE)
    peer.out.write(jid)
    bus.write_i8(peer.out, state)
    bus.write_i64(peer.out, ms)
    bus.write_i64(peer.out, holders)
    bus.write_i64(peer.out, number)


def on_state(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer says how it is with a job."""
    job = node.find(reader.job_id())
    state = reader.u8()
    ms = reader.long()
    holders = links.read_mask(node, peer, reader)
    number = reader.long()
    if not 0 <= ms <= LEFT_MS_MAX or state > IS_OUT:
        raise BadFrame("a state that no job can be in")
    if job is not None:
        hear_state(node, peer, job, state, ms, holders, number)


def hear_state(
    node: Node, peer: Peer, job: Job, state: i64, ms: i64, holders: i64 = 0, number: i64 = 0,
) -> None:
    """What a peer says of a job that we have a copy of."""
    if job.state == WAIT_REPL:
        twins.note(node, job)
        return
    if job.state == ACKED or job.state == DEAD:
        if state == IS_LEASED:
            say_ended(node, peer, job)  # somebody works on it for nothing
        return
    if node.hinted:
        unique.heard(node, peer, job)
    if state != IS_UNKNOWN:
        new = (holders & ~job.holders) & peers.linked(node)
        tombs.learn_holders(node, job, holders | peer.bit)
        if new and job.flags & ASKING:
            ask_holders(node, job, new)  # somebody we did not know of may have it: give it time to answer, too
    if state == IS_UNKNOWN and job.holders & peer.bit:
        acks.distrust(node, job)
    if (
        state == IS_UNKNOWN and job.holders & peer.bit and job.retry > 0 and not links.is_copy_flying(peer, job)
        and not node.broken("unknown-holder-believed")
    ):
        replicate.send_copy(node, peer, job)  # taken for a holder, which it is to be: nobody else would notice
    if state == IS_UNKNOWN or state == IS_IDLE:
        asking = node.asking.get(job)
        if asking is not None and (asking.number == number or node.broken("old-idle-counts")):
            nothing_against(node, peer, job, asking)
        return
    if state == IS_LEASED and remote.is_lent_to(peer, job):
        remote.take_back(node, job)  # a consumer there has it already
    elif is_leased(node, job) or (state == IS_DELAYED and twins.goes_on(node, peer, job)):
        return
    if job.state == QUEUED:
        if state == IS_QUEUED and not node.broken("queued-answer-unheard"):
            if order_key(job, node.node_id) < order_key(job, peer.node_id()):
                write_queued(node, peer, job)  # as if both had said so by themselves
                return
        elif state != IS_LEASED:
            return
        job.queue.remove(job)  # somebody works on it, or will: ours goes back to waiting
        job.state = ACTIVE
    rules.let_go(node, job)
    stop_asking(node, job)
    job.flags &= ~(MOVING | TOLD_UNTIL)
    if job.flags & (SPECIAL | BACKING_OFF):
        failure.yielded(node, job)
    if state == IS_LEASED or state == IS_OUT or ms > i64(job.retry) * 1000:
        job.flags |= TOLD_UNTIL
    if state != IS_OUT or job.responsible == ME or node.peers[job.responsible].is_linked:
        job.responsible = int(peer.index)  # else it is with the node that we took to have it, too
    if state == IS_QUEUED:
        job.asks = min(job.asks + 1, 100)
        ms = min(max(ms, 1000) * i64(job.asks), QUEUED_MS_MAX)
    else:
        if state != IS_HELD:  # which another says who asks, too, and will hear the same
            job.asks = 0
        ms += SLACK_MS
    node.wake_at(job, node.now + ms + node.jitter())


def on_queued(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer has queued a job: we need not."""
    jid = reader.job_id()
    nacks = reader.u32()
    deliveries = reader.u32()
    if nacks > DURATION_S_MAX or deliveries > DURATION_S_MAX:
        raise BadFrame("counts that no job can have")
    job = node.find(jid)
    if job is None:
        acks.answer_from_tomb(node, peer, jid, peer.bit)
        return
    tombs.learn_holders(node, job, peer.bit)
    if job.state == ACKED:
        acks.answer_ended(node, peer, job)
        return
    if job.state == DEAD:
        fate.write(node, peer, job, fate.DIES)
        return
    if job.state == WAIT_REPL:
        twins.note(node, job)
        return
    is_nacked = learn_counts(node, job, nacks, deliveries)
    if is_leased(node, job) and not is_nacked:  # a NACK ends the lease, at whichever holder it came in
        write_state(node, peer, jid, IS_LEASED, job.qtime - node.now, job.holders)
        return
    if job.state == QUEUED:
        if order_key(job, node.node_id) < order_key(job, peer.node_id()):
            write_queued(node, peer, job)
            return
        job.queue.remove(job)
        job.state = ACTIVE
    rules.let_go(node, job)
    stop_asking(node, job)
    job.flags &= ~(MOVING | TOLD_UNTIL)
    if is_nacked:
        job.flags &= ~BACKING_OFF
        leases.forget(node, job)
    elif job.flags & (SPECIAL | BACKING_OFF):
        failure.yielded(node, job)
    job.responsible = int(peer.index)
    job.asks = 0
    node.wake_at(job, node.now + i64(job.retry) * 1000 + node.jitter())


def learn_counts(node: Node, job: Job, nacks: i64, deliveries: i64) -> bool:
    """Somebody says how often it was refused and delivered again; whether it was refused once more."""
    is_nacked = nacks > i64(job.nacks)
    if is_nacked or deliveries > i64(job.deliveries):
        job.nacks = i32(max(i64(job.nacks), nacks))
        job.deliveries = i32(max(i64(job.deliveries), deliveries))
        records.counts(node, job)
    return is_nacked


def say_ended(node: Node, peer: Peer, job: Job) -> None:
    """A peer has a consumer at work on a job that was acknowledged, or died."""
    tombs.learn_holders(node, job, peer.bit)
    if job.state == ACKED:
        acks.answer_ended(node, peer, job)
    else:
        fate.write(node, peer, job, fate.DIES)


def link_up(node: Node, peer: Peer) -> None:
    """Tell a peer that is back what was queued again while it was away, and ask it what we ask the others."""
    for job, asking in node.asking.items():
        if asking.waiting & peer.bit:
            write_willqueue(node, peer, job, asking.number)
    if node.broken("no-reannounce"):
        return
    for job in list(node.requeued):
        if job.state == QUEUED or is_leased(node, job):
            if job.holders & peer.bit:
                write_queued(node, peer, job)
        else:
            del node.requeued[job]


def beat(node: Node) -> None:
    """Let go of jobs that were queued again and have gone out or ended since; now and then, as there may be many."""
    if len(node.requeued) > node.reach.requeued_most:
        node.requeued = {job: None for job in node.requeued if job.state == QUEUED or is_leased(node, job)}
        node.reach.requeued_most = 2 * len(node.requeued) + REQUEUED_FEW


def link_down(node: Node, peer: Peer) -> None:
    """It will not answer any more, and may not have heard what we told it last.

    But if it has given us up because we slept, it will soon be back, and is asked again.
    """
    if not asleep.is_just_awake(node):
        for job, asking in list(node.asking.items()):
            nothing_against(node, peer, job, asking)
    if not node.broken("no-reannounce") and not node.broken("queued-lost"):
        for _, job in peer.telling:
            node.requeued[job] = None
    peer.telling.clear()


def lost_sight(node: Node, peer: Peer) -> None:
    """A peer cannot be heard: what was with it is looked at, a part at a time."""
    node.reach.orphans.want(node, peer.bit, node.now + TURN_MS)
