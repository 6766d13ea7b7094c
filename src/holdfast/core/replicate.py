"""Copies: a job is at `replicate` nodes before the one who added it is answered.

ADDJOB makes the job in state wait-repl and sends REPL to as many reachable nodes as are wanted; each that
takes the copy answers GOTJOB, each that cannot answers REFUSED and another is asked. Every 50 ms without
enough answers one more node is asked. Every holder is to know of all the others, or an ack given to one would
be collected without telling another; so when the set grows, those asked earlier are told (HOLDERS), and what
they answered before does not count any more (the version of the set, which every answer carries). When enough
hold a copy and know the whole set the job is accepted: recorded, queued, and the producer gets its id. When
the producer's patience ends first it gets NOREPL, and the job is ended as `aborted` like one that was
acknowledged (acks.py): told to every node that may hold a copy until all have heard, because a copy that
nobody tells would be delivered.

A producer that names no number of copies is not kept waiting by a slow node: after PATIENCE looks it has those
that are there, two at least while another node is heard, and the rest follow (`want_less`).

A node short of memory, or leaving, keeps no copy of its own: it asks `replicate` others, and when they have
it, one of them to queue it (ENQUEUE). A producer that does not want to wait for all copies (SYNC k, ASYNC)
is answered sooner; the rest are made in the background, and asked for again until they are there
(`fill`, once a second).

A producer may send many ADDJOBs without waiting for replies; they replicate together, and the replies are
kept in the order of the commands (Slot).
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from holdfast.core import (
    acks,
    delay,
    errors,
    fate,
    gates,
    history,
    links,
    peers,
    placement,
    records,
    requeue,
    times,
    tombs,
    twins,
    waiting,
)
from holdfast.core.copies import Copy, read_more, register, write_copy, write_job_id
from holdfast.core.job import ACK_ONLY, ACKED, ACTIVE, DEAD, QUEUED_BEFORE, SPECIAL, WAIT_REPL, Job, Task
from holdfast.core.peers import ME, MY_BIT, Peer, count_bits
from holdfast.core.queue import PAUSE_IN
from holdfast.core.reply import NOT_SAID, added_text, many_text
from holdfast.core.session import FOR_COPIES, Session, Slot
from holdfast.wire import bus
from holdfast.wire.bus import Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

ONE_MORE_MS: Final = 50

PATIENCE: Final = 3
"""So many looks, ONE_MORE_MS apart, are answers waited for by a producer that names no number of copies. Looks and not
milliseconds: after a nap of this node's own the answers are here, and have yet to be read."""

FILLED_AT_ONCE: Final = 10_000
"""Of the jobs that do not have all their copies yet, so many are looked at in a turn: no turn takes long."""

FULL_MS: Final = 10_000
"""How long a node that refused a copy is not asked by the healer."""


class Batch:
    """The jobs of one ADDJOBS: accepted together or not at all."""

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs: list[Job] = jobs
        self.left: int = len(jobs)


@mypyc_attr(acyclic=True)
class Adding(Task):
    """A job that waits for its copies."""

    def __init__(self, session: Session | None, slot: Slot, deadline: i64, wanted: i64) -> None:
        super().__init__()
        self.session: Session | None = session
        self.slot: Slot = slot
        self.deadline: i64 = deadline
        self.wanted: i64 = wanted
        self.refused: i64 = 0
        self.had: i64 = 0  # copies, when these were enough
        self.looks: i64 = 0
        self.version: i64 = 0  # of the set of holders that those asked have been told
        self.batch: Batch | None = None
        self.is_external: bool = False
        self.is_default: bool = False  # as many as can be had: fewer while it waits if nodes go or refuse
        self.confirmed = MY_BIT


def start(
    node: Node, session: Session, jobs: list[Job], timeout_ms: i64, is_batch: bool, wanted: i64, is_external: bool,
    is_default: bool, says_copies: bool,
) -> None:
    """Ask others for copies; the session waits until `wanted` nodes have one."""
    slot = Slot()
    slot.says_copies = says_copies
    session.slots.append(slot)
    deadline: i64 = node.now + timeout_ms if timeout_ms > 0 else 0
    begin(node, session, slot, jobs, deadline, is_batch, wanted, is_external, is_default)
    if session.blocked != FOR_COPIES:
        waiting.block(node, session, FOR_COPIES)


def begin(
    node: Node, session: Session | None, slot: Slot, jobs: list[Job], deadline: i64, is_batch: bool, wanted: i64,
    is_external: bool, is_default: bool,
) -> None:
    """The same for a reply that has its place already."""
    slot.jobs = jobs
    batch = Batch(jobs) if is_batch else None
    for job in jobs:
        task = Adding(session, slot, deadline, wanted)
        task.batch = batch
        task.is_external = is_external
        task.is_default = is_default
        if is_external:
            task.confirmed = 0
            job.holders = 0
        job.task = task
        job.queue.adding += 1
        ask(node, job, i64(job.replicate) if is_external else i64(job.replicate) - 1)
        node.wake_at(job, node.now + ONE_MORE_MS)


def start_async(node: Node, job: Job) -> None:
    """The producer does not wait: it has its id; copies are made until there are enough.

    With nobody there to hold one they are left to the healer.
    """
    if peers.reachable(node) == 0:
        return
    job.task = Adding(None, Slot(), 0, i64(job.replicate))
    node.filling[job] = None
    ask(node, job, i64(job.replicate) - 1)


def ask(node: Node, job: Job, count: i64) -> None:
    """Send a copy to `count` nodes that do not have one."""
    task = job.task
    refused: i64 = task.refused if isinstance(task, Adding) else 0
    spread(node, job, placement.choose(node, job, count, job.holders | refused))


def spread(node: Node, job: Job, chosen: list[Peer]) -> None:
    """More holders: known to this node before their copies leave, and to all who hold the job already."""
    if not chosen or not node.overflow.fetch(job):
        return
    earlier = job.holders & ~MY_BIT
    for peer in chosen:
        job.holders |= peer.bit
    if job.state != WAIT_REPL and not node.broken("heal-sends-first"):
        records.holders(node, job)
        node.must_sync = True
    task = job.task
    if earlier and not node.broken("late-holders-untold"):
        if isinstance(task, Adding):
            task.version += 1
            task.confirmed &= MY_BIT
        for peer in node.peers:
            if peer.bit & earlier and peer.is_linked:
                write_holders(node, peer, job)
    send_copies(node, chosen, job)


def version_of(job: Job) -> i64:
    task = job.task
    return task.version if isinstance(task, Adding) else 0


def is_enough(node: Node, task: Adding) -> bool:
    """Whether those that hold a copy are as many as wanted, on as many machines as can be had; without waiting for slow
    ones, where the producer has named no number."""
    if count_bits(task.confirmed) < task.wanted:
        return False
    if not node.shares_hosts:
        return True
    hosts: i64 = len({placement.host_of(peer) for peer in node.peers if peer.bit & task.confirmed})
    able = placement.hosts_awake(node) if task.is_default else placement.hosts_reachable(node)
    return hosts >= min(task.wanted, able)


def can_be_had(node: Node, task: Adding) -> i64:
    """Copies, if every node takes one that is heard and has not refused."""
    count: i64 = 1
    for peer in node.peers:
        is_open = placement.is_awaited(node, peer) and not peer.bit & task.refused
        if peer.index != ME and (is_open or peer.bit & task.confirmed):
            count += 1
    return count


def want_less(node: Node, task: Adding) -> None:
    """A producer that names no number of copies wants as many as can be had, and waits for no slow node."""
    if node.broken("default-is-fixed"):
        return
    task.wanted = min(task.wanted, can_be_had(node, task))
    is_over = task.looks >= PATIENCE or (task.deadline != 0 and node.now >= task.deadline)
    if is_over and not node.broken("slow-node-awaited"):
        task.wanted = min(task.wanted, max(placement.COPIES_SAFE, count_bits(task.confirmed)))


def note_slow(node: Node, job: Job, task: Adding) -> None:
    """Whoever has not answered for its copy by now is slow until it does."""
    for peer in node.peers:
        if peer.index != ME and peer.is_linked and peer.bit & job.holders & ~task.confirmed:
            peer.awaited = peer.sent


def send_copy(node: Node, peer: Peer, job: Job) -> None:
    """The receiver is in the set already: a possible holder from the moment the frame may leave."""
    send_copies(node, [peer], job)


def send_copies(node: Node, peers: list[Peer], job: Job) -> None:
    """The same bytes for all: they are in our own numbering of nodes."""
    if not node.overflow.fetch(job):
        return  # as if they had been lost on the way
    copy = BytesWriter()
    copy.append(bus.REPL)
    bus.write_i8(copy, version_of(job))
    write_copy(node, copy, job, job.holders, delay.left(node, job))
    data = copy.getvalue()
    for peer in peers:
        links.explain(node, peer, job.holders)
        peer.out.write(data)
        links.note_copy(node, peer, job)
        node.count("repl")


def write_holders(node: Node, peer: Peer, job: Job) -> None:
    links.explain(node, peer, job.holders)
    peer.out.append(bus.HOLDERS)
    write_job_id(peer.out, job)
    bus.write_i8(peer.out, version_of(job))
    bus.write_i64(peer.out, job.holders)


def on_holders(node: Node, peer: Peer, reader: Reader) -> None:
    """More nodes may hold a job we hold."""
    jid = reader.job_id()
    version = reader.u8()
    holders = links.read_mask(node, peer, reader)
    if acks.answer_from_tomb(node, peer, jid, holders | peer.bit):
        return
    job = node.find(jid)
    if job is None or job.flags & ACK_ONLY:
        return
    tombs.learn_holders(node, job, holders | peer.bit)
    if job.state == ACKED:
        acks.answer_ended(node, peer, job)
    else:
        twins.note(node, job)
        write_gotjob(peer, job, version)


def on_repl(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer asks us to hold a copy."""
    version = reader.u8()
    copy = read_copy(node, peer, reader)
    peer.owes_ack = True
    if acks.answer_from_tomb(node, peer, copy.jid, copy.holders | peer.bit):
        return
    job = node.find(copy.jid)
    if job is not None:
        tombs.learn_holders(node, job, copy.holders | peer.bit)
        if job.state == ACKED:
            acks.answer_ended(node, peer, job)
        else:
            fate.meet(node, peer, job, copy)
            write_gotjob(peer, job, version)
            twins.meet(node, peer, job)
        return
    queue = node.queues.get(copy.queue)
    is_once = copy.retry == 0 and not node.broken("once-copied")
    if node.level > 0 or node.is_leaving or (queue is not None and queue.paused & PAUSE_IN) or is_once:
        peer.out.append(bus.REFUSED)
        peer.out.write(copy.jid)
        return
    job = register(node, copy)
    if job is None:
        return
    job.holders |= peer.bit
    job.state = ACTIVE
    job.responsible = int(peer.index)
    if job.more is not None and job.more.cause:
        fate.arrive(node, job)
    records.job(node, job)
    if job.state != DEAD:
        node.wake_at(job, node.now + copy.delay_left + i64(job.retry) * 1000 + node.jitter())
    write_gotjob(peer, job, version)


def link_up(node: Node, peer: Peer) -> None:
    """Send again what was on its way when the last link ended: it may be lost, and the peer counts as a holder.

    A makes copies at B, C and, as they are slow, at D; the link with D ends with the copy in it. B and C answer,
    the job is accepted, C is lost: nobody would heal, since with D there seem to be enough.
    """
    doubted = peer.doubted
    peer.doubted = {}
    if node.broken("copies-in-doubt-dropped"):
        return
    for job in doubted:
        if node.is_here(job) and job.state != ACKED and job.retry > 0 and job.holders & peer.bit:
            send_copy(node, peer, job)


def read_copy(node: Node, peer: Peer, reader: Reader) -> Copy:
    copy = Copy(reader)
    copy.holders = links.read_mask(node, peer, reader)
    copy.queue = reader.name()
    copy.body = reader.name()
    copy.more = read_more(reader.name())
    copy.check()
    if not node.broken("flight-not-counted"):
        copy.pass_time(peer.late)
    return copy


def write_gotjob(peer: Peer, job: Job, version: i64) -> None:
    peer.out.append(bus.GOTJOB)
    write_job_id(peer.out, job)
    bus.write_i8(peer.out, version)


def on_gotjob(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer holds a copy."""
    job = node.find(reader.job_id())
    version = reader.u8()
    if job is None:
        return
    tombs.learn_holders(node, job, peer.bit)
    if node.is_leaving:
        peer.vouched[job] = True
    task = job.task
    if not isinstance(task, Adding):
        return
    task.refused &= ~peer.bit  # asked once more it had room
    if version == task.version & 255:
        task.confirmed |= peer.bit
        if is_enough(node, task):
            accept(node, job, task)


def on_refused(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer has no room for a copy, and holds none. It is no holder then, unless another is on its way to it."""
    job = node.find(reader.job_id())
    if job is None:
        return
    task = job.task
    is_asked_again = links.is_copy_flying(peer, job) or job in peer.moves.values()  # and it may take that one
    if isinstance(task, Adding):
        if not task.confirmed & peer.bit:
            is_first = not task.refused & peer.bit
            task.refused |= peer.bit
            if not is_asked_again or node.broken("refusal-is-for-good"):
                job.holders &= ~peer.bit
            if is_first:
                ask(node, job, 1)
            if task.is_default:
                want_less(node, task)
                if is_enough(node, task):
                    accept(node, job, task)
    elif job.state != ACKED and not is_asked_again:
        # A healer's copy, or one that was asked for again: the next walk over all jobs (heal.py) finds another node.
        peer.full_until = node.now + FULL_MS
        job.holders &= ~peer.bit
        records.holders(node, job)
        is_over = not delay.is_on(node, job) and not node.broken("refusal-queues")
        if job.responsible == peer.index and not job.flags & QUEUED_BEFORE and not is_over:
            begin_life_here(node, job)  # it was to see to the end of a delay; later others are asked before


def accept(node: Node, job: Job, task: Adding) -> None:
    """Enough nodes hold it: the promise is made, for jobs of an ADDJOBS when it is made for all of them."""
    if job.state != WAIT_REPL:
        job.task = None
        node.filling.pop(job, None)
        return  # it was accepted before, and now has all its copies
    if task.had > 0:
        return
    task.had = count_bits(task.confirmed)
    if task.batch is not None:
        job.qtime = 0
        one_more(node, task.batch, task)
        return
    reply = added_text(node.id_text(job), task.slot.says, task.had if task.slot.says_copies else NOT_SAID)
    begin_accepted(node, job, task)
    node.fill_slot(task.session, task.slot, reply)


def one_more(node: Node, batch: Batch, task: Adding) -> None:
    """One more job of an ADDJOBS has its copies; with the last of them all are accepted."""
    batch.left -= 1
    if batch.left > 0:
        return
    copies = task.had
    ids = [node.id_text(each) for each in batch.jobs]
    for each in batch.jobs:
        own = each.task
        if each.state == WAIT_REPL and isinstance(own, Adding):
            copies = min(copies, own.had)
            begin_accepted(node, each, own)
    node.fill_slot(task.session, task.slot, many_text(ids, copies if task.slot.says_copies else NOT_SAID))


def begin_accepted(node: Node, job: Job, task: Adding) -> None:
    job.task = None
    able = peers.reachable(node) + 1  # beyond that it is for the healer
    if count_bits(task.confirmed) < min(able, i64(job.replicate)) and not task.is_external:
        rest = Adding(None, Slot(), 0, i64(job.replicate))  # the others in the background
        rest.confirmed = task.confirmed
        rest.version = task.version
        job.task = rest
        node.filling[job] = None
        if task.is_default:
            node.count("added-with-fewer-copies")
    job.queue.adding -= 1
    times.copied(node, job, task.is_default)
    history.added(node, job)
    if task.is_external:
        hand_over(node, job, task.confirmed)
        return
    job.state = ACTIVE
    job.qtime = 0
    records.job(node, job)
    begin_life(node, job)
    if job.flags & SPECIAL:
        gates.accepted(node, job)


def hand_over(node: Node, job: Job, confirmed: i64) -> None:
    """External: one of the nodes that have it queues it, and we forget it."""
    for peer in node.peers:
        if peer.bit & confirmed and peer.is_linked:
            write_enqueue(peer, job)
            break
    node.count("external")
    node.forget(job)


def write_enqueue(peer: Peer, job: Job) -> None:
    peer.out.append(bus.ENQUEUE)
    write_job_id(peer.out, job)


def fill(node: Node) -> None:
    """Once a second: accepted jobs that do not have all their copies yet."""
    if node.broken("had-not-wanted"):
        return
    late: i64 = 0
    waiting = len(node.filling)
    for job in list(node.filling)[:FILLED_AT_ONCE]:
        task = job.task
        if waiting > FILLED_AT_ONCE:
            del node.filling[job]  # to the end: the others come next
            node.filling[job] = None
        if not isinstance(task, Adding) or job.state == ACKED or not node.is_here(job):
            del node.filling[job]
            continue
        have = count_bits(task.confirmed)
        open_to = peers.linked(node) & ~task.refused
        for peer in node.peers:
            is_missing = peer.bit & job.holders & ~task.confirmed & open_to != 0
            if is_missing and have < task.wanted and (not peer.is_slow() or node.broken("fill-floods")):
                send_copy(node, peer, job)  # it may have been lost with a link: asking twice does no harm
                late |= peer.bit
        missing = task.wanted - count_bits(job.holders & (open_to | task.confirmed))
        if missing > 0:
            ask(node, job, missing)
    for peer in node.peers:
        if peer.bit & late:
            peer.awaited = peer.sent  # not asked a third time before it has acknowledged what it has


def begin_life(node: Node, job: Job) -> None:
    """Queue a job for the first time, now or after its delay."""
    job.state = ACTIVE
    if delay.is_on(node, job):
        node.wake_at(job, delay.end(job))
        twins.tell(node, job, job.holders)
    elif twins.must_ask(node, job):
        requeue.due(node, job)
    else:
        node.enqueue(job)


def begin_life_here(node: Node, job: Job) -> None:
    """The same where another node was to do it."""
    job.responsible = ME
    requeue.stop_asking(node, job)
    begin_life(node, job)


def wake(node: Node, job: Job) -> None:
    """A job in wait-repl is due: ask one more node, or give up."""
    task = job.task
    assert isinstance(task, Adding)
    task.looks += 1
    if task.looks >= PATIENCE:
        note_slow(node, job, task)
    if task.is_default:
        want_less(node, task)
    if is_enough(node, task):
        accept(node, job, task)  # the machine that was still missing is out of reach by now
        return
    if task.deadline != 0 and node.now >= task.deadline:
        abort(node, job, errors.NO_REPL_TIMEOUT)
        return
    if job.flying == 0:  # whoever has not answered by now lost its copy with a link
        for peer in node.peers:
            if peer.bit & job.holders & ~task.confirmed and peer.index != ME and peer.is_linked:
                send_copy(node, peer, job)
    ask(node, job, 1)
    soon = node.now + ONE_MORE_MS
    node.wake_at(job, soon if task.deadline == 0 else min(soon, task.deadline))


def abort(node: Node, job: Job, error: bytes) -> None:
    """It will not be accepted. Whoever may hold a copy is told until all have heard."""
    task = job.task
    assert isinstance(task, Adding)
    batch = task.batch
    for each in [job] if batch is None else batch.jobs:
        if each.state == WAIT_REPL:
            each.queue.adding -= 1
            each.task = None
            if not twins.stays(node, each):
                node.count("aborted")
                history.not_accepted(node, each, error)
                acks.end(node, each, acks.ABORTED)
    if error:
        times.refused(node, error)
        node.fill_slot(task.session, task.slot, b"-" + error + b"\r\n")


def abandon(node: Node, job: Job) -> bool:
    """A job that waits for its copies has ended elsewhere: a replica was delivered and acknowledged. It was accepted,
    then, as far as anybody can tell; its producer gets the id, with those of an ADDJOBS when they are accepted, too."""
    task = job.task
    if not isinstance(task, Adding):
        return False
    job.task = None
    if job.state != WAIT_REPL:
        return False
    job.queue.adding -= 1
    job.queue.added += 1
    history.added(node, job)
    acks.mark(node, job, acks.DONE)
    is_counted = task.had > 0
    task.had = count_bits(task.confirmed)
    if task.batch is None:
        said = task.had if task.slot.says_copies else NOT_SAID
        node.fill_slot(task.session, task.slot, added_text(node.id_text(job), task.slot.says, said))
    elif not is_counted:
        one_more(node, task.batch, task)
    node.wake_at(job, node.now + acks.TAKE_OVER_MS)
    return True


def abort_all(node: Node, session: Session) -> None:
    """The producer is gone: what it was not answered is not accepted."""
    slots = list(session.slots)
    session.slots.clear()
    for slot in slots:
        for job in slot.jobs:
            if job.state == WAIT_REPL:
                abort(node, job, b"")


def on_enqueue(node: Node, peer: Peer, reader: Reader) -> None:
    """A node that keeps no copy, or is leaving, asks us, who have one, to queue it for the first time."""
    job = node.find(reader.job_id())
    if job is None or job.state != ACTIVE or job.queue.paused & PAUSE_IN:
        return
    # If the word was slow, somebody else has seen to it meanwhile, and has it queued or with a consumer.
    if job.responsible == peer.index or delay.is_on(node, job) or node.broken("late-enqueue-obeyed"):
        begin_life_here(node, job)
