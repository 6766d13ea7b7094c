"""Groups at one node: one at a time, in order, whatever becomes of the one whose turn it is."""
from __future__ import annotations

import random

from holdfast import form
from holdfast.core import groups, home, homecoming
from holdfast.core.node import Node
from holdfast.core.step import Tick, step

from .making import NODE_ID, START_MS, Bench


def add(bench: Bench, body: str, *options: str, group: str = "g") -> bytes:
    reply = bench.do("ADDJOB", "q", body, "0", "GROUP", group, *options)
    assert reply is not None and reply.startswith(b"+"), reply
    return reply[1:-2]


def get(bench: Bench) -> bytes:
    """The body handed out; nothing if there is none."""
    reply = bench.do("GETJOB", "NOHANG", "FROM", "q") or b""
    return b"" if reply == b"*-1\r\n" else reply.split(b"\r\n")[7]


def later(bench: Bench, seconds: int) -> None:
    bench.now += seconds * 1000
    step(bench.node, bench.now, Tick())


def test_one_at_a_time_in_order() -> None:
    bench = Bench()
    ids = [add(bench, f"b{i}") for i in range(3)]
    assert bench.do("QLEN", "q") == b":3\r\n"
    for i in range(3):
        assert get(bench) == b"b%d" % i
        assert get(bench) == b""
        bench.do("ACKJOB", ids[i])
    assert not bench.node.queues[b"q"].groups


def test_groups_do_not_hold_each_other_up() -> None:
    bench = Bench()
    add(bench, "a1", group="a")
    add(bench, "a2", group="a")
    add(bench, "b1", group="b")
    assert [get(bench) for _ in range(3)] == [b"a1", b"b1", b""]


def test_a_waiting_consumer_gets_the_next_when_the_first_is_done() -> None:
    bench = Bench()
    first = add(bench, "b0")
    assert get(bench) == b"b0"
    add(bench, "b1")
    bench.step(2, "GETJOB", "FROM", "q")
    wakeups = bench.step(1, "ACKJOB", first).wakeups
    assert len(wakeups) == 1 and b"b1" in wakeups[0][1]


def test_a_failed_job_keeps_its_turn() -> None:
    bench = Bench()
    first = add(bench, "b0", "RETRY", "5")
    add(bench, "b1")
    assert get(bench) == b"b0"
    bench.do("NACK", first)
    assert get(bench) == b"b0"
    later(bench, 4)
    assert get(bench) == b""
    later(bench, 2)
    assert get(bench) == b"b0"


def test_with_skip_the_next_goes_before_a_failed_job() -> None:
    bench = Bench()
    first = add(bench, "b0", "ONFAIL", "skip")
    second = add(bench, "b1", "ONFAIL", "skip")
    assert get(bench) == b"b0"
    bench.do("NACK", first)
    assert get(bench) == b"b1"
    assert get(bench) == b""
    bench.do("ACKJOB", second)
    assert get(bench) == b"b0"


def test_a_job_deleted_in_line_is_not_missed() -> None:
    bench = Bench()
    ids = [add(bench, f"b{i}") for i in range(4)]
    bench.do("DELJOB", ids[1])
    bench.do("ACKJOB", ids[2])
    assert get(bench) == b"b0"
    bench.do("ACKJOB", ids[0])
    assert get(bench) == b"b3"


def test_an_expired_head_lets_the_others_go_on() -> None:
    bench = Bench()
    add(bench, "b0", "TTL", "2")
    add(bench, "b1")
    later(bench, 3)
    assert get(bench) == b"b1"


def test_a_delayed_job_comes_into_line_when_its_delay_is_over() -> None:
    bench = Bench()
    add(bench, "late", "DELAY", "10")
    ids = [add(bench, f"b{i}") for i in range(2)]
    assert get(bench) == b"b0"
    later(bench, 11)
    bench.do("ACKJOB", ids[0])
    assert get(bench) == b"late"


def test_nothing_is_left_in_the_account() -> None:
    bench = Bench()
    bench.do("ADDJOB", "q", "x", "0")
    used = bench.node.used
    for _ in range(20):
        add(bench, "body", "UNIQUE", f"u{_}")
    bench.do("QFLUSH", "q")
    bench.do("ADDJOB", "q", "x", "0")
    assert bench.node.used == used
    assert bench.node.queues[b"q"].lined == 0


def test_how_many_are_ahead() -> None:
    bench = Bench()
    ids = [add(bench, f"b{i}") for i in range(4)]
    found = [groups.ahead(bench.node.find(jid)) for jid in ids]  # type: ignore[arg-type]
    assert found == [0, 1, 2, 3]
    bench.do("DELJOB", ids[1])
    assert groups.ahead(bench.node.find(ids[3])) == 2  # type: ignore[arg-type]


def test_after_a_restart_the_line_is_as_it_was() -> None:
    bench = Bench()
    bench.node.is_recording = True
    ids = [add(bench, f"b{i}") for i in range(4)]
    assert get(bench) == b"b0"
    bench.do("ACKJOB", ids[0])
    assert get(bench) == b"b1"
    records = bench.node.take_records()
    again = Bench()
    again.node = Node(again.node.config, NODE_ID, random.Random(1).randbytes, START_MS + 1000)
    again.now = START_MS + 1000
    again.node.set_time(again.now, again.now)
    again.node.load(records)
    for _ in range(2):
        again.node.connect("10.0.0.1:1")
    assert get(again) == b"", "one is still out"
    again.do("ACKJOB", ids[1])
    assert get(again) == b"b2"
    again.do("ACKJOB", ids[2])
    assert get(again) == b"b3"


def test_a_home_that_hands_over_a_line_does_not_pay_for_it() -> None:
    bench = Bench()
    slot = int(home.slot_of(home.GROUP, b"q", b"g"))
    for body in "abc":
        add(bench, body)
    homecoming.close_slots(bench.node, {slot})
    homecoming.open_slots(bench.node, {slot})
    before = bench.node.used
    homecoming.close_slots(bench.node, {slot})
    homecoming.open_slots(bench.node, {slot})
    assert bench.node.used == before


LINE = 20_000 if form.is_compiled() else 2_000
"""So many turns one after the other: more than the stack of this form holds."""


def a_line_of_at_most_once_jobs(bench: Bench) -> list[bytes]:
    """As many consumers wait as there are jobs behind the first one of a group, which is out."""
    ids = [add(bench, "first")]
    assert get(bench) == b"first"
    ids += [add(bench, f"b{i}", "RETRY", "0") for i in range(LINE)]
    for number in range(LINE):
        bench.step(2 + number, "GETJOB", "FROM", "q")
    return ids


def test_a_line_of_any_length_is_handed_out_when_its_head_ends() -> None:
    """Each at-most-once job has its turn when it is handed out, which begins the next one's."""
    bench = Bench(sessions=LINE + 1)
    first, *others = a_line_of_at_most_once_jobs(bench)
    effects = bench.step(1, "ACKJOB", first)
    assert effects.reply == b":1\r\n"
    assert not bench.node.faults
    got = [reply.split(b"\r\n")[7] for _, reply in effects.wakeups]
    assert got == [b"b%d" % i for i in range(LINE)]
    assert [session for session, _ in effects.wakeups] == [2 + number for number in range(LINE)]
    assert len(others) == LINE and not bench.node.queues[b"q"].groups


def test_a_line_of_any_length_is_handed_out_when_its_queue_goes_on() -> None:
    bench = Bench(sessions=LINE + 2)
    first, *_ = a_line_of_at_most_once_jobs(bench)
    bench.do("PAUSE", "q", "out")
    assert bench.do("ACKJOB", first) == b":1\r\n"
    effects = bench.step(1, "PAUSE", "q", "none")
    assert not bench.node.faults
    assert len(effects.wakeups) == LINE


def test_a_line_of_any_length_may_expire_at_once() -> None:
    bench = Bench(sessions=2)
    first = add(bench, "first")
    assert get(bench) == b"first"
    for i in range(LINE):
        add(bench, f"b{i}", "TTL", "60")
    bench.now += 60_000
    step(bench.node, bench.now, Tick())
    bench.do("ACKJOB", first)
    bench.wait(5_000)
    assert not bench.node.faults
    assert bench.do("QLEN", "q") == b":0\r\n"
