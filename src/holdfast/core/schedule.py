"""When something is to happen: `*/15 8-18 * * mon-fri`, `@daily`, `@every 90s`.

Five fields are minute, hour, day of the month, month and day of the week; with six the first is the second. A field
is `*`, a number, a range `a-b`, either with a step `/n`, or a list of these with commas; months and days of the week
have names as well (jan, mon), Sunday is 0 and 7. `?` is `*`, and `L` as day of the month is its last one. If both days
are given, one of them is enough, as in every cron. `W`, `#` and years are not known. @yearly, @monthly, @weekly, @daily
and @hourly stand for what they say; @every n with s, m, h or d is every instant that n divides, counted from 1970 in
UTC: it does not drift, and all nodes mean the same instants.

When clocks are put forward, a time that the wall never shows is taken as the one that it would have been without: 02:30
is 03:30. When they are put back, a time that it shows twice counts the first time; where the schedule is for every
hour (`*` or `*/n`) both count, since an hour did pass.
"""
from __future__ import annotations

from typing import Final

from holdfast.core import zones

NAMES: Final = {
    "@yearly": "0 0 0 1 1 *", "@annually": "0 0 0 1 1 *", "@monthly": "0 0 0 1 * *", "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *", "@midnight": "0 0 0 * * *", "@hourly": "0 0 * * * *",
}
MONTHS: Final = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
DAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
EVERY_MOST: Final = 366 * 86400
DAYS_AHEAD: Final = 366 * 9
"""How far ahead a day is looked for: the 29th of February may be eight years away."""

TEXT_MAX: Final = 256


class BadSchedule(Exception):
    """What is wrong with it, in words."""


class Schedule:
    def __init__(self, text: str, zone: str) -> None:
        self.zone: str = zone
        self.every: int = 0  # seconds; 0: the fields below say when
        self.seconds: list[int] = [0]
        self.minutes: list[int] = [0]
        self.hours: list[int] = [0]
        self.days: set[int] = set()
        self.months: set[int] = set()
        self.weekdays: set[int] = set()
        self.is_last_day: bool = False
        self.any_day: bool = True
        self.any_weekday: bool = True
        self.is_hourly: bool = False
        self.read(text.strip().lower())

    def read(self, text: str) -> None:
        if len(text) > TEXT_MAX:
            raise BadSchedule(f"a schedule has at most {TEXT_MAX} characters")
        if not zones.is_zone(self.zone):
            raise BadSchedule("there is no such time zone; they are named like Europe/Berlin or UTC")
        if text.startswith("@every"):
            self.every = read_every(text)
            return
        if text.startswith("@"):
            if text not in NAMES:
                raise BadSchedule(f"there is no {text[:32]}; use {', '.join(sorted(NAMES))} or @every 90s")
            text = NAMES[text]
        fields = text.split()
        if len(fields) == 5:
            fields = ["0", *fields]
        if len(fields) != 6:
            raise BadSchedule("a schedule has five fields (minute hour day month weekday), or six with seconds first")
        self.seconds = read_field("second", fields[0], 0, 59, [])
        self.minutes = read_field("minute", fields[1], 0, 59, [])
        self.hours = read_field("hour", fields[2], 0, 23, [])
        self.is_hourly = fields[2].startswith("*") or fields[2] == "?"
        self.any_day = fields[3].startswith("*") or fields[3] == "?"
        self.any_weekday = fields[5].startswith("*") or fields[5] == "?"
        self.is_last_day = fields[3] == "l"
        self.days = set() if self.is_last_day else set(read_field("day", fields[3], 1, 31, []))
        self.months = set(read_field("month", fields[4], 1, 12, MONTHS))
        self.weekdays = {day % 7 for day in read_field("weekday", fields[5], 0, 7, DAYS)}
        if self.next_local(0) < 0:
            raise BadSchedule("there is no such day in any year")

    # -- what the wall shows --------------------------------------------------------------------------------

    def has_day(self, day: int) -> bool:
        """Whether it may be on that day, counted from 1970."""
        _, month, number = date_of(day)
        if month not in self.months:
            return False
        fits_day = number in self.days or (self.is_last_day and date_of(day + 1)[2] == 1)
        fits_weekday = (day + 4) % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return fits_day and fits_weekday
        return fits_day or fits_weekday

    def next_local(self, local: int) -> int:
        """The first local time from that one on; -1 if there is none."""
        day, second = divmod(local, 86400)
        for ahead in range(DAYS_AHEAD):
            if self.has_day(day + ahead):
                found = self.next_in_day(second if ahead == 0 else 0)
                if found >= 0:
                    return (day + ahead) * 86400 + found
        return -1

    def next_in_day(self, second: int) -> int:
        """The first time of a day from that second on; -1 if there is none."""
        for hour in self.hours:
            if hour < second // 3600:
                continue
            for minute in self.minutes:
                start = hour * 3600 + minute * 60
                if start + 59 < second:
                    continue
                for each in self.seconds:
                    if start + each >= second:
                        return start + each
        return -1

    # -- instants -------------------------------------------------------------------------------------------

    def next(self, after: int) -> int:
        """The first instant after that one; -1 if there is none."""
        if self.every:
            return (after // self.every + 1) * self.every
        t = after + 1
        while t < zones.LAST:
            ahead = zones.offset(self.zone, t)
            local = self.next_local(t + ahead)
            if local < 0:
                return -1
            found = local - ahead
            ahead_then = zones.offset(self.zone, found)
            if ahead_then > ahead:
                exact = local - ahead_then
                # Between the two the clocks were put forward; a time that was left out is taken as it would have been.
                found = exact if zones.offset(self.zone, exact) == ahead_then else found
            elif ahead_then < ahead:
                t = self.change(t, found, ahead)  # they were put back: what is shown again has its turn as well
                continue
            if self.is_hourly or not self.is_second(local, found):
                return found
            t = found + 1
        return -1

    def change(self, low: int, high: int, ahead: int) -> int:
        """Where between two instants the offset is no longer that."""
        while high - low > 1:
            middle = (low + high) // 2
            if zones.offset(self.zone, middle) == ahead:
                low = middle
            else:
                high = middle
        return high

    def is_second(self, local: int, instant: int) -> bool:
        """Whether the wall has shown that time before on that day."""
        before = zones.offset(self.zone, instant - 3 * 3600)
        return before > zones.offset(self.zone, instant) and zones.offset(self.zone, local - before) == before

    def between(self, after: int, until: int, most: int) -> list[int]:
        """Instants after the one and not after the other, of many the last `most`: looked for from the end."""
        window = 60
        while True:
            begin = max(after, until - window)
            found: list[int] = []
            instant = self.next(begin)
            while 0 <= instant <= until:
                found.append(instant)
                instant = self.next(instant)
            if len(found) >= most or begin == after:
                return found[-most:]
            window *= 2


def read_every(text: str) -> int:
    words = text.split()
    error = BadSchedule("@every takes a number and s, m, h or d, at most a year: @every 90s")
    if len(words) != 2 or words[1][-1] not in UNITS:
        raise error
    count = words[1][:-1]
    if not (count.isascii() and count.isdigit()) or len(count) > 9:
        raise error
    seconds = int(count) * UNITS[words[1][-1]]
    if not 1 <= seconds <= EVERY_MOST:
        raise error
    return seconds


def read_field(what: str, text: str, low: int, high: int, names: list[str]) -> list[int]:
    """The numbers of a field, in order."""
    if what == "day" and text == "l":
        return []
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step_text = part.partition("/")
        step = read_number(what, step_text, 1, high, []) if slash else 1
        if span in ("*", "?"):
            first, last = low, high
        else:
            start, dash, end = span.partition("-")
            first = read_number(what, start, low, high, names)
            last = read_number(what, end, low, high, names) if dash else (high if slash else first)
            if what == "weekday" and last == 0 < first and end in names:
                last = high  # mon-sun: at the end of a week Sunday is 7
            if last < first:
                raise BadSchedule(f"a range of the {what} must go up, unlike {part[:32]}")
        found.update(range(first, last + 1, step))
    return sorted(found)


def read_number(what: str, text: str, low: int, high: int, names: list[str]) -> int:
    if text in names:
        return names.index(text) + low
    if not (text.isascii() and text.isdigit()) or len(text) > 3 or not low <= int(text) <= high:
        raise BadSchedule(f"the {what} must be from {low} to {high}, not '{text[:32]}'")
    return int(text)


def date_of(day: int) -> tuple[int, int, int]:
    """Year, month and day of a day counted from 1970, by the rule that years begin in March."""
    shifted = day + 719468
    era = shifted // 146097
    of_era = shifted - era * 146097
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    return (
        year + era * 400 + (1 if month >= 10 else 0), month + 3 if month < 10 else month - 9,
        of_year - (153 * month + 2) // 5 + 1,
    )
