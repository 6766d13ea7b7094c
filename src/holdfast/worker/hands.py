"""What a worker has in its hands: jobs that wait for a slot and jobs that run, and the figures about them.

Shared by all its threads. There is no lock around it: each step is one operation on a set, a deque or a counter, and
those are atomic; a figure that is off by one for a moment harms nobody.

How many jobs to have ahead? Enough that slots never wait for the network, few enough that no other worker waits for
jobs that lie here. So it follows the speed: what was done in the last AHEAD_S is what will be wanted in the next. A
worker of long jobs fetches none ahead. One whose jobs suddenly take long gives back what it has not begun
(`STALE_S`), for others to run.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Final

from holdfast.tasks.running import RunningJob

from .figures import Counts

AHEAD_S: Final = 0.25
AHEAD_MAX: Final = 1000
"""Jobs fetched ahead. More would only be memory."""
STALE_S: Final = 2.0
FETCH_MAX: Final = 500
"""Jobs in one GETJOB."""


class Hands:
    """Jobs that were handed out to this worker and not answered for."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.jobs: set[RunningJob] = set()
        self.backlog: deque[RunningJob] = deque()
        """Fetched for the event loop and not begun."""
        self.for_threads: deque[RunningJob] = deque()
        """The same for the threads."""
        self.ahead = 0
        self.done = 0
        self.failed = 0
        self.lost = 0
        self.counts = Counts()
        """Jobs that were told, per task: by the teller alone."""
        self.released = 0
        self.room = threading.Event()
        """Set when a job has left, for a fetcher that waits."""
        self.is_full = False
        """The fetcher waits."""
        self._measured = time.monotonic()
        self._ended = 0

    def wanted(self) -> int:
        """How many jobs to ask for now."""
        return min(FETCH_MAX, self.concurrency + self.ahead - len(self.jobs))

    def put_down(self, job: RunningJob) -> None:
        """It is not ours any more."""
        self.jobs.discard(job)
        if self.is_full:
            self.room.set()

    def measure(self) -> None:
        """How fast are we? Called a few times a second."""
        now = time.monotonic()
        if now - self._measured < AHEAD_S:
            return
        ended = self.done + self.failed
        rate = (ended - self._ended) / (now - self._measured)
        self._measured, self._ended = now, ended
        self.ahead = min(AHEAD_MAX, int(rate * AHEAD_S))
        if self.is_full and self.wanted() > 0:
            self.room.set()

    def stale(self) -> list[RunningJob]:
        """Jobs that were fetched ahead and wait for too long. They are taken out."""
        old = time.monotonic() - STALE_S
        found: list[RunningJob] = []
        for line in (self.backlog, self.for_threads):
            try:
                while line[0].fetched < old:
                    found.append(line.popleft())
            except IndexError:  # Empty, or a slot was faster.
                continue
        return found

    def all_waiting(self) -> list[RunningJob]:
        """Every job that has not begun. They are taken out."""
        found: list[RunningJob] = []
        for line in (self.backlog, self.for_threads):
            try:
                while True:
                    found.append(line.popleft())
            except IndexError:
                continue
        return found
