"""Which job is next: tenants in turn, domains by their tokens, in no more steps than need be."""
from __future__ import annotations

import random
import re

import pytest

from holdfast.core import domains, rules
from holdfast.core.job import BINNED, COUNTED
from holdfast.core.snapshot import Walk
from holdfast.core.step import Gone, step
from holdfast.core.throttle import NS, Throttle, read_rate

from .making import START_MS, Bench

ID = re.compile(rb"DI[0-9a-f]{44}SQ")


def get(bench: Bench, count: int = 1, queue: str = "q") -> list[bytes]:
    """Ids of what is handed out, if anything is."""
    return ID.findall(bench.do("GETJOB", "NOHANG", "COUNT", str(count), "FROM", queue) or b"")


def add(bench: Bench, *options: str, queue: str = "q") -> bytes:
    return (bench.do("ADDJOB", queue, "x", "0", *options) or b"")[1:-2]


# -- the bucket ------------------------------------------------------------------------------------------------


def test_no_window_has_more_than_rate_and_burst() -> None:
    """Whoever takes whenever there is a token, with pauses of any length, keeps to it in every window."""
    dice = random.Random(7)
    for _ in range(200):
        rate, burst = dice.randint(1, 50), dice.randint(1, 5)
        throttle = Throttle(b"d", None)
        throttle.set_rate(read_rate(b"%d/s" % rate), burst, 0)
        now, taken = 0, []
        for _ in range(300):
            now += dice.choice([0, 0, 1, 3, 20, 20, 700]) * NS
            if throttle.has_token(now):
                throttle.take(now)
                taken.append(now)
        for i, first in enumerate(taken):
            for n, last in enumerate(taken[i:], 1):
                assert n <= burst + rate * (last - first) / 1e9 + 1e-6


def test_a_token_that_was_not_used_is_there_again() -> None:
    throttle = Throttle(b"d", None)
    throttle.set_rate(read_rate(b"1/s"), 1, 0)
    throttle.take(0)
    assert not throttle.has_token(0)
    throttle.give_back(0)
    assert throttle.has_token(0) and throttle.tokens(0) == 1


def test_an_empty_bucket_has_its_first_token_after_one_interval() -> None:
    throttle = Throttle(b"d", None)
    throttle.set_rate(read_rate(b"2/s"), 5, 0)
    throttle.empty(0)
    assert throttle.tokens(0) == 0 and throttle.next_at(0) == 500 * NS
    assert throttle.tokens(10_000 * NS) == 5


def test_a_rate_is_rounded_down_and_never_up() -> None:
    for text in (b"3/s", b"7/m", b"999999/s", b"11/h", b"1/d"):
        count, unit = text.split(b"/")
        seconds = {b"s": 1, b"m": 60, b"h": 3600, b"d": 86400}[unit]
        assert read_rate(text) * int(count) >= seconds * 1_000_000_000
    assert [read_rate(text) for text in (b"", b"0/s", b"-1/s", b"1/x", b"1.5/s", b"1/", b"/s", b"\xb2/s")] == [0] * 8


def test_another_rate_keeps_the_tokens_that_fit() -> None:
    throttle = Throttle(b"d", None)
    throttle.set_rate(read_rate(b"1/s"), 4, 0)
    throttle.take(0)
    throttle.set_rate(read_rate(b"1/h"), 4, 0)
    assert throttle.tokens(0) == 3
    throttle.set_rate(read_rate(b"1/s"), 2, 0)
    assert throttle.tokens(0) == 2


def test_a_gate_that_was_slowed_down_is_silent_then_at_half_rate_and_grows_back() -> None:
    throttle = Throttle(b"d", None)
    throttle.set_rate(read_rate(b"10/s"), 1, 0)
    throttle.slow_down(0, 2_000)
    assert throttle.next_at(0) >= 2_000 * NS and throttle.share == 500
    throttle.step(4_000 * NS)
    assert throttle.share == 600
    throttle.step(20_000 * NS)
    assert throttle.share == 1000 and throttle.step(20_000 * NS) == throttle.interval


# -- domains ---------------------------------------------------------------------------------------------------


def test_no_hand_out_looks_at_closed_domains() -> None:
    """Two thousand domains that are closed, one that is open: no heap has a closed one, and no lane."""
    bench = Bench()
    bench.do("DOMAIN", "SET", "*.slow", "RATE", "1/d", "BURST", "1")
    for i in range(2_000):
        add(bench, "DOMAIN", f"d{i}.slow")
        add(bench, "DOMAIN", f"d{i}.slow")
    bench.do("DOMAIN", "SET", "open", "RATE", "1000/s", "BURST", "1000")
    mine = [add(bench, "DOMAIN", "open") for _ in range(3)]
    assert len(get(bench, 2_004)) == 2_003
    queue = bench.node.queues[b"q"]
    assert queue.rules is not None
    assert len(queue.rules.plain.open.items) == 0 and queue.size == 2_000
    mine = [add(bench, "DOMAIN", "open") for _ in range(3)]
    assert len(queue.rules.plain.open.items) == 0 and sum(lane.size for lane in queue.rules.plain.lanes) == 3
    assert get(bench, 10) == mine


def test_a_domain_with_plenty_needs_no_bin_and_one_that_ran_out_keeps_its_order() -> None:
    """Those for which there is a token wait in the lane; the rest in a bin, and nobody overtakes."""
    bench = Bench()
    bench.do("DOMAIN", "SET", "d", "RATE", "1/s", "BURST", "3")
    mine = [add(bench, "DOMAIN", "d") for _ in range(6)]
    other = [add(bench, "DOMAIN", "d", queue="r") for _ in range(2)]
    rules_of = bench.node.queues[b"q"].rules
    assert rules_of is not None and sum(lane.size for lane in rules_of.plain.lanes) == 3
    assert rules_of.plain.bins[b"d"].size == 3
    assert get(bench, 2, "r") == other  # two of the three tokens that those in the lane counted on
    assert get(bench, 9) == mine[:1]
    for number in range(1, 6):
        bench.wait(1_000)
        assert get(bench, 9) == [mine[number]]
    bench.wait(10_000)
    check_books(bench)


def test_a_job_that_expired_costs_no_token() -> None:
    bench = Bench()
    bench.do("DOMAIN", "SET", "d", "RATE", "1/h", "BURST", "1")
    add(bench, "DOMAIN", "d", "TTL", "1")
    mine = add(bench, "DOMAIN", "d", "TTL", "100")
    bench.now += 2_000  # and nobody has looked yet
    assert get(bench) == [mine]


def test_books_are_right_after_everything_that_can_happen() -> None:
    """Random commands on jobs with keys; then every count is what the jobs say."""
    dice = random.Random(11)
    bench = Bench()
    for number in range(3):
        bench.do("DOMAIN", "SET", f"d{number}", "RATE", f"{number + 1}/s", "BURST", "2", "CONCURRENCY", "3")
    bench.do("QUEUE", "SET", "q", "concurrency", "6")
    known: list[bytes] = []
    for _ in range(4_000):
        roll = dice.random()
        if roll < 0.3:
            options = ["DOMAIN", f"d{dice.randrange(5)}"] if dice.random() < 0.7 else []
            options += ["TENANT", f"t{dice.randrange(3)}"] if dice.random() < 0.5 else []
            options += ["PRIORITY", str(dice.randrange(10))] if dice.random() < 0.3 else []
            options += ["RETRY", "0"] if dice.random() < 0.1 else ["RETRY", "2"]
            options += ["TTL", str(dice.choice([3, 100]))]
            known.append(add(bench, *options, queue=dice.choice("qp")))
        elif roll < 0.6:
            get(bench, dice.randint(1, 3), dice.choice("qp"))
        elif roll < 0.85 and known:
            word = dice.choice(["ACKJOB", "ACKJOB", "NACK", "DELJOB", "DEQUEUE", "ENQUEUE", "WORKING"])
            bench.do(word, dice.choice(known).decode())
        elif roll < 0.87:
            bench.do("DOMAIN", "SET", f"d{dice.randrange(5)}", "RATE", dice.choice(["none", "5/s", "1/m"]))
        elif roll < 0.88:
            bench.do("QUEUE", "SET", "q", "rate", dice.choice(["none", "5/s"]), "concurrency", dice.choice("046"))
        else:
            bench.wait(dice.choice([1, 30, 400, 2_100]))
        assert not bench.node.faults, bench.node.faults[0]
        check_books(bench)
    bench.do("DISQUE", "FLUSHALL")
    assert all(each.waiting == each.out == 0 and not each.bins for each in bench.node.domains.table.values())


def check_books(bench: Bench) -> None:
    node = bench.node
    waiting: dict[bytes, int] = {}
    out: dict[bytes, int] = {}
    for job in node.all_jobs():
        domain = job.more.domain if job.more is not None else b""
        if domain and job.state == 2:
            waiting[domain] = waiting.get(domain, 0) + 1
        if job.flags & COUNTED:
            assert rules.is_out(node, job)
            out[domain] = out.get(domain, 0) + 1
    for name, throttle in node.domains.table.items():
        assert (throttle.waiting, throttle.out) == (waiting.get(name, 0), out.get(name, 0))
        assert sum(bin.size for bin in throttle.bins) <= throttle.waiting and all(bin.size > 0 for bin in throttle.bins)
    for queue in node.queues.values():
        if queue.rules is None:
            continue
        lines = queue.rules.lines.values()
        assert sum(line.size for line in lines) == queue.size
        binned = [job for job in node.all_jobs() if job.queue is queue and job.flags & BINNED]
        assert sum(bin.size for line in lines for bin in line.bins.values()) == len(binned)
        if queue.rules.throttle is not None:
            mine = [job for job in node.all_jobs() if job.queue is queue and job.flags & COUNTED]
            assert queue.rules.throttle.out == len(mine)


def test_a_domain_is_forgotten_when_there_is_nothing_to_remember() -> None:
    bench = Bench()
    for number in range(5_000):
        add(bench, "DOMAIN", f"d{number}")
        bench.do("ACKJOB", get(bench)[0])
    assert len(bench.node.domains.table) <= 1_024


def test_a_restart_knows_what_was_taken_and_what_is_out() -> None:
    """Two of a burst of three went out, one of them is acked; after a restart there is one token, and one is out."""
    bench = Bench()
    bench.node.is_recording = True
    bench.do("DOMAIN", "SET", "d", "RATE", "1/h", "BURST", "3")
    for _ in range(5):
        add(bench, "DOMAIN", "d", "RETRY", "100")
    first, _ = get(bench, 2)
    bench.do("ACKJOB", first)
    kept = bench.node.take_records()
    again = Bench()
    again.now = START_MS + 1_000
    again.node.set_time(again.now, again.now)
    again.node.load(kept)
    throttle = again.node.domains.table[b"d"]
    assert (throttle.out, throttle.waiting) == (1, 3)
    assert len(get(again, 5)) == 1
    # And so does a start from a snapshot, in which the hand-outs are not told again.
    walk = Walk(again.node)
    kept = []
    while not walk.is_done:
        kept += walk.take_records(1_000_000)
    third = Bench()
    third.now = again.now + 1_000
    third.node.set_time(third.now, third.now)
    third.node.load(kept)
    assert third.node.domains.table[b"d"].out == 2
    assert get(third, 5) == []
    assert 3_500_000 < domains.next_ms(third.node, third.node.domains.table[b"d"]) <= 3_600_000


# -- tenants ---------------------------------------------------------------------------------------------------


def test_one_job_of_a_tenant_waits_for_less_than_three_others() -> None:
    bench = Bench()
    bench.do("ADDJOBS", "q", "0", "1000", *["x"] * 1000, "TENANT", "many")
    get(bench, 100)
    mine = add(bench, "TENANT", "one")
    assert mine in get(bench, 3)


def test_shares_are_by_weight() -> None:
    bench = Bench()
    weights = {"a": 1, "b": 2, "c": 5}
    for name, weight in weights.items():
        bench.do("TENANT", "SET", "q", name, str(weight))
        bench.do("ADDJOBS", "q", "0", "800", *[name] * 800, "TENANT", name)
    got = bench.do("GETJOB", "NOHANG", "COUNT", "800", "FROM", "q") or b""
    for name, weight in weights.items():
        assert abs(got.count(b"$1\r\n" + name.encode()) - 100 * weight) <= 1


def test_virtual_time_begins_anew_and_nobody_notices() -> None:
    """It grows with every hand-out and is kept in 64 bits."""
    bench = Bench()
    for name in ("a", "b"):
        bench.do("ADDJOBS", "q", "0", "20", *[name] * 20, "TENANT", name)
    get(bench)
    queue = bench.node.queues[b"q"]
    assert queue.rules is not None
    for line in queue.rules.lines.values():
        line.rank += rules.VIRTUAL_MAX - 3 * rules.STRIDE
    queue.rules.virtual += rules.VIRTUAL_MAX - 3 * rules.STRIDE
    bodies = re.findall(rb"\$1\r\n([ab])", bench.do("GETJOB", "NOHANG", "COUNT", "20", "FROM", "q") or b"")
    assert bodies == [b"b", b"a"] * 10 and queue.rules.virtual < rules.VIRTUAL_MAX // 2
    mine = add(bench, "TENANT", "c")
    assert mine in get(bench, 3)


def test_a_tenant_that_adds_one_at_a_time_gets_no_more_than_its_share() -> None:
    bench = Bench()
    bench.do("ADDJOBS", "q", "0", "500", *["x"] * 500, "TENANT", "a")
    mine = 0
    waiting = {add(bench, "TENANT", "b")}
    for _ in range(400):
        if get(bench)[0] in waiting:
            mine += 1
            waiting = {add(bench, "TENANT", "b")}
    assert 199 <= mine <= 201


@pytest.mark.parametrize("seed", range(20))
def test_what_qpeek_shows_is_what_goes_out(seed: int) -> None:
    """Tenants of several weights, priorities, jobs that come and go in between."""
    rng = random.Random(seed)
    bench = Bench()
    for tenant in "abc":
        bench.do("TENANT", "SET", "q", tenant, str(rng.randint(1, 4)))
    for _ in range(6):
        for _ in range(rng.randint(1, 30)):
            options = ["TENANT", rng.choice("abcde")] if rng.random() < 0.8 else []
            bench.do("ADDJOB", "q", "x", "0", "PRIORITY", str(rng.randint(4, 6)), *options)
        peeked = bench.do("QPEEK", "q", "200")
        count = rng.randint(1, 40)
        assert bench.do("QPEEK", "q", str(count)) == cut(peeked, count)
        assert bench.do("GETJOB", "NOHANG", "COUNT", str(count), "FROM", "q") == cut(peeked, count)


def cut(reply: bytes | None, count: int) -> bytes:
    """The first so many of an array of jobs."""
    jobs = (reply or b"").partition(b"\r\n")[2].split(b"*3\r\n")[1:]
    return b"*%d\r\n" % len(jobs[:count]) + b"".join(b"*3\r\n" + job for job in jobs[:count])


def test_a_domain_is_slowed_down_by_a_job_that_was_never_queued() -> None:
    bench = Bench()
    job = add(bench, "DELAY", "10", "DOMAIN", "d")
    assert bench.do("NACK", job, "RETRYAFTERMS", "1000") == b":1\r\n"


def test_a_job_that_leaves_a_full_queue_makes_room_there_and_takes_it_elsewhere() -> None:
    bench = Bench()
    bench.do("QUEUE", "SET", "q", "totalmaxlen", "2")
    bench.do("QUEUE", "SET", "other", "totalmaxlen", "1")
    first, second = add(bench), add(bench)
    assert bench.do("MOVE", first, "other") == b":1\r\n"
    assert ID.fullmatch(add(bench)), "nobody has the place of the one that left"
    assert add(bench, queue="other").startswith(b"MAXLEN")
    assert (bench.do("MOVE", second, "other") or b"").startswith(b"-MAXLEN")
    bench.do("ACKJOB", first)
    assert bench.do("MOVE", second, "other") == b":1\r\n"


def test_an_at_most_once_job_that_a_worker_has_stays_in_its_queue() -> None:
    """As any other that is out. Moved, it would give back a place in a queue in which it had none."""
    bench = Bench()
    bench.do("QUEUE", "SET", "q", "concurrency", "1")
    job, after = add(bench, "RETRY", "0"), add(bench)
    assert get(bench) == [job]
    assert bench.do("MOVE", job, "other") == b":0\r\n"
    bench.do("ACKJOB", job)
    bench.wait(1)
    assert get(bench) == [after]


def test_a_consumer_that_went_before_there_were_places_has_none() -> None:
    """It had an at-most-once job, and nothing was limited. Then its domain is, and another job waits for its place."""
    bench = Bench()
    for _ in range(2):
        add(bench, "RETRY", "0", "DOMAIN", "d")
    assert ID.search(bench.step(2, "GETJOB", "FROM", "q").reply or b"")
    step(bench.node, bench.now, Gone(2))
    bench.do("DOMAIN", "SET", "d", "CONCURRENCY", "1")
    assert get(bench)
