"""What a node keeps so that no job is out of reach: whom it tells what is out, and what it has yet to look at."""
from __future__ import annotations

from mypy_extensions import i64

from holdfast.core.comeback import Comeback
from holdfast.core.job import Job
from holdfast.core.loaded_leases import LoadedLease
from holdfast.core.orphans import Orphans
from holdfast.core.whereabouts import Outs, Visit


class Reach:
    def __init__(self) -> None:
        self.outs: Outs = Outs()  # jobs that went out a moment ago, to be told
        self.visit: Visit = Visit()  # what is compared with nodes that have a new link
        self.orphans: Orphans = Orphans()  # jobs of nodes that are gone
        self.comeback: Comeback = Comeback()  # what waited here before a restart
        self.loaded_leases: dict[Job, LoadedLease] = {}  # whose end a wrong clock may have moved
        self.alone_until: i64 = 0  # until then what we had before a restart is not queued unless a holder was asked
        self.requeued_most: i64 = 0  # of jobs that were queued again: look through them when there are more
