"""A way through all jobs in memory on behalf of some peers, a part of it at a time, so that no turn takes long."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core.alarms import Chore
from holdfast.core.job import FOLDED, PAGE_SLOTS, Job, Page

if TYPE_CHECKING:
    from holdfast.core.node import Node

TURN_MS: Final = 20
"""From one part to the next: what clients want comes between them."""

WORK_PER_TURN: Final = 20_000
"""Looks at jobs in one turn, one or two milliseconds; a look that changes something costs as much as COST of them."""

COST: Final = 40
"""So 500 jobs are asked about in a turn: a million in 40 seconds, and clients are served meanwhile."""

COST_SAID: Final = 8
"""To name a job to a peer is cheaper: 2,500 of them in a turn, 30,000 bytes."""


def pages_after(node: Node, prefix: bytes, seq: i64) -> list[Page]:
    """The next pages of jobs in the order of creators and numbers; none: that was the last one."""
    for each in sorted(node.origins):
        if each >= prefix:
            pages = node.origins[each].pages_from(seq if each == prefix else 0, 64)
            if pages:
                return pages
    return []


class Walk(Chore):
    """Peers that come while it is under way wait for the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.mask: i64 = 0  # peers it is for
        self.pending: i64 = 0  # those of the next one
        self.prefix: bytes = b""
        self.seq: i64 = 0
        self.left: i64 = 0  # work that this turn may still do

    def want(self, node: Node, bit: i64, when: i64) -> None:
        """Walk for this peer, too."""
        self.pending |= bit
        if self.mask == 0:
            node.alarms.at_latest(self, when)

    def look(self, node: Node, job: Job) -> None:
        raise NotImplementedError

    def end_turn(self, node: Node) -> None:
        """Say what was found."""

    def run(self, node: Node) -> None:
        if self.mask == 0:
            self.mask = self.pending
            self.pending = 0
            self.prefix = b""
            self.seq = 0
        self.left = WORK_PER_TURN
        goes_on = self.step(node)
        self.end_turn(node)
        if not goes_on:
            self.mask = 0
        if self.mask != 0 or self.pending != 0:
            node.alarms.set(self, node.now + TURN_MS)

    def step(self, node: Node) -> bool:
        """One part of the way. False: it is at its end."""
        while self.left > 0:
            pages = pages_after(node, self.prefix, self.seq)
            if not pages:
                return False
            for page in pages:
                for job in list(page.slots):
                    if job is not None and job.state != FOLDED:
                        self.look(node, job)
                self.left -= PAGE_SLOTS
                self.prefix = page.origin.prefix
                self.seq = (page.number + 1) * PAGE_SLOTS
                if self.left <= 0:
                    break
        return True
