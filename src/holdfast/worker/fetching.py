"""The thread that asks for jobs.

It asks for as many as there is room for (see `hands`), and waits at the node for the first, WAIT_S at a time: so it
notices within that time that it is to stop, and never has to be interrupted in a GETJOB, when a job may be under way.

When no node can be reached it tries again with growing pauses, for ever: a worker outlives its cluster. `heard` is when
a node last answered; a worker that wants jobs and has not heard for long is not consuming: its health check says so.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from holdfast.client.asks import take
from holdfast.client.delivery import Entry
from holdfast.client.errors import Closed, Error, Leaving, Loading, Refused, Unknown
from holdfast.client.queue import Queue

from .hands import Hands

WAIT_S: Final = 1.0
PAUSE_S: Final = 0.1
PAUSE_S_MAX: Final = 5.0

log = logging.getLogger("holdfast.worker")


class Fetcher(threading.Thread):
    """Runs until `stop`; gives what it fetched to `on_jobs`."""

    def __init__(
        self, queue: Queue, names: Sequence[str], hands: Hands, lease_s: float,
        on_jobs: Callable[[list[Entry]], None],
    ) -> None:
        super().__init__(name="holdfast-fetcher", daemon=True)
        self.heard = time.monotonic()
        self.fault = ""
        self.is_wanting = True
        """There is room for jobs."""
        self._queue = queue
        self._names = tuple(names)
        self._hands = hands
        self._lease_s = lease_s
        self._on_jobs = on_jobs
        self._ending = threading.Event()

    def stop(self) -> None:
        """Fetch no more. The GETJOB that is under way ends by itself; `join` waits for that."""
        self._ending.set()
        self._hands.room.set()

    def run(self) -> None:
        pause = PAUSE_S
        while not self._ending.is_set():
            count = self._hands.wanted()
            if count <= 0:
                self._wait_for_room()
                continue
            try:
                self._fetch(count)
                pause = PAUSE_S
            except Closed:
                return
            except Error as error:
                self._complain(error)
                self._ending.wait(pause * random.uniform(0.5, 1.0))
                pause = min(PAUSE_S_MAX, pause * 2)

    def _fetch(self, count: int) -> None:
        ask = take(self._names, count, WAIT_S, self._lease_s)
        jobs = ask.answer(self._queue.channel.call(ask.argv, ask.patience, ask.undo))
        self.heard = time.monotonic()
        if self.fault:
            log.warning("fetching again")
            self.fault = ""
        if jobs:
            self._on_jobs(jobs)

    def _wait_for_room(self) -> None:
        hands = self._hands
        hands.room.clear()
        hands.is_full = True
        self.is_wanting = False
        if hands.wanted() <= 0:  # Looked at again: a job may have left before we said that we wait.
            hands.room.wait(WAIT_S)
        hands.is_full = False
        self.is_wanting = True
        self.heard = max(self.heard, time.monotonic() - WAIT_S)

    def _complain(self, error: Error) -> None:
        words = str(error)
        if words != self.fault:
            calm = isinstance(error, Refused | Unknown | Leaving | Loading)
            log.log(logging.WARNING if calm else logging.ERROR, "cannot fetch: %s", words)
        self.fault = words
