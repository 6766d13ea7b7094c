"""Rates, concurrency and bounds that hold for all nodes together; and QFLUSH, which is for all as well."""
from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from holdfast.testing.history import OK
from holdfast.testing.sim.clients import Client
from holdfast.testing.sim.cluster import Cluster


def fill(sim: Cluster, count: int, *options: str, at: str = "") -> None:
    """So many jobs, one after the other at each node, each with one copy."""
    nodes = at or sim.names
    for number in range(count):
        client = Client(sim, f"p{number}", sim.hosts[nodes[number % len(nodes)]])
        words = ["ADDJOB", "q", f"b{number}", "0", "RETRY", "100", "TTL", "600", "REPLICATE", "1", *options]
        client.send("add", [word.encode() for word in words], {
            "queue": "q", "body": f"b{number}", "replicate": 1, "retry": 100, "ttl": 600, "delay": 0, "async": False,
            "timeout": 0,
        })
    sim.run_for(seconds=1)


def handed_out(sim: Cluster) -> list[int]:
    """When jobs were handed out."""
    return sorted(op.t for op in sim.history.ops if op.f == "get" and op.type == OK for _ in op.value["jobs"])


def most_above(times: list[int], rate: float, burst: int) -> float:
    """By how many at most hand-outs exceed what a window allows; a job is up to 20 ms on its way to its consumer."""
    found = 0.0
    for i, first in enumerate(times):
        for n, last in enumerate(times[i:], 1):
            found = max(found, n - burst - rate * (last - first + 20) / 1000)
    return found


@pytest.mark.parametrize("consumers", ["ABC", "A", "BC"])
def test_a_rate_holds_for_all_nodes_together_and_is_used_up(consumers: str) -> None:
    sim = Cluster(nodes="ABC", seed=1)
    sim.do("A", "DOMAIN", "SET", "d", "RATE", "10/s", "BURST", "2")
    sim.run_for(seconds=1)
    fill(sim, 300, "DOMAIN", "d")
    sim.consume_everything(at=consumers)
    sim.run_for(seconds=20)
    times = handed_out(sim)
    assert most_above(times, 10, 2) <= 0
    assert len(times) >= 0.95 * 10 * 20 - 1
    sim.check()


@pytest.mark.parametrize("options", [(), ("GROUP", "g")], ids=["plain", "in a group"])
def test_a_job_that_comes_when_there_is_a_token_goes_out_at_once_at_any_node(options: tuple[str, ...]) -> None:
    """The second as well as the first, though the queue has run empty between them. A token is a message there and back
    away; only the first time somebody has to find out who has them."""
    sim = Cluster(nodes="ABC", seed=1)
    sim.do("A", "DOMAIN", "SET", "d", "RATE", "20/s", "BURST", "2")
    sim.run_for(seconds=1)
    for node in sim.names:
        for number in range(4):
            body = f"{node}{number}"
            words = ["ADDJOB", "q", body, "0", "RETRY", "100", "REPLICATE", "1", "DOMAIN", "d", *options]
            Client(sim, f"p{body}", sim.hosts[node]).send("add", [word.encode() for word in words], {
                "queue": "q", "body": body, "replicate": 1, "retry": 100, "ttl": 600, "delay": 0, "async": False,
                "timeout": 0,
            })
            sim.run_for(seconds=0.1)
            began = sim.now
            assert sim.consume_and_ack(at=node, timeout_ms=8_000)
            assert sim.now - began < (1_000 if number == 0 else 100), f"{body} had to wait"


def test_the_rate_of_a_queue_is_for_all_nodes_too() -> None:
    sim = Cluster(nodes="ABC", seed=2)
    sim.do("A", "QUEUE", "SET", "q", "rate", "20/s", "burst", "3")
    sim.run_for(seconds=1)
    fill(sim, 300)
    sim.consume_everything()
    sim.run_for(seconds=10)
    times = handed_out(sim)
    assert most_above(times, 20, 3) <= 0
    assert len(times) >= 0.95 * 20 * 10 - 1


@pytest.mark.parametrize("limit", [["DOMAIN", "SET", "d", "RATE", "1/h", "BURST", "2"],
                                   ["QUEUE", "SET", "q", "rate", "1/h", "burst", "2"]], ids=["domain", "queue"])
@pytest.mark.parametrize("options", [(), ("GROUP", "g", "ONFAIL", "skip")], ids=["plain", "in a group"])
def test_a_token_is_not_spent_on_a_job_that_comes_too_late(limit: list[str], options: tuple[str, ...]) -> None:
    """Somebody waits at A; B and C hear of it, and each pays for a job and gives it to A. The second is not handed out,
    and its token is there for whoever asks next; with one in an hour that is much."""
    for seed in range(8):
        sim = Cluster(nodes="ABC", seed=seed)
        sim.do("A", *limit)
        sim.run_for(seconds=20)
        fill(sim, 3, "DOMAIN", "d", *options)
        got = [sim.consume_and_ack(at=name, timeout_ms=1_500) for name in "ABC"]
        assert sum(job != "" for job in got) == 2, f"seed {seed}: {got}"


def test_a_token_that_nobody_uses_comes_back() -> None:
    """A has jobs and somebody who asked once; then nobody does. The token that A was lent is not lost."""
    sim = Cluster(nodes="ABC", seed=3)
    sim.do("A", "DOMAIN", "SET", "d", "RATE", "1/m", "BURST", "1")
    sim.run_for(seconds=65)
    fill(sim, 3, "DOMAIN", "d")
    for name in "ABC":
        sim.do(name, "GETJOB", "NOHANG", "FROM", "q")
    sim.run_for(seconds=3)
    assert sum(bool(sim.consume(at=name, timeout_ms=2_000)) for name in "ABC") >= 1


def test_a_new_home_begins_with_an_empty_bucket() -> None:
    """A domain of which ten may go out at once: they do, its home dies, and the next one does not let out ten more."""
    sim = Cluster(nodes="ABC", seed=4)
    sim.do("A", "DOMAIN", "SET", "d", "RATE", "1/s", "BURST", "10")
    sim.run_for(seconds=30)
    fill(sim, 60, "DOMAIN", "d")
    sim.consume_everything()
    sim.run_for(seconds=5)
    before = handed_out(sim)
    home = next(
        name for name in "ABC"
        if (node := sim.hosts[name].node) is not None and node.domains.table[b"d"].shared.epoch >= 0
    )
    sim.crash(home, "kill")
    sim.run_for(seconds=25)
    times = handed_out(sim)
    assert len(times) > len(before)
    assert most_above(times, 1, 10) <= 0


def test_a_domain_slows_down_for_everybody() -> None:
    sim = Cluster(nodes="ABC", seed=5)
    sim.do("A", "DOMAIN", "SET", "d", "RATE", "20/s", "BURST", "2", "ADAPT", "yes")
    sim.run_for(seconds=2)
    fill(sim, 600, "DOMAIN", "d")
    job = sim.consume(at="B")
    sim.do("B", "NACK", job, "RETRYAFTERMS", "3000")
    sim.run_for(seconds=1)
    begin = sim.now
    sim.consume_everything()
    sim.run_for(seconds=7)
    times = [t for t in handed_out(sim) if t > begin]
    assert len([t for t in times if t < begin + 1_900]) <= 2  # what was lent already may still go out
    assert 30 <= len(times) <= 80  # about half of the rate, growing


def test_every_node_says_how_slow_a_domain_is() -> None:
    """Also one that knows nothing of it; and none makes something up if the one that knows is gone."""
    sim = Cluster(nodes="ABC", seed=5)
    sim.do("A", "DOMAIN", "SET", "d", "RATE", "1/s", "ADAPT", "yes")
    sim.run_for(seconds=1)
    fill(sim, 3, "DOMAIN", "d", at="A")
    job = sim.consume(at="A")
    sim.do("A", "NACK", job, "RETRYAFTERMS", "60000")
    sim.run_for(seconds=1)
    for name in "ABC":
        said = sim.do(name, "DOMAIN", "GET", "d")["reply"]
        assert said[said.index("share") + 1] == 500, f"{name} says that it is as fast as ever"
        assert said[said.index("next-in") + 1] > 50_000, f"{name} says that the next may go out"
    throttles = {name: sim.hosts[name].node.domains.table.get(b"d") for name in sim.names}
    keeper = next(name for name, each in throttles.items() if each and each.shared and each.shared.epoch >= 0)
    sim.cut(keeper)
    said = sim.do("ABC".replace(keeper, "")[0], "DOMAIN", "GET", "d")["reply"]
    assert said[said.index("share") + 1] is None and said[said.index("next-in") + 1] is None


class Worker:
    """Takes a job, works on it for a while, acks it."""

    def __init__(self, sim: Cluster, number: int, at: str, out: Counter[str]) -> None:
        self.sim, self.out, self.dice = sim, out, Random(number)
        self.client = Client(sim, f"c{number}", sim.hosts[at])
        self.ask(None)

    def ask(self, _: Any) -> None:
        words = [b"GETJOB", b"TIMEOUT", b"5000", b"FROM", b"q"]
        self.client.send("get", words, {"queues": ["q"]}, self.got)

    def got(self, type: str, value: dict[str, Any]) -> None:
        for job in value.get("jobs", []):
            self.out["now"] += 1
            self.out["most"] = max(self.out["most"], self.out["now"])
            self.sim.push(self.sim.now + self.dice.randint(50, 200), self.done, job["id"])
            return
        self.sim.push(self.sim.now + 1, self.ask, None)

    def done(self, id: str) -> None:
        self.out["now"] -= 1
        self.out["done"] += 1
        self.client.send("ack", [b"ACKJOB", id.encode()], {"ids": [id]}, lambda *_: self.sim.push(
            self.sim.now + 1, self.ask, None))


@pytest.mark.parametrize("what", ["domain", "queue"])
def test_concurrency_is_for_all_nodes_together(what: str) -> None:
    sim = Cluster(nodes="ABC", seed=6)
    if what == "domain":
        sim.do("A", "DOMAIN", "SET", "d", "CONCURRENCY", "3")
    else:
        sim.do("A", "QUEUE", "SET", "q", "concurrency", "3")
    sim.run_for(seconds=1)
    fill(sim, 120, *(["DOMAIN", "d"] if what == "domain" else []))
    out: Counter[str] = Counter()
    for number, at in enumerate("AAABBBCCC"):
        Worker(sim, number, at, out)
    sim.run_for(seconds=20)
    assert out["most"] == 3 and out["done"] == 120


class Producer:
    def __init__(self, sim: Cluster, number: int, count: int, said: Counter[str]) -> None:
        self.sim, self.number, self.left, self.said, self.dice = sim, number, count, said, Random(number)
        self.client = Client(sim, f"p{number}", sim.hosts[self.dice.choice(sim.names)])
        self.ids: list[str] = []
        self.add(None)

    def add(self, _: Any) -> None:
        if self.left == 0:
            return
        self.left -= 1
        body = f"b{self.number}.{self.left}"
        words = ["ADDJOB", "q", body, "2000", "RETRY", "100", "TTL", "600"]
        self.client.send("add", [word.encode() for word in words], {
            "queue": "q", "body": body, "replicate": 0, "retry": 100, "ttl": 600, "delay": 0, "async": False,
            "timeout": 2000,
        }, self.added)

    def added(self, type: str, value: dict[str, Any]) -> None:
        self.said[type if type == OK else value["error"].split()[0]] += 1
        if type == OK:
            self.ids.append(value["id"])
        self.sim.push(self.sim.now + self.dice.randint(0, 5), self.add, None)


@pytest.mark.parametrize("most", [7, 200])
def test_totalmaxlen_is_exact_with_fifty_producers(most: int) -> None:
    """All of the bound is accepted and not one more; when some have ended, so many more are, wherever that is."""
    sim = Cluster(nodes="ABC", seed=7)
    sim.do("A", "QUEUE", "SET", "q", "totalmaxlen", str(most))
    sim.run_for(seconds=1)
    said: Counter[str] = Counter()
    producers = [Producer(sim, number, 12, said) for number in range(50)]
    sim.run_for(seconds=10)
    assert said == {OK: most, "MAXLEN": 600 - most}
    ended = [id for producer in producers for id in producer.ids][:5]
    for id in ended:
        sim.ack(id, at="B")
    sim.run_for(seconds=2)
    said.clear()
    for number in range(50, 60):
        Producer(sim, number, 12, said)
    sim.run_for(seconds=10)
    assert said == {OK: 5, "MAXLEN": 115}
    sim.check()


@pytest.mark.parametrize("queue", ["up", "q1"])
def test_a_bound_that_was_raised_is_asked_about_at_once(queue: str) -> None:
    """Also where its home has just said that nothing is left: B is that of the one queue, A of the other."""
    sim = Cluster(nodes="ABC", seed=3)
    sim.run_for(seconds=2)
    sim.do("A", "QUEUE", "SET", queue, "totalmaxlen", "3")
    sim.run_for(seconds=1)

    def add() -> list[str]:
        return [next(iter(sim.do("A", "ADDJOB", queue, f"{number}", "1000"))) for number in range(4)]

    assert add() == ["reply", "reply", "reply", "error"]
    sim.do("A", "QUEUE", "SET", queue, "totalmaxlen", "6")
    assert add() == ["reply", "reply", "reply", "error"]


def test_a_bound_is_kept_when_its_home_dies() -> None:
    sim = Cluster(nodes="ABC", seed=8)
    sim.do("A", "QUEUE", "SET", "q", "totalmaxlen", "100")
    sim.run_for(seconds=1)
    said: Counter[str] = Counter()
    for number in range(10):
        Producer(sim, number, 5, said)
    sim.run_for(seconds=5)
    assert said == {OK: 50}
    home = next(
        name for name in "ABC"
        if (node := sim.hosts[name].node) is not None and node.quotas[(0, b"q")].epoch >= 0
    )
    sim.crash(home, "kill")
    sim.run_for(seconds=15)
    said.clear()
    sim.names = "".join(name for name in sim.names if name != home)
    for number in range(10, 30):
        Producer(sim, number, 5, said)
    sim.run_for(seconds=10)
    lost = 100 - 50 - said[OK]  # what the dead node had is not given again while it is away
    assert 0 <= lost <= 50 and said[OK] + said["MAXLEN"] == 100


def test_qflush_deletes_at_all_nodes() -> None:
    sim = Cluster(nodes="ABC", seed=9)
    fill(sim, 30)
    answered = sim.do("A", "QFLUSH", "q")
    assert answered == {"count": 30}
    sim.run_for(seconds=2)
    for name in "ABC":
        assert sim.do(name, "QLEN", "q") == {"count": 0}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("option", ["", "GROUP", "DELAY"])
def test_qflush_counts_each_job_once(seed: int, option: str) -> None:
    """With two copies each, at nodes of which the one that is asked may be none."""
    sim = Cluster(nodes="ABC", seed=seed)
    for number in range(12):
        options = [option, f"{number + 60}"] if option else []
        sim.do("ABC"[number % 3], "ADDJOB", "q", f"{number}", "1000", "REPLICATE", "2", *options)
    sim.run_for(seconds=1)
    sim.do("A", "GETJOB", "FROM", "q")
    sim.run_for(seconds=1)
    assert sim.do("B", "QFLUSH", "q") == {"count": 12}
    sim.run_for(seconds=2)
    assert sim.do("C", "QFLUSH", "q") == {"count": 0}


@pytest.mark.parametrize("what", ["domain", "queue"])
def test_explain_says_when_the_next_token_comes_wherever_it_is_kept(what: str) -> None:
    """As the node knows that keeps them, whether or not a worker has asked for one."""
    sim = Cluster(nodes="ABC", seed=6)
    options = ["DOMAIN", "d"] if what == "domain" else []
    if what == "domain":
        sim.do("A", "DOMAIN", "SET", "d", "RATE", "1/m", "BURST", "1")
    else:
        sim.do("A", "QUEUE", "SET", "q", "rate", "1/m", "burst", "1")
    sim.run_for(seconds=1)
    ids = {at: sim.do(at, "ADDJOB", "q", at, "1000", "REPLICATE", "1", *options)["reply"] for at in "ABC"}
    sim.run_for(seconds=1)
    if what == "domain":
        for at in "AB":  # C is to keep them
            assert [reason[0] for reason in sim.do(at, "EXPLAIN", ids[at])["reply"][3]] == ["nobody-waits"], at
    sim.do("B", "GETJOB", "FROM", "q")
    sim.run_for(seconds=10)
    for at, id in ids.items():
        found = {code: (words, ms) for code, words, ms in sim.do(at, "EXPLAIN", id)["reply"][3]}
        if "leased" not in found:
            assert 45_000 < found["rate"][1] <= 60_000, (at, found)
            assert "has its next token in" in found["rate"][0]
