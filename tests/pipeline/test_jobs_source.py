"""The jobs source as plain Python objects against three real nodes: no Java."""
from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from cluster_harness import until
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadMaxRows

from holdfast.pipeline.sources.jobs import ClaimGone, Fenced, JobsStreamReader
from holdfast.pipeline.sources.options import BadOption

if TYPE_CHECKING:
    from cluster_harness import Cluster

MANY = ReadMaxRows(1000)


@pytest.fixture
def nodes(three: Cluster) -> Iterator[Cluster]:
    three.mend()
    yield three


def reader(cluster: Cluster, **words: str) -> JobsStreamReader:
    url = "holdfast://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster)
    return JobsStreamReader(CaseInsensitiveDict({"url": url, "subscribe": "work", **words}))


def add(cluster: Cluster, count: int, *words: str | int) -> set[str]:
    return {cluster[number % 3].add("work", f"b{number}", *words).decode() for number in range(count)}


def read(source: JobsStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    parts = pickle.loads(pickle.dumps(source.partitions(start, end)))
    travelled = pickle.loads(pickle.dumps(source))
    return [row for part in parts for batch in travelled.read(part) for row in batch.to_pylist()]


def logged(offset: dict[str, Any]) -> dict[str, Any]:
    """As it comes back from Spark's log."""
    return dict(json.loads(json.dumps(offset)))


def test_batches_are_read_again_alike_and_acked_when_the_next_is_asked_for(nodes: Cluster) -> None:
    ids = add(nodes, 30, "HEADERS", 1, "colour", "red", "TENANT", "acme")
    source = reader(nodes, fetchSize="3", numPartitions="4")
    start = source.initialOffset()
    end = source.latestOffset(start, MANY)
    assert source.latestOffset(start, MANY) == end, "asked again, it is the same batch"
    rows = read(source, start, end)
    assert {row["id"] for row in rows} == ids and len(rows) == 30
    assert read(source, start, end) == rows
    assert rows[0]["headers"] == [("colour", "red")] and rows[0]["tenant"] == "acme" and rows[0]["attempt"] == 1
    assert {row["claim_seq"] for row in rows} == {1}
    assert nodes.queued("work") == 0 and len(nodes.copies("work")) == 30
    assert source.latestOffset(end, MANY) == end, "nothing more to take"
    nodes.wait_until_gone(*[job.encode() for job in ids])
    source.commit(end)
    source.stop()


def test_limits_bound_a_batch_and_available_now_takes_what_was_there(nodes: Cluster) -> None:
    add(nodes, 20)
    source = reader(nodes, maxJobsPerTrigger="7")
    assert source.getDefaultReadLimit() == ReadMaxRows(7)
    source.prepareForTriggerAvailableNow()
    add(nodes, 5)
    at, sizes = source.initialOffset(), []
    while (end := source.latestOffset(at, ReadMaxRows(7))) != at:
        sizes.append(len(read(source, at, end)))
        at = end
    assert sum(sizes) == 20 and max(sizes) <= 7
    assert nodes.queued("work") == 5
    source.stop()


def test_every_node_has_its_turn_though_each_has_more_than_a_batch_takes(nodes: Cluster) -> None:
    add(nodes, 30)
    source = reader(nodes)
    at = source.initialOffset()
    begun: set[str] = set()
    for _ in range(3):
        at = source.latestOffset(at, ReadMaxRows(3))
        begun |= at["claims"].keys()
    assert begun == {node.id.decode() for node in nodes}
    source.stop()


def test_a_driver_that_died_after_the_claim_gets_the_same_batch(nodes: Cluster) -> None:
    """Between the claim and Spark's log, and after the log: another process, which only has the checkpoint."""
    add(nodes, 10)
    first = reader(nodes)
    start = first.initialOffset()
    end = first.latestOffset(start, MANY)
    rows = read(first, start, end)
    second = reader(nodes)
    assert second.latestOffset(logged(start), MANY) == end
    third = reader(nodes)
    assert read(third, logged(start), logged(end)) == rows
    third.commit(end)
    until(lambda: not nodes.copies("work"))


def test_a_stream_on_a_copied_checkpoint_fences_the_first(nodes: Cluster) -> None:
    add(nodes, 4)
    zombie = reader(nodes)
    start = zombie.initialOffset()
    end = zombie.latestOffset(start, MANY)
    heir = reader(nodes)
    rows = read(heir, logged(start), logged(end))
    with pytest.raises(Fenced, match="must not share a checkpoint"):
        zombie.commit(end)
    with pytest.raises(Fenced):
        zombie.latestOffset(end, MANY)
    assert len(nodes.copies("work")) == 4, "it has committed nothing"
    assert read(heir, logged(start), logged(end)) == rows
    heir.commit(end)
    until(lambda: not nodes.copies("work"))


def test_a_batch_whose_lease_is_over_comes_again_later(nodes: Cluster) -> None:
    """The heart of the first driver stops; its jobs come back under another number, and none is lost."""
    ids = add(nodes, 6, "RETRY", 2)
    source = reader(nodes, leaseSeconds="3")
    start = source.initialOffset()
    end = source.latestOffset(start, MANY)
    assert source.heart is not None
    source.heart.set()
    until(lambda: nodes.queued("work") == 6)
    with pytest.raises(ClaimGone, match="failOnDataLoss=false"):
        read(reader(nodes), logged(start), logged(end))
    careless = reader(nodes, failOnDataLoss="false")
    assert read(careless, logged(start), logged(end)) == []
    later = careless.latestOffset(logged(end), MANY)
    assert {row["id"] for row in read(careless, end, later)} == ids and later["seq"] == 2
    careless.commit(later)


def test_the_heart_keeps_a_claim_beyond_its_lease(nodes: Cluster) -> None:
    add(nodes, 3, "RETRY", 2)
    source = reader(nodes, leaseSeconds="3")
    start = source.initialOffset()
    end = source.latestOffset(start, MANY)
    begun = nodes[0].ask("TIME")
    until(lambda: int(nodes[0].ask("TIME")[0]) - int(begun[0]) > 7)
    assert len(read(source, start, end)) == 3
    source.commit(end)
    source.stop()


def test_a_driver_that_is_back_has_the_time_of_a_whole_lease_for_its_replay(nodes: Cluster) -> None:
    """Spark does not ask for an offset before it replays a batch, only for its parts."""
    add(nodes, 3)
    source = reader(nodes, leaseSeconds="30")
    start = source.initialOffset()
    end = source.latestOffset(start, MANY)
    source.stop()
    back = reader(nodes, leaseSeconds="500")
    assert len(read(back, logged(start), logged(end))) == 3
    left = [claim[3] for node in nodes for claim in node.ask("CLAIM", "INFO", end["group"])]
    assert len(left) == len(end["claims"]) and min(left) > 400_000
    back.commit(end)
    back.stop()


def test_a_claim_survives_the_restart_of_its_node_and_comes_back_without_it(nodes: Cluster) -> None:
    ids = add(nodes, 9, "RETRY", 5)
    source = reader(nodes, leaseSeconds="60")
    start = source.initialOffset()
    end = source.latestOffset(start, MANY)
    rows = read(source, start, end)
    nodes[1].kill()
    with pytest.raises(ClaimGone, match="cannot be reached"):
        read(reader(nodes), start, end)
    nodes[1].start()
    nodes.settle()
    again = reader(nodes)
    assert read(again, start, end) == rows and {row["id"] for row in rows} == ids
    again.commit(end)
    until(lambda: not nodes.copies("work"))


def test_queues_by_a_pattern_and_options_that_are_wrong(nodes: Cluster) -> None:
    nodes[0].add("mail-a", "x")
    nodes[1].add("mail-b", "x")
    nodes[2].add("other", "x")
    url = f"holdfast://127.0.0.1:{nodes[0].port}"
    source = JobsStreamReader(CaseInsensitiveDict({"url": url, "subscribePattern": "mail-*"}))
    start = source.initialOffset()
    assert {row["queue"] for row in read(source, start, source.latestOffset(start, MANY))} == {"mail-a", "mail-b"}
    source.stop()
    for words, says in (({}, "say which queues"), ({"subscribe": "q", "leaseSeconds": "1"}, "at least 3")):
        with pytest.raises(BadOption, match=says):
            JobsStreamReader(CaseInsensitiveDict({"url": url, **words}))
