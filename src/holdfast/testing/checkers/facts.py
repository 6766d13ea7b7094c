"""What a history says about each job, gathered once so that every checker is a short loop.

A job is known by its body: bodies are unique in our workloads, and a client whose ADDJOB was never answered
has nothing else to recognise its job by.
"""
from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from holdfast.testing.history import FAIL, INVOKE, OK, History, Op, Value

ENDINGS: Final = frozenset(["ack", "fastack", "deljob", "bury", "call-off"])
PUSHES: Final = frozenset(["nack", "enqueue", "release", "retry"])  # somebody wants it delivered again

CRON_PREFIX: Final = "DI00000000"
"""How ids of jobs begin that a cron entry made."""


LATE_MS: Final = 1_000
"""How late a node may be with what it does when a time is over."""


class Violation(NamedTuple):
    promise: str  # I1 ... I20
    what: str  # its class: shrinking keeps a step if the same class remains
    job: str  # id, or body where no id is known; empty if it is about no single job
    t: int
    text: str

    def __str__(self) -> str:
        return f"{self.promise} {self.what} at {self.t} ms{', job ' + self.job if self.job else ''}: {self.text}"


class Delivery(NamedTuple):
    t: int
    node: str
    process: str
    id: str
    queue: str
    nacks: int | None  # None: the client did not ask for counters
    deliveries: int | None
    token: str = ""  # empty: the client did not ask for one
    lease_ms: int = 0  # 0: the retry time
    place: int = 0  # among all hand-outs: of those of one millisecond, which came first


class Told(NamedTuple):
    """A command about the job: when it was sent, when and how it was answered."""

    f: str
    invoked: int
    done: int | None  # None: never answered
    is_ok: bool
    node: str
    process: str
    token: str = ""
    ms: int = 0
    result: str | None = None
    changed: int = 0  # how many it was done with, by the answer


class JobFacts:
    def __init__(self, body: str, op: Op) -> None:
        self.body = body
        self.add = op.value
        self.invoked = op.t
        self.node = op.node
        self.outcome = "info"
        self.done: int | None = None
        self.error = ""
        self.ids: list[str] = []  # all ids ever seen with this body, in order: one, or something is wrong
        self.deliveries: list[Delivery] = []
        self.told: list[Told] = []
        self.said_copies = 0  # by the answer; 0: it was not asked
        self.flushed = False  # a QFLUSH of its queue was sent after it was added

    @property
    def name(self) -> str:
        return self.ids[0] if self.ids else self.body

    @property
    def retry_ms(self) -> int:
        """The retry time asked for; where none was, the node's default."""
        retry: int = self.add["retry"]
        return 1000 * (retry if retry >= 0 else min(300, max(1, self.add["ttl"] // 10)))

    @property
    def ttl_ms(self) -> int:
        return int(self.add["ttl"]) * 1000

    @property
    def delay_ms(self) -> int:
        return int(self.add["delay"]) * 1000

    @property
    def group(self) -> tuple[str, str] | None:
        group: str = self.add.get("group", "")
        return (self.add["queue"], group) if group else None

    @property
    def key(self) -> tuple[str, str, str] | None:
        """Its unique key."""
        unique: str = self.add.get("unique", "")
        return (self.add["queue"], self.add.get("group", ""), unique) if unique else None

    @property
    def copies(self) -> int:
        """How many copies the answer promised. ASYNC promises one, the default as many as were had."""
        if self.said_copies:
            return self.said_copies
        return 1 if self.add["async"] else max(1, int(self.add["replicate"]))

    def ending(self) -> int | None:
        """When the first command was sent that may have ended it."""
        return min((told.invoked for told in self.told if told.f in ENDINGS), default=None)

    def acked(self) -> Told | None:
        """The first ACKJOB that was answered."""
        acks = [told for told in self.told if told.f == "ack" and told.is_ok]
        return min(acks, key=lambda told: told.done or 0, default=None)


class Facts:
    def __init__(self, history: History) -> None:
        self.history = history
        self.jobs: dict[str, JobFacts] = {}
        self.by_id: dict[str, JobFacts] = {}
        self.handed_out = 0  # jobs, so far
        self.prefixes: dict[str, str] = {}  # nodes by how ids of their jobs begin, and their tokens
        self.strays: list[Delivery] = []  # of bodies that nobody ever added
        self.scheduled: list[Delivery] = []  # of jobs that cron entries made
        self.dead: dict[str, tuple[int, str, int]] = {}  # when a list last had it, its cause, failures
        self.ends: list[tuple[Op, str, str, str | None]] = []  # what WAITJOB said: id, word, result
        self.settings: Value = {}
        self.losses: list[tuple[int, str]] = []
        self.crashes: list[int] = []
        self.restarts: list[tuple[int, str]] = []
        self.restored: list[tuple[int, int]] = []  # when, and as of when
        self.faults: list[tuple[int, int, str]] = []  # begin, end, kind
        self.merged: dict[str, str] = {}
        self.calm_from: list[int] = []  # calm periods: begin and end, in order
        self.calm_to: list[int] = []
        self.heal: int | None = None
        self.end = history.ops[-1].t if history.ops else 0
        self.read(history)
        self.by_group: dict[tuple[str, str], list[JobFacts]] = {}
        self.by_key: dict[tuple[str, str, str], list[JobFacts]] = {}
        for job in self.jobs.values():
            if job.group is not None:
                self.by_group.setdefault(job.group, []).append(job)
            if job.key is not None:
                self.by_key.setdefault(job.key, []).append(job)

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, history: History) -> None:
        invoked: dict[int, Op] = {}
        running: dict[int, tuple[int, str]] = {}
        for op in history.ops:
            if op.number == 0:
                self.read_mark(op, running)
            elif op.type == INVOKE:
                invoked[op.number] = op
                if op.f == "add":
                    self.jobs[op.value["body"]] = JobFacts(op.value["body"], op)
            elif op.f == "add":
                self.read_added(invoked[op.number], op)
            elif op.f == "get" and op.type == OK:
                self.read_handed_out(op, int(invoked[op.number].value.get("lease", 0)))
            elif op.f == "dead" and op.type == OK:
                for id, _, cause, failures in op.value["rows"]:
                    self.dead[id] = (op.t, cause, failures)
            elif op.f == "wait" and op.type == OK:
                self.ends += [(op, id, word, result) for id, word, result in op.value["ends"]]
        for begin, kind in running.values():
            self.faults.append((begin, self.end, kind))
        if len(self.calm_to) < len(self.calm_from):
            self.calm_to.append(self.end)
        self.read_told(history, invoked)

    def read_mark(self, op: Op, running: dict[int, tuple[int, str]]) -> None:
        value = op.value
        if op.f == "settings":
            self.settings.update(value)
        elif op.f == "loss":
            self.losses.append((op.t, op.node))
        elif op.f == "crash":
            self.crashes.append(op.t)
        elif op.f == "restart":
            self.restarts.append((op.t, op.node))
        elif op.f == "restored":
            self.restored.append((op.t, value["since"]))
        elif op.f == "merged":
            self.merged[value["id"]] = value["into"]
        elif op.f == "heal":
            self.heal = op.t
        elif op.f == "calm":
            if value["on"] and len(self.calm_from) == len(self.calm_to):
                self.calm_from.append(op.t)
            elif not value["on"] and len(self.calm_from) > len(self.calm_to):
                self.calm_to.append(op.t)
        elif op.f == "fault":
            if value["phase"] == "begin":
                running[value["number"]] = (op.t, value["kind"])
            else:
                begin, kind = running.pop(value["number"])
                self.faults.append((begin, op.t, kind))

    def read_added(self, asked: Op, op: Op) -> None:
        job = self.jobs[asked.value["body"]]
        job.done = op.t
        job.outcome = op.type
        if op.type == OK and op.value.get("dup") == "existing":
            job.outcome = "existing"  # there is no such job: its key was taken
        elif op.type == OK:
            self.know(job, op.value["id"])
            job.said_copies = int(op.value.get("copies", 0))
            if "final_of" not in job.add:  # whose batch may have been closed before, elsewhere
                self.prefixes[op.value["id"][2:10]] = op.node
        elif op.type == FAIL:
            job.error = op.value["error"]

    def know(self, job: JobFacts, id: str) -> None:
        if id not in job.ids:
            job.ids.append(id)
        self.by_id.setdefault(id, job)

    def read_handed_out(self, op: Op, lease_ms: int) -> None:
        for each in op.value["jobs"]:
            self.handed_out += 1
            delivery = Delivery(
                op.t, op.node, op.process, each["id"], each["queue"], each.get("nacks"), each.get("deliveries"),
                each.get("token", ""), lease_ms, self.handed_out,
            )
            job = self.jobs.get(each["body"])
            if job is None:
                is_scheduled = each["id"].startswith(CRON_PREFIX)
                (self.scheduled if is_scheduled else self.strays).append(delivery)
            else:
                self.know(job, each["id"])
                job.deliveries.append(delivery)

    def read_told(self, history: History, invoked: dict[int, Op]) -> None:
        """Commands about jobs: read last, when every id that was ever seen is known."""
        done = {op.number: op for op in history.ops if op.number and op.type != INVOKE}
        for number, asked in invoked.items():
            if asked.f == "qflush":
                for job in self.jobs.values():
                    if job.add["queue"] == asked.value["queue"]:
                        job.flushed = True
            if "ids" not in asked.value:
                continue
            end = done.get(number)
            is_answered = end is not None and end.type != "info"
            told = Told(
                asked.f, asked.t, end.t if end is not None and is_answered else None,
                end is not None and end.type == OK, asked.node, asked.process, asked.value.get("token", ""),
                int(asked.value.get("ms", 0)), asked.value.get("result"),
                int(end.value.get("count", 0)) if end is not None and end.type == OK else 0,
            )
            for id in asked.value["ids"]:
                known = self.by_id.get(id)
                if known is not None:
                    known.told.append(told)

    def was_replaced(self, job: JobFacts) -> bool:
        """Whether another job with its unique key may have taken its place, or was the same job."""
        if job.key is None:
            return False
        return any(id in self.merged for id in job.ids) or any(
            other.add.get("ondup") == "replace" and other.outcome in ("ok", "info") and other is not job
            and self.acts_until(other) >= job.invoked for other in self.by_key.get(job.key, [])
        )

    def acts_until(self, job: JobFacts) -> int:
        """Until when an ADDJOB may have been carried out: its answer. One that got none ends with its patience, by the
        clocks of the nodes it came through; but faults may hold it up without anybody being able to tell how long."""
        if job.outcome == "ok" and job.done is not None:
            return job.done
        patience = int(job.add["timeout"])
        if patience == 0 or any(end >= job.invoked for _, end, _ in self.faults):
            return self.end
        return job.invoked + patience + self.drift_ms(patience, job.invoked) + LATE_MS

    # -- questions -----------------------------------------------------------------------------------------

    def number(self, name: str, otherwise: int) -> int:
        return int(self.settings.get(name, otherwise))

    @property
    def settle_ms(self) -> int:
        """Longest retry + ack collection period + message lifetime."""
        return self.number("settle_ms", 30_000)

    def calm_since(self, t: int) -> int | None:
        """Since when, at time `t`, everything had been up and connected; None if it was not."""
        i = bisect_right(self.calm_from, t) - 1
        return self.calm_from[i] if i >= 0 and t <= self.calm_to[i] else None

    def is_calm(self, t: int) -> bool:
        since = self.calm_since(t)
        return since is not None and since <= t - self.settle_ms

    def was_calm_for(self, ms: int, since: int, until: int) -> bool:
        """Whether everything was up and connected for so long, some time between the two."""
        calm = zip(self.calm_from, self.calm_to, strict=True)
        return any(min(until, to) - max(since, begin) >= ms for begin, to in calm)

    def lost_at_once(self, since: int) -> int:
        """The most nodes that were lost, from `since` on, before the loss of the first of them was made good."""
        together: dict[int, set[str]] = {}
        for t, node in self.losses:
            if t >= since:
                together.setdefault(bisect_right(self.restored, (t, 0)), set()).add(node)
        return max(map(len, together.values()), default=0)

    def was_lost(self, node: str, since: int, until: int | None = None) -> bool:
        return any(t >= since and (until is None or t <= until) and node == lost for t, lost in self.losses)

    def restored_after(self, t: int) -> int | None:
        """From when on what was told to one node by time `t` did not depend on that node any more."""
        return min((restored for restored, since in self.restored if since >= t), default=None)

    def drift_ms(self, span_ms: int, since: int) -> int:
        """How wrong a node's idea of `span_ms` may be: fast and slow clocks, time in flight (which no node
        can see), and the wall clock where a restart in between had to trust it."""
        drift = span_ms * self.number("rate_ppm", 0) // 1_000_000 + 4 * self.number("flight_ms", 0)
        if any(t >= since for t, _ in self.restarts):
            drift += self.number("skew_ms", 0)
        return drift
