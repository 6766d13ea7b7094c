"""The tables of the lake, without Spark."""
from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.pipeline.lake import Lake, LakeError, Table


def write(table: Table, **columns: list[object]) -> Path:
    folder = table.new_folder()
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / "a.parquet")
    return folder


def test_a_part_written_again_replaces_itself(lake: Lake) -> None:
    table = lake.table("bronze/events")
    table.change({"s-0": write(table, n=[1, 2])})
    table.change({"s-1": write(table, n=[3])})
    table.change({"s-0": write(table, n=[1, 2])})
    assert sorted(table.to_arrow()["n"].to_pylist()) == [1, 2, 3]
    assert table.now().version == 3


def test_a_crash_before_the_list_leaves_the_table_as_it_was(lake: Lake) -> None:
    table = lake.table("gold/queue_minute")
    table.change({"2026-03-01": write(table, n=[1])}, read=["s-0@x"])
    write(table, n=[9])
    assert table.to_arrow()["n"].to_pylist() == [1]
    assert table.now().read == {"s-0@x"}


def test_two_writers_at_once_are_told(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second read the same list and makes the change of the same number."""
    table = lake.table("gold/queue_minute")
    before = table.now()
    table.change({"a": write(table, n=[1])})
    monkeypatch.setattr(Table, "now", lambda self: before)
    with pytest.raises(LakeError, match="somebody else writes"):
        table.change({"a": write(table, n=[2])})


def test_parts_know_their_rows_and_times(lake: Lake) -> None:
    table = lake.table("bronze/events")
    times = [dt.datetime(2026, 3, 1, tzinfo=dt.UTC), dt.datetime(2026, 3, 2, 5, tzinfo=dt.UTC)]
    part = table.change({"s-0": write(table, at=times)}, time_column="at").parts["s-0"]
    assert (part.rows, part.first[:10], part.last[:10]) == (2, "2026-03-01", "2026-03-02")


def test_old_lists_and_folders_go_when_no_reader_can_want_them(lake: Lake) -> None:
    table = lake.table("bronze/events")
    table.change({"s-0": write(table, n=[1])})
    table.change({"s-0": write(table, n=[2])})
    assert table.sweep() == 0
    for path in table.folder.iterdir():
        os.utime(path, (0, 0))
    assert table.sweep() == 2
    assert table.to_arrow()["n"].to_pylist() == [2]


def test_columns_that_older_files_lack_are_null(lake: Lake) -> None:
    table = lake.table("silver/jobs")
    table.change({"a": write(table, n=[1]), "b": write(table, n=[2], extra=["x"])})
    assert sorted(zip(*table.to_arrow().to_pydict().values(), strict=True)) == [(1, None), (2, "x")]


def test_a_lake_of_a_newer_version_is_refused_with_words(lake: Lake) -> None:
    (lake.folder / "lake.json").write_text(json.dumps({"form": 1, "schema": 99}))
    with pytest.raises(LakeError, match=r"newer Holdfast .*upgrade"):
        lake.check()


def test_what_is_no_lake_is_called_so(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="no lake: make one with"):
        Lake(tmp_path).check()
    with pytest.raises(LakeError, match="there is no table gold/nothing"):
        Lake(tmp_path).table("gold/nothing")


def test_a_damaged_list_is_named(lake: Lake) -> None:
    table = lake.table("silver/jobs")
    table.change({"a": write(table, n=[1])})
    (table.folder / "_parts-00000002.json").write_text("{")
    with pytest.raises(LakeError, match=r"_parts-00000002.json is damaged .*remove it"):
        table.now()
