"""What EXPLAIN says of rates, concurrency and tenants: why a queued job is not the next to go out."""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import bounds, domains, grants, home, quota, rules
from holdfast.core.explain import NO_END, Reason
from holdfast.core.job import QUEUED, Job
from holdfast.core.peers import ME
from holdfast.core.ranks import NOWHERE
from holdfast.core.throttle import Throttle

if TYPE_CHECKING:
    from holdfast.core.node import Node


def of_rules(node: Node, job: Job) -> list[Reason]:
    """The throttles that it has to pass, and whose turn it is."""
    queue_rules = job.queue.rules
    if job.state != QUEUED or queue_rules is None:
        return []
    found: list[Reason] = []
    for throttle in rules.throttles(node, job):
        what = b"its queue" if throttle.queue is not None else b"domain " + throttle.name
        if throttle.most > 0 and not has_place(node, throttle):
            words = b"%b may have %d job%b out at a time, and has" % (
                what, int(throttle.most), b"" if throttle.most == 1 else b"s")
            found.append(Reason(b"concurrency", words))
        if throttle.interval > 0:
            found += of_rate(node, throttle, what)
    more = job.more
    line = queue_rules.lines.get(b"" if more is None else more.tenant)
    if line is not None and len(queue_rules.lines) > 1:
        before = [each for each in queue_rules.lines.values() if each is not line and each.place != NOWHERE
                  and each.rank < line.rank]
        if before:
            words = b"%d other tenant%b before this one" % (len(before), b" has its turn" if len(before) == 1
                                                              else b"s have their turns")
            found.append(Reason(b"tenant", words))
    return found


def has_place(node: Node, throttle: Throttle) -> bool:
    """Whether one more may be out here, as far as is known without asking anybody."""
    if len(node.peers) == 1:
        return throttle.has_room()
    found = bounds.quota_of(node, throttle)
    return found.used < found.level or (quota.is_home(node, found) and quota.left(node, found) > 0)


def of_rate(node: Node, throttle: Throttle, what: bytes) -> list[Reason]:
    if len(node.peers) > 1:
        share = grants.share_of(node, throttle)
        if share.granted > 0 and node.now < share.granted_until:
            return []
        owner = home.owner(node, share.slot)
        if owner != ME or not grants.is_home(node, throttle, share):
            words = b"%b has its tokens from node %b, which has been asked for one" % (
                what, node.peers[owner].node_id()[:8])
            return [Reason(b"rate", words, NO_END)]
    ms: i64 = domains.next_ms(node, throttle)
    if ms == 0:
        return []
    return [Reason(b"rate", b"%b has its next token in %d.%d s" % (what, int(ms // 1000), int(ms % 1000 // 100)), ms)]
