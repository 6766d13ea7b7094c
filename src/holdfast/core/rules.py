"""The order of a queue whose jobs have keys: tenants in turn, each tenant's jobs as their domains let them.

A queue of plain jobs is a few lanes, and knows nothing of this file. The first job with a tenant or a domain, or a rate
or a concurrency for the whole queue, gives it Rules, and from then on they say which job is next:

    the throttle of the queue, if it has one     closed: nothing goes out
      lines, one for each tenant                 in turn, by weight
        lanes                                    jobs that need nobody's leave, by priority and age
        bins, one for each limited domain        while the domain is open, among the lanes' jobs by priority and age

A job of a domain that has a token for each of its jobs that wait is in a lane as well: most limits are not reached
most of the time, and then cost next to nothing.

Turns are taken by virtual time: a line that was served is due again after a stride, which is the shorter the greater
its weight; the line that is due first is next. A line with nothing to give is not in the rotation, and one that comes
back is due now, not in the past: nobody saves up turns, and nobody waits for another's million jobs.

Both are heaps (ranks.py). A bin stands in its line's by its first job. A bin of a closed domain is in none: it is put
back when its throttle opens (`opened`). So a hand-out costs the logarithm of the open bins of one tenant, however many
closed ones there are.

A job whose domain got its limit while it was in a lane is put into a bin when its turn comes.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import bounds, domains, federate, grants, tenants, waiting
from holdfast.core.job import (
    ACTIVE,
    AWAY,
    BACKING_OFF,
    BINNED,
    COUNTED,
    HANDED_OUT,
    IN_DOUBT,
    MOVING,
    QUEUED_BEFORE,
    Job,
)
from holdfast.core.lane import Lane, lane_of, next_of, pop_of, precedes
from holdfast.core.limits import NEVER
from holdfast.core.peers import ME
from holdfast.core.queue import PAUSE_OUT
from holdfast.core.ranks import NOWHERE, Ranked, Ranks
from holdfast.core.throttle import Throttle, now_ns

if TYPE_CHECKING:
    from holdfast.core.node import Node
    from holdfast.core.queue import Queue
    from holdfast.core.session import Session

STRIDE: Final = 1 << 32
"""Virtual time of a hand-out to a tenant of weight one: thousands of times the greatest weight, for even shares."""

VIRTUAL_MAX: Final = 1 << 61
"""Where virtual time begins anew: half a billion hand-outs to one tenant, a day's work, and 63 bits hold four of them.
"""


class Bin(Ranked):
    """Queued jobs of one domain in one line."""

    def __init__(self, line: Line, throttle: Throttle) -> None:
        super().__init__()
        self.line: Line = line
        self.throttle: Throttle = throttle
        self.lanes: list[Lane] = []
        self.size: i64 = 0


class Line(Ranked):
    """What one tenant has in one queue. Its rank is when it is due, in virtual time; it has a place while it turns."""

    def __init__(self, rules: Rules, tenant: bytes, lanes: list[Lane], weight: i64) -> None:
        super().__init__()
        self.rules: Rules = rules
        self.tenant: bytes = tenant
        self.lanes: list[Lane] = lanes
        self.bins: dict[bytes, Bin] = {}
        self.open: Ranks = Ranks()  # bins by the priority and the age of their first job
        self.size: i64 = 0
        self.weight: i64 = weight

    def pop(self, node: Node) -> Job | None:
        """The next job that may go out, taken out of its place; None if none may."""
        while True:
            found = self.first_open(node) if self.open.items else None
            head = next_of(self.lanes)
            if found is not None:
                job = next_of(found.lanes)
                assert job is not None
                if head is None or goes_first(job, head):
                    pop_of(found.lanes)
                    self.binned_left(found, job)
                    return job
            if head is None:
                return None
            pop_of(self.lanes)
            throttle = throttle_of(node, head)
            if throttle is None or not throttle.is_limited or (not throttle.bins and is_open(node, throttle)):
                self.size -= 1
                return head
            self.put_into_bin(head, throttle)
            if is_open(node, throttle):
                self.line_up(self.bins[throttle.name])

    def first_open(self, node: Node) -> Bin | None:
        """The bin with the first job among those whose domain is open."""
        while True:
            bin = self.open.first()
            if bin is None:
                return None
            assert isinstance(bin, Bin)
            if is_open(node, bin.throttle):
                return bin
            self.open.remove(bin)

    def put_into_bin(self, job: Job, throttle: Throttle) -> None:
        bin = self.bins.get(throttle.name)
        if bin is None:
            bin = Bin(self, throttle)
            self.bins[throttle.name] = bin
        if bin.size == 0:
            throttle.bins[bin] = None
        job.flags |= BINNED
        bin.size += 1
        lane_of(bin.lanes, i64(job.priority)).push(job)
        if not throttle.is_shut() and (bin.place == NOWHERE or next_of(bin.lanes) is job):
            self.line_up(bin)

    def binned_left(self, bin: Bin, job: Job) -> None:
        """A job was taken out of a bin."""
        job.flags &= ~BINNED
        self.size -= 1
        bin.size -= 1
        bins = bin.throttle.bins
        if bin.size == 0:
            del bins[bin]
            del self.bins[bin.throttle.name]
            if bin.place != NOWHERE:
                self.open.remove(bin)
            return
        if len(bins) > 1:
            del bins[bin]
            bins[bin] = None  # at the end: queues that share a domain take turns
        if bin.place != NOWHERE:
            self.line_up(bin)

    def line_up(self, bin: Bin) -> None:
        """Put a bin to its place among those that are open, and the line into the rotation."""
        job = next_of(bin.lanes)
        assert job is not None
        bin.rank = -i64(job.priority)
        bin.second = job.ctime
        self.open.put(bin)
        self.rules.turn(self)


def goes_first(a: Job, b: Job) -> bool:
    return a.priority > b.priority or (a.priority == b.priority and precedes(a, b))


class Rules:
    def __init__(self, queue: Queue) -> None:
        self.queue: Queue = queue
        self.throttle: Throttle | None = None
        self.turned: i64 = 0  # times that a line got in line: of those due at the same time the first comes first
        self.plain: Line = Line(self, b"", queue.lanes, 1)  # of jobs without a tenant
        self.plain.size = queue.size
        self.lines: dict[bytes, Line] = {b"": self.plain}
        self.turns: Ranks = Ranks()
        self.virtual: i64 = 0  # when the line served last was due

    def line(self, tenant: bytes, weight: i64) -> Line:
        found = self.lines.get(tenant)
        if found is None:
            found = Line(self, tenant, [], weight)
            self.lines[tenant] = found
            if len(self.lines) == 2 and self.plain.size > 0:
                self.turn(self.plain)
        return found

    def turn(self, line: Line) -> None:
        """The line has something to give: it is in the rotation."""
        if line.place != NOWHERE:
            return
        self.turned += 1
        line.rank = max(line.rank, self.virtual)
        line.second = self.turned
        self.turns.put(line)

    def push(self, job: Job) -> None:
        """A job is queued; `prepare` was asked before."""
        more = job.more
        line = self.plain
        throttle: Throttle | None = None
        if more is not None:
            if more.tenant:
                line = self.line(more.tenant, 1)
            if more.domain:
                throttle = self.queue.domains.table[more.domain]
                throttle.waiting += 1
        line.size += 1
        if throttle is not None and throttle.is_limited and not throttle.has_plenty:
            line.put_into_bin(job, throttle)
        else:
            lane_of(line.lanes, i64(job.priority)).push(job)
            self.turn(line)

    def remove(self, job: Job) -> None:
        """Take out a job that is queued."""
        more = job.more
        line = self.plain
        if more is not None:
            if more.tenant:
                line = self.lines[more.tenant]
            if more.domain:
                throttle = self.queue.domains.table[more.domain]
                throttle.waiting -= 1
                if job.flags & BINNED:
                    bin = line.bins[more.domain]
                    lane_of(bin.lanes, i64(job.priority)).remove(job)
                    line.binned_left(bin, job)
                    self.drop_if_empty(line)
                    return
        line.size -= 1
        lane_of(line.lanes, i64(job.priority)).remove(job)
        self.drop_if_empty(line)

    def lanes_of(self, job: Job) -> list[Lane]:
        """Where a queued job stands."""
        more = job.more
        if more is None:
            return self.plain.lanes
        line = self.lines[more.tenant]
        return line.bins[more.domain].lanes if job.flags & BINNED else line.lanes

    def drop_if_empty(self, line: Line) -> None:
        """A tenant that is in the rotation is remembered until its turn has come: it may be back before."""
        if line.size == 0 and line.place == NOWHERE and line is not self.plain:
            del self.lines[line.tenant]

    def all_lanes(self) -> list[Lane]:
        """Of all lines, those of bins at the end."""
        lanes: list[Lane] = []
        for line in self.lines.values():
            lanes += line.lanes
        for line in self.lines.values():
            for bin in line.bins.values():
                lanes += bin.lanes
        return lanes

    def is_unused(self) -> bool:
        """Nothing is lost if they are forgotten: what is set for a queue, registers know."""
        throttle = self.throttle
        return throttle is None or (throttle.out == 0 and throttle.wake >= NEVER and throttle.interval == 0)

    def begin_anew(self) -> None:
        """Virtual time is zero again; who is due before whom stays as it is."""
        for line in self.lines.values():
            line.rank = max(0, line.rank - self.virtual) if line.place == NOWHERE else line.rank - self.virtual
        self.virtual = 0

    def next(self, node: Node) -> Job | None:
        """Taken out of its place; the caller looks whether it is still alive, and pays."""
        if len(self.lines) == 1:
            return self.plain.pop(node)
        while True:
            line = self.turns.first()
            if line is None:
                return None
            assert isinstance(line, Line)
            job = line.pop(node)
            if job is None:
                self.turns.remove(line)
                self.drop_if_empty(line)
                continue
            self.turned += 1
            self.virtual = line.rank
            if self.virtual >= VIRTUAL_MAX:
                self.begin_anew()
            if not node.broken("tenant-served-again"):
                line.rank += STRIDE // line.weight
                line.second = self.turned
            self.turns.put(line)
            return job


# -- what a node does with them --------------------------------------------------------------------------------


def rules_of(node: Node, queue: Queue) -> Rules:
    """Made if need be."""
    rules = queue.rules
    if rules is None:
        rules = Rules(queue)
        queue.rules = rules
        queue.domains = node.domains
    return rules


def prepare(node: Node, job: Job) -> None:
    """Before a job with keys is queued: what it is queued by is there, and a closed throttle is known to be closed."""
    more = job.more
    if more is None:
        return
    if not (more.tenant or more.domain):
        return
    found = rules_of(node, job.queue)
    if more.tenant:
        line = found.lines.get(more.tenant)
        if line is None:
            line = found.line(more.tenant, tenants.weight(node, job.queue.name, more.tenant))
        more.tenant = line.tenant  # one object for all: it is looked up at every turn
    if more.domain:
        throttle = domains.find(node, more.domain)
        more.domain = throttle.name
        throttle.has_plenty = False
        if throttle.is_limited and throttle.wake == NEVER and len(node.peers) == 1:
            # In a cluster somebody else may have to be asked: not before a job is wanted.
            is_free = is_open(node, throttle) and throttle.most == 0 and not throttle.bins
            throttle.has_plenty = is_free and throttle.tokens(now_ns(node)) > throttle.waiting


def throttle_of(node: Node, job: Job) -> Throttle | None:
    """Of its domain."""
    more = job.more
    return None if more is None or not more.domain else node.domains.table[more.domain]


def is_open(node: Node, throttle: Throttle) -> bool:
    """Whether a job may pass; if it is only a matter of time the throttle wakes us then."""
    if throttle.most > 0 and not bounds.has_room(node, throttle):
        node.domains.no_place += 1
        throttle.no_place += 1
        node.domains.was_closed(throttle)
        return False
    if throttle.interval == 0 or grants.has_token(node, throttle):
        return True
    node.domains.no_token += 1
    throttle.no_token += 1
    node.domains.was_closed(throttle)
    return False


def pop(node: Node, queue: Queue) -> Job | None:
    """The next job of a queue with rules that may go out now; its tokens are taken, and it counts as out."""
    rules = queue.rules
    assert rules is not None
    throttle = rules.throttle
    while throttle is None or is_open(node, throttle):
        job = rules.next(node)
        if job is None:
            return None
        queue.size -= 1
        domain = throttle_of(node, job)
        if domain is not None:
            domain.waiting -= 1
        if job.expire <= node.now:
            job.state = ACTIVE
            node.expire(job)
            continue
        if job.flags & AWAY and node.overflow.bring(job) is None:
            return None
        pay(node, job, throttle, domain)
        return job
    return None


def pay(node: Node, job: Job, throttle: Throttle | None, domain: Throttle | None) -> None:
    if throttle is not None:
        pass_through(node, throttle)
        job.flags |= COUNTED
    if domain is not None:
        pass_through(node, domain)
        job.flags |= COUNTED


def pass_through(node: Node, throttle: Throttle) -> None:
    goes_out(node, throttle)
    if throttle.interval == 0 or node.broken("token-not-spent"):
        return
    if len(node.peers) > 1:
        grants.take(node, throttle)
    else:
        throttle.take(now_ns(node))


def goes_out(node: Node, throttle: Throttle) -> None:
    throttle.out += 1
    if throttle.most > 0:
        bounds.place_taken(node, throttle)


def unpay(node: Node, job: Job) -> None:
    """It was popped, here, and not handed out."""
    refund(node, job)
    let_go(node, job)


def refund(node: Node, job: Job) -> None:
    """It was popped, here or where it comes from, and not handed out: its tokens go back to those who keep them."""
    for throttle in throttles(node, job):
        if throttle.interval != 0 and len(node.peers) > 1:
            grants.refund(node, throttle, 1)


def is_limited(node: Node, job: Job) -> bool:
    """Whether something limits how often jobs like this one go out."""
    return any([throttle.is_limited for throttle in throttles(node, job)])


def throttles(node: Node, job: Job) -> list[Throttle]:
    """Those that a job passes. Its domain may be new here: the job need not have been queued."""
    found: list[Throttle] = []
    rules = job.queue.rules
    if rules is not None and rules.throttle is not None:
        found.append(rules.throttle)
    more = job.more
    if more is not None and more.domain:
        found.append(domains.find(node, more.domain))
    return found


def hand_over(node: Node, job: Job) -> bool:
    """A job was given to us that passed its throttles where it came from: if somebody waits it goes out at once.

    Otherwise it is queued like any other, and pays again: a token kept for later would make two go out at once.
    """
    queue = job.queue
    more = job.more
    if more is not None and more.group:
        return False
    is_keyed = more is not None and more.domain != b""
    if (queue.rules is None and not is_keyed) or not queue.waiting or queue.paused & PAUSE_OUT:
        return False
    rules_of(node, queue)
    found = throttles(node, job)
    if any([throttle.most > 0 and not bounds.has_room(node, throttle) for throttle in found]):
        return False
    if job.flags & AWAY and node.overflow.bring(job) is None:
        return False
    count_out(node, job)
    job.flags |= QUEUED_BEFORE
    queue.used = node.now
    queue.jobs_in += 1
    waiting.give_to_first(node, queue, job)
    return True


def count_out(node: Node, job: Job) -> None:
    """A job is out, and did not come from its queue here."""
    for throttle in throttles(node, job):
        goes_out(node, throttle)
        job.flags |= COUNTED


def let_go(node: Node, job: Job) -> None:
    """A job that was out is not any more: it ended, or is to be queued again. There may be room for another."""
    if not job.flags & COUNTED:
        return
    job.flags &= ~COUNTED
    rules = job.queue.rules
    if rules is not None and rules.throttle is not None:
        comes_back(node, rules.throttle)
    domain = throttle_of(node, job)
    if domain is not None:
        comes_back(node, domain)


def comes_back(node: Node, throttle: Throttle) -> None:
    throttle.out -= 1
    if throttle.most > 0:
        bounds.place_free(node, throttle)
        wake(node, throttle)


def wake(node: Node, throttle: Throttle) -> None:
    """It may be open: those who wait are served, but not here and now, as the caller is in the middle of something."""
    line_up(throttle)
    node.alarms.at_latest(throttle, node.now)


def opened(node: Node, throttle: Throttle) -> None:
    """The time has come for a throttle that was closed, or a place is free: whoever waits may be served."""
    if throttle.interval != 0 and len(node.peers) > 1:
        grants.woke(node, throttle)
    queue = throttle.queue
    if (throttle.waiting if queue is None else queue.size) == 0 or not is_open(node, throttle):
        return  # nobody is asked for a token that nothing here could use
    if queue is not None:
        serve(node, queue)
        return
    line_up(throttle)
    for bin in list(throttle.bins):
        if not is_open(node, throttle):
            return
        if bin.size > 0:
            serve(node, bin.line.rules.queue)


def line_up(throttle: Throttle) -> None:
    """A domain is open: its bins are among those that are looked at."""
    for bin in throttle.bins:
        if bin.place == NOWHERE:
            bin.line.line_up(bin)


def serve(node: Node, queue: Queue) -> None:
    if queue.waiting:
        waiting.serve(node, queue)
    if queue.interest:
        federate.give(node, queue)


def is_out(node: Node, job: Job) -> bool:
    """Handed out here, and not ended as far as we know."""
    return (
        job.state == ACTIVE and job.responsible == ME and job.flags & HANDED_OUT != 0
        and job.flags & (MOVING | IN_DOUBT | BACKING_OFF) == 0
        and (job.qtime != 0 if job.retry > 0 else int(job.taker) in node.sessions)
    )


def session_gone(node: Node, session: Session) -> None:
    """At-most-once jobs have no lease that ends: they are out until they are acknowledged or their consumer is gone."""
    for job in node.spent:
        if job.flags & COUNTED and job.taker == session.number:
            let_go(node, job)


def consumers_gone(node: Node) -> None:
    """The same of all whose consumers went before there were places."""
    for job in node.spent:
        if job.flags & COUNTED and not is_out(node, job):
            let_go(node, job)


def all_throttles(node: Node) -> list[Throttle]:
    found = list(node.domains.table.values())
    for queue in node.queues.values():
        if queue.rules is not None and queue.rules.throttle is not None:
            found.append(queue.rules.throttle)
    return found


def make_throttle(node: Node, queue: Queue) -> Throttle:
    """The throttle of a whole queue, which counts those that are out already."""
    rules = rules_of(node, queue)
    if rules.throttle is None:
        throttle = Throttle(queue.name, queue)
        rules.throttle = throttle
        for job in node.all_jobs():
            if job.queue is not queue:
                continue
            if job.flags & COUNTED:
                throttle.out += 1  # its domain has counted it, and it comes back to both
            elif is_out(node, job):
                for each in throttles(node, job):
                    each.out += 1
                job.flags |= COUNTED
    assert rules.throttle is not None
    return rules.throttle
