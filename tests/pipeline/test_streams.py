"""Real streams and batches on Spark, against three real nodes."""
from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cluster_harness import until
from places import now, url

from holdfast.pipeline import run as runner
from holdfast.pipeline.backfill import Backfill, Run
from holdfast.pipeline.lake import Lake, Table

if TYPE_CHECKING:
    from cluster_harness import Cluster
    from pyspark.sql import SparkSession


@pytest.fixture
def nodes(three: Cluster) -> Iterator[Cluster]:
    three.clear()
    yield three


def work(cluster: Cluster, queue: str, done: int, left: int) -> set[str]:
    """Jobs of which some are taken by a worker with a name and acknowledged."""
    ids = {cluster[number % 3].add(queue, "x", "TENANT", "acme").decode() for number in range(done + left)}
    with cluster[0].client() as client:
        client.ask("CLIENT", "SETNAME", "worker-1")
        for _ in range(done):
            client.ask("ACKJOB", client.ask("GETJOB", "FROM", queue)[0][1])
    return ids


def test_history_becomes_gold_and_an_interrupted_run_goes_on(spark: SparkSession, nodes: Cluster, lake: Lake) -> None:
    """A first run dies in its second batch, with the files written and the list not; the second reads on."""
    plan = runner.Plan(url(nodes), once=True, max_events=90, starting=now(nodes))
    first = work(nodes, "mail", 20, 5)
    real = Table.change
    changes: list[str] = []

    def change(table: Table, *args: Any, **words: Any) -> Any:
        changes.append(table.name)
        if changes == ["bronze/events"] * 3:
            raise OSError("the driver dies here")
        return real(table, *args, **words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Table, "change", change)
        with pytest.raises(OSError, match="the driver dies here"):
            runner.run(spark, lake, plan, lambda words: None)
    assert len(lake.table("bronze/events").names()) == 1
    second = work(nodes, "mail", 10, 0)
    runner.run(spark, lake, plan, lambda words: None)
    jobs = [row for row in lake.table("silver/jobs").to_arrow().to_pylist() if row["queue"] == "mail"]
    assert {row["job_id"] for row in jobs} == first | second
    assert Counter(row["outcome"] for row in jobs) == {"done": 30, None: 5}
    assert {row["worker"] for row in jobs if row["outcome"]} == {"worker-1"}
    minutes = [row for row in lake.table("gold/queue_minute").to_arrow().to_pylist() if row["queue"] == "mail"]
    assert (sum(row["added"] for row in minutes), sum(row["done"] for row in minutes)) == (35, 30)
    assert max(minutes, key=lambda row: row["minute"])["backlog"] == 5
    events = lake.table("silver/events").to_arrow(["event_id"])["event_id"].to_pylist()
    assert len(events) == len(set(events))


def test_browse_finds_what_is_there_with_filters_handed_down(spark: SparkSession, nodes: Cluster) -> None:
    work(nodes, "a", 0, 6)
    work(nodes, "b", 0, 3)
    frame = spark.read.format("holdfast").option("url", url(nodes)).option("pushdown", "true").load("browse")
    assert frame.where("queue = 'a'").count() == 6
    assert frame.where("queue IN ('a', 'b') AND state = 'queued'").count() == 9
    assert frame.where("queue = 'a' AND enqueued_at < timestamp '2001-01-01'").count() == 0
    assert nodes.queued("a") == 6


def test_a_table_becomes_jobs_and_written_again_under_its_run_adds_nothing(spark: SparkSession, nodes: Cluster) -> None:
    rows = spark.range(200).selectExpr("'made' AS queue", "concat('body-', id) AS body", "cast(id AS string) AS unique",
                                       "map('n', cast(id AS string)) AS headers")
    for _ in range(2):
        rows.write.format("holdfast").option("url", url(nodes)).option("runId", "r1").mode("append").save()
    until(lambda: nodes.queued("made") == 200)
    browsed = spark.read.format("holdfast").option("url", url(nodes)).option("subscribe", "made").load("browse")
    assert {bytes(row.body) for row in browsed.select("body").collect()} == {b"body-%d" % i for i in range(200)}
    with pytest.raises(Exception, match=r"added to a queue, not written over it"):
        rows.write.format("holdfast").option("url", url(nodes)).mode("overwrite").save()


def test_a_stream_of_rows_is_published_once_though_a_batch_was_written_again(
    spark: SparkSession, nodes: Cluster, tmp_path: Path
) -> None:
    """Staged; Spark's own note that the first batch is done is taken away, so that it is written again."""
    (tmp_path / "in").mkdir()
    rows = [{"body": f"s{n}"} for n in range(50)]
    (tmp_path / "in" / "1.json").write_text("\n".join(map(json.dumps, rows)))

    def go() -> None:
        query = (
            spark.readStream.schema("body string").json(str(tmp_path / "in"))
            .writeStream.format("holdfast").option("url", url(nodes)).option("queue", "streamed")
            .option("checkpointLocation", str(tmp_path / "check")).trigger(availableNow=True).start()
        )
        query.awaitTermination()

    go()
    for note in (tmp_path / "check" / "commits").glob("*0*"):
        note.unlink()
    (tmp_path / "in" / "2.json").write_text(json.dumps({"body": "last"}))
    go()
    until(lambda: nodes.queued("streamed") == 51)


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_a_backfill_adds_every_row_once_though_it_was_interrupted(
    spark: SparkSession, nodes: Cluster, tmp_path: Path, form: str
) -> None:
    """Stopped after its first portion was published and before that was noted: it is sent again, and adds nothing."""
    import holdfast.pipeline.backfill as module

    frame = spark.range(90).selectExpr("id", "concat('user ', id) AS name")
    frame.coalesce(3).write.format(form).options(header="true").save(str(tmp_path / "in"))
    job = Backfill(str(tmp_path / "in"), url(nodes), queue=f"fill-{form}", state=tmp_path / "state", form=form)
    real = Run.put

    def put(run: Run, note: module.Note) -> None:
        if note.done:
            raise OSError("the driver dies here")
        real(run, note)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PORTION", 40)
        run = Run(spark, job)
        assert run.prepare() == module.Progress(90, 0)
        patch.setattr(Run, "put", put)
        with pytest.raises(OSError, match="dies here"):
            list(run.steps())
        patch.setattr(Run, "put", real)
        again = Run(spark, job)
        assert again.prepare().done == 0
        assert [step.done for step in again.steps()][-1] == 90
    until(lambda: nodes.queued(f"fill-{form}") == 90)
    bodies = [row[2] for row in nodes[0].ask("QPEEK", f"fill-{form}", 90)]
    ours = {json.loads(body)["id"] for body in bodies}
    assert ours <= set(range(90)) and all(json.loads(body)["name"].startswith("user ") for body in bodies)
    finished = Run(spark, job)
    assert finished.prepare() == module.Progress(90, 90) and list(finished.steps()) == []
    assert [path.name for path in finished.folder.iterdir()] == ["done.json"], "the rows are not kept"


def test_a_backfill_keeps_its_rate_whatever_was_run_before(
    spark: SparkSession, nodes: Cluster, tmp_path: Path
) -> None:
    """A dry run leaves nothing behind; then 6 rows at 2/s; interrupted in its second portion, and on with 1/s."""
    import holdfast.pipeline.backfill as module

    spark.range(12).selectExpr("concat('b', id) AS body").coalesce(1).write.parquet(str(tmp_path / "in"))
    words: dict[str, Any] = {"queue": "paced", "state": tmp_path / "state"}
    fast = Backfill(str(tmp_path / "in"), url(nodes), rate=2.0, **words)
    now, rows = Run(spark, fast).look(2)
    assert now == module.Progress(12, 0) and len(rows) == 2 and not (tmp_path / "state").exists()
    slept: list[float] = []
    run = Run(spark, fast)
    run.prepare()
    steps = run.steps(slept.append)
    assert next(steps).done == 4 and nodes.queued("paced") == 4
    real = Run.add

    def add(run: Run, *place: Any) -> None:
        real(run, *place)
        raise OSError("the driver dies here")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "add", add)
        with pytest.raises(OSError, match="dies here"):
            next(steps)
    assert slept and slept[0] <= 2.0
    slow = Run(spark, Backfill(str(tmp_path / "in"), url(nodes), rate=1.0, **words))
    assert slow.prepare() == module.Progress(12, 4)
    assert [step.done for step in slow.steps(slept.append)] == [8, 10, 12]
    until(lambda: nodes.queued("paced") == 12)


def test_rows_of_groups_say_how_they_can_be_added(spark: SparkSession, tmp_path: Path) -> None:
    from holdfast.pipeline.sinks.rows import BadRows

    spark.range(2).selectExpr("'b' AS body", "'g' AS `group`").write.parquet(str(tmp_path / "in"))
    job = Backfill(str(tmp_path / "in"), "holdfast://127.0.0.1:1", queue="q", body="body", state=tmp_path / "state")
    with pytest.raises(BadRows, match=r"--at-least-once, or add a column `unique`"):
        Run(spark, job).prepare()


def test_a_consuming_stream_acks_what_it_committed_and_replays_what_it_did_not(
    spark: SparkSession, nodes: Cluster, tmp_path: Path
) -> None:
    """The first run dies in its second batch after the rows were written; the rows of that batch come again, alike,
    and a sink keyed by the job's id has each once."""
    ids = {nodes[number % 3].add("eat", f"b{number}").decode() for number in range(60)}
    seen: list[tuple[int, set[str]]] = []
    out = tmp_path / "out"

    def go(dies_at: int) -> None:
        def batch(rows: Any, number: int) -> None:
            rows.select("id", "body").write.mode("overwrite").parquet(str(out / f"batch={number}"))
            seen.append((number, {row.id for row in rows.select("id").collect()}))
            if number == dies_at:
                raise OSError("the driver dies here")

        query = (
            spark.readStream.format("holdfast").option("url", url(nodes)).option("subscribe", "eat")
            .option("maxJobsPerTrigger", "25").load("jobs")
            .writeStream.foreachBatch(batch).option("checkpointLocation", str(tmp_path / "check"))
            .trigger(availableNow=True).start()
        )
        query.awaitTermination()

    with pytest.raises(Exception, match="the driver dies here"):
        go(1)
    assert nodes.queued("eat") < 60
    go(-1)
    again = [rows for number, rows in seen if number == 1]
    assert len(again) == 2 and again[0] == again[1], "a replayed batch is the same"
    assert set().union(*(rows for _, rows in seen)) == ids
    written = [row.id for row in spark.read.parquet(str(out)).select("id").collect()]
    assert sorted(written) == sorted(ids)
    until(lambda: not nodes.copies("eat"))


def test_tasks_run_on_executors_and_failures_and_results_are_told(
    spark: SparkSession, nodes: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.pipeline import work as worker
    from holdfast.tasks.find import NoApp

    (tmp_path / "sparkshop.py").write_text(
        "import holdfast\napp = holdfast.App('memory:', queue='letters', retries=2)\n"
        "@app.task\ndef mail(number):\n    if number == 3:\n        raise ValueError('no address')\n"
        "@app.task(queue='parcels', result=True)\ndef weigh(number):\n    return number * 10\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import sparkshop  # type: ignore[import-not-found]

    sparkshop.app.url = url(nodes)
    added = [(sparkshop.mail if number % 2 else sparkshop.weigh).add(number) for number in range(8)]
    counts: list[tuple[int, int]] = []
    query = worker.start(spark, url(nodes), "sparkshop:app", str(tmp_path / "check"), {"maxJobsPerTrigger": "100"},
                         True, lambda done, failed: counts.append((done, failed)))
    query.awaitTermination()
    assert (sum(done for done, _ in counts), sum(failed for _, failed in counts)) == (7, 1)
    assert [added[number].wait(10) for number in (0, 2, 4, 6)] == [0, 20, 40, 60]
    until(lambda: len(nodes.copies("letters")) == 1 and not nodes.copies("parcels"))
    (left,) = nodes.copies("letters")
    assert left.decode() == added[3].id
    until(lambda: any(node.show(left).get("nacks") == 1 for node in nodes))
    sparkshop.app.close()
    with pytest.raises(NoApp, match="has no 'nothing'"):
        worker.start(spark, url(nodes), "sparkshop:nothing", str(tmp_path / "none"), {}, True)
