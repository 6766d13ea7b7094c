"""The browse source and the sink as plain Python objects against three real nodes; no Java."""
from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from cluster_harness import drain, until
from pyspark.sql.datasource import CaseInsensitiveDict, EqualTo, In, LessThan

from holdfast.client.errors import BadRequest, NotAllowed, Refused, Unreachable
from holdfast.pipeline.sinks.rows import BadRows
from holdfast.pipeline.sinks.writer import batch_writer, stream_writer
from holdfast.pipeline.sources import HoldfastSource
from holdfast.pipeline.sources.browse import BrowseReader, PushedReader
from holdfast.pipeline.sources.options import BadOption
from holdfast.pipeline.stages.schema import schema

if TYPE_CHECKING:
    from cluster_harness import Cluster


@pytest.fixture
def nodes(three: Cluster) -> Iterator[Cluster]:
    three.clear()
    yield three


def options(cluster: Cluster, **words: str) -> Any:
    url = "holdfast://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster)
    return CaseInsensitiveDict({"url": url, **words})


def browse(reader: BrowseReader) -> list[dict[str, Any]]:
    """All rows, each partition read by a reader that travelled."""
    parts = reader.partitions()
    return [row for part in pickle.loads(pickle.dumps(parts)) for batch in pickle.loads(pickle.dumps(reader)).read(part)
            for row in batch.to_pylist()]


def test_a_job_with_copies_is_one_row_and_nothing_is_taken(nodes: Cluster) -> None:
    """Jobs from three creators with three copies each, some delayed, one handed out, one acked."""
    for number, node in enumerate(nodes):
        for _ in range(4):
            node.add("mail", f"body{number}", "REPLICATE", 3)
    nodes[0].add("later", "x", "DELAY", 100, "PRIORITY", 9)
    taken = nodes[0].ask("GETJOB", "FROM", "mail")[0][1].decode()
    rows = browse(BrowseReader(options(nodes, fetchSize="3")))
    assert len(rows) == 13 and len({row["id"] for row in rows}) == 13
    states = {row["id"]: row["state"] for row in rows}
    assert states.pop(taken) == "active"
    assert sorted(states.values()) == ["active"] + ["queued"] * 11
    assert all(row["copies"] == 3 for row in rows)
    (later,) = [row for row in rows if row["queue"] == "later"]
    assert (later["delay"], later["priority"], later["body"]) == (100, 9, b"x")
    assert nodes.queued("mail") == 11


def test_queues_states_and_ages_are_chosen_by_options_and_by_pushed_filters(nodes: Cluster) -> None:
    import datetime as dt

    nodes[0].add("a", "1")
    nodes[0].add("b", "2")
    nodes[0].add("c", "3", "DELAY", 50)
    assert {row["queue"] for row in browse(BrowseReader(options(nodes, subscribe="a, c")))} == {"a", "c"}
    assert {row["queue"] for row in browse(BrowseReader(options(nodes, states="queued")))} == {"a", "b"}
    assert browse(BrowseReader(options(nodes, olderThan="3600"))) == []
    without = browse(BrowseReader(options(nodes, subscribe="a", includeBody="false")))
    assert [row["body"] for row in without] == [None]
    pushed = PushedReader(options(nodes))
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    left = list(pushed.pushFilters([In(("queue",), ("a", "c")), EqualTo(("state",), "queued"),
                                    LessThan(("enqueued_at",), soon)]))
    assert left == [LessThan(("enqueued_at",), soon)]
    assert {row["queue"] for row in browse(pushed)} == {"a"}


# -- the sink ---------------------------------------------------------------------------------------------


def write(cluster: Cluster, text: str, rows: list[dict[str, Any]], **words: str) -> int:
    table = pa.Table.from_pylist(rows, pa.schema(ARROW[each.split()[0]] for each in text.split(", ")))
    writer = batch_writer(options(cluster, **{"writeMode": "direct", **words}), schema(text))
    return pickle.loads(pickle.dumps(writer)).write(iter(table.to_batches(max_chunksize=7))).jobs


ARROW = {
    "queue": ("queue", pa.string()), "body": ("body", pa.string()), "delay": ("delay", pa.float64()),
    "priority": ("priority", pa.int32()), "headers": ("headers", pa.map_(pa.string(), pa.string())),
    "domain": ("domain", pa.string()), "unique": ("unique", pa.string()),
}


def test_rows_become_jobs_with_all_they_say(nodes: Cluster) -> None:
    text = "queue string, body string, delay double, priority int, headers map<string,string>, domain string"
    count = write(nodes, text, [
        {"queue": "now", "body": f"b{number}", "headers": [("n", str(number))], "domain": "d.example"}
        for number in range(40)
    ] + [{"queue": "later", "body": "x", "delay": 99.5, "priority": 9}], fetchSize="16")
    assert count == 41
    (later,) = browse(BrowseReader(options(nodes, subscribe="later")))
    assert (later["state"], later["delay"], later["priority"]) == ("active", 100, 9)
    until(lambda: nodes.queued("now") == 40)
    rows = nodes[1].ask("GETJOB", "COUNT", 40, "WITHMETA", "FROM", "now")
    meta = {rows[0][i]: rows[0][i + 1] for i in range(3, len(rows[0]), 2)}
    assert meta[b"headers"] == [b"n", rows[0][2][1:]] and meta[b"keys"] == [b"domain", b"d.example"]


def test_a_refused_row_is_tried_again_until_the_queue_takes_it(nodes: Cluster) -> None:
    """The queue is paused when the rows come; it is opened by what the writer does between its attempts."""
    from holdfast.pipeline.sinks import adder

    nodes[0].ask("PAUSE", "shut", "in")
    waits: list[float] = []

    def open_it(seconds: float) -> None:
        waits.append(seconds)
        nodes[0].ask("PAUSE", "shut", "none")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adder.time, "sleep", open_it)
        assert write(nodes, "body string", [{"body": "x"}] * 3, queue="shut") == 3
    assert len(waits) == 1
    drain(nodes, "shut", nodes[0].jobs("shut"))


@pytest.mark.parametrize(("text", "rows", "words", "error", "says"), [
    ("queue string, boddy string", [], {}, BadRows, "no column 'boddy': did you mean body"),
    ("body string", [], {}, BadRows, "say which queue"),
    ("queue string", [], {}, BadRows, "need a column `body`"),
    ("queue int, body string", [], {}, BadRows, "column queue is of type int; it must be string"),
    ("queue string, body string", [{"queue": "q", "body": None}], {}, BadRows, "no body .null.: queue='q'"),
    ("queue string, body string", [{"queue": None, "body": "x"}], {}, BadRows, "no queue"),
    ("queue string, body string, delay double", [{"queue": "q", "body": "x", "delay": -1.0}], {}, BadRows, "at least"),
    ("queue string, body string", [], {"runId": "r"}, BadOption, "runId needs a column `unique`"),
    ("queue string, body string", [], {"writeMode": "magic"}, BadOption, "writeMode takes staged, direct"),
    ("queue string, body string", [], {"fetchSize": "-3"}, BadOption, "fetchSize takes a whole number"),
    ("queue string, body string", [], {"quue": "x"}, BadOption, "no option 'quue' here: did you mean queue"),
    ("queue string, body string", [{"queue": "q", "body": "x" * 2_000_000}], {}, BadRequest, "max-body-bytes"),
    ("queue string, body string", [{"queue": "q", "body": "x"}], {"url": "holdfast://127.0.0.1:1", "retries": "0"},
     Refused, "no connection to"),
])
def test_bad_tables_and_options_are_told_what_to_do(
    nodes: Cluster, text: str, rows: list[dict[str, Any]], words: dict[str, str], error: type[Exception], says: str
) -> None:
    nodes.set({"max-body-bytes": "1mb"})
    if not rows:
        with pytest.raises(error, match=says):
            batch_writer(options(nodes, **{"writeMode": "direct", **words}), schema(text))
    else:
        with pytest.raises(error, match=says):
            write(nodes, text, rows, **words)


def test_what_cannot_be_reached_or_read_is_told(nodes: Cluster) -> None:
    with pytest.raises(Unreachable, match=r"no connection to 127\.0\.0\.1:1"):
        BrowseReader(CaseInsensitiveDict({"url": "holdfast://127.0.0.1:1"})).partitions()
    with pytest.raises(BadOption, match="say where the cluster is"):
        BrowseReader(CaseInsensitiveDict({}))
    with pytest.raises(BadRequest, match="reads nodes: give a url"):
        BrowseReader(CaseInsensitiveDict({"url": "memory:"}))
    with pytest.raises(BadOption, match=r"say what to read, \.load\('events'\)"):
        HoldfastSource(options(nodes)).schema()
    nodes.set({"requirepass": "secret"})
    try:
        with pytest.raises(NotAllowed):
            BrowseReader(options(nodes)).partitions()
        with pytest.raises(NotAllowed):
            BrowseReader(CaseInsensitiveDict({"url": f"holdfast://:wrong@127.0.0.1:{nodes[0].port}"})).partitions()
    finally:
        for node in nodes:
            with node.client() as client:
                client.ask("AUTH", "secret")
                client.ask("CONFIG", "SET", "requirepass", "")


# -- staged -----------------------------------------------------------------------------------------------


def staged(cluster: Cluster, **words: str) -> Any:
    return batch_writer(options(cluster, queue="aside", **words), schema("body string, delay double"))


def put(writer: Any, *bodies: str) -> Any:
    """A task: it travels, and returns what it has put aside."""
    columns = pa.schema([ARROW["body"], ARROW["delay"]])
    table = pa.Table.from_pylist([{"body": body, "delay": None} for body in bodies], columns)
    return pickle.loads(pickle.dumps(writer)).write(iter(table.to_batches()))


def test_what_tasks_put_aside_is_there_once_when_it_is_committed(nodes: Cluster) -> None:
    """A task that failed and was run again, a commit that is repeated, a run that is repeated under its name."""
    writer = staged(nodes, runId="one")
    put(writer, "x", "y")
    messages = [put(writer, "x", "y"), None, put(writer), put(writer, "z")]
    assert nodes.queued("aside") == 0
    writer.commit(messages)
    until(lambda: nodes.queued("aside") == 3)
    assert all(len(holders) == 3 for holders in nodes.copies("aside").values()), "with all copies"
    again = staged(nodes, runId="one")
    again.commit([put(again, "x", "y", "z")])
    assert nodes.queued("aside") == 3
    other = staged(nodes, runId="two")
    other.abort([gone := put(other, "w")])
    with pytest.raises(BadRequest, match="write the batch again"):
        other.commit([gone])
    other.commit([put(other, "w")])
    until(lambda: nodes.queued("aside") == 4)


def test_a_streams_batches_are_published_once_and_a_lost_checkpoint_is_told(nodes: Cluster, tmp_path: Path) -> None:
    import shutil

    def stream() -> Any:
        words = options(nodes, queue="aside", sinkId="s1", checkpointLocation=str(tmp_path / "check"))
        return stream_writer(words, schema("body string, delay double"))

    first = stream()
    first.commit([put(first, "a", "b")], 0)
    replayed = stream()
    replayed.commit([put(replayed, "b", "a")], 0)
    replayed.commit([put(replayed, "c")], 1)
    until(lambda: nodes.queued("aside") == 3)
    shutil.rmtree(tmp_path / "check")
    anew = stream()
    with pytest.raises(BadRequest, match="belongs to the run"):
        anew.commit([put(anew, "d")], 0)
    with pytest.raises(BadOption, match="needs its checkpoint"):
        stream_writer(options(nodes, queue="aside"), schema("body string"))
    with pytest.raises(BadOption, match="cannot be staged"):
        batch_writer(options(nodes, queue="aside", writeMode="staged"), schema("body string, unique string"))
