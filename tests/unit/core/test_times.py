"""Histograms of waiting and running: every job once, in the place where its time belongs."""
from __future__ import annotations

import random

import pytest

from core.making import Bench
from holdfast.core import domains as domains_of_node
from holdfast.core.limits import DOMAINS_TOLD_MAX
from holdfast.core.queue import Queue
from holdfast.core.throttle import Domains, Throttle
from holdfast.core.times import BOUNDS, Times


def counted(times: Times) -> dict[int, int]:
    """How many, by the number of the bound they are below."""
    return {place: int(count) for place, count in enumerate(times.counts) if count}


def queue_of(bench: Bench) -> Queue:
    return bench.node.queues[b"q"]


def add(bench: Bench, *options: str) -> str:
    reply = bench.do("ADDJOB", "q", "body", "0", *options) or b""
    assert reply.startswith(b"+DI"), reply
    return reply[1:-2].decode()


@pytest.mark.parametrize(
    ("took", "place"),
    [(-5, 0), (0, 0), (1, 1), (2, 2), (4, 3), (1023, 10), (1024, 11), (2**23 - 1, 23), (2**23, 24), (2**60, 24)],
)
def test_a_time_is_below_the_bound_of_its_place(took: int, place: int) -> None:
    times = Times()
    times.note(took)
    assert counted(times) == {place: 1}
    assert times.sum == max(0, took)
    assert place == BOUNDS or took < 2**place


def test_a_wait_ends_with_the_first_hand_out_and_a_run_with_its_ack() -> None:
    bench = Bench()
    jid = add(bench)
    bench.wait(100)
    bench.do("GETJOB", "NOHANG", "FROM", "q")
    bench.wait(700)
    bench.do("ACKJOB", jid)
    queue = queue_of(bench)
    assert (counted(queue.waits), queue.waits.sum) == ({7: 1}, 100)
    assert (counted(queue.runs), queue.runs.sum) == ({10: 1}, 700)
    assert (queue.added, queue.jobs_out, queue.redelivered, queue.acked) == (1, 1, 0, 1)


def test_each_job_is_added_once_whatever_it_says_about_itself() -> None:
    bench = Bench()
    for words in ([], ["DELAY", "5"], ["UNIQUE", "k"], ["GROUP", "g"], ["DOMAIN", "d"], ["TENANT", "t"]):
        add(bench, *words)
    add(bench, "UNIQUE", "k")  # is there already
    bench.do("ADDJOBS", "q", "0", "2", "a", "b")
    assert queue_of(bench).added == 8


def test_a_delay_is_no_wait() -> None:
    bench = Bench()
    add(bench, "DELAY", "10")
    bench.wait(10_000)
    bench.do("GETJOB", "NOHANG", "FROM", "q")
    assert queue_of(bench).waits.sum == 0


@pytest.mark.parametrize("form", [[], ["WITHMETA"]])
def test_a_job_that_comes_back_waits_once_and_runs_as_long_as_its_last_hand_out(form: list[str]) -> None:
    bench = Bench()
    jid = add(bench, "RETRY", "2")
    bench.do("GETJOB", *form, "NOHANG", "FROM", "q")
    bench.wait(3000)  # the lease ends at 2000
    bench.do("GETJOB", *form, "NOHANG", "FROM", "q")
    bench.wait(50)
    bench.do("ACKJOB", jid)
    queue = queue_of(bench)
    assert sum(counted(queue.waits).values()) == 1 and queue.waits.sum == 0
    assert (queue.jobs_out, queue.redelivered) == (2, 1)
    assert (counted(queue.runs), queue.runs.sum) == ({6: 1}, 50)


def test_working_does_not_shorten_a_run() -> None:
    bench = Bench()
    jid = add(bench, "RETRY", "2")
    bench.do("GETJOB", "NOHANG", "FROM", "q")
    for _ in range(4):
        bench.wait(1500)
        bench.do("WORKING", jid)
    bench.do("ACKJOB", jid)
    assert queue_of(bench).runs.sum == 6000


def test_an_ack_of_what_nobody_had_is_no_run() -> None:
    bench = Bench()
    bench.do("ACKJOB", add(bench))
    bench.do("FASTACK", add(bench))
    assert queue_of(bench).acked == 2 and counted(queue_of(bench).runs) == {}


def test_refusals_are_counted_by_their_code_and_mistakes_are_not() -> None:
    bench = Bench()
    add(bench)
    for _ in range(3):
        assert (bench.do("ADDJOB", "q", "body", "0", "MAXLEN", "1") or b"").startswith(b"-MAXLEN")
    bench.do("PAUSE", "q", "in")
    bench.do("ADDJOB", "q", "body", "0")
    bench.do("ADDJOB", "q", "body", "nonsense")
    assert bench.node.refusals == {"MAXLEN": 3, "PAUSED": 1}


def test_limits_that_let_nothing_pass_are_counted() -> None:
    bench = Bench()
    bench.do("DOMAIN", "SET", "slow.example", "RATE", "1/m", "BURST", "1")
    bench.do("DOMAIN", "SET", "narrow.example", "CONCURRENCY", "1")
    for domain in ("slow.example", "narrow.example"):
        for _ in range(2):
            add(bench, "DOMAIN", domain)
    assert (bench.do("GETJOB", "NOHANG", "COUNT", "4", "FROM", "q") or b"").startswith(b"*2")
    domains = bench.node.domains
    slow, narrow = domains.table[b"slow.example"], domains.table[b"narrow.example"]
    assert slow.no_token == domains.no_token > 0 == slow.no_place
    assert narrow.no_place == domains.no_place > 0 == narrow.no_token
    assert domains.told == {b"slow.example": slow, b"narrow.example": narrow}


def test_the_domains_that_held_up_most_are_told_of_and_no_others() -> None:
    """However many there are, and in whatever order their counts rise."""
    domains, chance = Domains(), random.Random(7)
    throttles = [Throttle(b"%d.example" % number, None) for number in range(5 * DOMAINS_TOLD_MAX)]
    for turn in range(20_000):
        each = throttles[int(len(throttles) * chance.random() ** (1 + turn % 3))]
        each.no_token += 1
        domains.was_closed(each)
        assert len(domains.told) <= DOMAINS_TOLD_MAX
    most = sorted((int(each.no_token) for each in throttles), reverse=True)[:DOMAINS_TOLD_MAX]
    assert sorted((int(each.no_token) for each in domains.told.values()), reverse=True) == most


def test_a_domain_that_is_forgotten_leaves_its_place_to_another() -> None:
    bench = Bench()
    bench.do("DOMAIN", "SET", "*", "RATE", "1/s", "BURST", "1")
    for number in range(DOMAINS_TOLD_MAX):
        for _ in range(2):
            add(bench, "DOMAIN", f"{number}.example", "TTL", "10", "RETRY", "5")
    bench.do("GETJOB", "NOHANG", "COUNT", "1000", "FROM", "q")
    assert len(bench.node.domains.told) == DOMAINS_TOLD_MAX
    bench.do("FLUSHALL")
    bench.wait(60_000)
    domains_of_node.sweep(bench.node)
    assert bench.node.domains.told == bench.node.domains.table == {}
    for _ in range(2):
        add(bench, "DOMAIN", "late.example")
    bench.do("GETJOB", "NOHANG", "COUNT", "10", "FROM", "q")
    assert list(bench.node.domains.told) == [b"late.example"]


def test_what_a_queue_holds_up_is_no_matter_of_domains() -> None:
    bench = Bench()
    bench.do("QUEUE", "SET", "q", "rate", "1/m", "burst", "1")
    for _ in range(3):
        add(bench)
    bench.do("GETJOB", "NOHANG", "COUNT", "3", "FROM", "q")
    assert bench.node.domains.no_token > 0 and not bench.node.domains.told
