"""Healing and leaving: bringing each job back to as many copies as were asked for.

When a node is gone for good (forgotten, back without its data, or away longer than heal-after) the jobs it
held have one copy less. A walk over all jobs, some each second, finds those with too few living holders; of
these the first in the job's own order of nodes makes the missing copies. Copies beyond what was asked for,
left over when the node comes back after all, are never taken away: they end with the job.

A leaving node walks the same way and counts itself out: it gives its queued jobs to others, has the end of each
delay it was to see to seen to by another holder, and makes sure that every job it holds has enough copies without
it. A holder set says who *may* hold a copy: a copy may be lost with its link, and that it was on its way here is
known only to who sent it. So a leaving node asks each holder, and counts those that have said they hold the job
(`vouch`). `is_safe_to_stop` says when all is done, and `left_to_do` what is not.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import census, federate, home, placement, replicate, takeover
from holdfast.core.job import ACKED, ACTIVE, DEAD, FOLDED, HANDED_OUT, MOVING, QUEUED, QUEUED_BEFORE, Job
from holdfast.core.orphans import is_alone_with
from holdfast.core.peers import ME, MY_BIT, Peer, count_bits
from holdfast.core.requeue import is_leased, order_key

if TYPE_CHECKING:
    from holdfast.core.node import Node

JOBS_PER_BEAT: Final = 20_000
"""Looked at each second: a million jobs take less than a minute, and no turn takes long."""

COPIES_PER_BEAT: Final = 2_000
BYTES_PER_BEAT: Final = 32 * 1024 * 1024
"""Healing must not crowd out the work; and a node short of memory heals nothing."""

MOVES_PER_BEAT: Final = 5_000


class Healing:
    """How far the walk over all jobs has come."""

    def __init__(self) -> None:
        self.origin: bytes = b""
        self.seq: i64 = 0
        self.after_ms: i64 = 60_000  # a node that is away for longer has its copies made elsewhere


def beat(node: Node) -> None:
    if len(node.peers) == 1:
        return
    if node.is_leaving:
        drain(node)
    walk(node, not node.broken("no-healing") and (node.level == 0 or node.is_leaving))


def walk(node: Node, heals: bool) -> None:
    """The next part of the way through all jobs: to count them, and to heal those that need it."""
    if node.healing.origin == b"":
        census.begin(node)
    jobs_left = JOBS_PER_BEAT
    copies = 0
    size = 0
    for prefix in sorted(node.origins):
        if prefix < node.healing.origin:
            continue
        origin = node.origins[prefix]
        seq = node.healing.seq if prefix == node.healing.origin else 0
        while True:
            pages = origin.pages_from(seq, 64)
            if not pages:
                break
            for page in pages:
                for job in list(page.slots):
                    if job is None:
                        continue
                    jobs_left -= 1
                    if job.state == FOLDED:
                        continue  # has one copy and wants no other; a leaving node gives it away (`drain`)
                    census.note(node, job)
                    made = heal(node, job, heals)
                    if made > 0:
                        copies += made
                        size += made * len(job.kept)
                seq = (page.number + 1) * len(page.slots)
                if jobs_left <= 0 or copies >= COPIES_PER_BEAT or size >= BYTES_PER_BEAT:
                    node.healing.origin = prefix
                    node.healing.seq = seq
                    return
    node.healing.origin = b""
    node.healing.seq = 0
    forget_vouched(node)
    census.turn(node)


def heal(node: Node, job: Job, heals: bool) -> int:
    """Make the copies a job is short of, if that is for this node to do; how many were sent."""
    is_once = job.retry == 0 and not node.broken("once-copied")
    if is_once or job.state not in (ACTIVE, QUEUED, DEAD) or job.task is not None:
        return 0
    if node.is_leaving:
        hand_over_delay(node, job)
        vouch(node, job)
    missing = i64(job.replicate) - count_bits(living(node, job))
    if missing > 0:
        node.census.short_so_far += 1
    if missing <= 0 or not heals or is_somebody_else_first(node, job) or is_alone_with(node, job):
        return 0
    chosen = placement.choose(node, job, missing, job.holders | full(node))
    replicate.spread(node, job, chosen)
    for _ in chosen:
        node.count("healed")
    return len(chosen)


def full(node: Node) -> i64:
    mask: i64 = 0
    for peer in node.peers:
        if node.now < peer.full_until:
            mask |= peer.bit
    return mask


def vouch(node: Node, job: Job) -> None:
    """Have the holders say that they are: first a question, then the copy itself, to be taken or refused."""
    for peer in node.peers:
        if peer.index == ME or not peer.bit & job.holders or not peer.is_reachable(node.now):
            continue
        if job not in peer.vouched:
            peer.vouched[job] = False
            replicate.write_holders(node, peer, job)
        elif not peer.vouched[job] and job.flying == 0:
            replicate.send_copy(node, peer, job)


def vouched(node: Node, job: Job) -> i64:
    """Living holders that have said they are."""
    if node.broken("may-hold-counts"):
        return living(node, job)
    mask: i64 = 0
    for peer in node.peers:
        if peer.bit & job.holders and is_living(node, peer) and peer.vouched.get(job, False):
            mask |= peer.bit
    return mask


def forget_vouched(node: Node) -> None:
    """Of jobs that are gone, or all when the node stays after all."""
    for peer in node.peers:
        for job in [job for job in peer.vouched if not node.is_leaving or not node.is_here(job)]:
            del peer.vouched[job]


def is_delayed_here(node: Node, job: Job) -> bool:
    """Whether this node is to queue the job for the first time, later."""
    return job.state == ACTIVE and job.responsible == ME and not job.flags & QUEUED_BEFORE and job.qtime > node.now


def hand_over_delay(node: Node, job: Job) -> None:
    """The end of the delay will be seen to by another holder."""
    if not is_delayed_here(node, job):
        return
    for peer in node.peers:
        if peer.bit & job.holders and peer.is_reachable(node.now):
            replicate.write_enqueue(peer, job)
            job.responsible = int(peer.index)
            node.wake_at(job, job.qtime + i64(job.retry) * 1000 + node.jitter())
            return


def living(node: Node, job: Job) -> i64:
    """Holders that count: linked, or not away for long. A leaving node does not count itself."""
    mask: i64 = 0 if node.is_leaving else MY_BIT
    for peer in node.peers:
        if peer.index != ME and peer.bit & job.holders and is_living(node, peer):
            mask |= peer.bit
    return mask


def is_living(node: Node, peer: Peer) -> bool:
    if not peer.is_member or peer.is_leaving(node.now):
        return False
    if node.broken("heal-at-once"):
        return peer.is_linked
    return peer.is_linked or node.now - max(peer.heard, peer.away_since) < node.healing.after_ms


def is_somebody_else_first(node: Node, job: Job) -> bool:
    """One healer per job: the first holder in its order that can be heard and is not leaving itself."""
    if node.is_leaving or node.broken("everybody-heals"):
        return False
    mine = order_key(job, node.node_id)
    for peer in node.peers:
        if (
            peer.index != ME and peer.bit & job.holders and peer.is_reachable(node.now)
            and order_key(job, peer.node_id()) < mine
        ):
            return True
    return False


def drain(node: Node) -> None:
    """Give queued jobs to nodes that stay."""
    targets = [peer for peer in node.peers if peer.is_reachable(node.now)]
    if not targets or takeover.has_slots(node):
        return  # jobs with keys go along with their slots
    left = MOVES_PER_BEAT
    for queue in list(node.queues.values()):
        while queue.size > 0 and left > 0:
            job = node.pop(queue)
            if job is None:
                break
            federate.move(node, job, targets[left % len(targets)])
            left -= 1


class Left:
    """What a leaving node has still to do, as numbers."""

    def __init__(self) -> None:
        self.jobs_queued: int = 0  # here, or to be queued here
        self.leases: int = 0
        self.moves: int = 0  # given away, and nobody has said that it took them
        self.endings: int = 0  # that not every holder has heard of
        self.copies_short: int = 0  # jobs that not enough others have said they hold
        self.jobs_once: int = 0  # of RETRY 0, not handed out yet
        self.slots: int = 0  # keys that are decided about here

    def by_name(self) -> dict[str, int]:
        return {
            "jobs_queued": self.jobs_queued, "leases": self.leases, "moves": self.moves, "endings": self.endings,
            "copies_short": self.copies_short, "jobs_once": self.jobs_once, "slots": self.slots,
        }


def left_to_do(node: Node) -> Left:
    """A look at all jobs: what keeps this node from being stopped."""
    left = Left()
    left.endings = len(node.endings)
    left.copies_short = len(node.filling)
    left.jobs_queued = int(node.overflow.folded)
    left.moves = sum([len(peer.moves) for peer in node.peers])
    if takeover.has_slots(node) and not home.is_alone(node):
        left.slots = sum([1 for is_open in node.homes.opened if is_open])
    others = [peer for peer in node.peers if peer.is_member and peer.index != ME]
    staying: i64 = len([peer for peer in others if not peer.is_leaving(node.now)])
    for job in node.all_jobs():
        if job.state == ACKED:
            continue
        if job.retry == 0:
            if not job.flags & HANDED_OUT:
                left.jobs_once += 1
        elif job.flags & MOVING:
            left.moves = max(left.moves, 1)  # it may be counted above
        elif is_leased(node, job):
            left.leases += 1
        elif job.state == QUEUED or is_delayed_here(node, job):
            left.jobs_queued += 1
        elif job.flying > 0 or count_bits(vouched(node, job)) < min(i64(job.replicate), staying):
            left.copies_short += 1
    return left


def is_safe_to_stop(node: Node) -> bool:
    """Everything this node holds is held by enough others, and nothing is in doubt."""
    return node.broken("safe-too-soon") or not any([count > 0 for count in left_to_do(node).by_name().values()])
