"""How a job ends everywhere.

An ending (acknowledged, aborted, flushed) is known at one node first, and must reach every node that may
hold a copy, or that copy would be delivered. The node keeps the ended job, without its body, as the record
of the ending, and tells the holders (SETACK) until each has said it knows (GOTACK). Then nobody can bring
the job back: everybody is told to forget it (DELJOB), and a tombstone stays for a while.

What makes this right, each from a schedule that broke something simpler (see docs/explanation):

* Sets, not sizes: collected when every node of the holder set has confirmed, and GOTACK brings the
  answerer's own holder set, which is merged.
* GOTACK from a holder means: I hold the ending, and no copy of mine is on its way to anybody. Until then the
  answer is "not yet", with the set that names the receiver.
* A node that does not know the job answers `unknown` and keeps a tombstone, so that a copy which arrives
  later finds it. If somebody names that node as a holder afterwards, its `unknown` does not count, nor one that is
  still on its way: ask again.
* Where a holder has lost what it knew (its disk, the last second of it, or an ADDJOB it had not finished), it may
  have been the only one to know of another. Such a set is not trusted any more: every member is asked. Nor is that
  of a job that may have been made twice under one id (keyed.py).
* An ack for a job we have never seen is an ack-only entry. It vouches for nothing: it goes when a holder has
  taken the ending over, or when every member has said that it knows nothing. Who said so may be given a copy later;
  that is no harm while the giver is still to be asked, but it may lose what it knew before it is. So whenever a
  member comes back only what is said from then on counts, and the others are asked again.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import batches, bounds, expiry, gates, links, peers, records, replicate, results, rules, times, tombs
from holdfast.core.ids import CRON_PREFIX, can_be_seq, id_seq
from holdfast.core.job import ACK_ONLY, ACKED, QUEUED, SPECIAL, UNSURE, Job, Task
from holdfast.core.peers import ME, MY_BIT, Peer, count_bits
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

# How a job ended.
DONE: Final = 0
ABORTED: Final = 1
FLUSHED: Final = 2
REPLACED: Final = 3  # another job with its unique key took its place
MERGED: Final = 4  # the same job was added on two sides of a cut (unique.py)
CANCELLED: Final = 5
DELETED: Final = 6
EXPIRED: Final = 7  # told only where somebody counts (batches.py)
WHY_LAST: Final = 7

# What GOTACK says.
HOLDS: Final = 0
NOT_YET: Final = 1
ONLY_ACK: Final = 2
NO_IDEA: Final = 3

# Why DELJOB.
COLLECTED: Final = 0
FAST: Final = 1

RETRY_MS: Final = 1000
RETRY_MS_MAX: Final = 180_000
TAKE_OVER_MS: Final = 5000
"""A holder that was told of an ending collects by itself if it hears nothing for this long."""

CLOCK_BACK_MS: Final = 86_400_000
"""A clock is set back by a day at most between two starts: numbers of jobs that lie further ahead are made up."""

SLACK_MS: Final = 30_000
"""How much longer an ending is remembered than the job would have lived: the longest a frame is on its way."""


class Ending(Task):
    """An ended job that is not collected yet. `confirmed`: who holds the ending."""

    def __init__(self, why: i64) -> None:
        super().__init__()
        self.why = why
        self.unknown: i64 = 0  # confirmed by saying it knows nothing of the job
        self.asked: i64 = 0  # told over a link that is still there, answer to come
        self.void: i64 = 0  # of these: that they know nothing does not count, since they may have it by now
        self.tries: i64 = 0
        self.confirmed = MY_BIT


def end(node: Node, job: Job, why: i64) -> None:
    """The job has ended here: now everybody must know."""
    if why == ABORTED and node.broken("h14-abort-forgets-holders"):
        job.holders = MY_BIT
    if why == ABORTED and node.broken("abort-not-collected"):
        fast(node, job)
        return
    mark(node, job, why)
    collect_or_tell(node, job)


def mark(node: Node, job: Job, why: i64) -> None:
    """From here on the job is the record of its ending."""
    if job.state == QUEUED:
        job.queue.remove(job)
    node.asking.pop(job, None)
    rules.let_go(node, job)
    bounds.ended(node, job)
    ask_everybody_if_unsure(node, job)
    if job.flags & SPECIAL:
        results.tell_end(node, job, results.word_of(why))
    job.state = ACKED
    job.task = Ending(why)
    job.qtime = 0
    job.expire += SLACK_MS  # a copy that was on its way when the job ended lives that much longer
    job.expire += expiry.dead_ms(node, job)
    node.free_body(job)
    records.ending(node, job, why)
    node.endings[job] = None
    if job.flags & SPECIAL:
        gates.ended(node, job, why)


def distrust(node: Node, job: Job) -> None:
    """A holder may have lost what it knew, and with it who else has a copy."""
    job.flags |= UNSURE
    if job.state == ACKED:
        ask_everybody_if_unsure(node, job)


def ask_everybody_if_unsure(node: Node, job: Job) -> None:
    if job.flags & UNSURE and not job.flags & ACK_ONLY and not node.broken("unsure-sets-trusted"):
        tombs.learn_holders(node, job, peers.everybody(node))


def collect_or_tell(node: Node, job: Job) -> None:
    task = job.task
    assert isinstance(task, Ending)
    if job.flags & ACK_ONLY:
        missing = peers.everybody(node) & ~task.confirmed
        if missing == 0:
            if node.is_young():
                node.wake_at(job, node.now + RETRY_MS)  # somebody we have not met may still come
                return
            node.count("ack-only-dropped")
            forget(node, job)
            return
    else:
        missing = unconfirmed(node, job, task)
        if missing == 0 and (job.flying == 0 or node.broken("h12-no-gotack-barrier")):
            if job.flags & SPECIAL and batches.holds_up(node, job):
                node.wake_at(job, node.now + RETRY_MS)
                return
            collect(node, job, task)
            return
    for peer in node.peers:
        if peer.bit & missing and peer.is_linked:
            tell(node, peer, job, task)
    wait: i64 = min(RETRY_MS_MAX, RETRY_MS << min(8, task.tries))
    task.tries += 1
    node.wake_at(job, node.now + wait + node.jitter())


def unconfirmed(node: Node, job: Job, task: Ending) -> i64:
    """Holders that must still hear of the ending."""
    if node.broken("h1-sizes-not-sets") and count_bits(task.confirmed) >= count_bits(job.holders):
        return 0
    return job.holders & ~task.confirmed & ~peers.forgotten(node)


def collect(node: Node, job: Job, task: Ending) -> None:
    """Every node that may hold a copy holds the ending: it can go everywhere."""
    node.count("collected")
    if job.holders & ~MY_BIT and not node.broken("collector-forgets"):
        node.must_sync = True  # soon nobody else knows of the ending: we must not have lost it then
    jid = node.id_text(job)
    for peer in node.peers:
        if peer.bit & job.holders and peer.index != ME and peer.is_linked:
            links.explain(node, peer, job.holders)
            peer.out.append(bus.DELJOB)
            peer.out.write(jid)
            bus.write_i8(peer.out, COLLECTED)
            bus.write_i64(peer.out, job.holders)
    if node.broken("h6-no-tombstone-at-collection"):
        pass
    elif job.holders & ~task.confirmed:
        tombs.bury(node, jid, task.why, job.holders, job.expire)  # a forgotten node may still have it, and come back
    elif job.holders & ~MY_BIT or job.origin is not node.own:
        # Its maker, too, may ask for it once more, not having heard that we took it.
        tombs.bury(node, jid, task.why, job.holders, tombs.soon(node))
    forget(node, job)


def forget(node: Node, job: Job) -> None:
    if node.broken("result-ends-with-job"):
        results.forget_one(node, node.id_text(job))
    node.endings.pop(job, None)
    job.task = None
    records.gone(node, job)
    node.forget(job)


def ack_unknown(node: Node, jid: bytes) -> bool:
    """An ack for a job we have never seen: keep it until somebody who has takes it over."""
    if is_worth_telling(node, jid):
        return tell_once(node, jid)
    if not is_worth_keeping(node, jid):
        return False
    job = make_ended(node, jid, True)
    if job is None:
        return False
    end(node, job, DONE)
    return True


def tell_once(node: Node, jid: bytes) -> bool:
    """An at-most-once job is not delivered again, whatever becomes of its ack. But while the node that handed it out
    takes it for being out, it has a place where only so many may be."""
    if node.broken("stray-ack-dropped"):
        return False
    for peer in node.peers:
        if peer.is_linked:
            write_setack(node, peer, jid, DONE, True, 0)
    return True


def is_at_most_once(jid: bytes) -> bool:
    return int(jid[42:46], 16) % 2 == 0


def is_taken(node: Node, jid: bytes) -> bool:
    """Whether an ack of a job that is not here comes to anything: it is kept, or told to those who may have the job."""
    return is_worth_keeping(node, jid) or (is_worth_telling(node, jid) and not node.broken("stray-result-dropped"))


def is_worth_telling(node: Node, jid: bytes) -> bool:
    """Whether there may be such a job, which is never delivered again but may have a place elsewhere."""
    return is_at_most_once(jid) and jid not in node.tombs and is_made_by_a_node_we_know(node, jid)


def is_worth_keeping(node: Node, jid: bytes) -> bool:
    """Whether there may be such a job, which can be delivered again."""
    if jid in node.tombs or is_at_most_once(jid):
        return False
    if jid.startswith(node.own.prefix) and id_seq(jid) > node.seq and not is_of_an_earlier_life(node, jid):
        return False  # a number that was never given out
    # Made by nobody we know is no reason while we may not know them yet.
    return is_made_by_a_node_we_know(node, jid) or node.is_young()


def is_of_an_earlier_life(node: Node, jid: bytes) -> bool:
    """Whether this node may have made that job before it was started anew with its clock set back.

    It was still being added, or was not kept for another reason, or its number would be known.
    """
    return id_seq(jid) <= (node.now + CLOCK_BACK_MS) * 1000 and not node.broken("own-number-not-believed")


def is_made_by_a_node_we_know(node: Node, jid: bytes) -> bool:
    """This one among them; and any of them makes jobs on a schedule."""
    return jid.startswith(CRON_PREFIX) or any([jid[2:10] == peer.node_id()[:8] for peer in node.peers])


def write_setack(node: Node, peer: Peer, jid: bytes, why: i64, is_ack_only: bool, holders: i64) -> None:
    if node.results.kept:
        results.tell_result(node, peer, jid)
    links.explain(node, peer, holders)
    peer.out.append(bus.SETACK)
    peer.out.write(jid)
    bus.write_i8(peer.out, why)
    bus.write_i8(peer.out, 1 if is_ack_only else 0)
    bus.write_i64(peer.out, 0 if is_ack_only else holders)
    node.count("setacks")


def tell(node: Node, peer: Peer, job: Job, task: Ending) -> None:
    """Nobody is told twice before it has answered, which it will unless its link ends: or it would not be known to
    which of the two an answer belongs."""
    if task.asked & peer.bit and not node.broken("old-answers-count"):
        return
    task.asked |= peer.bit
    write_setack(node, peer, node.id_text(job), task.why, job.flags & ACK_ONLY != 0, job.holders)


def answer_ended(node: Node, peer: Peer, job: Job) -> None:
    """Somebody thinks the job lives: tell how it ended."""
    task = job.task
    assert isinstance(task, Ending)
    tell(node, peer, job, task)


def answer_from_tomb(node: Node, peer: Peer, jid: bytes, holders: i64) -> bool:
    """The same for a job that ended so long ago that only its tombstone is left; False if there is none."""
    tomb = node.tombs.get(jid)
    if tomb is None:
        return False
    write_setack(node, peer, jid, tomb.why, False, tombs.widen(node, jid, tomb, holders))
    return True


def on_setack(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer says how a job ended."""
    jid = reader.job_id()
    why = reader.u8()
    is_ack_only = reader.u8() != 0
    holders = links.read_mask(node, peer, reader)
    if why > WHY_LAST:
        raise BadFrame("an ending there is none of")
    tomb = node.tombs.get(jid)
    if tomb is not None:
        write_gotack(node, peer, jid, HOLDS, tombs.widen(node, jid, tomb, holders))
        return
    job = node.find(jid)
    if job is None:
        if is_ack_only:
            write_gotack(node, peer, jid, NO_IDEA, 0)
            return
        if not node.broken("h4-no-tombstone-for-unknown"):
            tombs.bury(node, jid, why, holders | peer.bit, tombs.latest_life(node, jid))
        write_gotack(node, peer, jid, NO_IDEA, 0)
        return
    if node.broken("h5-abort-erases-ack") and why == ABORTED and job.state == ACKED:
        forget(node, job)
        return
    if job.flags & ACK_ONLY:
        if is_ack_only:
            write_gotack(node, peer, jid, HOLDS if node.broken("h13-ack-only-vouches") else ONLY_ACK, 0)
        else:
            # A holder has it: our entry has done its work.
            write_gotack(node, peer, jid, NO_IDEA, 0)
            tombs.bury(node, jid, why, holders | peer.bit, tombs.latest_life(node, jid))
            forget(node, job)
        return
    if not is_ack_only:
        tombs.learn_holders(node, job, holders | peer.bit)
    if job.state != ACKED:
        if not replicate.abandon(node, job):
            mark(node, job, why)
        if job.responsible == ME and is_ack_only and why == DONE:
            times.acked(node, job)
        if is_ack_only:
            collect_or_tell(node, job)  # nobody else will
        else:
            node.wake_at(job, node.now + TAKE_OVER_MS + node.jitter())
    task = job.task
    if isinstance(task, Ending) and not is_ack_only:
        task.confirmed |= peer.bit
    if not node.broken("gotack-not-kept"):
        node.must_sync = True  # the answer says that the ending is kept: it has to be
    is_flying = job.flying > 0 and not node.broken("h12-no-gotack-barrier")
    write_gotack(node, peer, jid, NOT_YET if is_flying else HOLDS, job.holders)


def write_gotack(node: Node, peer: Peer, jid: bytes, kind: i64, holders: i64) -> None:
    if node.broken("h8-gotack-without-set"):
        holders = 0
    links.explain(node, peer, holders)
    peer.out.append(bus.GOTACK)
    peer.out.write(jid)
    bus.write_i8(peer.out, kind)
    bus.write_i64(peer.out, holders)


def on_gotack(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer answers our SETACK. When every node that may hold a copy holds the ending, the job can go."""
    job = node.find(reader.job_id())
    kind = reader.u8()
    holders = links.read_mask(node, peer, reader)
    if job is None or job.state != ACKED:
        return
    task = job.task
    assert isinstance(task, Ending)
    is_void = task.void & peer.bit and not node.broken("old-answers-count")
    task.asked &= ~peer.bit
    task.void &= ~peer.bit
    if job.flags & ACK_ONLY:
        if kind == HOLDS or kind == NOT_YET:
            jid = node.id_text(job)
            tombs.bury(node, jid, task.why, holders | peer.bit, tombs.latest_life(node, jid))
            forget(node, job)
            return
        if not is_void:
            task.confirmed |= peer.bit
        collect_if_done(node, job, task)
        return
    if kind == HOLDS or kind == NOT_YET:
        tombs.learn_holders(node, job, holders | peer.bit)
        doubted = 0 if node.broken("h12-unknown-counts-for-good") else task.unknown & holders
        task.confirmed &= ~doubted  # named as a holder after it said it knows nothing: ask it again
        task.unknown &= ~doubted
        task.void |= task.asked & holders
        if kind == HOLDS:
            task.confirmed |= peer.bit
        else:
            task.confirmed &= ~peer.bit
            return  # a copy of its own is still on its way: ask again when the time for that comes
    elif kind == NO_IDEA and not is_void:
        task.confirmed |= peer.bit
        task.unknown |= peer.bit
        if peer.bit & job.holders and not node.broken("forgetful-holder-believed"):
            distrust(node, job)  # it was to have a copy: perhaps it had one, and gave others
    elif kind == ONLY_ACK and peer.bit & job.holders:
        task.confirmed |= peer.bit
    collect_if_done(node, job, task)


def collect_if_done(node: Node, job: Job, task: Ending) -> None:
    """Collect, or ask at once those whom the last answer named."""
    missing = peers.everybody(node) & ~task.confirmed if job.flags & ACK_ONLY else unconfirmed(node, job, task)
    if missing == 0 or missing & ~task.asked & peers.linked(node):
        collect_or_tell(node, job)


def on_deljob(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer says that everybody knows, or (FASTACK) that it does not care whether everybody does."""
    jid = reader.job_id()
    why = reader.u8()
    holders = links.read_mask(node, peer, reader)
    job = node.find(jid)
    if job is not None and why == FAST and job.state == ACKED:
        return
    if not node.broken("h6-no-tombstone-at-collection"):
        how = job.task.why if job is not None and job.task is not None else DONE
        tombs.bury(node, jid, how, holders | peer.bit, tombs.soon(node))
    if job is not None:
        if replicate.abandon(node, job):
            return
        forget(node, job)


def fast(node: Node, job: Job) -> None:
    """FASTACK: forget the job here and tell the others once."""
    jid = node.id_text(job)
    for peer in node.peers:
        if peer.bit & job.holders and peer.index != ME and peer.is_linked:
            fast_to(node, peer, jid, job.holders)
    if job.flags & SPECIAL:
        batches.tell_once(node, job, DONE)
    forget(node, job)


def fast_to(node: Node, peer: Peer, jid: bytes, holders: i64) -> None:
    links.explain(node, peer, holders)
    peer.out.append(bus.DELJOB)
    peer.out.write(jid)
    bus.write_i8(peer.out, FAST)
    bus.write_i64(peer.out, holders)


def link_up(node: Node, peer: Peer) -> None:
    """Tell a peer that is back what it has missed: first of all, since what it does next depends on that."""
    if peer.has_missed and not node.broken("forgotten-joins-at-once"):
        for jid, tomb in node.tombs.items():
            if tomb.holders & peer.bit:
                write_setack(node, peer, jid, tomb.why, False, tomb.holders)
    peer.has_missed = False
    for job in list(node.endings):
        task = job.task
        if not isinstance(task, Ending):
            continue
        task.asked &= ~peer.bit
        if job.flags & ACK_ONLY and not node.broken("early-no-idea-counts"):
            task.confirmed = MY_BIT
            task.void = task.asked  # and they are asked again when it has said that it knows nothing
        if job.flags & ACK_ONLY or peer.bit & job.holders & ~task.confirmed:
            tell(node, peer, job, task)


def make_ended(node: Node, jid: bytes, is_ack_only: bool) -> Job | None:
    """What stands for a job that has ended and is not here, so that its ending can be kept and told."""
    seq = id_seq(jid)
    if not can_be_seq(jid[:10], seq):
        return None
    origin = node.origin(jid[:10])
    if origin.get(seq) is not None:
        return None
    rnd = int(jid[26:42], 16)
    job = Job(
        seq, rnd - (1 << 64) if rnd >= 1 << 63 else rnd, origin, node.nowhere, b"", node.now * 1_000_000,
        tombs.latest_life(node, jid), int(jid[42:46], 16),
    )
    job.retry = 1
    if is_ack_only:
        job.flags |= ACK_ONLY
        job.holders = 0
    node.keep(job)
    return job
