"""The lake as Delta tables, for programs that read those: `holdfast pipeline run --delta DIR`. Needs `deltalake`.

Our own lists of files (`lake.py`) stay what counts; each Delta table follows one of ours, days as partitions. A commit
replaces the days that have changed since the last one, and says in the same commit which folder each day was made from:
so it is known what is behind, a crash in between leaves a table that is a step behind, and nothing is written twice.
No deletion vectors and no column mapping: also readers that know only the oldest protocol can read it.
"""
from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .lake import Lake, LakeError, Table, parquet_files

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

FOLLOWED: Final = (
    "silver/events", "silver/jobs", "gold/queue_minute", "gold/worker_hour", "gold/failure_day", "gold/share_hour",
)
MADE_FROM: Final = "holdfast.parts"
"""In the commit: JSON of the day and the folder its rows came from."""
COMMITS: Final = 100
"""How far back it is looked for."""


def follow(lake: Lake, folder: Path) -> int:
    """Bring the Delta tables in `folder` up to the lake; how many commits that took."""
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise LakeError("Delta tables are written by deltalake: pip install 'holdfast[pipeline]'") from None
    return sum(follow_one(lake.table(name), folder / name) for name in FOLLOWED)


def follow_one(table: Table, place: Path) -> bool:
    """Whether there was anything to do."""
    from deltalake import CommitProperties, DeltaTable, write_deltalake

    now = {key: part.folder for key, part in table.now().parts.items()}
    there = DeltaTable(str(place)) if DeltaTable.is_deltatable(str(place)) else None
    before = made_from(there)
    changed = sorted(key for key, source in now.items() if before.get(key) != source)
    gone = sorted(key for key in before if key not in now)
    if not changed and not gone:
        return False
    note = CommitProperties(custom_metadata={MADE_FROM: json.dumps(now)})
    if there is None:
        write_deltalake(str(place), rows(table, now, changed), partition_by=["part"], commit_properties=note)
    elif changed:
        write_deltalake(there, rows(table, now, changed), mode="overwrite", schema_mode="merge",
                        predicate=one_of([*changed, *gone]), commit_properties=note)
    else:
        there.delete(one_of(gone), commit_properties=note)
    return True


def made_from(table: DeltaTable | None) -> dict[str, str]:
    """What the last commit of ours says; others (OPTIMIZE) may have come after it. If it is too old to be found, all
    days are written anew."""
    for commit in table.history(COMMITS) if table is not None else []:
        if MADE_FROM in commit:
            return dict(json.loads(commit[MADE_FROM]))
    return {}


def rows(table: Table, folders: Mapping[str, str], keys: list[str]) -> pa.RecordBatchReader:
    """The rows of some days with the day as a column, a file at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = [(key, file) for key in keys for file in parquet_files(table.folder / folders[key])]
    schema = pa.unify_schemas([pq.read_schema(file).remove_metadata() for _, file in files])

    def batches() -> Any:
        for key, file in files:
            for batch in pq.ParquetFile(file).iter_batches():
                whole = pa.Table.from_batches([batch])
                for field in schema:
                    if field.name not in whole.schema.names:
                        whole = whole.append_column(field, pa.nulls(len(whole), field.type))
                with_day = whole.select(schema.names).append_column("part", pa.repeat(key, len(whole)))
                yield from with_day.cast(named).to_batches()

    named = schema.append(pa.field("part", pa.string()))
    return pa.RecordBatchReader.from_batches(named, batches())


def one_of(keys: list[str]) -> str:
    """Days are dates, and have no quotes in them."""
    return f"part IN ({', '.join(repr(key) for key in keys)})"
