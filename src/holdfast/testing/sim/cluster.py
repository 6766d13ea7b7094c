"""A cluster in one thread: real nodes, simulated clocks, disks and network, one seed.

    sim = Cluster(nodes="ABC", seed=7)
    job = sim.add_job(at="A", replicate=2, retry_s=1, holders="AC")
    sim.cut("C", from_="AB")
    sim.consume_and_ack(at="B")
    sim.run_for(seconds=30)
    sim.heal()
    sim.settle()
    assert sim.history.deliveries(job) == 1
    assert sim.copies(job) == {}
    sim.check()

Time is virtual: an hour passes as fast as nothing happens in it. This file is what directed scenarios are
written with; the engine is in world.py, and whole random runs are in run.py.
"""
from __future__ import annotations

from os import environ
from typing import Any, Final

from holdfast.testing.checkers.whitebox import uncollected
from holdfast.testing.history import OK, Value
from holdfast.testing.sim.clients import Client
from holdfast.testing.sim.faults import Fault
from holdfast.testing.sim.plan import Add
from holdfast.testing.sim.workload import key_values, key_words, words_of
from holdfast.testing.sim.world import SETTLE_MS, World

SETTLE_MS_MAX: Final = 120_000


class Adding:
    """An ADDJOB that is under way."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.ended: list[tuple[str, Value]] = []

    @property
    def id(self) -> str:
        return str(self.ended[0][1]["id"]) if self.ended and self.ended[0][0] == OK else ""


class Cluster(World):
    def __init__(self, **options: Any) -> None:
        """See World for the options: nodes, seed, faults, mutants, settings."""
        self.asked = 0  # commands sent, for names
        super().__init__(**options)

    def command(self, at: str, f: str, argv: list[bytes], value: Value, wait_ms: int = 5_000) -> tuple[str, Value]:
        """Send one command and run until it is answered; ('info', ...) if that takes too long."""
        self.asked += 1
        client = Client(self, f"s{self.asked}", self.hosts[at])
        ended: list[tuple[str, Value]] = []
        client.send(f, argv, value, lambda type, value: ended.append((type, value)))
        until = self.now + wait_ms
        while not ended and self.now < until:
            self.run_until(self.now + 1)
        client.close()
        self.run_until(self.now)
        return ended[0]

    def do(self, at: str, *words: str) -> Value:
        """Any command; returns what the history says of its reply."""
        return self.command(at, "admin", [word.encode() for word in words], {"words": list(words)})[1]

    def add_job(
        self, *, at: str, replicate: int = 1, retry_s: int = 1, ttl_s: int = 600, delay_s: int = 0,
        queue: str = "q", holders: str = "", timeout_ms: int = 2_000, attempts: int = 0, backoff_s: int = 0,
        onexpire: str = "",
    ) -> str:
        """Add a job; returns its id. `holders` says which nodes get the copies, the adding one included; with
        replicate=0 how many is left to the node."""
        id, value = self.try_add(
            at=at, replicate=replicate, retry_s=retry_s, ttl_s=ttl_s, delay_s=delay_s, queue=queue,
            holders=holders, timeout_ms=timeout_ms, attempts=attempts, backoff_s=backoff_s, onexpire=onexpire,
        )
        assert id, f"ADDJOB at {at} was not accepted: {value}"
        return id

    def try_add(self, *, wait_ms: int = 5_000, **options: Any) -> tuple[str, Value]:
        """Like add_job, but a refusal, or no answer, is an answer, too: ('', what was said)."""
        adding = self.begin_add(**options)
        until = self.now + wait_ms
        while not adding.ended and self.now < until:
            self.run_until(self.now + 1)
        adding.client.close()
        self.run_until(self.now)
        return adding.id, adding.ended[0][1]

    def add_keyed(
        self, *, at: str, group: str = "", skips: bool = False, unique: str = "", window_s: int = 0, ondup: str = "",
        tenant: str = "", **options: Any,
    ) -> tuple[str, str]:
        """Add a job with keys; returns its id and what became of its unique key, or nothing and the error."""
        keys = Add(0, 0, group=group, skips=skips, unique=unique, window_s=window_s, ondup=ondup, tenant=tenant)
        id, value = self.try_add(at=at, keys=keys, **options)
        return id, str(value.get("dup", value.get("error", "")))

    def begin_add(
        self, *, at: str, replicate: int = 1, retry_s: int = 1, ttl_s: int = 600, delay_s: int = 0,
        queue: str = "q", holders: str = "", timeout_ms: int = 2_000, keys: Add | None = None, home: str = "",
        attempts: int = 0, backoff_s: int = 0, onexpire: str = "",
    ) -> Adding:
        """Send an ADDJOB and do not wait; the producer stays connected."""
        host = self.hosts[at]
        assert host.node is not None, f"{at} is down"
        decider = self.hosts[home or at]  # of where the copies go
        if holders and decider.node is not None:
            others = [self.hosts[name].node_id for name in holders if name != decider.name]
            self.kind.force_holders(decider.node, others)
        self.asked += 1
        body = f"job{self.asked}"
        words = ["ADDJOB", queue, body, str(timeout_ms), "RETRY", str(retry_s), "TTL", str(ttl_s),
                 "DELAY", str(delay_s)]
        words += ["REPLICATE", str(replicate)] if replicate else ["SAYCOPIES"]
        if attempts:
            words += ["ATTEMPTS", str(attempts)]
        if backoff_s:
            words += ["BACKOFF", str(backoff_s)]
        if onexpire:
            words += ["ONEXPIRE", onexpire]
        value: Value = {
            "queue": queue, "body": body, "replicate": replicate, "retry": retry_s, "ttl": ttl_s,
            "delay": delay_s, "async": False, "timeout": timeout_ms, "attempts": attempts, "backoff": 2 * backoff_s,
            "onexpire": onexpire,
        }
        if keys is not None:
            words += key_words(keys)
            value |= key_values(keys)
        adding = Adding(Client(self, f"s{self.asked}", host))

        def done(type: str, value: Value) -> None:
            adding.ended.append((type, value))
            if holders and decider.node is not None:
                self.kind.force_holders(decider.node, None)

        adding.client.send("add", [word.encode() for word in words], value, done)
        self.run_until(self.now)
        return adding

    def consume(self, *, at: str, queue: str = "q", timeout_ms: int = 3_000) -> str:
        """Fetch a job, waiting for it if need be; returns its id, or nothing if none came."""
        words = ["GETJOB", "WITHCOUNTERS", "TIMEOUT", str(timeout_ms), "COUNT", "1", "FROM", queue]
        _, said = self.command(at, "get", [word.encode() for word in words], {"queues": [queue]}, timeout_ms + 2_000)
        jobs = said.get("jobs", [])
        return str(jobs[0]["id"]) if jobs else ""

    def take(self, *, at: str, queue: str = "q", lease_ms: int = 0, timeout_ms: int = 3_000) -> tuple[str, str]:
        """Fetch a job with its token; nothing if none came."""
        words = ["GETJOB", "WITHMETA", "TIMEOUT", str(timeout_ms), *(["LEASEMS", str(lease_ms)] if lease_ms else [])]
        argv = [word.encode() for word in [*words, "FROM", queue]]
        _, said = self.command(at, "get", argv, {"queues": [queue], "lease": lease_ms}, timeout_ms + 2_000)
        jobs = said.get("jobs", [])
        return (str(jobs[0]["id"]), str(jobs[0]["token"])) if jobs else ("", "")

    def under(self, f: str, job: str, token: str, *, at: str, ms: int = 0, result: str | None = None) -> str:
        """Something a worker says of a job it has: the reply, or the error. `f` as in workload.COMMANDS."""
        value: Value = {"ids": [job], "token": token, "ms": ms}
        if result is not None:
            value["result"] = result
        type, said = self.command(at, f, [word.encode() for word in words_of(f, job, value)], value)
        if type != OK:
            return str(said["error"]).partition(" ")[0]
        return str(said["words"][0] if "words" in said else said.get("count", said.get("reply")))

    def list_dead(self, *, at: str) -> list[str]:
        return list(self.causes_of_death(at=at))

    def causes_of_death(self, *, at: str) -> dict[str, str]:
        _, said = self.command(at, "dead", [b"DEAD", b"LIST"], {})
        return {row[0]: row[2] for row in said["rows"]}

    def wait_for_end(self, job: str, *, at: str, timeout_ms: int = 1_000) -> tuple[str, str | None]:
        """WAITJOB: the word and the result."""
        argv = [b"WAITJOB", job.encode(), b"TIMEOUT", str(timeout_ms).encode()]
        _, said = self.command(at, "wait", argv, {"about": [job]}, timeout_ms + 2_000)
        return said["ends"][0][1], said["ends"][0][2]

    def wait_for_job(self, *, at: str, queue: str = "q", timeout_ms: int = 600_000) -> list[str]:
        """A consumer that waits in the background; what it gets appears in the list."""
        self.asked += 1
        client = Client(self, f"s{self.asked}", self.hosts[at])
        got: list[str] = []
        words = ["GETJOB", "WITHCOUNTERS", "TIMEOUT", str(timeout_ms), "COUNT", "1", "FROM", queue]
        client.send(
            "get", [word.encode() for word in words], {"queues": [queue]},
            lambda type, value: got.extend(str(job["id"]) for job in value.get("jobs", [])),
        )
        self.run_until(self.now)
        return got

    def consume_everything(self, *, queue: str = "q", at: str = "") -> None:
        """From now on somebody waits at each node (or those named), and acks whatever comes."""
        for name in at or self.names:
            self.asked += 1
            self.keep_consuming(Client(self, f"s{self.asked}", self.hosts[name]), queue)

    def keep_consuming(self, client: Client, queue: str) -> None:
        words = ["GETJOB", "TIMEOUT", "5000", "COUNT", "1", "FROM", queue]

        def got(type: str, value: Value) -> None:
            if not client.is_open:
                return
            for job in value.get("jobs", []):
                client.send("ack", [b"ACKJOB", job["id"].encode()], {"ids": [job["id"]]})
            self.push(self.now + 1, lambda _: self.keep_consuming(client, queue), None)

        if client.is_open:
            client.send("get", [word.encode() for word in words], {"queues": [queue]}, got)

    def about(self, f: str, command: str, job: str, at: str) -> int:
        _, said = self.command(at, f, [command.encode(), job.encode()], {"ids": [job]})
        return int(said.get("count", -1))

    def ack(self, job: str, *, at: str) -> int:
        return self.about("ack", "ACKJOB", job, at)

    def nack(self, job: str, *, at: str) -> int:
        return self.about("nack", "NACK", job, at)

    def working(self, job: str, *, at: str) -> int:
        return self.about("working", "WORKING", job, at)

    def consume_and_ack(self, *, at: str, queue: str = "q", timeout_ms: int = 3_000) -> str:
        job = self.consume(at=at, queue=queue, timeout_ms=timeout_ms)
        if job:
            self.ack(job, at=at)
        return job

    def fault(self, kind: str, who: str, *, seconds: float = 0, amount: int = 0) -> int:
        """Begin a fault of faults.py; without `seconds` it lasts until it is ended or the cluster is healed."""
        return self.nemesis.begin(Fault(self.now, kind, who, int(seconds * 1000), amount))

    def end_fault(self, number: int) -> None:
        self.nemesis.finish(number)

    def cut(self, some: str, *, from_: str = "") -> int:
        """Cut nodes off from the others, or from those named only."""
        if not from_ or set(from_) == set(self.names) - set(some):
            return self.fault("cut", some)
        return self.hold(some, from_, is_cut=True, is_both=True)

    def hold(self, some: str, others: str, *, is_cut: bool = False, is_both: bool = False) -> int:
        """Hold up what `some` send to `others` until the number it returns is ended. It is late, not lost."""
        return self.nemesis.hold(some, others, is_cut, is_both)

    def crash(self, who: str, how: str = "kill") -> int:
        """kill, power or wipe; comes back when ended, or with `restart`."""
        return self.fault(how, who)

    def restart(self, who: str) -> None:
        """Start what was stopped; a crash of theirs that still lasts ends with it."""
        for number, (fault, _) in list(self.nemesis.running.items()):
            if fault.kind in ("kill", "power", "crash", "wipe") and fault.who in who:
                self.nemesis.finish(number)
        for name in who:
            self.hosts[name].boot()

    def settle(self) -> None:
        """Run until every ack is collected, or for as long as that may take at most."""
        until = self.now + SETTLE_MS_MAX
        self.run_until(self.now + SETTLE_MS)
        while self.now < until and uncollected(self.watcher.followed_up(), self.views()):
            self.run_until(self.now + 2_000)

    def check(self) -> None:
        """Fail with everything that is wrong with this run."""
        found = self.finish()
        test = environ.get("PYTEST_CURRENT_TEST", "").rpartition("::")[2].partition(" ")[0]
        how = f"make replay SEED={self.seed}" + (f" TEST={test}" if test else "")
        assert not found, "\n".join([*map(str, found), how])
