"""The tables of the lake, without Spark."""
from __future__ import annotations

import datetime as dt
import json
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from holdfast.pipeline.lake import SETTINGS, Lake, LakeConflict, LakeError, Table
from holdfast.pipeline.migrate import migrate


def write(table: Table, **columns: list[object]) -> list[str]:
    path = f"{table.new_folder()}/a.parquet"
    table.store.make(path.partition("/")[0])
    pq.write_table(pa.table(columns), table.store.full(path), filesystem=table.store.fs)
    return [path]


def test_a_part_written_again_replaces_itself(lake: Lake) -> None:
    table = lake.table("bronze/events")
    table.change({"s-0": write(table, n=[1, 2])})
    table.change({"s-1": write(table, n=[3])})
    table.change({"s-0": write(table, n=[1, 2])})
    assert sorted(table.to_arrow()["n"].to_pylist()) == [1, 2, 3]
    assert table.now().version == 3


def test_a_crash_before_the_commit_leaves_the_table_as_it_was(lake: Lake) -> None:
    table = lake.table("gold/queue_minute")
    table.change({"2026-03-01": write(table, n=[1])}, read=["s-0@x"])
    write(table, n=[9])
    assert table.to_arrow()["n"].to_pylist() == [1]
    assert table.now().read == {"s-0@x"}


def test_what_a_table_was_made_from_is_known_after_checkpoints_and_commits_of_others(lake: Lake) -> None:
    """More commits than there are between two checkpoints, then an OPTIMIZE by somebody else."""
    table = lake.table("bronze/events")
    for number in range(int(SETTINGS["delta.checkpointInterval"]) + 5):
        table.change({f"s-{number}": write(table, n=[number])}, offset={"@since": number}, read=[str(number)])
    assert list((table.folder / "_delta_log").glob("*.checkpoint.parquet"))
    DeltaTable(str(table.folder)).optimize.compact()
    now = table.now()
    assert (now.version, now.offset, len(now.read)) == (25, {"@since": 24}, 25) and now.at > 0
    assert sorted(table.to_arrow()["n"].to_pylist()) == list(range(25))
    table.change({}, drop=["s-0"])
    assert table.now().offset == {"@since": 24} and "s-0" not in table.names()


def test_of_two_changes_made_on_the_same_one_wins_and_the_other_is_told(lake: Lake) -> None:
    """Whether they replace the same day, make a new one, or write nothing at all."""
    table = lake.table("gold/queue_minute")
    table.change({"a": write(table, n=[1])})
    before = table.now()
    table.change({"a": write(table, n=[2])}, on=before)
    for written in ({"a": write(table, n=[3])}, {"b": write(table, n=[4])}, {}):
        with pytest.raises(LakeConflict, match="somebody else has changed"):
            table.change(written, on=before)
    assert table.to_arrow()["n"].to_pylist() == [2]


def four_writers(lake: Lake, count: int) -> int:
    """Each adds so many parts, and does a change again that somebody else was faster with; how often that was."""
    table = lake.table("bronze/events")
    table.change({"first": write(table, n=[-1])})
    conflicts: list[int] = []

    def go(writer: int) -> None:
        for number in range(count):
            files = write(table, n=[writer * 100 + number])
            while True:
                now = table.now()
                try:
                    table.change({f"{writer}-{number}": files}, on=now, read=[f"{writer}-{number}"])
                    break
                except LakeConflict:
                    conflicts.append(writer)

    threads = [threading.Thread(target=go, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = sorted([-1, *(writer * 100 + number for writer in range(4) for number in range(count))])
    assert sorted(table.to_arrow()["n"].to_pylist()) == expected
    assert (table.now().version, len(table.now().read)) == (4 * count + 1, 4 * count)
    return len(conflicts)


def test_four_writers_at_once_lose_nothing_and_double_nothing(lake: Lake) -> None:
    assert four_writers(lake, 10), "they were at it at the same time"


def test_parts_know_their_rows_and_times(lake: Lake) -> None:
    table = lake.table("bronze/events")
    times: list[object] = [dt.datetime(2026, 3, 1, tzinfo=dt.UTC), dt.datetime(2026, 3, 2, 5, tzinfo=dt.UTC)]
    table.change({"s-0": write(table, at=times)})
    part = table.now().parts["s-0"]
    assert (part.rows, part.first[:10], part.last[:10]) == (2, "2026-03-01", "2026-03-02")
    assert dt.datetime.fromisoformat(part.first) == times[0]


def test_old_files_go_when_no_reader_can_want_them(lake: Lake) -> None:
    """What was replaced, and what a crash left."""
    table = lake.table("bronze/events")
    table.change({"s-0": write(table, n=[1])})
    table.change({"s-0": write(table, n=[2])})
    write(table, n=[3])
    assert table.sweep() == 0
    for path in table.folder.rglob("*.parquet"):
        os.utime(path, (0, 0))
    assert table.sweep() == 1
    assert table.sweep(0) == 1
    assert table.to_arrow()["n"].to_pylist() == [2]
    assert len(list(table.folder.glob("*/*.parquet"))) == 1


def test_columns_that_older_files_lack_are_null(lake: Lake) -> None:
    table = lake.table("silver/jobs")
    table.change({"a": write(table, n=[1])})
    table.change({"b": write(table, n=[2], extra=["x"])})
    assert sorted(zip(*table.to_arrow().to_pydict().values(), strict=True)) == [(1, None), (2, "x")]
    found = DeltaTable(str(table.folder)).to_pyarrow_table().to_pylist()
    assert sorted(found, key=str) == [{"n": 1, "extra": None, "part": "a"}, {"n": 2, "extra": "x", "part": "b"}]


def test_other_programs_read_what_we_read(lake: Lake) -> None:
    """delta-rs and pandas by it; protocol 1/2, so every reader of Delta tables may."""
    table = lake.table("silver/events")
    table.change({"2026-03-01": write(table, n=[1, 2]), "2026-03-02": write(table, n=[3])})
    table.change({"2026-03-01": write(table, n=[4])})
    delta = DeltaTable(str(table.folder))
    assert sorted(delta.to_pandas()["n"]) == sorted(table.to_arrow()["n"].to_pylist()) == [3, 4]
    protocol = delta.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)


def test_a_lake_of_a_newer_version_is_refused_with_words(lake: Lake) -> None:
    for said in ({"form": 2, "schema": 99}, {"form": 99, "schema": 1}):
        (lake.folder / "lake.json").write_text(json.dumps(said))
        with pytest.raises(LakeError, match=r"newer Holdfast .*upgrade"):
            lake.check()


def test_what_is_no_lake_is_called_so(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="no lake: make one with"):
        Lake(tmp_path).check()
    with pytest.raises(LakeError, match="there is no table gold/nothing"):
        Lake(tmp_path).table("gold/nothing")


def test_a_place_that_cannot_be_used_is_refused_with_words(tmp_path: Path) -> None:
    for place in ("hdfs://host/lake", "abfss://a@b/lake", "gs://bucket/lake"):
        with pytest.raises(LakeError, match=rf"a lake cannot be in {place.partition(':')[0]}: it is a folder, or s3:"):
            Lake(place)
    with pytest.raises(LakeError, match="names no bucket and prefix"):
        Lake("s3://bucket")
    assert Lake(f"file://{tmp_path}/x").folder == tmp_path / "x"
    assert Lake("s3:/bucket/lake").store.root == "s3://bucket/lake", "as a Path would have it"


def test_a_damaged_log_is_named(lake: Lake) -> None:
    table = lake.table("silver/jobs")
    table.change({"a": write(table, n=[1])})
    (last,) = (table.folder / "_delta_log").glob("*1.json")
    last.write_text("{")
    with pytest.raises(LakeError, match=r"the log of the table in .* is damaged .*restore"):
        table.now()


def old_list(table: Table, version: int, parts: dict[str, list[str]], **words: Any) -> None:
    """What an earlier version wrote."""
    (table.folder / f"_parts-{version:08d}.json").write_text(json.dumps({
        "form": 1, "version": version, "read": [], **words,
        "parts": {key: {"folder": files[0].partition("/")[0], "rows": 1, "size": 9, "first": "",
                        "last": ""} for key, files in parts.items()}}))


def test_a_lake_of_lists_is_migrated_without_a_copy_and_goes_on_where_it_was(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch is in silver, another is not yet; a folder from before is named by no list. The first try dies."""
    bronze, silver = lake.table("bronze/events"), lake.table("silver/events")
    batches = {"s-0": write(bronze, n=[1]), "s-1": write(bronze, n=[2])}
    old_list(bronze, 6, {"s-0": batches["s-0"]})
    old_list(bronze, 7, batches)
    write(silver, n=[99])
    read = [f"s-0@{batches['s-0'][0].partition('/')[0]}", "s-9@gone"]
    old_list(silver, 3, {"2026-03-01": write(silver, n=[1])}, read=read)
    (lake.folder / "lake.json").write_text(json.dumps({"form": 1, "schema": 1}))
    with pytest.raises(LakeError, match="holdfast pipeline migrate"):
        lake.check()
    files = {path: path.stat().st_ino for path in lake.folder.rglob("*.parquet")}
    with monkeypatch.context() as patch:
        patch.setattr(Lake, "mark", lambda lake: (_ for _ in ()).throw(OSError("no space")))
        with pytest.raises(OSError, match="no space"):
            migrate(lake)
    counts = migrate(lake)
    assert (counts["bronze/events"], counts["silver/events"], counts["silver/jobs"]) == (2, 1, 0)
    lake.check()
    assert silver.to_arrow()["n"].to_pylist() == [1]
    now = bronze.now()
    assert sorted(now.parts) == ["s-0", "s-1"] and now.offset is None
    assert silver.now().read == {f"s-0@{now.parts['s-0'].name}"}
    assert {path: path.stat().st_ino for path in lake.folder.rglob("*.parquet")} == files
    assert not list(lake.folder.rglob("_parts-*"))
    with pytest.raises(LakeError, match="nothing to migrate"):
        migrate(lake)
