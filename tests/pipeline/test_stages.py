"""The stages, on rows made by hand."""
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from by_hand import at, events, rows

from holdfast.pipeline import signatures, sketch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_same_event_read_twice_is_one_row_and_the_newer_schema_wins(spark: SparkSession) -> None:
    from holdfast.pipeline.stages.events import clean

    twice = events(spark, """
        10:00:00 added  a id=n1/7
        10:00:00 added  a id=n1/7 version=2 tenant=late
        10:00:01 handed a
    """)
    assert rows(clean(twice), "event_id", "tenant") == [("n1/10:00:01-handed-a", None), ("n1/7", "late")]


def test_bronze_keeps_what_the_source_gives_and_tells_events_apart_by_their_place() -> None:
    import pyarrow as pa

    from holdfast.history import schema
    from holdfast.pipeline.sources.histories import RENAMED
    from holdfast.pipeline.stages.events import EVENTS, from_source

    row = {"node": "n9", "segment": 1, "position": 77, "time": at("10:00:00"), "event": "added", "job": "a",
           "attempt": 0, "copy": False, "ttl_s": 60, "unique": "u", "batch": "b", "batch_index": 3, "replicate": 2}
    read = pa.RecordBatch.from_pylist([row], schema())
    read = read.rename_columns([RENAMED.get(name, name) for name in read.schema.names])
    (made,) = from_source(read).to_pylist()
    assert list(made) == EVENTS.names
    told = ("event_id", "job_id", "at", "ttl_s", "unique", "batch", "batch_index", "replicate")
    assert [made[name] for name in told] == ["n9/1/77", "a", at("10:00:00"), 60, "u", "b", 3, 2]
    renamed = {"segment", "position", "time", "event", "job", "parent", "attempts"}
    assert set(schema().names) <= set(EVENTS.names) | renamed, "nothing that a node tells is thrown away"


def test_a_job_is_one_row_of_all_its_events_at_all_nodes(spark: SparkSession) -> None:
    from holdfast.pipeline.stages.jobs import fold

    jobs = fold(events(spark, """
        10:00:00 added  a tenant=acme delay_ms=2000
        10:00:02 queued a
        10:00:05 handed a worker=w1 node=n2
        10:00:06 nacked a error=boom node=n2
        10:00:10 handed a worker=w2 attempt=2
        10:00:40 lost   a
        10:00:41 handed a worker=w3 attempt=3
        10:00:45 acked  a node=n3
    """))
    assert rows(jobs, "job_id", "tenant", "body_bytes", "added_at", "first_handed_at", "ended_at", "outcome") == [
        ("a", "acme", 10, "10:00:00", "10:00:05", "10:00:45", "done")]
    assert rows(jobs, "attempts", "nacks", "losses", "worker", "error", "nodes", "wait_ms", "run_ms") == [
        (3, 1, 1, "w3", "boom", 3, 3000.0, 4000.0)]


def test_a_job_that_was_revived_is_open_until_it_ends_again(spark: SparkSession) -> None:
    from holdfast.pipeline.stages.jobs import fold

    jobs = fold(events(spark, """
        10:00:00 dead a
        10:01:00 revived a
        10:00:00 dead b
        10:01:00 revived b
        10:02:00 dead b
        10:00:00 dead c
        10:01:00 revived c
        10:02:00 acked c
    """))
    assert rows(jobs, "job_id", "outcome", "ended_at") == [
        ("a", None, None), ("b", "dead", "10:02:00"), ("c", "done", "10:02:00")]


def test_a_job_of_which_little_is_known_is_what_is_known(spark: SparkSession) -> None:
    """No `added` (the history began later), clocks that differ, an end that three nodes tell, none at all."""
    from holdfast.pipeline.stages.jobs import fold

    jobs = fold(events(spark, """
        10:00:05 handed  late
        10:00:06 acked   late
        10:00:05 added   skewed
        10:00:04 handed  skewed
        10:00:00 added   old
        10:05:00 expired old node=n1
        10:05:01 expired old node=n2
        10:00:00 added   open
        10:00:00 refused - count=1
    """))
    assert rows(jobs, "job_id", "added_at", "ended_at", "outcome", "wait_ms", "run_ms") == [
        ("late", None, "10:00:06", "done", None, 1000.0),
        ("old", "10:00:00", "10:05:00", "expired", None, None),
        ("open", "10:00:00", None, None, None, None),
        ("skewed", "10:00:05", None, None, 0.0, None),
    ]


STORY = """
    10:00:00 added   a tenant=acme domain=example.com
    10:00:01 handed  a worker=w1
    10:00:03 acked   a
    10:00:10 added   b tenant=acme
    10:00:11 handed  b worker=w1
    10:00:12 nacked  b worker=w1 error=timeout_after_31_s
    10:01:12 handed  b worker=w2 attempt=2
    10:01:42 lost    b
    10:01:43 handed  b worker=w1 attempt=3
    10:01:50 dead    b error=timeout_after_99_s
    10:01:59 added   c
    10:00:30 added   d queue=other
    10:03:00 refused - queue=other count=7
"""


def test_queues_by_the_minute(spark: SparkSession) -> None:
    from holdfast.pipeline.stages.jobs import fold
    from holdfast.pipeline.stages.queues import per_minute

    story = events(spark, STORY)
    gold = per_minute(story, fold(story)).cache()
    assert rows(gold, "queue", "minute", "added", "handed", "done", "nacked", "lost", "dead", "refused", "backlog") == [
        ("other", "10:00:00", 1, 0, 0, 0, 0, 0, 0, 1),
        ("other", "10:03:00", 0, 0, 0, 0, 0, 0, 7, 1),
        ("q", "10:00:00", 2, 2, 1, 1, 0, 0, 0, 1),
        ("q", "10:01:00", 1, 2, 0, 0, 1, 1, 0, 1),
    ]
    assert rows(gold.where("queue = 'q'"), "minute", "retry_rate", "duplicate_rate", "wait_ms_n", "run_ms_n") == [
        ("10:00:00", 0.0, 0.0, 2, 1), ("10:01:00", 1.0, 0.5, 0, 0)]
    (minute,) = gold.where("queue = 'q' AND added = 2").collect()
    assert minute.wait_ms_p50 == pytest.approx(1000, rel=sketch.ERROR)
    assert minute.run_ms_p99 == pytest.approx(2000, rel=sketch.ERROR)
    assert minute.wait_ms_sketch == {sketch.bucket(1000): 2}
    gold.unpersist()


def test_workers_by_the_hour(spark: SparkSession) -> None:
    from holdfast.pipeline.stages.jobs import fold
    from holdfast.pipeline.stages.workers import per_hour

    story = events(spark, STORY)
    assert rows(per_hour(story, fold(story)), "worker", "hour", "handed", "done", "dead", "queues", "busy_ms") == [
        ("w1", "10:00:00", 3, 1, 1, 1, 2000.0), ("w2", "10:00:00", 1, 0, 0, 1, 0.0)]


def test_a_worker_of_two_queues_has_one_sketch(spark: SparkSession) -> None:
    from holdfast.pipeline.stages.jobs import fold
    from holdfast.pipeline.stages.workers import per_hour

    story = events(spark, """
        10:00:00 handed a worker=w1 queue=one
        10:00:02 acked  a queue=one
        10:00:03 handed b worker=w1 queue=two
        10:00:05 acked  b queue=two
    """)
    gold = per_hour(story, fold(story))
    assert rows(gold, "worker", "handed", "done", "queues", "busy_ms", "run_ms_n") == [("w1", 2, 2, 2, 4000.0, 2)]
    assert gold.collect()[0].run_ms_sketch == {sketch.bucket(2000): 2}


def test_failures_of_one_kind_are_one_row(spark: SparkSession) -> None:
    from holdfast.pipeline.stages.failures import per_day

    gold = per_day(events(spark, STORY + "\n    10:09:00 nacked e error=KeyError:_'x'\n    10:09:01 nacked f"))
    assert rows(gold, "signature", "failures", "dead", "jobs", "sample_error", "sample_job") == [
        ("(no error given)", 1, 0, 1, None, "f"),
        ("KeyError: <…>", 1, 0, 1, "KeyError: 'x'", "e"),
        ("timeout after <n> s", 1, 1, 1, "timeout after 99 s", "b"),
    ]


@pytest.mark.parametrize(("error", "signature"), [
    ("user 17 not found at 10.0.0.1:80\n  File …", "user <n> not found at <n>"),
    ("job DI0f0c0cb7000660583a96f481c08a9ff960623a8805a1SQ failed", "job <job> failed"),
    ("no row 123e4567-e89b-12d3-a456-426614174000 in \"users\"", "no row <id> in <…>"),
    ("<object at 0x7f3a>", "<object at <n>>"),
    ("  ", "(no error given)"),
])
def test_a_signature_is_what_failures_of_one_kind_share(spark: SparkSession, error: str, signature: str) -> None:
    from pyspark.sql import functions as F

    from holdfast.pipeline.stages import failures

    assert spark.range(1).select(failures.signature(F.lit(error))).first() == (signature,)
    assert signatures.signature(error) == signature


def test_tenants_and_domains_by_the_hour(spark: SparkSession) -> None:
    from holdfast.pipeline.stages.jobs import fold
    from holdfast.pipeline.stages.shares import per_hour

    gold = per_hour(fold(events(spark, STORY)))
    assert rows(gold, "kind", "name", "hour", "added", "done", "dead", "busy_ms", "wait_ms_n") == [
        ("domain", "example.com", "10:00:00", 1, 1, 0, 2000.0, 1),
        ("tenant", "acme", "10:00:00", 2, 1, 1, 2000.0, 2),
    ]


def test_sketches_of_spark_and_of_python_are_the_same_and_within_their_bound(spark: SparkSession) -> None:
    """A thousand values over nine decades: the same buckets, and percentiles at most ERROR off the true ones."""
    from pyspark.sql import functions as F

    from holdfast.pipeline.stages.tallies import happened, lasted, tallied

    values = [0.0, 0.5, 1.0] + [1.0218 ** (number % 950) for number in range(3 * 997)]
    frame = spark.createDataFrame([("all", value) for value in values], "name string, v double")
    facts = happened(frame, ["name"], lasted("v", F.timestamp_seconds(F.lit(7)), F.col("v")))
    (made,) = tallied(facts, ["name"], "hour", [], ["v"]).collect()
    assert made.v_sketch == dict(sketch.of(values))
    ordered = sorted(values)
    for share, told in ((0.50, made.v_p50), (0.95, made.v_p95), (0.99, made.v_p99)):
        true = ordered[max(0, -(-int(share * 100) * len(ordered) // 100) - 1)]
        assert told == pytest.approx(true, rel=sketch.ERROR * 1.0001)
        assert sketch.quantile(made.v_sketch, share) == pytest.approx(told)
    halves = sketch.merge([sketch.of(values[::2]), sketch.of(values[1::2])])
    assert halves == sketch.of(values)


def test_jobs_that_are_held_or_wait_for_too_long_are_stuck(spark: SparkSession) -> None:
    """Runs of the queue take 2 s; a lease of 5 minutes is not over yet; a delayed job does not wait yet."""
    from holdfast.pipeline.stages.jobs import fold
    from holdfast.pipeline.stages.stuck import stuck

    jobs = fold(events(spark, """
        10:00:00 added  ok
        10:00:01 handed ok
        10:00:03 acked  ok
        10:00:00 added  held
        10:00:01 handed held worker=w1 lease_ms=30000
        10:00:00 added  leased
        10:00:01 handed leased lease_ms=900000
        10:00:00 added  waits
        10:09:30 added  fresh
        10:00:00 added  delayed delay_ms=3600000
    """))
    found = stuck(jobs, at("10:10:00"))
    assert rows(found, "job_id", "why", "for_ms", "usual_ms", "worker") == [
        ("held", "held", 599000.0, 2000.0, "w1"), ("waits", "waiting", 600000.0, 1000.0, None)]


def test_an_hour_unlike_the_same_hour_of_other_weeks_is_told(spark: SparkSession) -> None:
    """Each Sunday at ten 100 jobs, at eleven 1000; the last Sunday has 1000 at ten and 1100 at eleven."""
    import datetime as dt

    from holdfast.pipeline.stages.anomalies import anomalies
    from holdfast.pipeline.stages.queues import QUEUE_MINUTE

    made = []
    for week in range(6):
        for hour, added in ((10, 1000 if week == 5 else 100), (11, 1100 if week == 5 else 1000)):
            minute = at(f"2026-03-01T{hour}:30:00") + dt.timedelta(weeks=week)
            made.append({"queue": "q", "minute": minute, "added": added, "done": added, "nacked": 0, "lost": 0,
                         "dead": 0, "backlog": 5, "wait_ms_p95": 100.0})
    table = [tuple(row.get(name) for name in QUEUE_MINUTE.names) for row in made]
    found = anomalies(spark.createDataFrame(table, QUEUE_MINUTE), at("2026-04-05T12:10:00"))
    assert rows(found, "what", "hour", "value", "usual") == [
        ("added", "2026-04-05T10:00:00", 1000.0, 100.0), ("done", "2026-04-05T10:00:00", 1000.0, 100.0)]
    unfinished = anomalies(spark.createDataFrame(table, QUEUE_MINUTE), at("2026-04-05T10:40:00"))
    assert rows(unfinished, "what") == []


def test_silence_is_told_and_the_hour_that_is_not_over_is_not(spark: SparkSession) -> None:
    """Five weeks of 1000 jobs an hour, then three hours of none, then five minutes with 80. A queue of three days that
    works by day only is silent every night, and that is nothing."""
    import datetime as dt

    from holdfast.pipeline.stages.anomalies import anomalies, whole_hours
    from holdfast.pipeline.stages.queues import QUEUE_MINUTE

    def row(queue: str, minute: dt.datetime, added: int) -> dict[str, object]:
        return {"queue": queue, "minute": minute, "added": added, "done": added, "nacked": 0, "lost": 0, "dead": 0,
                "backlog": 7, "wait_ms_p95": 100.0}

    hour = dt.timedelta(hours=1)
    end = at("2026-04-05T00:00:00")
    made = [row("busy", end - hour * back, 1000) for back in range(1, 5 * 7 * 24 + 1)]
    made += [row("busy", end + 3 * hour, 80)]
    made += [row("young", end - hour * (24 * day + back), 50) for day in range(3) for back in range(1, 9)]
    table = spark.createDataFrame([tuple(each.get(name) for name in QUEUE_MINUTE.names) for each in made], QUEUE_MINUTE)
    until = end + 3 * hour + dt.timedelta(minutes=5)
    found = anomalies(table, until)
    assert rows(found, "queue", "what", "hour", "value", "usual") == [
        ("busy", what, f"2026-04-05T0{number}:00:00", 0.0, 1000.0) for what in ("added", "done") for number in range(3)]
    silent = whole_hours(table, until).where("queue = 'busy' AND NOT has_rows")
    assert rows(silent, "added", "backlog", "wait_ms_p95") == [(0.0, 7.0, None)] * 3


def test_who_waits_on_purpose_or_had_its_lease_extended_is_not_stuck(spark: SparkSession) -> None:
    """A failed job that is to wait two hours; one that came back and waits; one whose worker asked for more time; one
    that a client took out; one whose extended lease is over, too."""
    from holdfast.pipeline.stages.jobs import fold
    from holdfast.pipeline.stages.stuck import stuck

    jobs = fold(events(spark, """
        10:00:00 added    slow
        10:00:01 handed   slow worker=w1 lease_ms=30000
        10:00:02 nacked   slow worker=w1 delay_ms=7200000
        10:00:00 added    back
        10:00:01 handed   back worker=w1 lease_ms=30000
        10:59:50 lost     back cause=lease-ended
        10:59:50 queued   back attempt=1
        10:00:00 added    long
        10:00:01 handed   long worker=w2 lease_ms=30000
        10:59:55 extended long worker=w2 lease_ms=30000 attempt=1
        10:00:00 added    aside
        10:00:09 dequeued aside
        10:00:00 added    mute
        10:00:01 handed   mute worker=w3 lease_ms=30000
        10:00:20 extended mute worker=w3 lease_ms=60000 attempt=1
    """))
    assert rows(jobs, "job_id", "state") == [
        ("aside", "aside"), ("back", "waiting"), ("long", "held"), ("mute", "held"), ("slow", "waiting")]
    assert rows(stuck(jobs, at("11:00:00")), "job_id", "why", "for_ms") == [("mute", "held", 3599000.0)]
    later = stuck(jobs, at("12:30:00"))
    assert rows(later, "job_id", "why", "since") == [
        ("back", "waiting", "10:59:50"), ("long", "held", "10:00:01"), ("mute", "held", "10:00:01"),
        ("slow", "waiting", "12:00:02")]


def test_a_lease_that_nobody_had_is_not_lost(spark: SparkSession) -> None:
    """A node falls silent: another tells of each job it holds a copy of, whether a worker had it or not."""
    from holdfast.pipeline.stages.jobs import fold
    from holdfast.pipeline.stages.queues import per_minute

    told = events(spark, """
        10:00:00 added  queued
        10:05:00 lost   queued copy=1 cause=node-silent node=n2 attempt=1
        10:00:00 added  failed
        10:00:01 handed failed
        10:00:02 nacked failed attempt=1
        10:05:00 lost   failed copy=1 cause=node-silent node=n2 attempt=2
        10:06:00 handed failed node=n2 attempt=2
        10:00:00 added  had
        10:00:01 handed had
        10:05:00 lost   had copy=1 cause=node-silent node=n2 attempt=1
        10:06:00 handed had node=n2 attempt=2
        10:07:00 acked  had node=n2
        10:00:00 added  mute
        10:00:01 handed mute
        10:04:00 lost   mute cause=lease-ended attempt=1
    """)
    jobs = fold(told)
    assert rows(jobs, "job_id", "losses") == [("failed", 0), ("had", 1), ("mute", 1), ("queued", 0)]
    minutes = per_minute(told, jobs).where("lost > 0")
    assert rows(minutes, "minute", "lost") == [("10:04:00", 1), ("10:05:00", 1)]
