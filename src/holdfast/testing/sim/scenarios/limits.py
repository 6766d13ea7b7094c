"""Rates, bounds, settings and schedules that hold for all nodes together, whoever their home is."""
from __future__ import annotations

from holdfast.core import home, keyed
from holdfast.core.commands.options import AddOptions
from holdfast.core.doubt import SKEW_MS
from holdfast.core.ids import CRON_PREFIX
from holdfast.core.quota import AWAY_MS, JOBS, OUT_OF_DOMAIN
from holdfast.core.registers import STEPS
from holdfast.core.session import Slot
from holdfast.testing.checkers.whitebox import QUEUED
from holdfast.testing.history import OK
from holdfast.testing.sim.clients import Client
from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.scenarios.keys import key_at, owner_of
from holdfast.testing.sim.scenarios.scenario import New, catches, node_of

ON_THE_WAY_MS = 20
"""A job takes so long at most from the node that paid for it to its consumer at another."""


def fill(sim: Cluster, count: int, *options: str, at: str = "ABC") -> None:
    """So many jobs, at the nodes in turn, each with one copy."""
    for number in range(count):
        client = Client(sim, f"p{number}", sim.hosts[at[number % len(at)]])
        words = ["ADDJOB", "q", f"b{number}", "0", "RETRY", "100", "TTL", "600", "REPLICATE", "1", *options]
        client.send("add", [word.encode() for word in words], {
            "queue": "q", "body": f"b{number}", "replicate": 1, "retry": 100, "ttl": 600, "delay": 0, "async": False,
            "timeout": 0,
        })
    sim.run_for(seconds=1)


def handed_out(sim: Cluster) -> list[int]:
    return sorted(op.t for op in sim.history.ops if op.f == "get" and op.type == OK for _ in op.value["jobs"])


def above(times: list[int], rate: float, burst: int) -> float:
    """By how many hand-outs at most a window has more than it may."""
    found = 0.0
    for i, first in enumerate(times):
        for n, last in enumerate(times[i:], 1):
            found = max(found, n - burst - rate * (last - first + ON_THE_WAY_MS) / 1000)
    return found


def home_of(sim: Cluster, domain: bytes) -> str:
    throttles = {name: node_of(sim, name).domains.table[domain] for name in sim.names}
    return next(name for name, each in throttles.items() if each.shared is not None and each.shared.epoch >= 0)


def poll(sim: Cluster, name: str) -> None:
    """Take a job if there is one, and do not wait."""
    sim.command(name, "get", [b"GETJOB", b"NOHANG", b"FROM", b"q"], {"queues": ["q"]})


@catches("token-not-spent")
def a_rate_holds_wherever_jobs_and_consumers_are(new: New) -> None:
    sim = new(nodes="ABC", seed=400)
    sim.do("A", "DOMAIN", "SET", "d", "RATE", "10/s", "BURST", "2")
    sim.run_for(seconds=1)
    fill(sim, 300, "DOMAIN", "d")
    sim.consume_everything()
    sim.run_for(seconds=20)
    times = handed_out(sim)
    assert above(times, 10, 2) <= 0, "more than its rate"
    assert len(times) >= 0.95 * 10 * 20 - 1, f"{len(times)} of 200: its rate is not used"
    sim.check()


@catches("new-home-full")
def a_new_home_begins_with_an_empty_bucket(new: New) -> None:
    """Ten at once have just gone out when the home dies. The next one must not let out ten more."""
    sim = new(nodes="ABC", seed=401)
    sim.do("A", "DOMAIN", "SET", "d", "RATE", "1/s", "BURST", "10")
    sim.run_for(seconds=30)
    fill(sim, 60, "DOMAIN", "d")
    sim.consume_everything()
    sim.run_for(seconds=5)
    before = len(handed_out(sim))
    sim.crash(home_of(sim, b"d"), "kill")
    sim.run_for(seconds=25)
    times = handed_out(sim)
    assert len(times) > before, "nothing goes out any more"
    assert above(times, 1, 10) <= 0, "more than its rate"


@catches("loans-not-counted")
def a_token_on_loan_is_still_in_the_bucket(new: New) -> None:
    """Two nodes poll now and then, so that they have tokens and do not use them; at the home somebody polls all the
    time. Would the bucket fill up while tokens are lent, more than the burst could go out at once."""
    sim = new(nodes="ABC", seed=402)
    sim.do("A", "DOMAIN", "SET", "d", "RATE", "10/s", "BURST", "1")
    sim.run_for(seconds=1)
    fill(sim, 300, "DOMAIN", "d")
    sim.consume(at="A", timeout_ms=2_000)
    home = home_of(sim, b"d")
    for step in range(1_000):
        poll(sim, home)
        if step % 35 == 0:
            for name in "ABC".replace(home, ""):
                poll(sim, name)
        sim.run_for(seconds=0.01)
    assert len({op.node for op in sim.history.ops if op.f == "get" and op.type == OK and op.value["jobs"]}) == 3
    assert above(handed_out(sim), 10, 1) <= 0, "more than its rate"


@catches("grants-renewed")
def a_token_on_loan_is_worth_nothing_after_its_time(new: New) -> None:
    """A node gets a token and does not use it. When its home has written it off and let another go out in its place,
    the first must not be used any more."""
    sim = new(nodes="ABC", seed=403)
    sim.do("A", "DOMAIN", "SET", "d", "RATE", "2/s", "BURST", "1")
    sim.run_for(seconds=1)
    fill(sim, 90, "DOMAIN", "d")
    sim.consume(at="A", timeout_ms=2_000)
    home = home_of(sim, b"d")
    other = "ABC".replace(home, "")[0]
    poll(sim, other)
    lent = node_of(sim, other).domains.table[b"d"]
    for _ in range(6):
        sim.run_for(seconds=2)
        while not lent.shared.granted:
            poll(sim, other)
            sim.run_for(seconds=0.1)
        sim.run_for(seconds=3)
        before = len(handed_out(sim))
        while len(handed_out(sim)) == before:
            poll(sim, home)
            sim.run_for(seconds=0.01)
        poll(sim, other)
    assert above(handed_out(sim), 2, 1) <= 0, "more than its rate"


def one_is_out(sim: Cluster) -> tuple[str, str, list[str]]:
    """Of a domain of which one may be out at a time, an at-most-once job is, whose consumer stays. The job that waits
    for its place, and what a consumer of it will get."""
    sim.do("A", "DOMAIN", "SET", "d", "CONCURRENCY", "1")
    sim.run_for(seconds=1)
    once = sim.do("A", "ADDJOB", "q", "x", "0", "RETRY", "0", "REPLICATE", "1", "DOMAIN", "d")["reply"]
    first = sim.wait_for_job(at="A")
    sim.run_for(seconds=1)
    assert first == [once]
    job = sim.do("A", "ADDJOB", "q", "y", "0", "RETRY", "5", "REPLICATE", "1", "DOMAIN", "d")["reply"]
    got = sim.wait_for_job(at="A")
    sim.run_for(seconds=1)
    assert got == []
    return once, job, got


@catches("stray-ack-dropped")
def a_place_is_free_when_its_job_was_acked_anywhere(new: New) -> None:
    """One may be out at a time. An at-most-once job has no lease that ends; its consumer stays, and acks elsewhere."""
    sim = new(nodes="ABC", seed=407)
    once, job, got = one_is_out(sim)
    sim.ack(once, at="B")
    sim.run_for(seconds=2)
    assert got == [job], "nobody has it, and its domain is closed"


@catches("stray-result-dropped")
def a_place_is_free_when_its_job_was_acked_anywhere_with_a_result(new: New) -> None:
    """The same with an ack that brings a result, which is known to whoever waits for it at any node."""
    sim = new(nodes="ABC", seed=407)
    once, job, got = one_is_out(sim)
    sim.do("B", "ACKJOB", once, "RESULT", "it-went-well")
    sim.run_for(seconds=2)
    assert got == [job], "nobody has it, and its domain is closed"
    for node in "ABC":
        assert "it-went-well" in str(sim.do(node, "WAITJOB", once, "TIMEOUT", "1000")), "its result is not told"


@catches("away-not-outwaited")
def the_places_of_a_node_that_does_not_come_back_are_given_to_others(new: New) -> None:
    """One may be out at a time. It is out at a node that dies, and at the home of the domain another waits for it."""
    sim = new(nodes="ABC", seed=408)
    sim.do("A", "DOMAIN", "SET", "d", "CONCURRENCY", "1")
    sim.run_for(seconds=1)
    at = owner_of(sim, "A", home.QUOTA, "d", b"%d" % OUT_OF_DOMAIN)
    away = sim.names.replace(at, "")[0]
    out = sim.do(away, "ADDJOB", "q", "x", "0", "RETRY", "500", "REPLICATE", "1", "DOMAIN", "d")["reply"]
    assert sim.consume(at=away) == out
    job = sim.do(at, "ADDJOB", "q", "y", "0", "RETRY", "500", "REPLICATE", "1", "DOMAIN", "d")["reply"]
    got = sim.wait_for_job(at=at)
    sim.run_for(seconds=2)
    sim.crash(away, "wipe")
    sim.run_for(seconds=AWAY_MS / 1000 - 5)
    assert got == [], "who is away may still work on it"
    sim.run_for(seconds=15)
    assert got == [job], "its domain is closed for ever"


@catches("total-by-sizes")
def a_bound_for_all_nodes_is_exact(new: New) -> None:
    """Two hundred producers at once against a bound of fifty."""
    sim = new(nodes="ABC", seed=404)
    sim.do("A", "QUEUE", "SET", "q", "totalmaxlen", "50")
    sim.run_for(seconds=1)
    fill(sim, 200)
    sim.run_for(seconds=5)
    accepted = [op for op in sim.history.ops if op.f == "add" and op.type == OK]
    refused = [op.value["error"] for op in sim.history.ops if op.f == "add" and op.type == "fail"]
    assert len(accepted) == 50, f"{len(accepted)} were accepted"
    assert len(refused) == 150 and all(error.startswith("MAXLEN") for error in refused)


@catches("lower-bound-not-recalled")
def a_bound_that_was_lowered_holds_when_there_is_room_again(new: New) -> None:
    """Twenty fill the queue when it gets a bound of five. Whoever had a part of the twenty must not fill it anew."""
    sim = new(nodes="ABC", seed=415)
    sim.do("A", "QUEUE", "SET", "q", "totalmaxlen", "20")
    sim.run_for(seconds=1)
    fill(sim, 30)
    sim.do("A", "QUEUE", "SET", "q", "totalmaxlen", "5")
    sim.run_for(seconds=1)
    for _ in range(20):
        for name in "ABC":
            sim.consume_and_ack(at=name)
    sim.run_for(seconds=3)
    assert not any(sim.views().values()), "the queue is not empty"
    before = sim.now
    fill(sim, 20)
    sim.run_for(seconds=3)
    accepted = [op for op in sim.history.ops if op.f == "add" and op.type == OK and op.t >= before]
    assert len(accepted) == 5, f"{len(accepted)} were accepted"


@catches("first-bound-stays")
def fewer_are_out_when_fewer_may_be(new: New) -> None:
    """Six of a domain are out, all at one node, when two may be. Others wait for their places; then the six are acked.
    """
    sim = new(nodes="ABC", seed=416)
    sim.do("A", "DOMAIN", "SET", "d", "CONCURRENCY", "6")
    sim.run_for(seconds=1)
    at = owner_of(sim, "A", home.QUOTA, "d", b"%d" % OUT_OF_DOMAIN)
    name = sim.names.replace(at, "")[0]
    fill(sim, 30, "DOMAIN", "d", at=name)
    out = [sim.wait_for_job(at=name) for _ in range(6)]
    sim.run_for(seconds=3)
    assert sum(len(got) for got in out) == 6
    sim.do("A", "DOMAIN", "SET", "d", "CONCURRENCY", "2")
    sim.run_for(seconds=1)
    more = [sim.wait_for_job(at=name) for _ in range(6)]
    for (job,) in out:
        sim.ack(job, at=name)
    sim.run_for(seconds=5)
    assert sum(len(got) for got in more) == 2, f"{sum(len(got) for got in more)} are out"


@catches("silent-has-everything")
def who_goes_before_it_said_what_it_has_does_not_have_everything(new: New) -> None:
    """The home of a bound asks all members it sees what they have of it, and one of them is gone before it answers."""
    sim = new(nodes="ABC", seed=406)
    sim.do("A", "QUEUE", "SET", "q", "totalmaxlen", "5")
    for name in sim.names:
        key = key_at(sim, home.UNIQUE, name, b"other")
        sim.add_keyed(at=name, unique=key, queue="other")  # so that slots have homes
    sim.run_for(seconds=1)
    at = owner_of(sim, "A", home.QUOTA, "q", b"%d" % JOBS)
    silent = sim.names.replace(at, "")[0]
    sim.hold(silent, sim.names.replace(silent, ""))
    fill(sim, 1, at=at)
    sim.cut(silent)
    sim.run_for(seconds=10)
    cut = sim.now
    fill(sim, 3, at=at)
    refused = [op.value["error"] for op in sim.history.ops if op.f == "add" and op.type == "fail" and op.t >= cut]
    assert refused == [], "a queue that is nearly empty is taken for full"


# -- settings ------------------------------------------------------------------------------------------------------


def maxlen(sim: Cluster, name: str) -> bytes | None:
    found = node_of(sim, name).registers.find(b"queue", b"q", b"maxlen")
    value: bytes | None = None if found is None else found.value
    return value


@catches("maxlen-not-asked")
def a_queue_of_one_node_is_never_longer_than_it_may_be(new: New) -> None:
    """Many producers at once, jobs that are out or back off among those that count."""
    sim = new(nodes="ABC", seed=410)
    sim.do("A", "QUEUE", "SET", "q", "maxlen", "5")
    sim.run_for(seconds=1)
    fill(sim, 60)
    for name in "ABC":
        poll(sim, name)
    fill(sim, 30)
    accepted = sum(op.f == "add" and op.type == OK for op in sim.history.ops)
    assert 15 <= accepted <= 18, f"{accepted} accepted, with room for five at each of three, three of them taken"
    sim.check()


@catches("tenant-served-again")
def the_one_job_of_a_tenant_does_not_wait_for_the_many_of_another(new: New) -> None:
    sim = new(nodes="A", seed=411)
    for number in range(30):
        sim.add_keyed(at="A", tenant="many", retry_s=100)
        if number == 20:
            sim.add_keyed(at="A", tenant="one", retry_s=100)
    for _ in range(31):
        sim.consume_and_ack(at="A")
    sim.check()


@catches("future-stamp-adopted")
def a_setting_from_the_future_is_not_taken_over(new: New) -> None:
    """Or all would stamp what they set from then on an hour ahead."""
    sim = new(nodes="ABC", seed=410)
    set_alone_an_hour_ahead(sim)
    sim.run_for(seconds=10)
    latest = max(node_of(sim, name).registers.latest for name in "AB") >> STEPS
    assert latest <= sim.hosts["A"].clock.wall(sim.now) + SKEW_MS, "a stamp from the future was taken over"


def set_alone_an_hour_ahead(sim: Cluster) -> None:
    """By C, which hears nobody who could tell it that its clock is wrong; then it does."""
    cut = sim.cut("C")
    sim.hosts["C"].clock.skew += 3_600_000
    sim.run_for(seconds=3)
    sim.do("C", "QUEUE", "SET", "q", "maxlen", "9")
    sim.run_for(seconds=1)
    sim.end_fault(cut)


@catches("future-stamp-kept")
def a_setting_made_with_a_wrong_clock_is_soon_everywhere(new: New) -> None:
    """It, and what is set by the same node later, must not wait for an hour."""
    sim = new(nodes="ABC", seed=413)
    set_alone_an_hour_ahead(sim)
    sim.hosts["C"].clock.skew -= 3_600_000
    sim.run_for(seconds=10)
    assert [maxlen(sim, name) for name in "ABC"] == [b"9"] * 3, "a stamp from the future was kept"
    sim.do("C", "QUEUE", "SET", "q", "maxlen", "8")
    sim.run_for(seconds=1)
    assert [maxlen(sim, name) for name in "ABC"] == [b"8"] * 3, "and so was that of what came after it"
    sim.crash("C", "kill")
    sim.restart("C")
    sim.run_for(seconds=5)
    assert [maxlen(sim, name) for name in "ABC"] == [b"8"] * 3


@catches("pause-stamp-kept")
def a_pause_made_with_a_wrong_clock_can_be_ended_from_elsewhere(new: New) -> None:
    """By a word to all, whether it was one itself or to that node alone, and not only after an hour."""
    sim = new(nodes="ABC", seed=415)
    cut = sim.cut("C")
    sim.hosts["C"].clock.skew += 3_600_000
    sim.run_for(seconds=3)
    sim.do("C", "PAUSE", "q", "all", "bcast")
    sim.do("C", "PAUSE", "alone", "all")
    sim.do("C", "PAUSE", "short", "all", "FOR", "20")
    sim.end_fault(cut)
    sim.hosts["C"].clock.skew -= 3_600_000
    sim.run_for(seconds=10)
    assert [pause(sim, name, "q") for name in "ABC"] == ["all"] * 3
    assert [pause(sim, name, "alone") for name in "ABC"] == ["none", "none", "all"]
    assert [pause(sim, name, "short") for name in "ABC"] == ["all"] * 3
    for queue in ("q", "alone"):
        sim.do("A", "PAUSE", queue, "none", "bcast")
    sim.run_for(seconds=20)
    for queue in ("q", "alone", "short"):
        assert [pause(sim, name, queue) for name in "ABC"] == ["none"] * 3, f"{queue} is paused for an hour"


@catches("pause-stamp-lost")
def what_was_said_to_one_node_outlasts_its_restart(new: New) -> None:
    """All are paused, and one is not any more: not even when something else is set for the queue."""
    sim = new(nodes="ABC", seed=416)
    sim.do("A", "PAUSE", "q", "all", "bcast")
    sim.run_for(seconds=1)
    sim.do("C", "PAUSE", "q", "none")
    sim.run_for(seconds=2)
    sim.crash("C", "kill")
    sim.restart("C")
    sim.run_for(seconds=3)
    sim.do("A", "QUEUE", "SET", "q", "attempts", "3")
    sim.run_for(seconds=3)
    assert [pause(sim, name, "q") for name in "ABC"] == ["all", "all", "none"], "an old word to all came back"
    sim.do("A", "PAUSE", "q", "out", "bcast")
    sim.run_for(seconds=3)
    assert [pause(sim, name, "q") for name in "ABC"] == ["out"] * 3


@catches("pause-end-lost")
def a_pause_ends_while_a_node_is_down(new: New) -> None:
    """By itself, after its seconds: not never, nor after as many again. What was said to one node has no end."""
    sim = new(nodes="A", seed=417)
    for queue in ("q", "alone", "long"):
        sim.do("A", "PAUSE", queue, "all", "FOR", "60" if queue == "long" else "20")
    sim.run_for(seconds=2)
    sim.do("A", "PAUSE", "alone", "all")
    sim.crash("A", "kill")
    sim.run_for(seconds=30)
    sim.restart("A")
    sim.run_for(seconds=3)
    assert [pause(sim, "A", queue) for queue in ("q", "alone", "long")] == ["none", "all", "all"]
    sim.run_for(seconds=30)
    assert [pause(sim, "A", queue) for queue in ("q", "alone", "long")] == ["none", "all", "none"]


@catches("pause-by-own-clock")
def a_pause_ends_in_time_after_a_start_with_a_wrong_clock(new: New) -> None:
    for amount in (3_600_000, -3_600_000):
        sim = new(nodes="ABC", seed=418)
        sim.do("A", "PAUSE", "q", "all", "FOR", "30")
        sim.run_for(seconds=2)
        sim.crash("C", "kill")
        sim.fault("jump", "C", amount=amount)
        sim.restart("C")
        sim.run_for(seconds=5)
        assert pause(sim, "C", "q") == "all", "it has ended early"
        sim.run_for(seconds=30)
        assert pause(sim, "C", "q") == "none", "it has no end"


def pause(sim: Cluster, name: str, queue: str) -> str:
    return str(sim.do(name, "PAUSE", queue, "state").get("reply"))


@catches("own-clock-believed")
def a_node_whose_clock_is_behind_takes_over_what_the_others_set(new: New) -> None:
    """It may be the home of that very bound: then nobody would get a place."""
    sim = new(nodes="ABC", seed=414)
    sim.hosts["C"].clock.skew -= 3_600_000
    sim.run_for(seconds=3)
    sim.do("A", "QUEUE", "SET", "q", "maxlen", "9")
    sim.run_for(seconds=3)
    assert [maxlen(sim, name) for name in "ABC"] == [b"9"] * 3


@catches("settings-told-once", "settings-by-arrival")
def settings_are_the_same_everywhere_in_the_end(new: New) -> None:
    """Said on two sides of a cut: each is heard at the other side, and of the same field the later stays."""
    sim = new(nodes="ABC", seed=411)
    cut = sim.cut("C")
    sim.do("A", "QUEUE", "SET", "q", "attempts", "3")
    sim.do("A", "QUEUE", "SET", "q", "maxlen", "1")
    sim.run_for(seconds=1)
    sim.do("C", "QUEUE", "SET", "q", "maxlen", "2")
    sim.run_for(seconds=3)
    sim.end_fault(cut)
    sim.run_for(seconds=20)
    assert [maxlen(sim, name) for name in "ABC"] == [b"2"] * 3
    assert len({node_of(sim, name).registers.digest for name in "ABC"}) == 1


@catches("deletions-forgotten")
def what_was_deleted_does_not_come_back_with_an_old_word(new: New) -> None:
    sim = new(nodes="ABC", seed=412)
    sim.do("A", "QUEUE", "SET", "q", "maxlen", "5")
    sim.run_for(seconds=2)
    cut = sim.cut("C")
    sim.do("A", "QUEUE", "SET", "q", "maxlen", "0")
    sim.run_for(seconds=5)
    sim.end_fault(cut)
    sim.run_for(seconds=15)
    assert [maxlen(sim, name) for name in "ABC"] == [None] * 3


# -- schedules -----------------------------------------------------------------------------------------------------


@catches("cron-ran-untold")
def an_owner_that_lost_its_disk_does_not_begin_anew(new: New) -> None:
    """It hears of the entry from the others, when nobody remembers the jobs any more that it made."""
    sim = new(nodes="ABC", seed=421)
    sim.do("A", "CRON", "SET", "e", "*/10 * * * * *", "q", "body", "RETRY", "60", "MISSED", "all")
    sim.consume_everything()
    sim.run_for(seconds=50)
    owner = owner_of(sim, "A", home.CRON, "e", b"")
    sim.crash(owner, "wipe")
    sim.run_for(seconds=1)
    sim.restart(owner)
    sim.run_for(seconds=30)
    got = [job["id"] for op in sim.history.ops if op.f == "get" and op.type == OK for job in op.value["jobs"]]
    assert len(got) >= 7, f"{len(got)} jobs for eight times"
    assert len(got) == len(set(got)), "what had run was run once more"


@catches("cron-id-random", "cron-twins-unmet")
def two_owners_make_the_same_job(new: New) -> None:
    """C is cut off, so that there is an owner on both sides. After the cut there is one job for each time."""
    sim = new(nodes="ABC", seed=420)
    sim.do("A", "CRON", "SET", "e", "*/10 * * * * *", "q", "body", "RETRY", "60")
    sim.run_for(seconds=5)
    cut = sim.cut("C")
    sim.run_for(seconds=40)
    sim.end_fault(cut)
    sim.run_for(seconds=2)
    sim.do("A", "CRON", "DEL", "e")
    sim.run_for(seconds=10)
    sim.consume_everything()
    sim.run_for(seconds=20)
    got = [job["id"] for op in sim.history.ops if op.f == "get" and op.type == OK for job in op.value["jobs"]]
    assert 3 <= len(set(got)) <= 6, f"{len(set(got))} jobs for five times"
    assert len(got) == len(set(got)), "one of them was handed out twice"
    sim.settle()
    sim.check()


@catches("hash-is-no-number")
def the_jobs_of_a_schedule_may_have_keys(new: New) -> None:
    """The home of the key is another node than the owner of the entry, which asks it for each of them."""
    sim = new(nodes="ABC", seed=423)
    entry, group = key_at(sim, home.CRON, "A", b""), key_at(sim, home.GROUP, "B")
    sim.do("B", "CRON", "SET", entry, "*/5 * * * * *", "q", "body", "RETRY", "60", "GROUP", group)
    sim.consume_everything()
    sim.run_for(seconds=62)
    got = [job["id"] for op in sim.history.ops if op.f == "get" and op.type == OK for job in op.value["jobs"]]
    assert len(got) == len(set(got)) >= 12, f"{len(set(got))} jobs for twelve times"


@catches("cron-twins-unmet", "twin-forgotten", "twins-both-wait")
def runs_that_two_owners_made_and_that_are_still_delayed_are_queued_once(new: New) -> None:
    """As above, but when the cut ends nothing is queued yet: they meet while all of it waits for its delay."""
    sim = new(nodes="ABC", seed=420, settings=(("heal-after-ms", "3000"),))
    sim.do("A", "CRON", "SET", "e", "*/10 * * * * *", "q", "body", "RETRY", "60", "DELAY", "60")
    sim.run_for(seconds=5)
    cut = sim.cut("C")
    sim.run_for(seconds=40)
    assert sim.views()["A"].keys() & sim.views()["C"].keys(), "there was one owner"
    sim.end_fault(cut)
    sim.do("A", "CRON", "DEL", "e")
    sim.run_for(seconds=75)
    queued = [id for view in sim.views().values() for id, copy in view.items() if copy.state == QUEUED]
    assert len(queued) >= 3, "they are not queued at all"
    assert len(queued) == len(set(queued)), "one of them is queued twice"
    sim.consume_everything()
    sim.run_for(seconds=20)
    sim.settle()
    sim.check()


def make(sim: Cluster, at: str, holder: str, patience_ms: int) -> Slot:
    """What the owner of a schedule does: it makes a job under an id under which another may make it, too."""
    sim.kind.force_holders(sim.hosts[at].node, [sim.hosts[holder].node_id])
    sim.hosts[at].touch()
    node = node_of(sim, at)
    options = AddOptions()
    options.read([b"REPLICATE", b"2", b"RETRY", b"5"], 0)
    options.asked()
    options.settle_words(node)
    add = keyed.with_id(node, b"q", b"body", options, CRON_PREFIX + b"%016x" % 1 + b"%016x" % 2 + b"05a1SQ")
    add.slot, add.until = Slot(), node.now + patience_ms
    keyed.try_here(node, add)
    return add.slot


@catches("twin-not-kept")
def who_vouches_for_a_copy_of_its_own_keeps_it(new: New) -> None:
    """A and B make the same job, and A counts on the copy that B has; B waits for C. It is started anew, or is tired of
    waiting; then A loses its disk."""
    for is_killed in (True, False):
        sim = new(nodes="ABC", seed=422)
        sim.run_for(seconds=1)
        sim.hold("B", "C", is_cut=True)
        of_a, of_b = make(sim, "A", "B", 1_000), make(sim, "B", "C", 1_000)
        sim.run_for(seconds=0.04)
        assert of_a.reply is not None and of_b.reply is None
        if is_killed:
            sim.crash("B", "power")
            sim.restart("B")
        else:
            sim.run_for(seconds=1)
        sim.crash("A", "wipe")
        sim.run_for(seconds=1)
        sim.heal()
        assert sim.consume_and_ack(at="B", timeout_ms=30_000), "A accepted it, and B had a copy"
        sim.settle()
        sim.check()
