"""The events source as plain Python objects against three real nodes; no Java."""
from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from cluster_harness import until
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from holdfast.pipeline.sources.events import DataLoss, EventsReader, EventsStreamReader, schema
from holdfast.pipeline.sources.options import BadOption

if TYPE_CHECKING:
    from cluster_harness import Cluster

EVERYTHING = ReadAllAvailable()


@pytest.fixture
def nodes(three: Cluster) -> Iterator[Cluster]:
    three.mend()
    yield three


def options(cluster: Cluster, **words: str) -> Any:
    url = "holdfast://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster)
    return CaseInsensitiveDict({"url": url, **words})


def read(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows between two offsets, each partition by a reader that travelled."""
    parts = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    travelled = pickle.loads(pickle.dumps(reader))
    return [row for part in parts for batch in travelled.read(part) for row in batch.to_pylist()]


def begin(reader: EventsStreamReader) -> dict[str, Any]:
    """The first end: it pins where each node begins, and nothing is read up to it."""
    end = reader.latestOffset(reader.initialOffset(), EVERYTHING)
    assert reader.partitions(reader.initialOffset(), end) == []
    return end


def places(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return sorted((row["node"], row["segment"], row["offset"]) for row in rows)


def settled(cluster: Cluster) -> None:
    """What was told is in the files: a history is written at the end of a turn, which a reply has waited for."""
    for node in cluster.living():
        node.ask("PING")


def work(cluster: Cluster, queue: str, count: int) -> set[str]:
    ids = {cluster[number % 3].add(queue, "x", "REPLICATE", 2).decode() for number in range(count)}
    for _ in range(count):
        row = cluster[0].ask("GETJOB", "FROM", queue)[0]
        cluster[0].ask("ACKJOB", row[1])
    settled(cluster)
    return ids


def test_a_stream_sees_every_event_of_every_node_once_and_replays_are_the_same(nodes: Cluster) -> None:
    reader = EventsStreamReader(options(nodes, startingOffsets="latest"))
    assert reader.initialOffset() == EventsStreamReader(options(nodes)).initialOffset(), "it names no place"
    start = begin(reader)
    ids = work(nodes, "q1", 30)
    end = reader.latestOffset(start, EVERYTHING)
    rows = read(reader, start, end)
    assert {row["key"] for row in rows} == ids
    kinds = [row["type"] for row in rows]
    assert (kinds.count("added"), kinds.count("handed-out"), kinds.count("acked")) == (30, 30, 30)
    assert len(set(places(rows))) == len(rows)
    again = EventsStreamReader(options(nodes))  # another process, after a crash, with the offsets of the log
    assert read(again, json.loads(json.dumps(start)), json.loads(json.dumps(end))) == rows
    assert reader.latestOffset(end, EVERYTHING) == end and reader.partitions(end, end) == []


def test_small_steps_and_small_partitions_add_up_to_the_whole(nodes: Cluster) -> None:
    whole = EventsStreamReader(options(nodes, startingOffsets="latest"))
    start = begin(whole)
    for turn in range(5):
        work(nodes, f"q2-{turn}", 6)
    end = whole.latestOffset(start, EVERYTHING)
    rows = read(whole, start, end)
    small = EventsStreamReader(options(nodes, recordsPerPartition="2", fetchSize="3", maxEventsPerTrigger="4"))
    assert small.getDefaultReadLimit() == ReadMaxRows(4)
    at, steps, found = start, 0, []
    while (step := small.latestOffset(at, ReadMaxRows(4))) != at:
        found += read(small, at, step)
        at, steps = step, steps + 1
    assert steps > 3 and at == end
    assert places(found) == places(rows)


def test_available_now_ends_where_the_histories_were_when_it_began(nodes: Cluster) -> None:
    reader = EventsStreamReader(options(nodes, startingOffsets="latest"))
    start = begin(reader)
    before = work(nodes, "q3", 5)
    reader.prepareForTriggerAvailableNow()
    work(nodes, "q3", 5)
    end = reader.latestOffset(start, EVERYTHING)
    assert {row["key"] for row in read(reader, start, end)} == before
    assert reader.latestOffset(end, EVERYTHING) == end


def test_a_node_that_is_down_keeps_its_place_and_others_go_on(nodes: Cluster) -> None:
    """Node 2 is killed with events unread; the stream goes on with the others and reads them when it is back."""
    reader = EventsStreamReader(options(nodes, startingOffsets="latest"))
    start = begin(reader)
    mine = nodes[2].add("q4", "x", "REPLICATE", 1).decode()
    settled(nodes)
    nodes[2].kill()
    other = nodes[0].add("q4", "y", "REPLICATE", 1).decode()
    end = reader.latestOffset(start, EVERYTHING)
    assert {row["key"] for row in read(reader, start, end) if row["type"] == "added"} == {other}
    assert end[nodes[2].id.decode()] == start[nodes[2].id.decode()]
    assert any(name.startswith("unreached") for name in reader.reportLatestOffset() or {})
    nodes[2].start()
    later = reader.latestOffset(end, EVERYTHING)
    assert mine in {row["key"] for row in read(reader, end, later) if row["type"] == "added"}


def test_a_batch_that_was_planned_with_a_node_fails_without_it_unless_told(nodes: Cluster) -> None:
    reader = EventsStreamReader(options(nodes, startingOffsets="latest"))
    start = begin(reader)
    nodes[2].add("q5", "x", "REPLICATE", 1)
    kept = nodes[0].add("q5", "x", "REPLICATE", 1).decode()
    settled(nodes)
    end = reader.latestOffset(start, EVERYTHING)
    nodes[2].kill()
    with pytest.raises(DataLoss, match=r"cannot be reached for its events .* failOnDataLoss=false"):
        read(EventsStreamReader(options(nodes, retrySeconds="0")), start, end)
    with pytest.raises(DataLoss, match=r"cannot be reached, so its events would be missing"):
        EventsReader(options(nodes)).partitions()
    careless = EventsStreamReader(options(nodes, failOnDataLoss="false", retrySeconds="0"))
    assert kept in {row["key"] for row in read(careless, start, end)}


def test_a_node_that_joins_is_read_from_its_beginning(nodes: Cluster) -> None:
    reader = EventsStreamReader(options(nodes))
    start = begin(reader)
    del start[nodes[1].id.decode()]  # as an offset from before node 1 was there
    (first,) = {row["key"] for row in read(reader, start, reader.latestOffset(start, EVERYTHING))
                if row["node"] == nodes[1].id.decode()} or (None,)
    assert first is None
    known = reader.latestOffset(start, EVERYTHING)
    assert nodes[1].id.decode() in known
    nodes[1].add("q6", "x", "REPLICATE", 1)
    settled(nodes)
    after = reader.latestOffset(known, EVERYTHING)
    assert any(row["node"] == nodes[1].id.decode() for row in read(reader, known, after))


def test_a_batch_reads_from_a_time_and_the_columns_asked_for(nodes: Cluster) -> None:
    work(nodes, "q7", 3)
    seconds, micros = nodes[0].ask("TIME")
    now = int(seconds) * 1000 + int(micros) // 1000 + 1
    until(lambda: int(nodes[0].ask("TIME")[0]) * 1000 + int(nodes[0].ask("TIME")[1]) // 1000 > now + 5)
    later = work(nodes, "q7", 3)
    wanted = options(nodes, startingTimestamp=str(now), columns="type,key,queue")
    assert schema(wanted) == "`type` string, `key` string, `queue` string"
    reader = EventsReader(wanted)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert {row["key"] for row in rows if row["queue"] == "q7"} >= later
    assert list(rows[0]) == ["type", "key", "queue"]
    everything = EventsReader(options(nodes))
    assert sum(len(batch) for part in everything.partitions() for batch in everything.read(part)) > len(rows)


@pytest.mark.parametrize(("words", "says"), [
    ({"startingOffsets": "sometime"}, "startingOffsets takes earliest, latest or JSON"),
    ({"startingOffsets": '{"abc": "nonsense"}'}, "is no place in a history"),
    ({"columns": "key,colour"}, "events have no column 'colour'"),
    ({"maxEventsPerTriger": "5"}, "did you mean maxEventsPerTrigger"),
    ({"failOnDataLoss": "perhaps"}, "failOnDataLoss takes true or false"),
])
def test_wrong_options_are_told(nodes: Cluster, words: dict[str, str], says: str) -> None:
    with pytest.raises(BadOption, match=says):
        EventsReader(options(nodes, **words)).partitions()


def test_a_cluster_without_a_history_says_how_to_switch_it_on(tmp_path_factory: pytest.TempPathFactory) -> None:
    from harness import Node

    with Node() as node, pytest.raises(BadOption, match="CONFIG SET history yes"):
        EventsReader(CaseInsensitiveDict({"url": f"holdfast://127.0.0.1:{node.port}"})).partitions()
