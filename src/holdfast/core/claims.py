"""Claims: batches of jobs held for a pipeline, which reads them as often as it must and acknowledges them as a whole.

A pipeline works in batches with a number. It asks for batch n (TAKE), may die at any moment, comes back and asks for
batch n again, and must get the same jobs; its workers read them (READ), some twice; when the batch is safe at its
destination it acknowledges it (COMMIT). Two pipelines that both think they are the one must not both commit.

A claim is local: it is of jobs queued at this node, and lives here only. A pipeline has one at each node. So the node
that has the claim is the only one that can say what became of it, and needs nobody's vote:

    group   a pipeline, by the name it chose. OPEN gives it an epoch, and every later word carries it: an older one is
            FENCED. Epochs follow the clock, so that no two are the same even if a group was forgotten in between
    claim   a number (`seq`) of its group, an id of its own, and the jobs, each under a lease of the group's
    lease   one time for all jobs of a claim, made longer by RENEW. When it ends the jobs are queued again, each by its
            own lease as after any worker that kept silent, and the claim is gone. If this node dies the other holders
            queue them, for the same reason

The leases are in the journal like all others, with the name of the claim in the place of the worker, and that is how a
restarted node finds its claims again (`rebuild`). A claim of which a job is missing then is none: its other jobs
come back when their leases end. Bodies are kept by the claim itself, and a job's life does not end while it is claimed:
whoever reads twice reads the same.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import errors, history, leases, records, times
from holdfast.core.alarms import Chore
from holdfast.core.errors import BadRequest, Refused
from holdfast.core.job import ACKED, ACTIVE, CLAIMED, GONE, HANDED_OUT, Job, Lease
from holdfast.core.limits import CLAIM_GROUPS_MAX, CLAIM_JOB_BYTES, NEVER
from holdfast.core.session import Session

if TYPE_CHECKING:
    from holdfast.core.node import Node

FOREVER: Final = 1 << 50


class Claim:
    """Jobs that a group holds under one number."""

    def __init__(self, name: bytes, seq: i64) -> None:
        self.id: bytes = name
        self.seq: i64 = seq
        self.until: i64 = 0
        self.jobs: list[Job] = []
        self.leases: list[Lease] = []
        self.bodies: list[bytes] = []

    def put(self, job: Job, lease: Lease, body: bytes) -> None:
        self.jobs.append(job)
        self.leases.append(lease)
        self.bodies.append(body)


class Group:
    """A pipeline."""

    def __init__(self, name: bytes, epoch: i64) -> None:
        self.name: bytes = name
        self.epoch: i64 = epoch
        self.claims: dict[bytes, Claim] = {}

    def with_seq(self, seq: i64) -> Claim | None:
        for claim in self.claims.values():
            if claim.seq == seq:
                return claim
        return None


class Claims(Chore):
    """All groups of a node; as a chore it drops claims whose time is over."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[bytes, Group] = {}
        self.is_built: bool = False

    def run(self, node: Node) -> None:
        earliest: i64 = NEVER
        for group in self.groups.values():
            for claim in list(group.claims.values()):
                if claim.until > node.now:
                    earliest = min(earliest, claim.until)
                elif not node.broken("claim-outlives-lease"):
                    drop(node, group, claim)
        node.alarms.set(self, earliest)


# -- what a pipeline says -----------------------------------------------------------------------------------


def open_group(node: Node, name: bytes) -> i64:
    """Whoever says so is the group from now on; its epoch."""
    rebuild(node)
    groups = node.claims.groups
    group = groups.get(name)
    if group is None:
        if len(groups) >= CLAIM_GROUPS_MAX:
            forget_one(node)
        group = Group(name, 0)
        groups[name] = group
    set_epoch(node, group, max(group.epoch + 1, node.wall))
    return group.epoch


def take(node: Node, session: Session, group: Group, seq: i64, jobs: list[Job], ms: i64) -> Claim:
    """A claim of jobs that were just taken off their queues."""
    node.handouts += 1
    claim = Claim(b"%b.%x.%x" % (node.node_id[:8], int(node.start), int(node.handouts)), seq)
    worker = b"%b%b:%d:%b:%d" % (CLAIMED, group.name, seq, claim.id, len(jobs))
    for job in jobs:
        hand_out(node, session, claim, job, worker, ms)
    group.claims[claim.id] = claim
    claim.until = node.now + ms
    node.account(CLAIM_JOB_BYTES * len(jobs))
    node.alarms.at_latest(node.claims, claim.until)
    return claim


def renew(node: Node, group: Group, ms: i64) -> i64:
    """The group is at work: its claims have so much time from now on; how many jobs that are."""
    count: i64 = 0
    for claim in list(group.claims.values()):
        if claim.until <= node.now and not node.broken("claim-outlives-lease"):
            drop(node, group, claim)  # its jobs are queued, or will be: more time would not bring them back
            continue
        claim.until = node.now + ms
        node.alarms.at_latest(node.claims, claim.until)
        for i in range(len(claim.jobs)):
            job = claim.jobs[i]
            if job.lease is claim.leases[i]:
                outlive(node, job, claim.until)
                leases.extend(node, job, ms)
                count += 1
    return count


def commit(node: Node, session: Session, group: Group, claim: Claim) -> i64:
    """Acknowledge exactly the jobs of this claim that are still under it; how many."""
    count: i64 = 0
    for i in range(len(claim.jobs)):
        job = claim.jobs[i]
        if job.state == GONE or job.state == ACKED:
            continue
        if job.lease is claim.leases[i] or job.retry == 0:
            history.acked(node, job, session)
            node.end(job)
            count += 1
    drop(node, group, claim)
    return count


# -- who may --------------------------------------------------------------------------------------------------


def group_of(node: Node, name: bytes, epoch: i64) -> Group:
    """The group, if the epoch is its present one. Raises BadRequest."""
    rebuild(node)
    group = node.claims.groups.get(name)
    if group is None:
        raise BadRequest(errors.CLAIM_GROUP)
    if group.epoch != epoch and not node.broken("claim-unfenced"):
        raise BadRequest(errors.CLAIM_FENCED)
    return group


def live(node: Node, group: Group, name: bytes) -> Claim | None:
    """A claim of the group by its id, unless its time is over."""
    claim = group.claims.get(name)
    if claim is None or (claim.until <= node.now and not node.broken("claim-outlives-lease")):
        return None
    return claim


def to_read(node: Node, name: bytes, claim_id: bytes) -> Claim:
    """Reading takes no epoch: it changes nothing. Raises Refused where the claim is gone."""
    rebuild(node)
    group = node.claims.groups.get(name)
    claim = None if group is None else live(node, group, claim_id)
    if claim is None:
        raise Refused(errors.CLAIM_GONE)
    return claim


# -- the parts ------------------------------------------------------------------------------------------------


def hand_out(node: Node, session: Session, claim: Claim, job: Job, worker: bytes, ms: i64) -> None:
    """As any hand-out, but nothing is written into a reply yet."""
    job.state = ACTIVE
    times.handed_out(node, job)
    job.flags |= HANDED_OUT
    job.taker = session.number
    outlive(node, job, node.now + ms)
    leases.forget(node, job)
    node.handouts += 1
    lease = Lease(node.start, node.handouts, worker, session.where, node.now, ms)
    claim.put(job, lease, job.body)
    leases.give(node, job, lease)
    leases.handed_out(node, job, session, lease, ms)


def outlive(node: Node, job: Job, until: i64) -> None:
    """Its life does not end before the claim does: a batch that is read again must be the same."""
    if job.expire <= until and not node.broken("claim-expires"):
        job.expire = until + 1
        if not node.broken("claim-expires-with-restart"):
            records.job(node, job)  # else a start after the end of its first life would pass it over


def drop(node: Node, group: Group, claim: Claim) -> None:
    del group.claims[claim.id]
    node.account(-CLAIM_JOB_BYTES * len(claim.jobs))


def drop_all(node: Node) -> None:
    for group in node.claims.groups.values():
        for claim in list(group.claims.values()):
            drop(node, group, claim)


def set_epoch(node: Node, group: Group, epoch: i64) -> None:
    group.epoch = epoch
    records.claim_epoch(node, group.name, epoch)


def forget_one(node: Node) -> None:
    """There are too many groups: the one opened longest ago that claims nothing goes."""
    groups = node.claims.groups
    idle = [group for group in groups.values() if not group.claims]
    if not idle:
        raise Refused(errors.CLAIM_GROUPS)
    oldest = min(idle, key=epoch_of)
    del groups[oldest.name]
    records.claim_epoch(node, oldest.name, 0)


def epoch_of(group: Group) -> int:
    return int(group.epoch)


def load_epoch(node: Node, name: bytes, epoch: i64) -> None:
    """From the journal."""
    if epoch == 0:
        node.claims.groups.pop(name, None)
    else:
        node.claims.groups[name] = Group(name, epoch)


def rebuild(node: Node) -> None:
    """After a start: claims are where jobs are leased to one, if all of its jobs are."""
    claims = node.claims
    if claims.is_built:
        return
    claims.is_built = True
    if not claims.groups or node.broken("claims-forgotten"):
        return
    found: dict[bytes, list[Job]] = {}
    for job in node.all_jobs():
        lease = job.lease
        if lease is not None and lease.worker.startswith(CLAIMED) and job.qtime > node.now:
            found.setdefault(lease.worker, []).append(job)
    for worker, jobs in found.items():
        words = worker[len(CLAIMED):].split(b":")
        group = claims.groups.get(words[0])
        if len(words) != 4 or group is None or len(jobs) != int(words[3]):
            continue
        claim = Claim(words[2], int(words[1]))
        claim.until = FOREVER
        for job in sorted(jobs, key=number_of):
            lease = job.lease
            assert lease is not None
            claim.put(job, lease, job.body)
            claim.until = min(claim.until, job.qtime)
        group.claims[claim.id] = claim
        node.account(CLAIM_JOB_BYTES * len(jobs))
        node.alarms.at_latest(claims, claim.until)


def number_of(job: Job) -> int:
    lease = job.lease
    return 0 if lease is None else int(lease.number)
