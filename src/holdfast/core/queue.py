"""A queue on this node: its jobs by priority and creation time, the sessions that wait, and its figures.

Queues come into being when somebody names them and are forgotten when nobody has used them for a while
(QUEUE_IDLE_MS): the queue's own alarm asks from time to time.
"""
from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core.alarms import Alarm
from holdfast.core.job import QUEUED, Job
from holdfast.core.lane import Lane, ahead_of, lane_of
from holdfast.core.limits import PRIORITY_DEFAULT
from holdfast.core.throttle import Domains
from holdfast.core.times import Times

if TYPE_CHECKING:
    from holdfast.core.books import Book
    from holdfast.core.groups import Group
    from holdfast.core.rules import Rules
    from holdfast.core.session import Session

PAUSE_IN: Final = 1
PAUSE_OUT: Final = 2
IMPORT_WINDOW_MS: Final = 5000
PAUSE_NAMES: Final = [b"none", b"in", b"out", b"all"]


class Tally:
    """What jobs of a queue are doing, those that no queue length tells of (census.py)."""

    def __init__(self) -> None:
        self.words: dict[bytes, int] = {}  # how many in each state of states.py
        self.behind: dict[int, int] = {}  # for this node to count while that one, by its index, is away (absence.py)

    def of(self, word: bytes) -> int:
        return self.words.get(word, 0)


class Queue(Alarm):
    def __init__(self, name: bytes, now: i64) -> None:
        super().__init__()
        self.name: bytes = name
        # How every job of this queue begins in a GETJOB reply: an array of three, the name, the id's length.
        self.header: bytes = b"*3\r\n$%d\r\n%b\r\n$48\r\n" % (len(name), name)
        self.size: i64 = 0  # queued here
        self.held: i64 = 0  # known here in any state: queued, delayed, handed out
        self.paused: i64 = 0  # PAUSE_IN | PAUSE_OUT
        self.pause_until: i64 = 0  # when it ends by itself; 0: not
        self.pause_word: i64 = 0  # the last that was for the whole cluster
        self.pause_stamp: i64 = 0  # when that was said
        self.maxlen: i64 = 0  # bound on `held`, set by QUEUE SET; 0: none
        self.total_most: i64 = 0  # bound on accepted jobs in the whole cluster; 0: none
        self.created: i64 = now
        self.used: i64 = now  # last time somebody added or asked
        self.added: i64 = 0  # by clients, and accepted
        self.jobs_in: i64 = 0
        self.jobs_out: i64 = 0
        self.moved: i64 = 0  # of these, to another node; the others went to consumers
        self.redelivered: i64 = 0  # of these, not for the first time
        self.waits: Times = Times()
        self.runs: Times = Times()
        self.acked: i64 = 0  # what became of its jobs, counted at the node where it happened
        self.nacked: i64 = 0
        self.died: i64 = 0
        self.expired: i64 = 0
        self.lease_lost: i64 = 0
        # Rules for jobs that have none of their own (failure.py), set by QUEUE SET; 0: none.
        self.attempts: i64 = 0
        self.backoff: i64 = 0  # ms
        self.backoff_most: i64 = 0
        self.retention: i64 = 0  # seconds
        # Rules for the lives of its jobs (expiry.py).
        self.ttl: i64 = 0  # seconds, of jobs that do not say it; 0: the usual
        self.keeps_expired: bool = False  # whoever's time is over goes to the dead letters
        self.adding: i64 = 0  # jobs that wait for their copies
        self.interest: dict[int, int] = {}  # peers with consumers waiting: index -> jobs they can use
        self.imports: dict[int, int] = {}  # peers that gave us jobs: index -> when last
        self.import_count: i64 = 0
        self.import_since: i64 = 0
        self.census: i64 = -1  # the walk that `counting` is of
        self.counting: Tally = Tally()
        self.counted: Tally = self.counting
        self.seen_in: i64 = 0  # added, and handed out to consumers, when rates were last taken
        self.seen_out: i64 = 0
        self.seen_at: i64 = now
        self.rate_in: i64 = 0  # per second
        self.rate_out: i64 = 0
        self.asked_for: i64 = 0  # jobs that those who wait would take together
        self.waiting: OrderedDict[int, Session] = OrderedDict()  # by session number, first come first served
        self.groups: dict[bytes, Group] = {}  # those that have jobs here
        self.lined: i64 = 0  # jobs that stand in line in a group, behind the one whose turn it is
        self.normal: Lane = Lane(PRIORITY_DEFAULT)
        self.lanes: list[Lane] = [self.normal]  # the highest priority first
        self.book: Book | None = None  # where the records of its jobs go, if not to the journal of the node
        self.rules: Rules | None = None  # what says which job is next, where that is not only the lanes
        self.domains: Domains = NO_DOMAINS  # those of the node, where there are rules

    def push(self, job: Job) -> None:
        self.size += 1
        self.jobs_in += 1
        job.state = QUEUED
        job.qtime = 0
        priority = i64(job.priority)
        if self.rules is not None:
            self.rules.push(job)
        elif priority == PRIORITY_DEFAULT:
            self.normal.push(job)
        else:
            lane_of(self.lanes, priority).push(job)

    def pop(self) -> Job | None:
        """Take the next job of a queue without rules; the caller gives it its new state."""
        if self.size == 0:
            return None
        if len(self.lanes) == 1:
            job = self.normal.pop()
        else:
            job = None
            for lane in self.lanes:
                job = lane.pop()
                if job is not None:
                    break
        if job is not None:
            self.size -= 1
        return job

    def remove(self, job: Job) -> None:
        """Take out a job that is queued here; the caller gives it its new state."""
        self.size -= 1
        if self.rules is not None:
            self.rules.remove(job)
        else:
            lane_of(self.lanes, i64(job.priority)).remove(job)

    def ahead(self, job: Job) -> i64:
        """How many jobs would be handed out before one that is queued here; of its own tenant and domain only."""
        return ahead_of(self.lanes if self.rules is None else self.rules.lanes_of(job), job)

    def oldest(self, count: int) -> list[Job]:
        """The next `count` jobs in the order they would be handed out; those that wait for a domain come last."""
        found: list[Job] = []
        for lane in self.lanes if self.rules is None else self.rules.all_lanes():
            lane.oldest(count - len(found), found)
            if len(found) >= count:
                break
        return found

    def latest(self, count: int) -> list[Job]:
        """The last `count` jobs, the one that would be handed out last first."""
        found: list[Job] = []
        for lane in reversed(self.lanes if self.rules is None else self.rules.all_lanes()):
            lane.latest(count - len(found), found)
            if len(found) >= count:
                break
        return found

    def last_tally(self, walk: i64) -> Tally:
        """Of the last walk over all jobs that came to its end, when that one is under way."""
        if self.census == walk:
            return self.counted
        return self.counting if self.census == walk - 1 else Tally()

    def handed_out(self) -> i64:
        """How often a job of this queue went to a consumer here."""
        return self.jobs_out - self.moved

    def note_import(self, index: i64, now: i64) -> None:
        """A peer gave us a job. The rate is that of the last few seconds."""
        if now - self.import_since > IMPORT_WINDOW_MS:
            self.import_count = 0
            self.import_since = now
        self.import_count += 1
        self.imports[int(index)] = int(now)

    def import_rate(self, now: i64) -> i64:
        """Jobs per second that others give us."""
        if now - self.import_since > 2 * IMPORT_WINDOW_MS:
            return 0
        return self.import_count * 1000 // max(1000, now - self.import_since)

    def is_unused(self) -> bool:
        """Nothing is lost if this queue is forgotten."""
        return (
            self.held == 0 and self.paused == 0 and self.pause_word == 0 and self.maxlen == 0
            and not self.waiting and not self.interest and (self.rules is None or self.rules.is_unused())
        )


NO_DOMAINS: Final = Domains()
