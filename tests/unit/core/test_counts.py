"""Random commands at jobs with keys and limits: counts that are kept as jobs come and go are those that a walk finds.

And no limit keeps a job for ever: when all pauses are over, whoever waits gets everything that is left.
"""
from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest

from holdfast.core import groups
from holdfast.core.config import Config
from holdfast.core.job import (
    ACKED,
    ACTIVE,
    BINNED,
    BOUNDED,
    COUNTED,
    DEAD,
    HANDED_OUT,
    IN_DOUBT,
    QUEUED,
    WAIT_REPL,
)
from holdfast.core.node import Node
from holdfast.core.quota import JOBS
from holdfast.core.session import NOTHING
from holdfast.core.snapshot import Walk
from holdfast.core.step import Connect, Gone, Tick, step

from .making import NODE_ID, Bench

QUEUES = ["a", "b", "c"]
DOMAINS = ["d", "e", "x.d"]
ID = re.compile(rb"DI[0-9a-f]{8}\w{36}[0-9a-zA-Z]{2}")


def check_counts(node: Node) -> None:
    """Everything that is counted, counted anew."""
    assert not node.faults, node.faults[0]
    jobs = node.all_jobs()
    size, held, adding, lined = Counter[bytes](), Counter[bytes](), Counter[bytes](), Counter[bytes]()
    out, out_of, waiting, bounded = Counter[bytes](), Counter[bytes](), Counter[bytes](), Counter[bytes]()
    alive, lines, bins = Counter[bytes](), Counter[tuple[bytes, bytes]](), Counter[tuple[bytes, bytes, bytes]]()
    for job in jobs:
        name = job.queue.name
        held[name] += 1
        alive[name] += job.state != ACKED
        size[name] += job.state == QUEUED
        adding[name] += job.state == WAIT_REPL
        lined[name] += job.state != QUEUED and groups.is_held(job)
        bounded[name] += job.flags & BOUNDED != 0
        out[name] += job.flags & COUNTED != 0
        assert not (job.flags & COUNTED and job.state != ACTIVE), "out, and in no state to be"
        tenant, domain = (job.more.tenant, job.more.domain) if job.more is not None else (b"", b"")
        out_of[domain] += job.flags & COUNTED != 0
        waiting[domain] += job.state == QUEUED
        lines[name, tenant] += job.state == QUEUED
        bins[name, tenant, domain] += job.flags & BINNED != 0
    for name, queue in node.queues.items():
        assert (queue.size, queue.held, queue.adding, queue.lined) == (
            size[name], held[name], adding[name], lined[name]), f"lengths of {name!r}"
        if queue.total_most > 0:
            assert bounded[name] == alive[name], f"{bounded[name]} of {name!r} are bounded, not {alive[name]}"
        assert queue.asked_for == sum(each.asks_for for each in queue.waiting.values())
        rules = queue.rules
        if rules is None:
            continue
        if rules.throttle is not None:
            assert rules.throttle.out == out[name], f"{rules.throttle.out} of {name!r} are out, not {out[name]}"
        for tenant, line in rules.lines.items():
            assert line.size == lines[name, tenant], f"jobs of {tenant!r} in {name!r}"
            for domain, bin in line.bins.items():
                assert bin.size == bins[name, tenant, domain] > 0 and bin in bin.throttle.bins
    for name, throttle in node.domains.table.items():
        assert throttle.out == out_of[name], f"{throttle.out} of {name!r} are out, not {out_of[name]}"
        assert throttle.waiting == waiting[name], f"{throttle.waiting} of {name!r} wait, not {waiting[name]}"
        assert sum(bin.size for bin in throttle.bins) == sum(n for key, n in bins.items() if key[2] == name)
    for (kind, name), quota in node.quotas.items():
        if kind == JOBS:
            assert quota.used == bounded[name], f"{quota.used} of {name!r} are bounded, not {bounded[name]}"


class Play(Bench):
    def __init__(self, seed: int) -> None:
        super().__init__(sessions=5)
        self.node.is_recording = True
        self.kept: list[bytes] = []
        self.dice = Random(seed)
        self.ids: list[bytes] = []
        self.log: list[str] = []

    def say(self, who: int, *words: str) -> bytes | None:
        self.log.append(f"{self.now} {who}: {' '.join(words)}")
        done = self.step(who, *words)
        assert done.was_run
        self.hear(done.reply or b"")
        for _, reply in done.wakeups:
            self.hear(reply)
        return done.reply

    def hear(self, reply: bytes) -> None:
        self.ids += ID.findall(reply)

    def free(self) -> list[int]:
        return [number for number, session in self.node.sessions.items() if session.blocked == NOTHING]

    def turn(self) -> None:
        dice = self.dice
        if not self.free():
            self.come_and_go()
        who = dice.choice(self.free())
        job = dice.choice(self.ids[-40:]).decode() if self.ids else "DI"
        queue = dice.choice(QUEUES)
        what = dice.random()
        if what < 0.25:
            self.say(who, "ADDJOB", queue, "x", "0", *self.options())
        elif what < 0.45:
            names = dice.sample(QUEUES, dice.randint(1, 3))
            hang = "NOHANG" if len(self.free()) == 1 or dice.random() < 0.6 else "TIMEOUT 3000"
            self.say(who, *f"GETJOB {hang} COUNT {dice.randint(1, 3)} FROM".split(), *names)
        elif what < 0.75 and len(job) > 2:
            self.say(who, *dice.choice([
                "ACKJOB {}", "ACKJOB {}", "NACK {}", "NACK {} RETRYAFTERMS 700", "NACK {} DELAY 1", "RELEASE {}",
                "ENQUEUE {}", "DEQUEUE {}", "MOVE {} a", "MOVE {} b", "MOVE {} c", "PRIORITY {} high",
                "CANCEL {}", "DEAD RETRY {}", "NACK {} FINAL", "DELJOB {}", "WORKING {}",
            ]).format(job).split())
        elif what < 0.85:
            self.say(who, *dice.choice([
                f"QUEUE SET {queue} concurrency {dice.randint(0, 2)}",
                f"QUEUE SET {queue} totalmaxlen {dice.choice([0, 9])}",
                f"QUEUE SET {queue} rate {dice.choice(['none', '20/s'])}",
                f"QUEUE SET {queue} maxlen {dice.choice([0, 20])}",
                f"DOMAIN SET {dice.choice([*DOMAINS, '*.d', '*'])} CONCURRENCY {dice.randint(0, 2)}",
                f"DOMAIN SET {dice.choice([*DOMAINS, '*.d', '*'])} RATE 10/s ADAPT yes",
                f"DOMAIN DEL {dice.choice([*DOMAINS, '*.d', '*'])}", f"TENANT SET {queue} t {dice.randint(1, 3)}",
            ]).split())
        elif what < 0.90:
            self.say(who, "PAUSE", queue, dice.choice(["none", "none", "in", "out", "all"]))
        elif what < 0.91:
            self.say(who, "QFLUSH", queue)
        elif what < 0.93:
            self.come_and_go()
        elif what < 0.94:
            self.start_anew()
        elif what < 0.96:
            self.claim(who, queue)
        else:
            self.wait(dice.choice([1, 10, 100, 1000, 3000]))

    def options(self) -> list[str]:
        dice = self.dice
        found = ["RETRY", dice.choice(["0", "1", "2", "60"]), "TTL", dice.choice(["5", "600", "600"])]
        for name, values, often in (
            ("DOMAIN", DOMAINS, 0.6), ("TENANT", ["t", "u"], 0.4), ("GROUP", ["g", "h"], 0.2),
            ("UNIQUE", ["k", "l"], 0.1), ("PRIORITY", ["high", "low"], 0.2), ("DELAY", ["1", "2"], 0.1),
            ("ATTEMPTS", ["2"], 0.2), ("BACKOFF", ["1"], 0.1), ("ONFAIL", ["skip"], 0.5),
        ):
            if dice.random() < often and (name != "ONFAIL" or "GROUP" in found):
                found += [name, dice.choice(values)]
        return found

    def come_and_go(self) -> None:
        who = self.dice.choice(list(self.node.sessions))
        self.log.append(f"{self.now} {who}: gone")
        step(self.node, self.now, Gone(who))
        step(self.node, self.now, Connect("10.0.0.1:1"))

    def claim(self, who: int, queue: str) -> None:
        """A pipeline takes some, and commits what it has or leaves it."""
        epoch = (self.say(who, "CLAIM", "OPEN", "p") or b"")[1:-2].decode()
        seq, ms = str(self.dice.randint(1, 1000)), self.dice.choice(["500", "5000"])
        self.say(who, *f"CLAIM TAKE p {epoch} {seq} COUNT 3 LEASEMS {ms} FROM {queue}".split())
        claims = [each.decode() for each in self.node.claims.groups[b"p"].claims]
        if claims and self.dice.random() < 0.5:
            self.say(who, "CLAIM", "COMMIT", "p", epoch, *claims)

    def start_anew(self) -> None:
        """With what the journal has, or the last rewrite of it."""
        self.log.append(f"{self.now} started anew")
        self.kept += self.node.take_records()
        if self.dice.random() < 0.5:
            self.kept = Walk(self.node).take_records(1_000_000)
        self.now += self.dice.choice([1, 2_000])
        self.node = Node(Config(), NODE_ID, Random(self.now).randbytes, self.now)
        self.node.is_recording = True
        self.node.set_time(self.now, self.now)
        self.node.load(self.kept)
        for _ in range(5):
            step(self.node, self.now, Connect("10.0.0.1:1"))

    def drain(self) -> None:
        """Pauses are over, and one consumer of everything acks what it gets; limits stay."""
        for number in list(self.node.sessions):
            step(self.node, self.now, Gone(number))
        for number in (1000, 1001):
            self.node.session_count = number - 1
            step(self.node, self.now, Connect("10.0.0.1:1"))
        for queue in QUEUES:
            self.say(1000, "PAUSE", queue, "none")
        for job in self.node.all_jobs():
            if job.retry == 0 and job.state == ACTIVE:
                self.say(1000, "ENQUEUE", self.node.id_text(job).decode())  # once taken out it stays out
        self.ids.clear()
        until = self.now + 120_000
        while self.now < until:
            if self.node.sessions[1001].blocked == NOTHING:
                self.say(1001, "GETJOB", "FROM", *QUEUES)
            while self.ids:
                self.say(1000, "ACKJOB", self.ids.pop().decode())
            self.wait(200)
            check_counts(self.node)

    def wait(self, ms: int) -> None:
        """As that of a bench, but what sessions get meanwhile is heard."""
        self.log.append(f"{self.now} +{ms}")
        until = self.now + ms
        while (wake := int(self.node.next_wake())) <= until:
            self.now = max(self.now, wake)
            self.pass_time()
        self.now = until
        self.pass_time()

    def pass_time(self) -> None:
        for _, reply in step(self.node, self.now, Tick()).wakeups:
            self.hear(reply)


@pytest.mark.parametrize("seed", range(8))
def test_counts_are_exact_and_nothing_is_left_behind(seed: int) -> None:
    play = Play(seed)
    for _ in range(500):
        play.turn()
        check_counts(play.node)
    play.drain()
    left = [
        job for job in play.node.all_jobs()
        if job.state not in (DEAD, ACKED) and not (job.retry == 0 and job.flags & (HANDED_OUT | IN_DOUBT))
    ]
    assert not left, f"{len(left)} were not handed out"
