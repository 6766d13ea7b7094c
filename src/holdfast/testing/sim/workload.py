"""The clients of a run: producers, consumers with habits, and errands, all by real commands at random nodes."""
from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from holdfast.testing.history import OK, Value
from holdfast.testing.sim.clients import PADDING, Client
from holdfast.testing.sim.plan import Add, Close, Consumer, Errand, Plan

if TYPE_CHECKING:
    from holdfast.testing.sim.world import World

PATIENCE_MS: Final = 1_500
"""How much longer than the ADDJOB's own timeout a producer waits before it hangs up."""


def add_words(add: Add) -> tuple[list[bytes], Value]:
    """An ADDJOB as sent, and as the history tells it."""
    body = f"b{add.number}"
    words = ["ADDJOB", add.queue, body + PADDING * add.size, str(add.timeout_ms)]
    words += ["REPLICATE", str(add.replicate)] if add.replicate else ["SAYCOPIES"]
    if add.retry_s >= 0:
        words += ["RETRY", str(add.retry_s)]
    words += ["TTL", str(add.ttl_s)]
    if add.delay_s:
        words += ["DELAY", str(add.delay_s)]
    if add.maxlen:
        words += ["MAXLEN", str(add.maxlen)]
    if add.is_async:
        words.append("ASYNC")
    if add.attempts:
        words += ["ATTEMPTS", str(add.attempts)]
    if add.backoff_s:
        words += ["BACKOFF", f"{add.backoff_s}:{2 * add.backoff_s}"]
    if add.onexpire:
        words += ["ONEXPIRE", add.onexpire]
    words += key_words(add)
    value: Value = {
        "queue": add.queue, "body": body, "replicate": add.replicate, "retry": add.retry_s, "ttl": add.ttl_s,
        "delay": add.delay_s, "async": add.is_async, "timeout": add.timeout_ms, "attempts": add.attempts,
        "backoff": 2 * add.backoff_s, "onexpire": add.onexpire,
    }
    value |= key_values(add)
    return [word.encode() for word in words], value


def key_values(add: Add) -> Value:
    """The same as the history tells it."""
    value: Value = {}
    if add.domain:
        value["domain"] = add.domain
    if add.tenant:
        value["tenant"] = add.tenant
    if add.group:
        value |= {"group": add.group, "skips": add.skips}
    if add.unique:
        value |= {"unique": add.unique, "until": add.until, "window": add.window_s, "ondup": add.ondup}
    if add.batch:
        value |= {"batch": add.batch, "index": add.index}
    return value


def key_words(add: Add) -> list[str]:
    """Its group and its unique key; the reply is to say what became of that."""
    words: list[str] = []
    if add.domain:
        words += ["DOMAIN", add.domain]
    if add.tenant:
        words += ["TENANT", add.tenant]
    if add.group:
        words += ["GROUP", add.group]
    if add.skips:
        words += ["ONFAIL", "skip"]
    if add.unique:
        words += ["UNIQUE", add.unique, "SAYDUP"]
    if add.until:
        words += ["UNTIL", add.until]
    if add.window_s:
        words += ["WINDOW", str(add.window_s)]
    if add.ondup:
        words += ["ONDUP", add.ondup]
    if add.batch:
        words += ["BATCH", add.batch, "INDEX", str(add.index)]
    return words


LONGEST_WAY_MS: Final = 8_000
"""No frame is longer on its way than this: links that say nothing end before."""


class Workload:
    def __init__(self, cluster: World, plan: Plan) -> None:
        self.cluster = cluster
        self.plan = plan
        self.is_draining = False
        self.ids: list[str] = []  # of accepted jobs
        offset = cluster.now
        pipes: dict[int, list[Add]] = {}
        self.shared: dict[int, Client] = {}  # connections that many calls share
        self.shares = sorted({add.share for add in plan.adds if add.share})
        for add in plan.adds:
            pipes.setdefault(add.pipe or -add.number - 1, []).append(add)
        for adds in pipes.values():
            cluster.push(offset + adds[0].at_ms, self.produce, adds)
        for consumer in plan.consumers:
            Worker(self, consumer).start_later(consumer.number % 7)
        for close in plan.closes:
            cluster.push(offset + close.at_ms, self.close_batch, close)
        for errand in plan.errands:
            cluster.push(offset + errand.at_ms, self.run_errand, errand)
        for words in plan.rules:
            self.rule(cluster.names[0], list(words))

    # -- producers -----------------------------------------------------------------------------------------

    def produce(self, adds: list[Add]) -> None:
        cluster = self.cluster
        if adds[0].share:
            self.produce_shared(adds)
            return
        host = cluster.pick(Random(f"{cluster.seed}/producer/{adds[0].number}"))
        if host is None:
            return
        client = Client(cluster, f"p{adds[0].number}", host)
        left = len(adds)

        def done(type: str, value: Value) -> None:
            nonlocal left
            left -= 1
            if type == OK:
                self.ids.append(value["id"])
            if left == 0:
                cluster.push(cluster.now, Client.close, client)

        for add in adds:
            argv, value = add_words(add)
            cluster.counters["adds"] += 1
            client.send("add", argv, value, done)
        cluster.push(cluster.now + max(add.timeout_ms for add in adds) + PATIENCE_MS, Client.close, client)

    def produce_shared(self, adds: list[Add]) -> None:
        client = self.share(adds[0].share)

        def done(type: str, value: Value) -> None:
            if type == OK:
                self.ids.append(value["id"])

        for add in adds if client is not None else []:
            argv, value = add_words(add)
            self.cluster.counters["adds"] += 1
            assert client is not None
            client.send("add", argv, value, done)

    def share(self, number: int) -> Client | None:
        """The connection of that number: opened anew, perhaps elsewhere, when it has broken."""
        client = self.shared.get(number)
        if client is None or not client.is_open:
            dice = Random(f"{self.cluster.seed}/share/{number}/{self.cluster.now}")
            host = self.cluster.pick(dice)
            if host is None:
                return None
            client = self.shared[number] = Client(self.cluster, f"h{number}.{self.cluster.now}", host)
            self.cluster.counters["shared-connections"] += 1
        return client

    def close_batch(self, close: Close) -> None:
        """As if it added the job in the end: that is what it does, later."""
        host = self.cluster.pick(Random(f"{self.cluster.seed}/close/{close.number}"))
        if host is None:
            return
        client = Client(self.cluster, f"b{close.number}", host)
        body = f"f{close.number}"
        words = ["BATCH", "CLOSE", close.name, str(close.count), "THEN", close.queue, body, "RETRY", "2", "TTL", "600"]
        value: Value = {
            "queue": close.queue, "body": body, "replicate": 1, "retry": 2, "ttl": 600, "delay": 0, "async": False,
            "timeout": 0, "final_of": close.name, "count": close.count,
        }
        client.send("add", [word.encode() for word in words], value, lambda *_: self.close_soon(client))

    # -- errands -------------------------------------------------------------------------------------------

    def run_errand(self, errand: Errand) -> None:
        dice = Random(f"{self.cluster.seed}/errand/{errand.number}")
        cluster = self.cluster
        node, queue = errand.node, errand.queue
        if errand.kind.startswith("pause"):
            word = {"pause-out": ["out"], "pause-in": ["in"], "pause-bcast": ["all", "bcast"]}[errand.kind]
            self.pause(node, queue, word)
            back = ["none", "bcast"] if errand.kind == "pause-bcast" else ["none"]
            cluster.push(cluster.now + errand.for_ms, lambda _: self.pause(node, queue, back), None)
        elif errand.kind == "strange-ack":
            near = self.ids[-1] if self.ids and dice.random() < 0.5 else f"DI{cluster.hosts[node].node_id[:8].decode()}"
            strange = near[:10] + dice.randbytes(16).hex() + "000bSQ"
            cluster.tell(node, "ACKJOB", strange)
        elif errand.kind == "look":
            for words in (["QLEN", queue], ["QPEEK", queue, "3"], ["QSTAT", queue], ["INFO"], ["CLUSTER", "NODES"]):
                cluster.tell(node, *words)
        elif errand.kind in LOOKS:
            self.look_at_fates(errand, dice)
        elif self.ids:
            f = "ack" if errand.kind == "cancel" else errand.kind
            self.one_shot("op", node, f, dice.choice(self.ids))

    def look_at_fates(self, errand: Errand, dice: Random) -> None:
        """Questions and changes that are about no single hand-out."""
        node = errand.node
        jobs = [dice.choice(self.ids) for _ in range(dice.randint(1, 3))] if self.ids else []
        if errand.kind == "list-dead":
            self.send("op", node, "dead", ["DEAD", "LIST", "COUNT", "1000"], {})
        elif errand.kind == "wait" and jobs:
            words = ["WAITJOB", *jobs, "TIMEOUT", str(errand.for_ms), dice.choice(["ANY", "ALL"])]
            self.send("op", node, "wait", words, {"about": jobs})
        elif errand.kind == "explain" and jobs:
            self.cluster.tell(node, "EXPLAIN", jobs[0])
        elif errand.kind == "priority" and jobs:
            self.cluster.tell(node, "PRIORITY", jobs[0], str(dice.randrange(10)))
        elif errand.kind == "keep-strange" and jobs:
            token = f"{self.cluster.hosts[node].node_id[:8].decode()}.{dice.randrange(1 << 40):x}.1"
            self.cluster.tell(node, "KEEPALIVE", "1000", jobs[0], token)

    def send(self, process: str, node: str, f: str, words: list[str], value: Value) -> bool:
        """A command over a connection of its own; False if there is nobody to send it to."""
        host = self.cluster.hosts[node]
        if host.node is None:
            return False
        client = Client(self.cluster, process, host)
        client.send(f, [word.encode() for word in words], value, lambda *_: self.close_soon(client))
        return True

    def pause(self, node: str, queue: str, words: list[str]) -> None:
        host = self.cluster.hosts[node]
        if host.node is None:
            return
        client = Client(self.cluster, "op", host)
        argv = [b"PAUSE", queue.encode(), *(word.encode() for word in words)]
        client.send("pause", argv, {"queue": queue, "words": words}, lambda *_: self.close_soon(client))

    def rule(self, node: str, words: list[str]) -> None:
        """An operator sets something for the whole cluster."""
        host = self.cluster.hosts[node]
        if host.node is None:
            return
        client = Client(self.cluster, "op", host)
        argv = [word.encode() for word in words]
        client.send("rule", argv, {"words": words}, lambda *_: self.close_soon(client))

    def close_soon(self, client: Client) -> None:
        self.cluster.push(self.cluster.now, Client.close, client)

    def one_shot(self, process: str, node: str, f: str, id: str, more: Value | None = None) -> bool:
        """A command about a job over a connection of its own; False if there is nobody to send it to."""
        value: Value = {"ids": [id], **(more or {})}
        words = words_of(f, id, value)
        if f == "ack" and self.shares and int(id[13], 16) % 2:  # every second job
            client = self.share(self.shares[int(id[14], 16) % len(self.shares)])
            if client is not None:
                client.send(f, [word.encode() for word in words], value)
                return True
        return self.send(process, node, f, words, value)

    # -- the second phase ----------------------------------------------------------------------------------

    def resume_all(self, _: None) -> None:
        """At every node, so that whoever knows of the latest pause speaks after it."""
        for name in self.cluster.names:
            for queue in self.plan.queues:
                self.pause(name, queue, ["none", "bcast"])

    def drain(self) -> None:
        """Nothing new any more; at every node somebody waits on every queue and acks what it gets.

        No queue stays paused: it is said again when a PAUSE that was on its way has surely arrived.
        """
        self.is_draining = True
        queues = tuple(self.plan.queues)
        self.resume_all(None)
        for name in self.cluster.names if self.plan.rules else "":
            self.rule(name, ["CRON", "DEL", "tick"])
        self.cluster.push(self.cluster.now + LONGEST_WAY_MS, self.resume_all, None)
        for number, name in enumerate(self.cluster.names):
            consumer = Consumer(1_000 + number, queues, count=2, timeout_ms=5_000, think_ms=20)
            Worker(self, consumer, home=name).start_later(1)
        self.cluster.push(self.cluster.now + self.plan.drain_ms - LAST_LOOK_MS, self.list_dead, None)

    def list_dead(self, _: None) -> None:
        """Near the end: what is not delivered any more must be in this list, and what is in it must not be."""
        self.send("op", self.cluster.names[0], "dead", ["DEAD", "LIST", "COUNT", "1000"], {})


LAST_LOOK_MS: Final = 1_500

LOOKS: Final = frozenset(["list-dead", "wait", "explain", "priority", "keep-strange"])

COMMANDS: Final = {
    "ack": "ACKJOB", "fastack": "FASTACK", "nack": "NACK", "working": "WORKING", "enqueue": "ENQUEUE",
    "dequeue": "DEQUEUE", "deljob": "DELJOB", "release": "RELEASE", "reject": "NACK", "call-off": "CANCEL",
}


def words_of(f: str, id: str, value: Value) -> list[str]:
    """A command about one job, with the token of a hand-out where there is one."""
    token, result = value.get("token", ""), value.get("result")
    if f == "keepalive":
        return ["KEEPALIVE", str(value["ms"]), id, token]
    if f in ("retry", "bury"):
        return ["DEAD", "RETRY" if f == "retry" else "DELETE", id]
    if f == "ack" and token and result is None and int(id[12], 16) % 2:
        return ["ACKJOBS", id, token]  # the form for many; every second job
    words = [COMMANDS[f], id]
    if token and f != "working":
        words += ["TOKEN", token]
    if f == "ack" and result is not None:
        words += ["RESULT", result]
    if f == "nack" and value.get("ms"):
        words += ["DELAY", str(value["ms"] // 1000)]
    if f == "nack" and token:
        words += ["ERROR", "it broke"]
    if f == "reject":
        words.append("DEAD")
    return words


class Worker:
    """A consumer: fetches, and does with what it gets one of the things its habits say."""

    def __init__(self, workload: Workload, plan: Consumer, home: str = "") -> None:
        self.workload = workload
        self.cluster = workload.cluster
        self.plan = plan
        self.home = home  # a drain consumer stays at its node
        self.lives = 0
        self.dice = Random(f"{self.cluster.seed}/consumer/{plan.number}")
        self.client: Client | None = None
        self.token = ""  # of the hand-out it works on
        words = ["GETJOB"]
        if plan.with_counters:
            words.append("WITHCOUNTERS")
        if plan.with_meta:
            words.append("WITHMETA")
        if plan.lease_ms:
            words += ["LEASEMS", str(plan.lease_ms)]
        words += ["TIMEOUT", str(plan.timeout_ms), "COUNT", str(plan.count), "FROM", *plan.queues]
        self.argv = [word.encode() for word in words]

    def start_later(self, ms: int) -> None:
        self.cluster.push(self.cluster.now + ms, Worker.start, self)

    def start(self) -> None:
        """A new life: a new connection, somewhere."""
        if self.workload.is_draining and not self.home:
            return
        host = self.cluster.hosts[self.home] if self.home else self.cluster.pick(self.dice)
        if host is None or host.node is None:
            self.start_later(250)
            return
        self.lives += 1
        self.client = Client(self.cluster, f"c{self.plan.number}.{self.lives}", host)
        self.ask()

    def ask(self) -> None:
        client = self.client
        if client is None or not client.is_open:
            return
        if self.workload.is_draining and not self.home:
            client.close()
            return
        habits = self.workload.plan.habits
        if not self.home and self.dice.random() < habits.lose_reply:
            client.loses_next = True
        if not self.home and self.dice.random() < habits.impatient:
            self.cluster.push(
                self.cluster.now + self.dice.randint(1, self.plan.timeout_ms), Client.close, client
            )
        value: Value = {"queues": list(self.plan.queues), "lease": self.plan.lease_ms}
        client.send("get", self.argv, value, self.got)

    def got(self, type: str, value: Value) -> None:
        if type != OK:
            client, self.client = self.client, None
            if client is not None and client.is_open:
                self.workload.close_soon(client)
            self.start_later(self.dice.randint(50, 500))
            return
        for job in value["jobs"]:
            self.work(job["id"], job.get("token", ""))
        if self.client is not None:
            self.cluster.push(self.cluster.now + self.dice.randint(1, self.plan.think_ms), Worker.ask, self)

    def work(self, id: str, token: str) -> None:
        self.token = token
        habits = self.workload.plan.habits
        dice = self.dice
        roll = dice.random()
        if self.home:
            self.later(dice.randint(1, 20), "ack", id, elsewhere=roll < 0.3)
            return
        if roll < habits.die:
            client, self.client = self.client, None
            if client is not None:
                self.workload.close_soon(client)
            self.start_later(dice.randint(50, 1_500))
            return
        roll -= habits.die
        work_ms = dice.randint(1, habits.work_ms)
        if roll < habits.elsewhere:
            self.later(work_ms, "ack", id, elsewhere=True)
            return
        roll -= habits.elsewhere
        if roll < habits.nack:
            self.later(work_ms, "nack", id)
        elif roll < habits.nack + habits.working:
            self.later(work_ms, "working", id)
            self.later(work_ms + dice.randint(1, 900), "ack", id)
        elif roll < habits.nack + habits.working + habits.fastack:
            self.later(work_ms, "fastack", id)
        elif roll < habits.nack + habits.working + habits.fastack + habits.late:
            self.later(dice.randint(1_000, 8_000), "ack", id)
        else:
            self.work_on(roll - habits.nack - habits.working - habits.fastack - habits.late, work_ms, id)

    def work_on(self, roll: float, work_ms: int, id: str) -> None:
        """What is left, of which some is only done by those who have a token."""
        habits = self.workload.plan.habits
        if roll < habits.release:
            self.later(work_ms, "release", id)
        elif roll < habits.release + habits.reject:
            self.later(work_ms, "reject", id)
        elif self.token and roll < habits.release + habits.reject + habits.keepalive:
            ms = self.dice.choice([300, 1_000, 4_000])
            self.later(work_ms, "keepalive", id, ms=ms)
            self.later(work_ms + self.dice.randint(1, 2 * ms), "ack", id)
        else:
            self.later(work_ms, "ack", id)

    def later(self, after_ms: int, f: str, id: str, elsewhere: bool = False, ms: int = 0) -> None:
        client = self.client
        more: Value = {"token": self.token, "ms": ms} if (self.token or ms) and f != "working" else {}
        if f == "ack" and self.workload.plan.habits.result and self.dice.random() < self.workload.plan.habits.result:
            more["result"] = f"r{self.plan.number}.{self.lives}.{self.dice.randrange(1000)}"
        if f == "nack" and self.token:
            more["ms"] = self.dice.choice([0, 0, 1_000, 2_000])
        name = client.host.name if client is not None else ""
        process = client.process if client is not None else f"c{self.plan.number}"
        if elsewhere:
            host = self.cluster.pick(self.dice)
            name = host.name if host is not None else name
        self.cluster.push(self.cluster.now + after_ms, self.tell, (process, name, f, id, more))

    def tell(self, what: tuple[str, str, str, str, Value]) -> None:
        process, name, f, id, more = what
        if not name or not self.workload.one_shot(process, name, f, id, more):
            host = self.cluster.pick(self.dice)  # its node is down: somebody else will do
            if host is not None:
                self.workload.one_shot(process, host.name, f, id, more)
