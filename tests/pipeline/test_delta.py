"""Delta tables that follow the lake; no Java."""
from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from holdfast.pipeline import delta
from holdfast.pipeline.lake import Lake, LakeError

JOBS = "silver/jobs"


def put(lake: Lake, day: str, rows: list[dict[str, Any]], **words: Any) -> None:
    """One part of silver jobs, written anew."""
    table = lake.table(JOBS)
    folder = table.new_folder()
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet")
    table.change({day: folder}, **words)


def job(name: str, **more: Any) -> dict[str, Any]:
    return {"job_id": name, "added_at": dt.datetime(2026, 3, 1, tzinfo=dt.UTC), **more}


def found(folder: Path) -> list[tuple[str, str]]:
    rows = DeltaTable(str(folder / JOBS)).to_pyarrow_table().to_pylist()
    return sorted((row["part"], row["job_id"]) for row in rows)


def test_a_delta_table_has_what_the_lake_has_and_only_changed_days_are_written(lake: Lake, tmp_path: Path) -> None:
    out = tmp_path / "delta"
    put(lake, "2026-03-01", [job("a"), job("b")])
    put(lake, "2026-03-02", [job("c")])
    assert delta.follow(lake, out) == 1
    assert found(out) == [("2026-03-01", "a"), ("2026-03-01", "b"), ("2026-03-02", "c")]
    assert delta.follow(lake, out) == 0 and DeltaTable(str(out / JOBS)).version() == 0
    kept = {uri for uri in DeltaTable(str(out / JOBS)).file_uris() if "part=2026-03-02" in uri}
    put(lake, "2026-03-01", [job("a"), job("late")])
    assert delta.follow(lake, out) == 1
    assert found(out) == [("2026-03-01", "a"), ("2026-03-01", "late"), ("2026-03-02", "c")]
    assert kept <= set(DeltaTable(str(out / JOBS)).file_uris()), "the other day was not touched"


def test_days_that_went_go_and_columns_that_came_come(lake: Lake, tmp_path: Path) -> None:
    out = tmp_path / "delta"
    put(lake, "2026-03-01", [job("old")])
    put(lake, "2026-03-02", [job("c")])
    delta.follow(lake, out)
    put(lake, "2026-03-03", [job("new", tenant="acme")], drop=["2026-03-01"])
    delta.follow(lake, out)
    assert found(out) == [("2026-03-02", "c"), ("2026-03-03", "new")]
    rows = DeltaTable(str(out / JOBS)).to_pyarrow_table().to_pylist()
    assert {row["job_id"]: row["tenant"] for row in rows} == {"c": None, "new": "acme"}
    lake.table(JOBS).change({}, drop=["2026-03-02"])
    delta.follow(lake, out)
    assert found(out) == [("2026-03-03", "new")]


def test_a_commit_of_somebody_else_does_not_make_it_forget(lake: Lake, tmp_path: Path) -> None:
    out = tmp_path / "delta"
    put(lake, "2026-03-01", [job("a")])
    put(lake, "2026-03-01", [job("a"), job("b")])
    delta.follow(lake, out)
    table = DeltaTable(str(out / JOBS))
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 30 days"})
    assert delta.follow(lake, out) == 0


def test_without_the_package_it_says_what_to_install(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(LakeError, match=r"pip install 'holdfast\[pipeline\]'"):
        delta.follow(lake, tmp_path / "delta")
