"""Histories into bronze, against real nodes, with executors that are functions here: no Java."""
from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cluster_harness import until
from places import now, url

from holdfast.pipeline import frames
from holdfast.pipeline import ingest as module
from holdfast.pipeline import run as runner
from holdfast.pipeline.ingest import Done, Piece, fetch
from holdfast.pipeline.lake import Lake, LakeError, Table
from holdfast.pipeline.sources.histories import Histories
from holdfast.pipeline.sources.places import Offset
from holdfast.pipeline.store import Store

if TYPE_CHECKING:
    from cluster_harness import Cluster


@pytest.fixture
def nodes(three: Cluster) -> Iterator[Cluster]:
    three.mend()
    yield three


class Executors:
    """Runs tasks one after the other, as travelled objects, and may write to another disk or come to harm first."""

    def __init__(self, disk: Path | None = None) -> None:
        self.disk = disk
        self.before: Any = lambda piece: None

    def __call__(
        self, spark: Any, pieces: list[Piece], histories: Histories, store: Store, folder: str
    ) -> list[Done]:
        done = []
        for piece in pieces:
            self.before(piece)
            travelled, here, there = pickle.loads(pickle.dumps((histories, piece, store)))
            done.append(fetch(travelled, here, Store.at(self.disk) if self.disk else there, folder))
        return done


@pytest.fixture
def executors(monkeypatch: pytest.MonkeyPatch) -> Executors:
    made = Executors()
    monkeypatch.setattr(module, "on_executors", made)
    return made


class Stream:
    """What `holdfast pipeline run` does but for silver and gold."""

    def __init__(self, lake: Lake, cluster: Cluster, starting: str, retry_s: float = 0.0, **words: Any) -> None:
        self.said: list[str] = []
        plan = runner.Plan(url(cluster), once=True, starting=starting, retry_s=retry_s, **words)
        self.lake = lake
        self.reading = runner.Reading(None, lake, Histories(plan.options(starting)), plan, self.said.append,  # type: ignore[arg-type]
                                      runner.place_of(lake) or Offset())

    def catch_up(self) -> int:
        before = self.reading.rows
        self.reading.catch_up(threading.Event())
        return self.reading.rows - before


def jobs(lake: Lake, queue: str) -> list[str]:
    """The ids that `added` tells of, as often as it does."""
    rows = lake.table("bronze/events").to_arrow().to_pylist()
    return sorted(row["job_id"] for row in rows if row["queue"] == queue and row["type"] == "added")


def add(cluster: Cluster, queue: str, count: int, only: int | None = None) -> list[str]:
    ids = [cluster[number % 3 if only is None else only].add(queue, "x", "REPLICATE", 1).decode()
           for number in range(count)]
    for node in cluster.living():
        node.ask("PING")
    return sorted(ids)


def test_events_and_the_place_they_reach_to_are_one_commit(nodes: Cluster, lake: Lake, executors: Executors) -> None:
    here = now(nodes)
    ids = add(nodes, "b1", 30)
    stream = Stream(lake, nodes, here, max_events=9)
    assert stream.catch_up() == 30
    assert jobs(lake, "b1") == ids
    assert runner.place_of(lake) == stream.reading.at
    assert Stream(lake, nodes, here).catch_up() == 0
    more = add(nodes, "b1", 3)
    assert Stream(lake, nodes, here).catch_up() == 3
    assert jobs(lake, "b1") == sorted(ids + more)


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_driver_that_dies_between_files_and_list_loses_and_doubles_nothing(
    nodes: Cluster, lake: Lake, executors: Executors, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """The list of the first, the second or the third commit is not written, though the files are."""
    here = now(nodes)
    ids = add(nodes, "b2", 12)
    real = Table.change
    calls = iter(range(1, 100))

    def change(table: Table, *args: Any, **words: Any) -> Any:
        if next(calls) == nth:
            raise OSError("the driver dies here")
        return real(table, *args, **words)

    with monkeypatch.context() as patch:
        patch.setattr(Table, "change", change)
        with pytest.raises(OSError, match="dies here"):
            Stream(lake, nodes, here, max_events=3).catch_up()
    Stream(lake, nodes, here, max_events=3).catch_up()
    assert jobs(lake, "b2") == ids


def test_executors_on_other_disks_are_found_out_before_anything_is_committed(
    nodes: Cluster, lake: Lake, executors: Executors, tmp_path: Path
) -> None:
    here = now(nodes)
    ids = add(nodes, "b3", 6)
    stream = Stream(lake, nodes, here)
    executors.disk = tmp_path / "elsewhere"
    with pytest.raises(LakeError, match=r"not there on this machine: nothing was committed.* all executors share"):
        stream.catch_up()
    assert jobs(lake, "b3") == []
    executors.disk = None
    assert Stream(lake, nodes, here).catch_up() == 6
    assert jobs(lake, "b3") == ids


def test_a_file_with_fewer_rows_than_were_read_is_not_committed(
    nodes: Cluster, lake: Lake, executors: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = now(nodes)
    add(nodes, "b4", 6)
    monkeypatch.setattr(frames, "rows_in", lambda store, path: 1)
    with pytest.raises(LakeError, match=r"has 1 rows, and 2 were written: nothing was committed"):
        Stream(lake, nodes, here).catch_up()
    assert jobs(lake, "b4") == []


def test_a_node_that_goes_away_after_it_was_planned_keeps_nobody_else_waiting(
    nodes: Cluster, lake: Lake, executors: Executors
) -> None:
    """It is killed before its task; the others' rows are committed, and its own are when it is back."""
    here = now(nodes)
    ids = add(nodes, "b5", 9)
    executors.before = lambda piece: nodes[2].kill() if nodes[2] in nodes.living() else None
    stream = Stream(lake, nodes, here)
    assert stream.catch_up() == 6
    gone = nodes[2].id.decode()
    assert [words.split(",")[0] for words in stream.said if "node" in words] == [f"node {gone[:8]} is away"]
    more = add(nodes, "b5", 2, only=0)
    assert stream.catch_up() == 2
    assert len(jobs(lake, "b5")) == 8
    nodes[2].start()
    executors.before = lambda piece: None
    stream.catch_up()
    assert jobs(lake, "b5") == sorted(ids + more)
    assert f"node {gone[:8]} is back" in stream.said


def test_a_node_that_restarts_while_it_is_read_is_asked_again(
    nodes: Cluster, lake: Lake, executors: Executors
) -> None:
    here = now(nodes)
    ids = add(nodes, "b6", 9)
    back: list[threading.Thread] = []

    def restart(piece: Piece) -> None:
        if piece.node == nodes[1].id.decode() and not back:
            nodes[1].kill()
            back.append(threading.Thread(target=nodes[1].start))
            back[0].start()

    executors.before = restart
    stream = Stream(lake, nodes, here, retry_s=60.0)
    assert stream.catch_up() >= 9
    back[0].join()
    assert jobs(lake, "b6") == ids
    assert not [words for words in stream.said if "away" in words]
    until(lambda: len(nodes.living()) == 3)


def test_a_lake_of_an_earlier_version_is_read_on_from_its_checkpoint(
    nodes: Cluster, lake: Lake, executors: Executors
) -> None:
    """Spark's log of offsets: the last that is committed counts, a batch that was only planned does not."""
    import json

    here = now(nodes)
    add(nodes, "b7", 3)
    first = Stream(lake, nodes, here).reading.histories
    before = first.end(Offset.load(json.loads(here)), None)
    ids = add(nodes, "b7", 4)
    planned = first.end(before, None)
    folder = lake.folder / runner.CHECKPOINT
    for name, offset in (("0", here), ("1", json.dumps(before.dump())), ("2", json.dumps(planned.dump()))):
        (folder / "offsets").mkdir(parents=True, exist_ok=True)
        (folder / "offsets" / name).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offset}')
        if name != "2":
            (folder / "commits").mkdir(parents=True, exist_ok=True)
            (folder / "commits" / name).write_text('v1\n{"nextBatchWatermarkMs":0}')
    Stream(lake, nodes, "earliest").catch_up()
    assert jobs(lake, "b7") == ids
    other = Lake(lake.folder.parent / "other").create()
    (other.folder / runner.CHECKPOINT / "commits").mkdir(parents=True)
    (other.folder / runner.CHECKPOINT / "commits" / "0").write_text("v1\n{}")
    with pytest.raises(LakeError, match=r"is damaged .*move it away"):
        runner.place_of(other)


def test_two_pipelines_on_one_lake_read_every_event_once(nodes: Cluster, lake: Lake, executors: Executors) -> None:
    """The second plans the same batch, and commits it first: the other one's files are named by nobody."""
    here = now(nodes)
    ids = add(nodes, "b8", 9)
    first, second = Stream(lake, nodes, here, max_events=3), Stream(lake, nodes, here, max_events=3)
    turns = iter([lambda: None, second.catch_up])
    executors.before = lambda piece: next(turns, lambda: None)()
    first.catch_up()
    assert jobs(lake, "b8") == ids
    assert [words for words in first.said if "another pipeline has read meanwhile" in words]
    assert first.reading.at == second.reading.at == runner.place_of(lake)
