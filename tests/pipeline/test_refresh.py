"""From bronze to gold: replayed, late, in pieces, interrupted. The answer is always that of all events at once."""
from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from by_hand import ingest
from deltalake import DeltaTable

from holdfast.pipeline import frames
from holdfast.pipeline import refresh as edge
from holdfast.pipeline.lake import Lake, LakeError
from holdfast.pipeline.stages.queues import QUEUE_MINUTE
from holdfast.pipeline.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = """
    10:00:00 added  a tenant=acme
    10:00:01 handed a worker=w1
    23:59:50 added  b
    23:59:58 added  c
"""
SECOND = """
    2026-03-02T00:00:05 handed b worker=w1
    2026-03-02T00:00:06 acked  b
    2026-03-02T00:01:00 nacked a error=boom_1
    2026-03-02T00:02:00 handed a worker=w2 attempt=2
    2026-03-02T00:03:00 acked  a
"""
LATE = """
    10:00:00 added  z queue=other
    10:30:00 acked  z queue=other
    09:00:00 queued a
"""


def content(lake: Lake) -> dict[str, list[tuple[Any, ...]]]:
    """All of silver and gold, in an order of its own."""
    names = ("silver/events", "silver/jobs", *edge.GOLD)
    return {
        name: sorted((tuple(row.items()) for row in lake.table(name).to_arrow().to_pylist()), key=repr)
        for name in names
    }


@pytest.fixture(scope="module")
def truth(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[Any, ...]]]:
    """Everything in one batch."""
    lake = Lake(tmp_path_factory.mktemp("truth")).create()
    ingest(lake, FIRST + SECOND + LATE, "s-0")
    edge.refresh(spark, lake)
    return content(lake)


def test_batches_replays_and_late_events_give_the_same_tables(
    spark: SparkSession, lake: Lake, truth: dict[str, list[tuple[Any, ...]]]
) -> None:
    """A second batch the day after, the first again (replayed), then events of the day before; a refresh after each."""
    for key, text in (("s-0", FIRST), ("s-1", SECOND), ("s-0", FIRST), ("s-2", LATE)):
        ingest(lake, text, key)
        assert edge.refresh(spark, lake)
    assert not edge.refresh(spark, lake)
    assert content(lake) == truth
    # The same by Spark, and by readers of Delta.
    assert lake.frame(spark, "silver/jobs").count() == len(truth["silver/jobs"])
    assert lake.frame(spark, "gold/queue_minute").columns == QUEUE_MINUTE.names
    found = DeltaTable(str(lake.folder / "gold" / "queue_minute")).to_pyarrow_table().drop_columns("part").to_pylist()
    assert sorted((tuple(row.items()) for row in found), key=repr) == truth["gold/queue_minute"]
    jobs = {row["job_id"]: row for row in lake.table("silver/jobs").to_arrow().to_pylist()}
    assert jobs["b"]["outcome"] == "done" and jobs["b"]["wait_ms"] == 15_000
    assert jobs["c"]["outcome"] is None
    minutes = lake.table("gold/queue_minute").to_arrow(["queue", "minute", "backlog"], ["2026-03-02"]).to_pylist()
    assert [(row["minute"].isoformat()[11:16], row["backlog"]) for row in minutes] == [
        ("00:00", 2), ("00:01", 2), ("00:02", 2), ("00:03", 1)]


def test_what_another_pipeline_reads_meanwhile_is_for_the_next_refresh(
    spark: SparkSession, lake: Lake, truth: dict[str, list[tuple[Any, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It commits a batch when silver events are made and silver jobs, then gold, are not."""
    ingest(lake, FIRST, "s-0")
    for name, text in (("silver_events", SECOND), ("silver_jobs", LATE)):
        real: Callable[..., Any] = getattr(edge, name)

        def made(*args: Any, real: Callable[..., Any] = real, text: str = text, name: str = name) -> None:
            real(*args)
            monkeypatch.setattr(edge, name, real)
            ingest(lake, text, f"after-{name}")

        monkeypatch.setattr(edge, name, made)
    assert edge.refresh(spark, lake).parts == 1
    assert edge.refresh(spark, lake).parts == 2
    assert content(lake) == truth


def test_a_stop_between_any_two_tables_is_mended_by_the_next_refresh(
    spark: SparkSession, lake: Lake, truth: dict[str, list[tuple[Any, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writing of each table fails once, with its files written and its list not."""
    ingest(lake, FIRST, "s-0")
    edge.refresh(spark, lake)
    ingest(lake, SECOND + LATE, "s-1")
    failed: set[str] = set()
    real: Callable[..., Any] = edge.Table.change

    def change(table: edge.Table, written: dict[str, list[str]], **words: Any) -> Any:
        if table.name not in failed:
            failed.add(table.name)
            raise OSError("no space left")
        return real(table, written, **words)

    monkeypatch.setattr(edge.Table, "change", change)
    attempts = 0
    while len(failed) < 2 + len(edge.GOLD):
        attempts += 1
        with pytest.raises(OSError, match="no space"):
            edge.refresh(spark, lake)
    edge.refresh(spark, lake)
    assert attempts == 2 + len(edge.GOLD)
    assert content(lake) == truth


def test_what_is_old_goes_and_bronze_when_everything_was_made_from_it(spark: SparkSession, lake: Lake) -> None:
    """So no list grows with the number of batches: of a thousand that were read only the last one is named."""
    ingest(lake, FIRST, "s-0")
    edge.refresh(spark, lake)
    ingest(lake, FIRST, "s-1")
    far = dt.date(2026, 6, 1)
    edge.retain(lake, silver_days=1000, gold_days=1, today=far)
    assert lake.table("bronze/events").names() == ["s-1"]
    assert lake.table("silver/jobs").names() == ["2026-03-01"]
    assert lake.table("gold/queue_minute").names() == []
    edge.refresh(spark, lake)
    edge.retain(lake, silver_days=1000, gold_days=1, today=far)
    assert lake.table("bronze/events").names() == []
    ingest(lake, SECOND, "s-2")
    edge.refresh(spark, lake)
    for table in map(lake.table, ("silver/events", "silver/jobs", *edge.GOLD)):
        assert [each.partition("@")[0] for each in table.now().read] == ["s-2"]


def test_files_that_the_driver_does_not_see_are_not_committed(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where executors write to disks of their own: a file is gone before the table names it."""
    ingest(lake, FIRST, "s-0")
    real = frames.see

    def apart(store: Store, files: list[tuple[str, int]]) -> None:
        (store.folder / files[0][0]).unlink()
        real(store, files)

    monkeypatch.setattr(frames, "see", apart)
    with pytest.raises(LakeError, match=r"an executor has written 4 rows to .* not there .*all executors share"):
        edge.refresh(spark, lake)
    assert lake.table("silver/events").names() == []
