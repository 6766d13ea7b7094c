"""What one node should do, written to be obviously right: dicts, sorted(), and no cleverness at all.

The model reads the same commands as the machine and answers with plain values (values.py). It keeps no
lanes, pages or alarms: what can be worked out is worked out anew. It shares no code with the machine.

One thing it is told rather than left to guess, since more than one choice is right: in which order things
due at the same moment are done (`tick`). It checks that nothing due was left out.
"""
from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from . import texts
from .values import NIL_ARRAY, Bad, Line

IN, OUT = 1, 2
PAUSES = [b"none", b"in", b"out", b"all"]
QUEUE_COST = 2100


@dataclass
class Job:
    id: bytes
    seq: int
    queue: bytes
    body: bytes
    ctime: int
    expire: int
    retry: int
    delay: int
    priority: int
    state: bytes = b"active"
    when: int = 0  # when it is to be queued; 0: not at all
    nacks: int = 0
    deliveries: int = 0
    was_handed_out: bool = False
    was_queued: bool = False


@dataclass
class Queue:
    created: int
    used: int
    look: int = 0  # when to look whether it is still needed
    paused: int = 0
    pause_word: int = 0  # the last that was for all nodes
    maxlen: int = 0
    added: int = 0
    ins: int = 0
    outs: int = 0
    acked: int = 0
    nacked: int = 0
    expired: int = 0
    seen_out: int = 0  # with consumers, and delayed, when somebody last looked
    seen_delayed: int = 0
    seen_put_off: int = 0
    waiting: list[int] = field(default_factory=list)


@dataclass
class Session:
    resp3: bool = False
    waits_on: list[bytes] = field(default_factory=list)  # empty: it does not wait
    until: int = 0  # 0: for ever
    with_counters: bool = False


class Model:
    def __init__(self, node_id: bytes, seed: int, now: int, full: int, body_bytes_max: int, evicts: bool) -> None:
        self.node_id, self.rng, self.pool = node_id, random.Random(seed), b""
        self.now, self.seq, self.last_ctime = now, now * 1000, 0
        self.full, self.body_bytes_max, self.evicts = full, body_bytes_max, evicts
        self.jobs: dict[bytes, Job] = {}
        self.queues: dict[bytes, Queue] = {}
        self.settings: set[tuple[bytes, bytes]] = set()  # of all nodes, by queue and name: they outlive queues
        self.sessions: dict[int, Session] = {}
        self.wakeups: list[tuple[int, Any]] = []
        self.spent: list[bytes] = []  # handed out at most once, the oldest hand-out first; some perhaps gone
        self.seen: Counter[str] = Counter()
        self.looked = 0  # when jobs were last counted

    # -- what can happen -----------------------------------------------------------------------------------

    def connect(self, who: int) -> None:
        before = self.level()
        self.sessions[who] = Session()
        self.hurry_queues(before)

    def disconnect(self, who: int) -> None:
        self.seen["disconnect while waiting" if self.sessions[who].waits_on else "disconnect"] += 1
        self.release(who)
        del self.sessions[who]

    def tick(self, order: list[tuple[str, Any]]) -> None:
        """Do what is due, in that order: ranges of sequence numbers, sessions, queues."""
        for kind, what in order:
            if kind == "jobs":
                for job in sorted(self.jobs.values(), key=lambda each: each.seq):
                    if job.seq in what and job.id in self.jobs:  # not found dead by somebody who waits
                        self.look_at(job)
            elif kind == "session" and self.sessions[what].waits_on:
                self.seen["waited in vain"] += 1
                self.release(what)
                self.wakeups.append((what, NIL_ARRAY))
            elif kind == "queue":
                self.forget_if_idle(what)
        assert min(self.due(), default=self.now + 1) > self.now, "something due was not done"

    def due(self) -> list[int]:
        """All times at which something is to be done."""
        times = [job.expire for job in self.jobs.values()] + [job.when for job in self.jobs.values()]
        times += [each.until for each in self.sessions.values() if each.waits_on]
        return [time for time in times if time] + [queue.look for queue in self.queues.values()]

    def look_at(self, job: Job) -> None:
        if job.expire <= self.now:
            self.seen["job expired"] += 1
            self.queues[job.queue].expired += 1
            del self.jobs[job.id]
        elif 0 < job.when <= self.now:
            if self.queues[job.queue].paused & IN and job.retry:
                self.seen["requeue put off by pause"] += 1
                job.when = self.now + job.retry * 1000
            else:
                self.seen["lease ended" if job.was_queued else "delay ended"] += 1
                job.deliveries += job.was_queued
                self.put_in_queue(job)

    def forget_if_idle(self, name: bytes) -> None:
        queue, idle = self.queues[name], self.idle_ms()
        is_needed = self.held(name) or queue.paused or queue.pause_word or queue.maxlen or queue.waiting
        if queue.used + idle <= self.now and not is_needed:
            self.seen["idle queue forgotten"] += 1
            del self.queues[name]
        else:
            queue.look = max(queue.used + idle, self.now + idle // 4)

    # -- jobs, queues, memory ------------------------------------------------------------------------------

    def used(self) -> int:
        return sum(208 + len(job.body) for job in self.jobs.values()) + 2048 * len(self.sessions) + sum(
            QUEUE_COST + 3 * len(name) for name in self.queues) + 400 * len(self.settings)

    def level(self) -> int:
        """How short memory is."""
        used, percent = self.used(), self.full // 100
        return 2 if used >= 95 * percent else 1 if used >= 75 * percent else 0

    def idle_ms(self) -> int:
        return [300_000, 10_000, 2_000][self.level()]

    def hurry_queues(self, level_before: int) -> None:
        """After whatever takes memory: if it has become shorter, unused queues are looked for sooner."""
        if self.level() > level_before:
            self.seen[f"memory level {self.level()}"] += 1
            for queue in self.queues.values():
                queue.look = min(queue.look, self.now + self.idle_ms())

    def held(self, name: bytes) -> int:
        return sum(job.queue == name for job in self.jobs.values())

    def queued(self, name: bytes) -> list[Job]:
        """The queued jobs in the order in which they are handed out."""
        here = [job for job in self.jobs.values() if job.queue == name and job.state == b"queued"]
        return sorted(here, key=lambda job: (-job.priority, job.ctime))

    def is_paused(self, name: bytes, way: int) -> bool:
        return name in self.queues and self.queues[name].paused & way != 0

    def make_queues(self, names: list[bytes], to_wait: bool = False) -> None:
        """All or none. Whoever waits for jobs may go a little beyond the limit: it takes jobs away."""
        new = [name for name in names if name not in self.queues]
        most = self.full + (self.full // 100 * 5 if to_wait else 0)
        if new and self.used() + sum(QUEUE_COST + 3 * len(name) for name in new) > most:
            self.seen["no room even to wait"] += to_wait
            raise Bad(texts.OOM)
        for name in new:
            before = self.level()
            self.queues[name] = Queue(self.now, self.now)
            self.queues[name].look = self.now + self.idle_ms()
            self.hurry_queues(before)
        self.seen["waits beyond maxmemory"] += bool(new) and self.used() > self.full

    def put_in_queue(self, job: Job) -> None:
        job.state, job.when, job.was_queued = b"queued", 0, True
        self.queues[job.queue].ins += 1
        self.queues[job.queue].used = self.now
        self.serve(job.queue)

    def serve(self, name: bytes) -> None:
        """One job for each session that waits, first come first served."""
        while self.queues[name].waiting and not self.is_paused(name, OUT) and (job := self.next_job(name)):
            who = self.queues[name].waiting[0]
            self.release(who)
            self.seen["waited and served"] += 1
            self.wakeups.append((who, [self.hand_out(job, self.sessions[who].with_counters)]))

    def next_job(self, name: bytes) -> Job | None:
        """The one to be handed out. Those before it whose time has run out go, though no tick has come."""
        for job in self.queued(name):
            if job.expire > self.now:
                return job
            self.seen["job expired instead of handed out"] += 1
            self.queues[name].expired += 1
            del self.jobs[job.id]
        return None

    def hand_out(self, job: Job, with_counters: bool) -> list[Any]:
        item = [job.queue, job.id, job.body]
        if with_counters:
            item += [b"nacks", job.nacks, b"additional-deliveries", job.deliveries]
        job.state, job.was_handed_out = b"active", True
        job.when = self.now + job.retry * 1000 if job.retry else 0
        if not job.retry:
            job.body = b""  # nobody will get it again
            self.spent.append(job.id)
        self.queues[job.queue].outs += 1
        return item

    def release(self, who: int) -> None:
        for name in self.sessions[who].waits_on:
            self.queues[name].waiting.remove(who)
        self.sessions[who].waits_on = []

    def admit(self, name: bytes, bodies: list[bytes]) -> None:
        """Is there memory for these? Jobs that nobody will get again may be evicted for them."""
        cost = sum(208 + len(body) for body in bodies) + (0 if name in self.queues else QUEUE_COST + 3 * len(name))
        if self.level() == 2 or self.used() + cost > self.full:
            while self.evicts and self.spent and self.used() + cost >= self.full // 100 * 95:
                self.seen["job evicted"] += self.jobs.pop(self.spent.pop(0), None) is not None
            if self.used() + cost > self.full:
                raise Bad(texts.OOM)

    def add(self, name: bytes, body: bytes, options: dict[bytes, int]) -> Line:
        if not self.pool:
            self.pool = self.rng.randbytes(8 * 1024)
        chance, self.pool = self.pool[:8][::-1], self.pool[8:]
        self.seq += 1
        self.last_ctime = max(self.now * 1_000_000, self.last_ctime + 1)
        minutes = min(options[b"TTL"] // 60, 65535)
        minutes = minutes | 1 if options[b"RETRY"] else minutes & ~1  # odd: may be delivered again
        jid = b"DI%b%016x%b%04xSQ" % (self.node_id[:8], self.seq, chance.hex().encode(), minutes)
        before = self.level()
        self.jobs[jid] = job = Job(
            jid, self.seq, name, body, self.last_ctime, self.now + options[b"TTL"] * 1000,
            options[b"RETRY"], options[b"DELAY"], options[b"PRIORITY"],
        )
        self.hurry_queues(before)
        self.queues[name].used = self.now
        self.queues[name].added += 1
        if job.delay:
            job.when = self.now + job.delay * 1000
        else:
            self.put_in_queue(job)
        return Line(jid)

    def count_states(self) -> None:
        """Once a second at most: what jobs that are not queued are doing."""
        if self.now - self.looked < 1000:
            return
        self.looked = self.now
        for name, queue in self.queues.items():
            active = [job for job in self.jobs.values() if job.queue == name and job.state == b"active"]
            queue.seen_out = sum(job.was_handed_out and (not job.retry or job.when > self.now) for job in active)
            queue.seen_delayed = sum(
                not job.was_handed_out and not job.was_queued and job.ctime // 1_000_000 + job.delay * 1000 > self.now
                for job in active
            )
            queue.seen_put_off = len(active) - queue.seen_out - queue.seen_delayed

    def set_aside(self, job: Job) -> None:
        job.state, job.when = b"active", self.now + job.retry * 1000 if job.retry else 0

    def set_for_all(self, name: bytes, setting: bytes, is_set: bool) -> None:
        before = self.level()
        (self.settings.add if is_set else self.settings.discard)((name, setting))
        self.hurry_queues(before)

    def set_paused(self, name: bytes, state: int) -> None:
        self.queues[name].paused = state
        self.serve(name)
