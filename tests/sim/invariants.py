"""What must be true of the machine's insides after every step, and that they say what the model says.

A reply shows a little of the state at a time. Looking at all of it each time finds a mistake at the step
that made it, not fifty commands later when a reply happens to depend on it.
"""
from __future__ import annotations

from holdfast.core.job import ACTIVE, GONE, HANDED_OUT, QUEUED, QUEUED_BEFORE, STATE_NAMES, Job, Page, special_cost
from holdfast.core.lane import Lane
from holdfast.core.limits import GROUP_BYTES, NEVER, SPENT_GONE_MAX, TAKEN_BYTES
from holdfast.core.node import Node
from holdfast.core.queue import PAUSE_OUT, Queue
from holdfast.core.session import FOR_JOB, NOTHING, REPLY_ON
from holdfast.core.workers import cost

from .model import QUEUE_COST, Model


def check(node: Node, model: Model) -> None:
    check_same(node, model, check_inside(node))
    assert node.next_wake() <= min(model.due(), default=NEVER), "the machine would sleep too long"


def check_inside(node: Node) -> list[Job]:
    """What holds whatever was done; returns all jobs."""
    assert not node.faults, node.faults[0]
    jobs = check_pages(node)
    by_queue: dict[int, list[Job]] = {}
    for job in jobs:
        by_queue.setdefault(id(job.queue), []).append(job)
        assert node.queues.get(job.queue.name) is job.queue, "a job in a queue that is none"
    for queue in node.queues.values():
        check_queue(node, queue, by_queue.get(id(queue), []))
    check_sessions(node)
    check_memory(node, jobs)
    check_alarms(node)
    check_spent(node, jobs)
    return jobs


def check_pages(node: Node) -> list[Job]:
    found: list[Job] = []
    for origin in node.origins.values():
        here = 0
        for number in sorted(origin.pages):
            page = origin.pages[number]
            jobs = [job for job in page.slots if job is not None]
            assert page.number == number and page.live == len(jobs)
            assert jobs or page is origin.put_page, "an empty page was kept"
            earliest = NEVER
            for job in jobs:
                assert job.seq // len(page.slots) == number and page.slots[job.seq % len(page.slots)] is job
                assert job.state in (ACTIVE, QUEUED) and job.origin is origin
                earliest = min(earliest, job.expire, job.qtime or NEVER)
            assert page.wake <= earliest, "a page sleeps too long"
            here += len(jobs)
            found += jobs
        assert origin.count == here
        assert origin.get_page.number < 0 or origin.pages.get(origin.get_page.number) is origin.get_page
    assert node.jobs == len(found)
    return found


def check_queue(node: Node, queue: Queue, jobs: list[Job]) -> None:
    queued = [job for job in jobs if job.state == QUEUED]
    assert queue.held == len(jobs)
    lanes = queue.lanes if queue.rules is None else queue.rules.all_lanes()
    assert queue.size == len(queued) == sum(lane.size for lane in lanes)
    priorities = [lane.priority for lane in queue.lanes]
    assert priorities == sorted(set(priorities), reverse=True) and queue.normal in queue.lanes
    for lane in lanes:
        mine = sorted([job for job in queued if job.priority == lane.priority], key=lambda job: job.ctime)
        found = check_lane(lane)
        assert found == mine if queue.rules is None else found == [job for job in mine if job in found]
    assert all(job.qtime == 0 for job in queued)
    if queue.waiting and queue.size and queue.rules is None:
        assert queue.paused & PAUSE_OUT, "somebody waits for what is there"


def check_lane(lane: Lane) -> list[Job]:
    """The jobs of a lane in order, once everything about its blocks has been looked at."""
    found: list[Job] = []
    assert lane.head is lane.blocks[0] and lane.tail is lane.blocks[-1]
    for block in lane.blocks:
        assert block.run is None
        assert block is lane.head or (block.pos == 0 and (block.items or block is lane.tail))
        assert not any(block.items[:block.pos])
        found += [block.at(i) for i in range(block.pos, len(block.items))]
    assert lane.size == len(found)
    assert all(job.ctime <= lane.newest for job in found)
    return found


def check_sessions(node: Node) -> None:
    blocked = [session for session in node.sessions.values() if session.blocked != NOTHING]
    assert node.blocked == len(blocked)
    waiting: dict[int, list[bytes]] = {}
    for queue in node.queues.values():
        for number, session in queue.waiting.items():
            assert session.number == number and node.sessions[number] is session and session.blocked == FOR_JOB
            waiting.setdefault(number, []).append(queue.name)
    for session in node.sessions.values():
        assert sorted(waiting.get(session.number, [])) == sorted(queue.name for queue in session.waits_on)
        is_plain = session.blocked == NOTHING and session.replies == REPLY_ON and not session.is_closing
        assert session.is_plain == (is_plain and session.is_trusted)


def check_memory(node: Node, jobs: list[Job]) -> None:
    used = sum(160 + 48 + len(job.body) + special_cost(job) for job in jobs) + 400 * node.registers.count
    used += sum(wait.cost() for wait in node.results.waits.values())
    used += node.results.bytes + sum(cost(name, worker) for name, worker in node.workers.items())
    used += sum(GROUP_BYTES + len(name) for queue in node.queues.values() for name in queue.groups)
    used += sum(TAKEN_BYTES + 2 * len(key) for key in node.taken)
    used += sum(QUEUE_COST + 3 * len(name) for name in node.queues) + 2048 * len(node.sessions)
    assert node.used == used, "memory is accounted wrongly"
    percent = node.full // 100
    assert node.level == (used >= 75 * percent) + (used >= 95 * percent)
    is_special = node.level == 2 or node.monitors or node.paused_until or node.is_leaving
    assert node.is_plain == (not is_special)


def check_alarms(node: Node) -> None:
    """Whoever has a time has an entry for it; names and queues are the same."""
    entries = {(id(alarm), when) for when, _, alarm in node.alarms.heap}
    pages = [page for origin in node.origins.values() for page in origin.pages.values()]
    for alarm in [*pages, *node.sessions.values(), *node.queues.values()]:
        assert alarm.wake == NEVER or (id(alarm), alarm.wake) in entries, "an alarm was lost"
    assert node.names.known == set(node.queues)


def check_spent(node: Node, jobs: list[Job]) -> None:
    """What can be evicted: each at-most-once job that was handed out, once, and not too many that are gone."""
    spent = [job.seq for job in node.spent if job.state != GONE]
    assert sorted(spent) == sorted(job.seq for job in jobs if job.retry == 0 and job.flags & HANDED_OUT)
    assert node.spent_gone == len(node.spent) - len(spent) <= SPENT_GONE_MAX + len(node.spent) // 2


def check_same(node: Node, model: Model, jobs: list[Job]) -> None:
    assert len(jobs) == len(model.jobs)
    for job, other in zip(sorted(jobs, key=lambda each: each.seq), model.jobs.values()):
        mine = (job.seq, job.queue.name, job.body, job.ctime, job.expire, job.retry, job.delay, job.priority,
                STATE_NAMES[job.state], job.qtime, job.nacks, job.deliveries,
                bool(job.flags & HANDED_OUT), bool(job.flags & QUEUED_BEFORE))
        yours = (other.seq, other.queue, other.body, other.ctime, other.expire, other.retry, other.delay,
                 other.priority, other.state, other.when, other.nacks, other.deliveries,
                 other.was_handed_out, other.was_queued)
        assert mine == yours, (mine, yours)
    assert set(node.queues) == set(model.queues)
    for name, queue in node.queues.items():
        twin = model.queues[name]
        ours = (queue.created, queue.used, queue.wake, queue.paused, queue.maxlen, queue.jobs_in, queue.jobs_out,
                list(queue.waiting))
        theirs = (twin.created, twin.used, twin.look, twin.paused, twin.maxlen, twin.ins, twin.outs, twin.waiting)
        assert ours == theirs, (name, ours, theirs)
    assert set(node.sessions) == set(model.sessions)
    spent = [other.seq for jid in model.spent if (other := model.jobs.get(jid))]
    assert [job.seq for job in node.spent if job.state != GONE] == spent, "another order of eviction"


def due_order(node: Node) -> list[tuple[str, object]]:
    """What a tick now would look at, in the order of the alarms, in the model's words."""
    order: list[tuple[str, object]] = []
    seen: set[int] = set()
    for when, _, alarm in sorted(node.alarms.heap, key=lambda entry: entry[:2]):
        if when > node.now:
            break
        if alarm.wake != when or id(alarm) in seen:
            continue
        seen.add(id(alarm))
        if isinstance(alarm, Page):
            first = alarm.number * len(alarm.slots)
            order.append(("jobs", range(first, first + len(alarm.slots))))
        elif isinstance(alarm, Queue):
            order.append(("queue", alarm.name))
        else:
            order.append(("session", getattr(alarm, "number", 0)))
    return order
