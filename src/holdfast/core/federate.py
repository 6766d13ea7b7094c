"""Jobs go to where consumers wait.

A node with consumers waiting on an empty queue tells its peers how many jobs it could use right now
(NEED, a credit that is valid for this link epoch). A peer that has, or gets, a job for that queue and nobody
of its own who waits gives it at once (YOURJOB). So a consumer anywhere sees a job added anywhere after one
message, and an idle node cannot drain a busy one, since it is given what it can hand out and no more.

A move is a decision with a memory. The giver records that it gave, the taker that it took, and says so
(TAKEN). A giver that heard nothing before the link broke asks at the next one (MOVED); the taker answers
from its record, or records that it refuses, and only then may the giver queue the job again. For jobs with a
retry time this saves duplicates; for at-most-once jobs it is the whole promise.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import (
    acks,
    delay,
    fate,
    history,
    home,
    leases,
    links,
    memory,
    queues,
    records,
    remote,
    replicate,
    requeue,
    rules,
    times,
    tombs,
)
from holdfast.core.copies import Copy, register, write_copy
from holdfast.core.job import (
    ACKED,
    ACTIVE,
    ASKING,
    DEAD,
    GIVEN,
    HANDED_OUT,
    IN_DOUBT,
    MOVING,
    QUEUED,
    SPECIAL,
    WAIT_REPL,
    Job,
)
from holdfast.core.limits import QUEUE_NAME_BYTES_MAX
from holdfast.core.peers import ME, MY_BIT, Peer, close_move, open_move
from holdfast.core.queue import PAUSE_OUT, Queue
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

CREDIT_MAX: Final = 1000
HOPS_MAX: Final = 3
"""Moves of a job since it was queued: then it rests where it is until the next beat."""

NUMBER_MASK: Final = 0x3FFFFFFFFFFFFF
NUMBER_LEAST: Final = 0x40000000000000
"""All numbers of moves have as many digits, so that who looks at a frame (testing/sim/decode.py) sees what they are."""


def announce(node: Node, queue: Queue) -> None:
    """Tell the peers how many jobs of this queue could be handed out here and now."""
    if node.is_leaving:
        return
    for peer in node.peers:
        if peer.is_linked:
            write_need(peer, queue, min(queue.asked_for, CREDIT_MAX))
    if queue.waiting:
        node.announced[queue] = False


def beat(node: Node) -> None:
    """Once a second: queues on which nobody waits any more, or still somebody does, and jobs that have rested."""
    for queue in list(node.interested):
        if queue.size > 0 and queue.interest:
            for job in queue.oldest(len(queue.interest)):
                job.hops = 0
            give(node, queue)
    for queue, is_unserved in list(node.announced.items()):
        if is_unserved or not queue.waiting:
            announce(node, queue)
        if not queue.waiting:
            del node.announced[queue]


def write_need(peer: Peer, queue: Queue, credit: i64) -> None:
    peer.out.append(bus.NEED)
    bus.write_name(peer.out, queue.name)
    bus.write_u32(peer.out, credit)


def on_need(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer has consumers waiting."""
    name = reader.name()
    credit = reader.u32()
    if len(name) > QUEUE_NAME_BYTES_MAX:
        raise BadFrame("a queue name longer than there are")
    if credit == 0:
        known = node.queues.get(name)
        if known is not None:
            known.interest.pop(int(peer.index), None)
        return
    queue = queues.queue_or_none(node, name)
    if queue is None:
        return
    if node.broken("credits-add-up"):
        credit += queue.interest.get(int(peer.index), 0)
    queue.interest[int(peer.index)] = min(credit, CREDIT_MAX)
    node.interested[queue] = None
    give(node, queue)


def give(node: Node, queue: Queue) -> None:
    """Give queued jobs to peers who wait for them, as far as nobody waits here."""
    while queue.interest and queue.size > 0 and not queue.waiting and queue.paused & PAUSE_OUT == 0:
        index = next(iter(queue.interest))
        credit = queue.interest.pop(index)
        peer = node.peers[index]
        if not peer.is_linked or peer.is_leaving(node.now):
            continue
        job = node.pop(queue)
        if job is None:
            queue.interest[index] = credit
            return
        if job.flags & SPECIAL and home.is_keyed(job):
            if credit > 1:
                queue.interest[index] = credit - 1
            remote.lend(node, job, peer)
            continue
        is_tired = job.hops >= HOPS_MAX and not rules.is_limited(node, job)  # one that paid for going out goes
        if is_tired and not node.broken("hops-unbounded"):
            rules.unpay(node, job)
            rules.prepare(node, job)
            queue.push(job)
            queue.jobs_in -= 1
            queue.interest[index] = credit
            return
        if credit > 1:
            queue.interest[index] = credit - 1  # at the end: peers take turns
        move(node, job, peer)


def next_number(node: Node) -> i64:
    """Of a move: one that none has had, in no life of this node. Drawn once in each and then counted, since a clock may
    be set back, and what the taker remembers of a number would be its answer for another job."""
    if node.moves == 0:
        node.moves = node.start * 1000 if node.broken("moves-by-the-clock") else draw_number(node)
    node.moves += 1
    return node.moves


def draw_number(node: Node) -> i64:
    return NUMBER_LEAST + (node.random.next() & NUMBER_MASK)


def move(node: Node, job: Job, peer: Peer) -> None:
    number = next_number(node)
    node.count("moves")
    rules.let_go(node, job)  # paid for here, and out there
    job.state = ACTIVE
    job.flags |= MOVING | GIVEN
    job.responsible = int(peer.index)
    if not node.broken("h1-taker-not-recorded"):
        job.holders |= peer.bit
    job.queue.jobs_out += 1
    job.queue.moved += 1
    open_move(node, peer, int(number), job)
    times.given(node, job)
    records.gave(node, job, peer, number)
    history.moved(node, job, peer)
    if job.retry > 0:
        holders = job.holders
        node.wake_at(job, node.now + i64(job.retry) * 1000 + node.jitter())
    else:
        holders = peer.bit
        job.qtime = 0
    links.explain(node, peer, holders)
    peer.out.append(bus.YOURJOB)
    bus.write_i64(peer.out, number)
    write_copy(node, peer.out, job, holders, delay_left(node, job))
    links.note_copy(node, peer, job)


def delay_left(node: Node, job: Job) -> i64:
    """Of a job whose time has not come: it goes to another home, or away from a node that leaves. ENQUEUE ends a delay.
    """
    return 0 if node.broken("delay-ends-with-move") else delay.left(node, job)


def on_yourjob(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer gives us a job."""
    move_number = reader.long()
    copy = replicate.read_copy(node, peer, reader)
    peer.owes_ack = True
    job = node.find(copy.jid)
    is_new = False
    tomb = node.tombs.get(copy.jid)
    if tomb is not None and copy.retry > 0:
        acks.answer_from_tomb(node, peer, copy.jid, copy.holders | peer.bit)
    if int(move_number) in peer.refused or tomb is not None:
        decline(node, peer, move_number, copy)
        return
    if job is not None:
        if job.retry > 0:
            tombs.learn_holders(node, job, copy.holders | peer.bit)
        elif job.flags & MOVING and not node.broken("old-moves-open"):
            came_back(node, job)
        is_nacked = requeue.learn_counts(node, job, copy.nacks, copy.deliveries) and not node.broken("nack-keeps-lease")
        if job.state == ACKED and node.broken("h2-give-unacks"):
            node.endings.pop(job, None)
            job.task = None
            job.state = ACTIVE
            job.kept = copy.body
            node.account(len(copy.body))
        if job.state == ACKED:
            acks.answer_ended(node, peer, job)
            decline(node, peer, move_number, copy)
            return
        if requeue.is_leased(node, job) and not is_nacked:
            requeue.write_state(node, peer, copy.jid, requeue.IS_LEASED, job.qtime - node.now, job.holders)
            decline(node, peer, move_number, copy)
            return
        if is_nacked:
            leases.forget(node, job)
        if job.state != WAIT_REPL:
            fate.meet(node, peer, job, copy)
        if job.state == WAIT_REPL or job.state == DEAD:
            decline(node, peer, move_number, copy)
            return
    elif memory.is_full_for(node, len(copy.body)):
        decline(node, peer, move_number, copy)
        return
    else:
        job = register(node, copy)
        if job is None:
            answer(peer, bus.TAKEN, move_number, copy.jid)  # its life is over, here as there
            leave_unserved(node, copy)
            return
        if copy.retry > 0 and not node.broken("h1-taker-not-recorded"):
            job.holders |= peer.bit
        elif copy.retry == 0:
            job.holders = MY_BIT
        is_new = True
    records.took(node, job, peer, move_number, is_new)
    history.imported(node, job, peer)
    if not node.broken("took-not-recorded"):
        peer.taken[int(move_number)] = int(job.expire)
        peer.taking.append((peer.sent + 1, int(move_number)))
    answer(peer, bus.TAKEN, move_number, copy.jid)
    node.count("imported")
    queue = job.queue
    queue.note_import(peer.index, node.now)
    requeue.stop_asking(node, job)
    job.flags &= ~MOVING
    job.responsible = ME
    job.hops = int(min(255, copy.hops + 1))
    if not node.broken("taker-unannounced"):
        requeue.tell_queued(node, job, job.holders & ~MY_BIT & ~peer.bit)
    if job.state != QUEUED and copy.delay_left > 0:
        job.state = ACTIVE
        node.wake_at(job, node.now + copy.delay_left)
    elif job.state != QUEUED and not rules.hand_over(node, job):
        if not home.is_keyed(job):  # which its home gets as it is, and has not paid
            rules.refund(node, job)
        node.enqueue(job)
    if queue.waiting:
        announce(node, queue)


def decline(node: Node, peer: Peer, move_number: i64, copy: Copy) -> None:
    answer(peer, bus.NOTTAKEN, move_number, copy.jid)
    leave_unserved(node, copy)


def leave_unserved(node: Node, copy: Copy) -> None:
    """The peer thinks that whoever waits here has been served. It hears the truth with the next beat, and not at once:
    it may give the same job again, for as long as there is something against it."""
    queue = node.queues.get(copy.queue)
    if queue is not None and queue.waiting and not node.broken("unserved-untold"):
        node.announced[queue] = True


def came_back(node: Node, job: Job) -> None:
    """At most once, and given to us by another than we gave it to: it was taken there. Later words on that are old."""
    for each in node.peers:
        for number in [number for number, moved in each.moves.items() if moved is job]:
            close_move(node, each, number)
    job.holders = MY_BIT


def answer(peer: Peer, kind: i64, move_number: i64, jid: bytes) -> None:
    peer.out.append(int(kind))
    bus.write_i64(peer.out, move_number)
    peer.out.write(jid)


def on_taken(node: Node, peer: Peer, reader: Reader) -> None:
    """The taker has it: at most once, we forget it; otherwise our copy waits."""
    job = close_move(node, peer, int(reader.long()))
    reader.job_id()
    if job is None or not node.is_here(job):
        return
    times.taken(node, job)
    was_moving = job.flags & MOVING  # or it has come back to us meanwhile
    job.flags &= ~MOVING
    if job.retry > 0:
        records.taken(node, job)
    elif job.state == ACKED and not node.broken("taken-forgets-ending"):
        pass  # the taker hears how it has ended, and then it is collected
    elif was_moving:
        records.gone(node, job)
        if not node.broken("taken-not-synced"):
            node.must_sync = True  # before the taker hears that we know, and forgets that it took
        node.forget(job)


def on_nottaken(node: Node, peer: Peer, reader: Reader) -> None:
    """The taker has recorded that it does not have it: it is ours to queue again, if no other holder has."""
    job = close_move(node, peer, int(reader.long()))
    reader.job_id()
    if job is None or not node.is_here(job) or job.state != ACTIVE or not job.flags & MOVING:
        return
    if job in node.moving and not node.broken("old-refusal-counts"):
        return  # queued here before this answer came, and given again: what is said of that move counts
    job.flags &= ~MOVING
    job.responsible = ME
    if job.retry == 0:
        job.holders = MY_BIT
    records.back(node, job)
    if job.flags & ASKING:
        return  # its time came while it was moving: those who were asked answer
    if job.retry > 0 and job.holders & ~MY_BIT & ~peer.bit:
        requeue.due(node, job)
    elif delay_left(node, job) > 0:
        node.wake_at(job, node.now + delay_left(node, job))
    else:
        node.enqueue(job)


def on_moved(node: Node, peer: Peer, reader: Reader) -> None:
    """A giver asks, over a new link, whether we took a job. If not we never will."""
    move_number = reader.long()
    jid = reader.job_id()
    job = node.find(jid)
    is_here = job is not None and job.retry > 0 and (
        not is_left_to(peer, job) or node.broken("copy-says-taken")
    )
    if int(move_number) in peer.taken or is_here:
        answer(peer, bus.TAKEN, move_number, jid)
        return
    if int(move_number) not in peer.refused:
        peer.refused[int(move_number)] = int(tombs.latest_life(node, jid))
        records.refused(node, peer, move_number)
    answer(peer, bus.NOTTAKEN, move_number, jid)


def is_left_to(peer: Peer, job: Job) -> bool:
    """Whether ours is a copy from before the move: the giver would think it is here, and we that it is there."""
    return job.state == ACTIVE and job.responsible == peer.index and not job.flags & MOVING


def link_up(node: Node, peer: Peer) -> None:
    for number, job in list(peer.moves.items()):
        if not node.is_here(job):
            close_move(node, peer, number)
            continue
        if node.broken("give-back-on-silence"):
            close_move(node, peer, number)
            job.flags &= ~MOVING
            node.enqueue(job)
            continue
        if node.broken("h7-gives-repeated"):
            links.explain(node, peer, peer.bit)
            peer.out.append(bus.YOURJOB)
            bus.write_i64(peer.out, number + 1_000_000_000)
            write_copy(node, peer.out, job, peer.bit, 0)
            continue
        peer.out.append(bus.MOVED)
        bus.write_i64(peer.out, number)
        peer.out.write(node.id_text(job))
    for queue in node.announced:
        if queue.waiting:
            write_need(peer, queue, min(queue.asked_for, CREDIT_MAX))


def link_down(node: Node, peer: Peer) -> None:
    """Interest is of one epoch."""
    if node.broken("interest-outlives-link"):
        return
    for queue in list(node.interested):
        queue.interest.pop(int(peer.index), None)
        if not queue.interest:
            del node.interested[queue]


def in_doubt(node: Node, job: Job) -> None:
    """Given to a node that can no longer say whether it took it."""
    if job.state != ACTIVE:
        return
    job.flags &= ~MOVING
    if job.retry == 0 and node.broken("in-doubt-requeued"):
        node.enqueue(job)
    elif job.retry == 0:
        job.flags |= IN_DOUBT | HANDED_OUT
        job.qtime = 0
        node.dead[job] = None
        records.doubt(node, job)
        node.count("in-doubt")
