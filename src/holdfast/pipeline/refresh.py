"""The edge of the pipeline: reads tables, calls the stages, writes tables. Running it twice is running it once.

Each table remembers, in the same commit that names its files, which parts of bronze it has been made from. `refresh`
takes the parts a table has not read yet and makes anew what they touch:

    silver events   the days of the new events: what was there and what is new, one row per event
    silver jobs     all rows of the jobs they speak of, from all their events, wherever in time; others are kept
    gold            every day from the first touched on: a job that came a day late changes each backlog since

So a replayed batch changes nothing, a late event finds its day, and a crash at any point leaves tables of which some
are a step behind, which the next call mends. Since days are written whole, they are always compact.
"""
from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .frames import load, write
from .lake import Lake, Parts, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BRONZE: Final = "bronze/events"
"""What was read and is not in all other tables yet."""
GOLD: Final = ("gold/queue_minute", "gold/worker_hour", "gold/failure_day", "gold/share_hour")
SKEW: Final = dt.timedelta(hours=1)
"""More than clocks of nodes differ: what is told at one node just after midnight may end a wait before it."""


@dataclass
class Refreshed:
    """What a refresh did."""

    parts: int = 0
    days: int = 0

    def __bool__(self) -> bool:
        return self.parts > 0


def store(
    lake: Lake, table: Table, on: Parts, rows: DataFrame, order: list[str], read: Iterable[str], cover: Iterable[str]
) -> None:
    """Write rows with `part` by parts, in place of the parts in `cover` that were there `on`."""
    written: dict[str, list[str]] = {}
    for file in write(rows.repartition("part").sortWithinPartitions("part", *order), table):
        written.setdefault(file.part, []).append(file.path)
    table.change(written, on=on, drop=set(cover) - set(written), read=read, unread=stale(lake, on))


def stale(lake: Lake, on: Parts) -> frozenset[str]:
    """What a table says it was made from and bronze no longer has."""
    return on.read - {f"{key}@{part.name}" for key, part in lake.table(BRONZE).now().parts.items()}


def refresh(spark: SparkSession, lake: Lake, tell: Callable[[str], None] = lambda words: None) -> Refreshed:
    """Bring silver and gold up to what is in bronze when it begins. What others add meanwhile is for the next one: each
    table is made of those before it."""
    done = Refreshed()
    bronze = lake.table(BRONZE).now()
    on = lake.table("silver/events").now()
    if fresh := unread(bronze, on):
        tell(f"silver events: {len(fresh)} new parts")
        done.parts = len(fresh)
        silver_events(spark, lake, bronze, on, fresh)
    on = lake.table("silver/jobs").now()
    if fresh := unread(bronze, on):
        tell("silver jobs")
        silver_jobs(spark, lake, bronze, on, fresh)
    # Before silver is read: whoever else makes gold meanwhile makes it of other rows.
    tables = {name: lake.table(name).now() for name in GOLD}
    behind = {name: (on, fresh) for name, on in tables.items() if (fresh := unread(bronze, on))}
    if behind:
        days = gold_days(lake, bronze, {key for _, fresh in behind.values() for key in fresh.values()})
        tell(f"gold: {len(days)} days")
        done.days = len(days)
        gold(spark, lake, days, behind)
    return done


def unread(bronze: Parts, on: Parts) -> dict[str, str]:
    """Parts of bronze a table was not made from yet: how it will name them, and their keys."""
    names = {f"{key}@{part.name}": key for key, part in bronze.parts.items()}
    return {name: key for name, key in names.items() if name not in on.read}


def silver_events(spark: SparkSession, lake: Lake, bronze: Parts, on: Parts, fresh: dict[str, str]) -> None:
    from .stages import events

    table = lake.table("silver/events")
    new = load(spark, lake.table(BRONZE), events.EVENTS, fresh.values(), bronze)
    days = sorted({row.part for row in events.day(new, "at").select("part").distinct().collect()})
    rows = events.clean(load(spark, table, events.EVENTS, days, on).unionByName(new))
    store(lake, table, on, events.day(rows, "at"), ["queue", "at", "event_id"], fresh, days)


def silver_jobs(spark: SparkSession, lake: Lake, bronze: Parts, on: Parts, fresh: dict[str, str]) -> None:
    from .stages import events, jobs

    table = lake.table("silver/jobs")
    new = load(spark, lake.table(BRONZE), events.EVENTS, fresh.values(), bronze)
    ids = new.where("job_id IS NOT NULL").select("job_id").distinct().cache()
    try:
        before = load(spark, table, jobs.JOBS, on=on)
        known = events.day(before.join(ids, "job_id", "left_semi"), "first_at")
        # A job this table does not know has all its events in `new`; one it knows began on the day of its row.
        first_days = {row.part for row in known.select("part").distinct().collect()}
        new_days = {row.part for row in events.day(new, "at").select("part").distinct().collect()}
        if not new_days:
            table.change({}, on=on, read=fresh, unread=stale(lake, on))
            return
        since = min(first_days | new_days)
        all_events = lake.table("silver/events")
        days = [day for day in all_events.names() if day >= since]
        folded = events.day(
            jobs.fold(load(spark, all_events, events.EVENTS, days).join(ids, "job_id", "left_semi")), "first_at"
        ).cache()
        try:
            # The day of a job is that of its first event, which a late event may move.
            touched = first_days | {row.part for row in folded.select("part").distinct().collect()}
            kept = events.day(load(spark, table, jobs.JOBS, touched, on).join(ids, "job_id", "left_anti"), "first_at")
            store(lake, table, on, kept.unionByName(folded), ["queue", "job_id"], fresh, touched)
        finally:
            folded.unpersist()
    finally:
        ids.unpersist()


def gold_days(lake: Lake, bronze: Parts, keys: set[str]) -> list[str]:
    """Days from the first one that these parts of bronze speak of, as silver has them."""
    firsts = [dt.datetime.fromisoformat(bronze.parts[key].first) - SKEW for key in keys if bronze.parts[key].first]
    return [day for day in lake.table("silver/events").names() if firsts and day >= min(firsts).date().isoformat()]


def gold(
    spark: SparkSession, lake: Lake, days: list[str], behind: dict[str, tuple[Parts, dict[str, str]]]
) -> None:
    """Make the tables that are behind anew, for these days."""
    from pyspark.sql import functions as F

    from .stages import events, failures, jobs, queues, shares, workers

    if not days:
        for name, (on, fresh) in behind.items():
            lake.table(name).change({}, on=on, read=fresh, unread=stale(lake, on))
        return
    start = F.lit(dt.datetime.fromisoformat(days[0]).replace(tzinfo=dt.UTC))
    happened = load(spark, lake.table("silver/events"), events.EVENTS, days)
    there: DataFrame = load(spark, lake.table("silver/jobs"), jobs.JOBS).where(
        F.col("ended_at").isNull() | (F.col("ended_at") >= start) | (F.col("last_at") >= start)
    )
    makes: dict[str, tuple[Callable[[], DataFrame], str, list[str]]] = {
        "gold/queue_minute": (lambda: queues.per_minute(happened, there), "minute", ["queue", "minute"]),
        "gold/worker_hour": (lambda: workers.per_hour(happened, there), "hour", ["worker", "hour"]),
        "gold/failure_day": (lambda: failures.per_day(happened), "day", ["queue", "signature"]),
        "gold/share_hour": (lambda: shares.per_hour(there), "hour", ["kind", "name", "hour"]),
    }
    for name, (on, fresh) in behind.items():
        make, time, order = makes[name]
        rows = make().where(F.col(time) >= (start.cast("date") if time == "day" else start))
        store(lake, lake.table(name), on, events.day(rows, time), order, fresh, days)


# -- what grows old ---------------------------------------------------------------------------------------


def retain(lake: Lake, *, silver_days: int, gold_days: int, today: dt.date) -> int:
    """Take out parts that are older than they need to be, and of bronze those that everything was made from."""
    removed = 0
    keep = {"silver/events": silver_days, "silver/jobs": silver_days, **dict.fromkeys(GOLD, gold_days)}
    read: list[frozenset[str]] = []
    for name, days in keep.items():
        table = lake.table(name)
        now = table.now()
        read.append(now.read)
        last = (today - dt.timedelta(days=days)).isoformat()
        removed += dropped(table, now, [key for key in now.parts if key < last])
    table = lake.table(BRONZE)
    now = table.now()
    everywhere = frozenset.intersection(*read)
    removed += dropped(table, now, [key for key, part in now.parts.items() if f"{key}@{part.name}" in everywhere])
    for name in (BRONZE, *keep):
        lake.table(name).sweep()
    return removed


def dropped(table: Table, now: Parts, keys: list[str]) -> int:
    """Take parts out; how many were."""
    if keys:
        table.change({}, on=now, drop=keys)
    return len(keys)
