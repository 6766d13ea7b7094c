"""Alarms against a dict of times."""
from __future__ import annotations

import random

from holdfast.core.alarms import SWEEP_AT_LEAST, Alarm, Alarms
from holdfast.core.limits import NEVER


def test_against_a_dict() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        alarms = Alarms()
        owners = [Alarm() for _ in range(rng.choice([1, 5, 40]))]
        times: dict[int, int] = {}
        now = 0
        for _ in range(500):
            i = rng.randrange(len(owners))
            when = now + rng.choice([0, 1, 1, 5, 50, 500])
            what = rng.choice(["set", "set", "at_latest", "drop", "time"])
            if what == "set":
                alarms.set(owners[i], when)
                times[i] = when
            elif what == "at_latest":
                alarms.at_latest(owners[i], when)
                times[i] = min(when, times.get(i, when))
            elif what == "drop":
                owners[i].wake = NEVER
                times.pop(i, None)
            else:
                now += rng.choice([0, 1, 5, 50])
                due = sorted(times[i] for i in times if times[i] <= now)
                while (alarm := alarms.pop_due(now)) is not None:
                    i = owners.index(alarm)
                    assert times.pop(i) == due.pop(0) and alarm.wake == NEVER
                assert not due
            assert alarms.next() == min(times.values(), default=NEVER)


def test_those_of_the_same_time_come_in_the_order_they_were_set() -> None:
    alarms = Alarms()
    owners = [Alarm() for _ in range(50)]
    for owner in owners:
        alarms.set(owner, 7)
    assert [alarms.pop_due(7) for _ in owners] == owners
    assert alarms.pop_due(7) is None


def test_an_alarm_set_to_never_is_none() -> None:
    alarms = Alarms()
    alarm = Alarm()
    alarms.set(alarm, 5)
    alarms.set(alarm, NEVER)
    assert alarms.next() == NEVER and alarms.pop_due(NEVER - 1) is None
    alarms.set(alarm, 5)
    assert alarms.next() == 5


def test_leftovers_stay_within_bounds() -> None:
    alarms = Alarms()
    owners = [Alarm() for _ in range(3 * SWEEP_AT_LEAST)]
    for turn in range(10):
        for i, owner in enumerate(owners):
            alarms.set(owner, 10**6 - turn * 10 - i % 7)
        assert len(alarms.heap) <= 2 * len(owners) + SWEEP_AT_LEAST
    for owner in owners[1:]:
        owner.wake = NEVER
    for when in range(4 * len(owners)):
        alarms.set(owners[0], when)
    assert len(alarms.heap) <= 3 * SWEEP_AT_LEAST
