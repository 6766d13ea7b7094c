"""Schedules: which instants they mean, in every zone, when clocks are put forward and back."""
from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from holdfast.core import zones
from holdfast.core.schedule import BadSchedule, Schedule, date_of


def times(text: str, zone: str, after: str, count: int) -> list[str]:
    """The next instants, as the wall there shows them, without the year."""
    schedule = Schedule(text, zone)
    instant = int(datetime.fromisoformat(after).timestamp())
    found = []
    for _ in range(count):
        instant = schedule.next(instant)
        found.append(zones.shown(zone, instant)[5:].replace(":00+", "+").replace(":00-", "-"))
    return found


def test_a_time_that_the_wall_never_shows_is_taken_as_it_would_have_been() -> None:
    assert times("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00+00:00", 3) == [
        "03-28T02:30+01:00", "03-29T03:30+02:00", "03-30T02:30+02:00",
    ]


def test_a_time_that_the_wall_shows_twice_counts_once() -> None:
    assert times("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00+00:00", 2) == [
        "10-25T02:30+02:00", "10-26T02:30+01:00",
    ]
    assert times("0,30 1-3 * * *", "Europe/Berlin", "2026-10-24T23:45+00:00", 4) == [
        "10-25T02:00+02:00", "10-25T02:30+02:00", "10-25T03:00+01:00", "10-25T03:30+01:00",
    ]


def test_what_is_for_every_hour_has_both() -> None:
    assert times("*/30 * * * *", "Europe/Berlin", "2026-10-24T23:45+00:00", 5) == [
        "10-25T02:00+02:00", "10-25T02:30+02:00", "10-25T02:00+01:00", "10-25T02:30+01:00", "10-25T03:00+01:00",
    ]
    assert times("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:15+00:00", 3) == [
        "03-29T01:30+01:00", "03-29T03:00+02:00", "03-29T03:30+02:00",
    ]


def test_days() -> None:
    assert times("0 0 29 2 *", "UTC", "2026-01-01T00:00+00:00", 2) == ["02-29T00:00+00:00"] * 2
    assert times("0 12 L * *", "UTC", "2026-01-01T00:00+00:00", 3) == [
        "01-31T12:00+00:00", "02-28T12:00+00:00", "03-31T12:00+00:00",
    ]
    assert times("0 9 13 * fri", "UTC", "2026-02-07T00:00+00:00", 3) == [
        "02-13T09:00+00:00", "02-20T09:00+00:00", "02-27T09:00+00:00",
    ]
    assert times("0 0 * jan,Mar-APR sun", "UTC", "2026-01-20T00:00+00:00", 3) == [
        "01-25T00:00+00:00", "03-01T00:00+00:00", "03-08T00:00+00:00",
    ]
    assert Schedule("0 0 * * 7", "UTC").weekdays == Schedule("0 0 * * sun", "UTC").weekdays == {0}
    assert Schedule("0 0 * * fri-sun", "UTC").weekdays == Schedule("0 0 * * 5-7", "UTC").weekdays == {5, 6, 0}
    assert Schedule("0 0 * * Mon-Sun", "UTC").weekdays == set(range(7))
    with pytest.raises(BadSchedule, match="must go up"):
        Schedule("0 0 * * fri-mon", "UTC")


def test_every_is_counted_from_1970_whoever_counts() -> None:
    schedule = Schedule("@every 90s", "UTC")
    for after in (0, 1_700_000_000, 1_700_000_009, 1_700_000_010):
        found = schedule.next(after)
        assert found % 90 == 0 and after < found <= after + 90


def test_dates_are_those_of_the_calendar() -> None:
    for day in range(-1000, 60_000, 13):
        told = datetime(1970, 1, 1) + timedelta(day)
        assert date_of(day) == (told.year, told.month, told.day)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])
def test_against_every_minute_of_a_year(zone: str) -> None:
    """Away from the days on which clocks change, the instants are those minutes whose fields fit."""
    dice = random.Random(zone)
    place = ZoneInfo(zone)
    for _ in range(6):
        minute, hour = dice.randrange(60), dice.randrange(24)
        schedule = Schedule(f"{minute},{(minute + 7) % 60} {hour}-23/5 * * *", zone)
        begin = datetime(2026, 5, 1 + dice.randrange(20), tzinfo=UTC)
        expected = []
        for ahead in range(3 * 1440):
            told = (begin + timedelta(minutes=ahead + 1)).astimezone(place)
            if told.minute in (minute, (minute + 7) % 60) and told.hour in range(hour, 24, 5):
                expected.append(int(told.timestamp()))
        instant, found = int(begin.timestamp()), []
        while (instant := schedule.next(instant)) <= begin.timestamp() + 3 * 86400:
            found.append(instant)
        assert found == expected


def test_the_last_of_many_are_found_without_walking_over_all() -> None:
    schedule = Schedule("* * * * * *", "UTC")
    assert schedule.between(0, 1_700_000_000, 100) == list(range(1_699_999_901, 1_700_000_001))
    daily = Schedule("@daily", "UTC")
    assert len(daily.between(1_700_000_000 - 10 * 86400, 1_700_000_000, 100)) == 10
    assert daily.between(1_700_000_000, 1_700_000_001, 100) == []


@pytest.mark.parametrize("text", ["", "* * * *", "61 * * * *", "* * 31 2 *", "@never", "@every 1", "1- * * * *", "²"])
def test_nonsense_is_refused_with_words(text: str) -> None:
    with pytest.raises(BadSchedule, match=r"\w"):
        Schedule(text, "UTC")
