"""What a home knows of its jobs: gathered when a slot is opened, let go when it is closed, passed on when it moves.

An open slot has its keys in the index (unique.py), its groups in line (groups.py), and its jobs in the lanes of their
queues or with a timer. A job may be with a consumer of a home that is gone: it is queued no earlier than a whole RETRY
time after that was last heard (`earliest`). The head of a group is the oldest job that has not ended.

Jobs come home one by one (HOMED): all of a slot from everybody when it is taken over, from one when it is handed over,
and later from whoever was away and has a copy whose time has come.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import (
    acks,
    batches,
    cron,
    delay,
    fate,
    groups,
    home,
    leases,
    memory,
    orphans,
    records,
    replicate,
    requeue,
    tombs,
    unique,
)
from holdfast.core.copies import register
from holdfast.core.job import (
    ACKED,
    ACTIVE,
    BACKING_OFF,
    DEAD,
    HANDED_OUT,
    IN_DOUBT,
    IN_LINE,
    MOVING,
    QUEUED,
    WAIT_REPL,
    Job,
)
from holdfast.core.limits import NEVER
from holdfast.core.peers import ME, Peer
from holdfast.core.rows import FREE, LEASED, PUSHED
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node


def earliest(node: Node, job: Job) -> i64:
    """When a copy may be queued by its home: not while a consumer of a node that cannot be heard may have it."""
    now = node.now
    if job.state == QUEUED or groups.is_held(job) or node.broken("head-not-out"):
        return now
    if delay.is_on(node, job):
        return max(now, delay.end(job))
    if node.peers[job.responsible].is_linked or job.responsible == ME:
        return max(now, job.qtime)
    return max(now, orphans.silent_until(node, job, i64(job.retry) * 1000))


def open_slots(node: Node, slots: set[int]) -> None:
    """This node is their home: keys are known, groups are in line, and what is free is queued."""
    cron.open_slots(node, slots)
    lined: list[Job] = []
    alone: list[Job] = []
    for job in node.all_jobs():
        if not home.is_keyed(job) or job.state != ACTIVE or int(home.slot_of_job(job)) not in slots:
            continue
        if job.retry == 0 and job.flags & (HANDED_OUT | MOVING | IN_DOUBT):
            continue
        more = job.more
        assert more is not None
        if more.group and not delay.is_on(node, job):
            lined.append(job)
        else:
            alone.append(job)
        if more.unique:
            unique.index(node, job)
    groups.rejoin(node, lined)
    for job in alone:
        begin(node, job)
    for job in lined:
        if groups.is_held(job):
            job.qtime = 0
            job.responsible = ME
            requeue.stop_asking(node, job)
        else:
            begin(node, job)


def begin(node: Node, job: Job) -> None:
    """See to it that the job is queued when it may be."""
    if job.state != ACTIVE or requeue.is_leased(node, job):
        return
    node.wake_at(job, earliest(node, job))


def close_slots(node: Node, slots: set[int]) -> None:
    """This node is not their home any more: nothing of theirs is queued here, or in line."""
    for queue in node.queues.values():
        for name, group in list(queue.groups.items()):
            if int(home.slot_of(home.GROUP, queue.name, name)) in slots:
                groups.drop(node, queue, group)
                for each in group.line:
                    if each.flags & IN_LINE:
                        each.flags &= ~IN_LINE
                        queue.lined -= 1
                if group.turn is not None:
                    group.turn.flags &= ~IN_LINE
    for job in node.all_jobs():
        if not home.is_keyed(job) or int(home.slot_of_job(job)) not in slots:
            continue
        job.flags &= ~IN_LINE
        if job.state == QUEUED:
            job.queue.remove(job)
            job.state = ACTIVE
            job.qtime = 0
        if job.state == ACTIVE and job.qtime == 0 and job.retry > 0:
            job.flags &= ~HANDED_OUT  # no consumer has it, so its next home may queue it at once
            late = node.broken("handover-puts-off")
            node.wake_at(job, node.now + (i64(job.retry) * 1000 + node.jitter() if late else 0))
    unique.close(node, slots)


def give_all(node: Node, peer: Peer, slots: set[int]) -> None:
    """Everything we hold of some slots, to their new home."""
    for job in node.all_jobs():
        if not home.is_keyed(job) or int(home.slot_of_job(job)) not in slots:
            continue
        if job.state == ACKED:
            acks.answer_ended(node, peer, job)
        elif job.retry > 0 and (job.state == ACTIVE or job.state == QUEUED):
            home.write_homed(node, peer, job, LEASED if requeue.is_leased(node, job) else FREE)
    give_counts(node, peer, slots)


def give_counts(node: Node, peer: Peer, slots: set[int]) -> None:
    """What is known of slots beside their jobs."""
    for key, taken in node.taken.items():
        if taken.job is None and int(unique.slot_of_key(key)) in slots:
            unique.write_taken(node, peer, key, taken)
    batches.give_all(node, peer, slots)
    cron.tell_ran(node, peer, slots)


def give_up(node: Node, peer: Peer, slots: set[int]) -> None:
    """The same from somebody who was their home: at-most-once jobs go along, and ours wait."""
    for job in node.all_jobs():
        if home.is_keyed(job) and int(home.slot_of_job(job)) in slots and job.state == ACTIVE:
            home.give(node, peer, job, False)
    give_counts(node, peer, slots)


def on_homed(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer thinks that we are, or will be, the home of a job."""
    state = reader.u8()
    ms = reader.long()
    copy = replicate.read_copy(node, peer, reader)
    if ms < 0 or ms >= NEVER or state > PUSHED or copy.more is None or not (copy.more.group or copy.more.unique):
        raise BadFrame("a job that has no home")
    peer.owes_ack = True
    if acks.answer_from_tomb(node, peer, copy.jid, copy.holders | peer.bit):
        return
    job = node.find(copy.jid)
    if job is None:
        if memory.is_full_for(node, len(copy.body)) or copy.retry == 0:
            peer.out.append(bus.REFUSED)
            peer.out.write(copy.jid)
            return
        job = register(node, copy)
        if job is None:
            return
        job.holders |= peer.bit
        job.state = ACTIVE
        records.job(node, job)
        if copy.more.unique:
            unique.hint(node, peer, job)
    elif not is_taken_from(node, peer, job, state, copy.nacks, copy.deliveries, copy.holders):
        return
    groups.learn_order(node, groups.order_of(job))
    requeue.stop_asking(node, job)
    job.flags &= ~MOVING
    job.responsible = int(peer.index) if state == LEASED else ME
    if state == PUSHED:
        ms = copy.delay_left = 0
        leases.forget(node, job)  # whoever had it has given it back
    node.wake_at(job, node.now + max(ms, copy.delay_left) + (requeue.SLACK_MS if state == LEASED else 0))
    if home.is_home_of(node, job):
        arrive(node, job)
    if state == PUSHED and not groups.is_held(job):
        job.flags |= BACKING_OFF  # it has failed, and that is counted


def is_taken_from(
    node: Node, peer: Peer, job: Job, state: i64, nacks: i64, deliveries: i64, holders: i64
) -> bool:
    """A job that we know comes home: whether what the peer says of it changes anything."""
    if not home.is_keyed(job):
        return False
    tombs.learn_holders(node, job, holders | peer.bit)
    if job.state == ACKED:
        acks.answer_ended(node, peer, job)
        return False
    if job.state == DEAD:
        fate.write(node, peer, job, fate.DIES)
        return False
    if job.state == WAIT_REPL:
        return False
    is_nacked = requeue.learn_counts(node, job, nacks, deliveries)
    jid = node.id_text(job)
    if requeue.is_leased(node, job) and not is_nacked:
        requeue.write_state(node, peer, jid, requeue.IS_LEASED, job.qtime - node.now, job.holders)
        return False
    if state == LEASED:
        if job.state == QUEUED:
            job.queue.remove(job)
            job.state = ACTIVE
        return True
    if job.state == QUEUED or groups.is_held(job):
        requeue.write_state(node, peer, jid, requeue.IS_QUEUED, i64(job.retry) * 1000, job.holders)
        return False
    if state == FREE and job.responsible == ME and not node.broken("copies-put-off"):
        # Ours to see to, also before a start: who was home meanwhile has a higher epoch, and anybody else a mere copy.
        return home.owner(node, home.slot_of_job(job)) != ME
    return True


def arrive(node: Node, job: Job) -> None:
    """A job that is at home now: its key is taken, it is in line."""
    more = job.more
    assert more is not None
    if more.unique:
        unique.index(node, job)
    if more.group and not delay.is_on(node, job):
        groups.join(node, job)
        if groups.is_held(job) and job.responsible == ME:
            job.qtime = 0
