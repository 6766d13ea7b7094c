"""A node that comes back with its jobs: what waited here is queued again as soon as the other holders were asked.

They may have queued it meanwhile, or know how it ended. So there must be links first. Those that will be there come
within moments; a member that has just died would be waited for in vain. So the node asks

* as soon as it has a link with every member, but for those that are gone, or that nobody hears who is linked with us;
* when it has had links for PATIENCE_MS, whoever is missing.

Some at a time: a node that comes back with a million jobs still hears its peers and its clients.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import chores, orphans, requeue
from holdfast.core.alarms import Chore
from holdfast.core.job import ACTIVE, Job
from holdfast.core.peers import ME
from holdfast.core.walks import TURN_MS

if TYPE_CHECKING:
    from holdfast.core.node import Node

LOOK_MS: Final = 50
PATIENCE_MS: Final = 1500
"""From the first link on: by then every process that runs has one, or is cut off."""

SELF_MS: Final = 3000
"""From so long after the start on jobs go on by their own alarms, if there is no link or not to all. A home that
gathers what there is of its keys sees that time, too, and nothing later."""

ASKED_PER_TURN: Final = 500


class Comeback(Chore):
    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[Job] = []  # that waited here, the first to be queued last
        self.times: dict[Job, int] = {}  # as they were set here: a job that has another one was seen to
        self.linked_at: i64 = 0

    def begin(self, node: Node, jobs: list[Job]) -> None:
        """These are to be queued here. Their own alarms come later, and as many at a time."""
        self.jobs = jobs[::-1]
        for i in range(len(jobs)):
            node.wake_at(jobs[i], node.now + SELF_MS + i * TURN_MS // ASKED_PER_TURN)
            self.times[jobs[i]] = int(jobs[i].qtime)
        if jobs:
            node.alarms.set(self, node.now + LOOK_MS)

    def run(self, node: Node) -> None:
        if not self.is_time(node):
            if node.now < node.start + SELF_MS:
                node.alarms.set(self, node.now + LOOK_MS)
            else:
                self.jobs = []
                self.times.clear()
            return
        chores.settle_clocks(node)
        if chores.is_clock_in_doubt(node) and node.now < self.linked_at + PATIENCE_MS:
            node.alarms.set(self, node.now + LOOK_MS)  # what time it is decides whether a delay is over
            return
        for _ in range(min(ASKED_PER_TURN, len(self.jobs))):
            job = self.jobs.pop()
            if job.state == ACTIVE and job.responsible == ME and job.qtime == self.times.pop(job, 0):
                requeue.due(node, job)
        if self.jobs:
            node.alarms.set(self, node.now + TURN_MS)

    def is_time(self, node: Node) -> bool:
        linked = [peer for peer in node.peers if peer.is_linked]
        if not linked:
            self.linked_at = 0
            return False
        if self.linked_at == 0:
            self.linked_at = node.now
        if node.now >= self.linked_at + PATIENCE_MS:
            return True
        return all([peer.is_linked or peer.index == ME or orphans.is_missed(node, peer) for peer in node.peers])
