"""The figures that a node remembers: an hour by seconds, a day by minutes, in rings of fixed size."""
from __future__ import annotations

from tests.unit.core.making import Bench

from holdfast.client import past as reading
from holdfast.client.resp import Reply, new_reader
from holdfast.core import past
from holdfast.core.limits import PAST_MINUTES, PAST_QUEUES, PAST_SECONDS


def after(bench: Bench, seconds: float = 1) -> None:
    bench.wait(int(seconds * 1000))
    past.sample(bench.node)


def asked(bench: Bench, *words: str) -> Reply:
    reader = new_reader()
    reader.feed(bench.do(*words) or b"")
    return reader.gets()


def read(bench: Bench, queue: str = "*", step: str = "SECONDS", count: int = 5) -> reading.Past:
    return reading.read(asked(bench, "PAST", "READ", queue, step, str(count)))


def test_what_happened_in_each_second_is_kept() -> None:
    bench = Bench()
    after(bench)
    for _ in range(3):
        bench.do("ADDJOB", "q", "x", "0")
    after(bench)
    bench.do("GETJOB", "FROM", "q")
    after(bench)
    found = read(bench, "q", count=4)
    assert found.columns["added"] == (None, 0, 3, 0)  # before it was there nothing happened in it
    assert found.columns["handed-out"][2:] == (0, 1)
    assert found.columns["len"][2:] == (3, 2)
    assert read(bench, "*", count=3).columns["added"] == (0, 3, 0)
    minute = read(bench, "*", "MINUTES", 1)
    assert (minute.step, minute.columns["added"], minute.columns["len"]) == (60, (3,), (3,))


def test_a_time_at_which_nobody_sampled_is_a_gap_and_no_zero() -> None:
    bench = Bench()
    after(bench)
    after(bench, 5)
    assert read(bench, count=6).columns["added"] == (0, None, None, None, None, 0)


def test_a_look_that_comes_a_little_late_leaves_no_gap() -> None:
    bench = Bench()
    after(bench)
    for _ in range(4):
        bench.do("ADDJOB", "q", "x", "0")
    after(bench, 2)
    assert read(bench, count=3).columns["added"] == (0, 2, 2)


def test_a_clock_that_is_put_back_breaks_nothing() -> None:
    bench = Bench()
    after(bench)
    for ahead in (500, 400, 2000, -90_000, 1000):
        bench.do("ADDJOB", "q", "x", "0")
        bench.node.wall += ahead
        past.sample(bench.node)
    ring = bench.node.past.rings[b"q"].minutes
    assert sum(row[0] for row in ring.rows(ring.first, ring.last + 1) if row[0] != past.GAP) >= 3


def test_memory_is_bounded_by_rings_of_fixed_size_and_their_number() -> None:
    """More queues than rings: quiet ones give theirs up; while all are busy, the rest is only in the sum."""
    bench = Bench(sessions=1)
    after(bench)
    for number in range(PAST_QUEUES + 10):
        bench.do("ADDJOB", f"q-{number:03}", "x", "0")
    after(bench)
    assert len(bench.node.past.rings) == PAST_QUEUES + 1
    assert bench.node.past.left_out == 10
    assert read(bench, count=1).columns["added"] == (PAST_QUEUES + 10,)
    assert read(bench, "q-070", count=1).columns["added"] == (None,), "it has no ring, and was not quiet"
    for number in range(PAST_QUEUES + 10):
        bench.do("QFLUSH", f"q-{number:03}")
    after(bench)
    after(bench, 61)
    bench.do("ADDJOB", "later", "x", "0")
    after(bench)
    assert read(bench, "later", count=1).columns["added"] == (1,)
    assert read(bench, "q-070", count=70).columns["added"].count(0) == 3, "it has been quiet since"
    assert len(bench.node.past.rings) == PAST_QUEUES + 1
    size = sum(len(each.seconds.values) + len(each.minutes.values) for each in bench.node.past.rings.values())
    assert size * 4 == (PAST_QUEUES + 1) * (PAST_SECONDS + PAST_MINUTES) * len(past.COLUMNS) * 4 < 14e6


def test_columns_are_the_rows_wherever_the_ring_begins_and_however_many_are_asked_for() -> None:
    for size, shift in ((5, 0), (5, 3), (7, 1)):
        ring = past.Ring(1, size)
        for second in range(100 + shift, 112 + shift):
            if second % 4:
                ring.put(second, [second] * len(past.COLUMNS))
            for count in range(1, size + 1):
                for end in range(second - 8, second + 3):
                    rows = [[*row] for row in ring.rows(end - count, end)]
                    assert [list(each) for each in zip(*ring.columns(end - count, end), strict=True)] == rows


def test_sums_are_of_the_last_minutes() -> None:
    bench = Bench()
    bench.do("ADDJOB", "q", "x", "0")
    after(bench)
    after(bench, 600)
    bench.do("ADDJOB", "q", "y", "0")
    after(bench)
    found = {each.name: each for each in reading.read_sums(asked(bench, "PAST", "SUMS", "5"))}
    assert found["q"].counts["added"] == 1
    found = {each.name: each for each in reading.read_sums(asked(bench, "PAST", "SUMS", "60"))}
    assert found["q"].counts["added"] == 2

