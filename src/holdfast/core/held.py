"""What EXPLAIN says of rates, concurrency and tenants: why a job is not the next to go out.

Rates and concurrency are for all nodes together, and one node has the tokens and the places (grants.py, quota.py).
Another one knows that it gets none, if somebody here wants one: EXPLAIN asks for nothing on its own behalf.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import bounds, domains, grants, home, quota
from holdfast.core.explain import FROM, UNASKED, UNTOLD, Reason, is_waiting
from holdfast.core.job import QUEUED, Job
from holdfast.core.limits import NEVER
from holdfast.core.peers import ME
from holdfast.core.ranks import NOWHERE
from holdfast.core.throttle import Throttle

if TYPE_CHECKING:
    from holdfast.core.node import Node


def of_rules(node: Node, job: Job) -> list[Reason]:
    """The throttles that it has to pass, also when it is not queued yet, and whose turn it is."""
    if not is_waiting(node, job):
        return []
    found: list[Reason] = []
    for throttle in throttles(node, job):
        what = b"its queue" if throttle.queue is not None else b"domain " + throttle.name
        if throttle.most > 0:
            found += of_places(node, throttle, what)
        if throttle.interval > 0:
            found += of_rate(node, throttle, what)
    return found + of_turns(job)


def throttles(node: Node, job: Job) -> list[Throttle]:
    """Those that it has to pass. A domain is known here from the first of its jobs that is queued on."""
    found: list[Throttle] = []
    queue_rules = job.queue.rules
    if queue_rules is not None and queue_rules.throttle is not None:
        found.append(queue_rules.throttle)
    more = job.more
    domain = None if more is None else node.domains.table.get(more.domain)
    if domain is not None:
        found.append(domain)
    return found


def of_turns(job: Job) -> list[Reason]:
    queue_rules = job.queue.rules
    if job.state != QUEUED or queue_rules is None:
        return []
    more = job.more
    line = queue_rules.lines.get(b"" if more is None else more.tenant)
    if line is None:
        return []
    before = [each for each in queue_rules.lines.values() if each is not line and each.place != NOWHERE
              and each.rank < line.rank]
    if not before:
        return []
    words = b" has its turn" if len(before) == 1 else b"s have their turns"
    return [Reason(b"tenant", b"%d other tenant%b before this one" % (len(before), words))]


def of_places(node: Node, throttle: Throttle, what: bytes) -> list[Reason]:
    """As far as is known without asking anybody."""
    words = b"%b may have %d job%b out at a time" % (what, int(throttle.most), b"" if throttle.most == 1 else b"s")
    if len(node.peers) == 1:
        return [] if throttle.has_room() else [Reason(b"concurrency", words + b", and has")]
    found = bounds.quota_of(node, throttle)
    if found.used < found.level:
        return []
    if quota.is_home(node, found):
        return [] if quota.left(node, found) > 0 else [Reason(b"concurrency", words + b", and has")]
    if found.used >= throttle.most:
        return [Reason(b"concurrency", words + b", and has")]
    owner = home.owner(node, found.slot)
    if found.wake < NEVER or not is_at_hand(node, owner):
        return [Reason(b"concurrency", words + of_keeper(node, owner, b"; node %b has the places, and"))]
    return []  # nobody has asked for a place yet


def of_rate(node: Node, throttle: Throttle, what: bytes) -> list[Reason]:
    if len(node.peers) > 1:
        share = grants.share_of(node, throttle)
        if share.granted > 0 and node.now < share.granted_until:
            return []
        if not grants.is_home(node, throttle, share):
            owner = home.owner(node, share.slot)
            if is_at_hand(node, owner):  # it is asked when there is one (explain.settle_rates)
                words = what + FROM + b"node %b" % node.peers[owner].node_id()[:8]
                return [Reason(b"rate", words, UNTOLD if share.asked > 0 else UNASKED)]
            return [Reason(b"rate", what + of_keeper(node, owner, FROM + b"node %b, which"))]
    ms: i64 = domains.next_ms(node, throttle)
    if ms == 0:
        return []
    return [Reason(b"rate", b"%b has its next token in %d.%d s" % (what, int(ms // 1000), int(ms % 1000 // 100)), ms)]


def is_at_hand(node: Node, owner: i64) -> bool:
    return owner != ME and node.peers[owner].is_linked


def of_keeper(node: Node, owner: i64, words: bytes) -> bytes:
    """Of the node that has the tokens or the places of all."""
    if owner == ME:
        return b"; this node is to see to that, and asks the others what they know of it"
    is_linked = node.peers[owner].is_linked
    name = words % node.peers[owner].node_id()[:8]
    return name + (b" has been asked for one" if is_linked else b" cannot be reached")
