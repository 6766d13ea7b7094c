"""The lake: Delta tables in a folder or a store (`store.py`), committed by delta-rs. Needs no Spark, and no jar.

    lake/
      lake.json                             version of the lake's form
      silver/jobs/
        _delta_log/                         what the table consists of: one commit after the other
        5f2c…/part=2026-11-17/*.parquet     files; those no commit names are left over from a crash

Executors write Parquet files, the driver names them in a commit. A table is parts by name (`2026-11-17`; for bronze the
batch), and a part is some files: the partition column `part`. A change takes the files of the parts it writes out and
puts new ones in, all at once or not at all: readers see the table before or after it, a crash leaves files nobody
names, and writing a part again replaces it.

Each commit says, beside its files, what the table was made from (`read`) and up to where the histories were read
(`offset`): what was done and what was done it for cannot come apart. It also has the number of the change as a Delta
transaction of ours, one more than that of the change it was made on. Of two writers that made theirs on the same change
one wins, and the other is told (`LakeConflict`), makes its change anew on what there is then, and needs no lock.

Any reader of Delta tables can read them: protocol 1/2, no deletion vectors, no column mapping.
"""
from __future__ import annotations

import datetime as dt
import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .store import BadPlace, Store

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORM: Final = 2
"""Version of `lake.json` and of how tables are kept. 1 was lists of files of our own (`holdfast pipeline migrate`). A
lake of a higher one was written by a newer Holdfast."""
SCHEMA: Final = 2
"""Version of the tables' columns. Columns are only ever added, and may be null in older files."""
READERS_H: Final = 1
"""Hours for which files that are no longer part of a table stay, for those who are still reading."""
MARK: Final = "lake.json"
UNNAMED_H: Final = 24
"""Hours for which files stay that no commit names: longer than any change takes from its first file to its commit."""
PART: Final = "part"
NOTE: Final = "holdfast"
"""In each commit of ours: JSON of what the table was made from. Also the name of our transactions."""
FOREIGN_MAX: Final = 1000
"""Commits of others (OPTIMIZE, say) among which the last one of ours is looked for."""
SETTINGS: Final = {
    "delta.checkpointInterval": "20",  # commits that a reader has to go through at most
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": f"interval {READERS_H} hours",
}
TABLES: Final = (
    "bronze/events", "silver/events", "silver/jobs", "gold/queue_minute", "gold/worker_hour", "gold/failure_day",
    "gold/share_hour",
)


class LakeError(RuntimeError):
    """The lake cannot be read or written; the text says what to do."""


class LakeConflict(LakeError):
    """Somebody else has changed the table meanwhile. Nothing was changed by us: do it again on what is there now."""


@dataclass(frozen=True)
class File:
    """A Parquet file of a table: where it is (below the table's folder), how many rows, first and last time."""

    path: str
    size: int
    rows: int
    first: str = ""
    last: str = ""


@dataclass(frozen=True)
class Part:
    """One part of a table."""

    files: tuple[File, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def first(self) -> str:
        return min((file.first for file in self.files if file.first), default="")

    @property
    def last(self) -> str:
        return max((file.last for file in self.files), default="")

    @property
    def name(self) -> str:
        """Another one for each time the part is written."""
        return self.files[0].path


@dataclass(frozen=True)
class Parts:
    """What a table consists of at one moment."""

    version: int = 0
    """How often we have changed it."""
    parts: Mapping[str, Part] = field(default_factory=dict)
    read: frozenset[str] = frozenset()
    offset: Mapping[str, Any] | None = None
    """Of bronze: up to where the histories were read for it."""
    at: float = 0.0
    """When that was, in unix seconds."""
    delta: DeltaTable | None = field(default=None, compare=False, repr=False)
    """The table as it was then; changes are made on it."""


class Lake:
    """A folder of tables."""

    def __init__(self, place: str | Path) -> None:
        try:
            self.store = Store.at(place)
        except BadPlace as error:
            raise LakeError(str(error)) from None

    @property
    def folder(self) -> Path:
        """Of a lake that is in one."""
        return self.store.folder

    def table(self, name: str) -> Table:
        if name not in TABLES:
            raise LakeError(f"there is no table {name}; there are {', '.join(TABLES)}")
        return Table(self.store.child(name), name)

    def frame(self, spark: SparkSession, name: str) -> DataFrame:
        """A table as a DataFrame of Spark, as it is now; no jar is needed."""
        from .frames import load

        return load(spark, self.check().table(name), schema_of(name))

    def create(self) -> Lake:
        """Make the folder, or see that it is a lake that we know how to write."""
        self.store.make()
        if not self.store.exists(MARK) or self.check().said()["schema"] < SCHEMA:
            self.mark()
        return self.check()

    def mark(self) -> None:
        """Say that this is a lake of this version."""
        self.store.write_text(MARK, json.dumps({"form": FORM, "schema": SCHEMA}))

    def said(self) -> dict[str, int]:
        """The versions that `lake.json` has."""
        try:
            said = json.loads(self.store.read_text(MARK))
            return {"form": int(said.get("form", 0)), "schema": int(said.get("schema", 1))}
        except FileNotFoundError:
            raise LakeError(f"{self.store} is no lake: make one with `holdfast pipeline run --lake DIR`") from None
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise LakeError(
                f"{MARK} in {self.store} cannot be read ({error}); restore it from a copy of the lake") from error

    def check(self) -> Lake:
        """`LakeError` unless it is a lake that this version can read."""
        said = self.said()
        if said["form"] > FORM or said["schema"] > SCHEMA:
            raise LakeError(
                f"{self.store} was written by a newer Holdfast (form {said['form']}, schema {said['schema']}; "
                f"this one knows {FORM} and {SCHEMA}): upgrade this one, or use another folder"
            )
        if said["form"] < FORM:
            raise LakeError(
                f"{self.store} is a lake of an earlier version: `holdfast pipeline migrate --lake {self.store}` "
                "makes Delta tables of the same files; no file is copied"
            )
        return self


class Table:
    """One table of a lake. Many may read it, and many may change it."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name

    @property
    def folder(self) -> Path:
        """Of a table that is in one."""
        return self.store.folder

    # -- what it consists of -------------------------------------------------------------------------------

    def delta(self) -> DeltaTable | None:
        """The Delta table; None if nothing was ever written."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            if not DeltaTable.is_deltatable(self.store.root, self.store.for_delta()):
                return None
            return DeltaTable(self.store.root, storage_options=self.store.for_delta())
        except TableNotFoundError:
            return None
        except (DeltaError, OSError, ValueError) as error:
            raise LakeError(
                f"the log of the table in {self.store} is damaged ({first_line(error)}); restore _delta_log from a "
                "copy of the lake, or remove the folders of all tables to read the history again"
            ) from error

    def now(self) -> Parts:
        """What it consists of now."""
        import pyarrow as pa

        delta = self.delta()
        if delta is None:
            return Parts()
        parts: dict[str, list[File]] = {}
        for each in pa.table(delta.get_add_actions(flatten=True)).to_pylist():
            first, last = (said.isoformat() if (said := each.get(name)) else "" for name in ("min.at", "max.at"))
            parts.setdefault(each[f"partition.{PART}"], []).append(
                File(each["path"], each["size_bytes"], each["num_records"] or 0, first, last))
        note = self.note(delta)
        return Parts(
            note["version"], {key: Part(tuple(sorted(files, key=lambda file: file.path)))
                              for key, files in parts.items()},
            frozenset(note["read"]), note["offset"], note["at"], delta,
        )

    def note(self, delta: DeltaTable) -> dict[str, Any]:
        """What the last commit of ours says; others may have come after it."""
        version = delta.transaction_version(NOTE) or 0
        if version:
            for commit in delta.history(FOREIGN_MAX):
                if NOTE in commit:
                    said: dict[str, Any] = json.loads(commit[NOTE])
                    if said["version"] == version:
                        return said
            raise LakeError(f"the last {FOREIGN_MAX} commits of {self.store} do not say what the table was made from: "
                            "did another program rewrite it?")
        return {"version": 0, "read": [], "offset": None, "at": 0.0}

    def paths(self, keys: Iterable[str] | None = None, on: Parts | None = None) -> list[str]:
        """Files of all parts, or of those named, below the table's folder."""
        now = on or self.now()
        chosen = sorted(now.parts) if keys is None else [key for key in keys if key in now.parts]
        return [file.path for key in chosen for file in now.parts[key].files]

    def names(self) -> list[str]:
        """Names of its parts, in order."""
        return sorted(self.now().parts)

    # -- changing it ---------------------------------------------------------------------------------------

    def new_folder(self) -> str:
        """Where, below the table's own, to write files that a later `change` makes part of the table."""
        return uuid.uuid4().hex

    def change(
        self, written: Mapping[str, Sequence[str]], *, on: Parts | None = None, drop: Iterable[str] = (),
        read: Iterable[str] = (), unread: Iterable[str] = (), offset: Mapping[str, Any] | None = None,
    ) -> None:
        """Put files in the places of parts, take others out, note what was read for it: all at once, or nothing.

        `on` is what the change was made from: `LakeConflict` if somebody else has changed the table since then.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        now = on or self.now()
        delta = self.with_columns(now.delta, [file for files in written.values() for file in files])
        gone = [(key, file) for key in {*written, *drop} if key in now.parts for file in now.parts[key].files]
        actions: list[AddAction | RemoveAction] = [
            *(self.added(key, file) for key, files in written.items() for file in files),
            *(self.removed(key, file) for key, file in gone),
        ]
        note = {
            "version": now.version + 1, "read": sorted((now.read | frozenset(read)) - frozenset(unread)),
            **({"offset": now.offset, "at": now.at} if offset is None else {"offset": offset, "at": time.time()}),
        }
        properties = CommitProperties(
            custom_metadata={NOTE: json.dumps(note)}, app_transactions=[Transaction(NOTE, now.version + 1)])
        try:
            delta.create_write_transaction(actions, "append", delta.schema(), [PART], commit_properties=properties)
        except CommitFailedError as error:
            raise LakeConflict(f"somebody else has changed {self.name} meanwhile ({first_line(error)})") from error

    def with_columns(self, delta: DeltaTable | None, files: Sequence[str]) -> DeltaTable:
        """The table with all columns that these files have; made if it is not there."""
        import pyarrow as pa
        import pyarrow.parquet as pq
        from deltalake import DeltaTable, Schema

        store = self.store
        schemas = [pq.read_schema(store.full(file), filesystem=store.fs).remove_metadata() for file in files]
        found = pa.unify_schemas(schemas) if schemas else pa.schema([])
        if delta is None:
            wanted = found if schemas else columns_of(self.name)
            whole = pa.schema([*wanted, pa.field(PART, pa.string())])
            options = store.for_delta()
            DeltaTable.create(store.root, whole, mode="ignore", partition_by=[PART], configuration=SETTINGS,
                              storage_options=options)
            return DeltaTable(store.root, storage_options=options)
        known = {each.name for each in delta.schema().fields}
        if fresh := [each for each in found if each.name not in known]:
            delta.alter.add_columns(Schema.from_arrow(pa.schema(fresh)).fields)
        return delta

    def added(self, key: str, file: str) -> AddAction:
        from deltalake.transaction import AddAction

        rows, first, last = measure(self.store, file)
        stats: dict[str, Any] = {"numRecords": rows}
        if first:
            stats |= {"minValues": {"at": first}, "maxValues": {"at": last}, "nullCount": {"at": 0}}
        return AddAction(file, self.store.size(file), {PART: key}, int(time.time() * 1000), True, json.dumps(stats))

    def removed(self, key: str, file: File) -> RemoveAction:
        from deltalake.transaction import RemoveAction

        return RemoveAction(file.path, True, int(time.time() * 1000), file.size, {PART: key})

    def sweep(self, older_h: int = READERS_H) -> int:
        """Remove files that were taken out, and those that no commit ever named, once they are old; how many."""
        delta = self.delta()
        if delta is None:
            return 0
        gone = delta.vacuum(older_h, dry_run=False, enforce_retention_duration=False)
        return len(gone) + len(delta.vacuum(UNNAMED_H, dry_run=False, enforce_retention_duration=False, full=True))

    # -- reading it without Spark --------------------------------------------------------------------------

    def to_arrow(
        self, columns: list[str] | None = None, keys: Iterable[str] | None = None, where: Any = None
    ) -> pa.Table:
        """Rows as an Arrow table: all parts or those named, all columns or those named, filtered by an expression."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        fs = self.store.fs
        files = [self.store.full(path) for path in self.paths(keys)]
        if not files:
            return pa.table({name: [] for name in columns or []})
        schema = pa.unify_schemas([ds.dataset(file, filesystem=fs, format="parquet").schema for file in files])
        return ds.dataset(files, filesystem=fs, format="parquet", schema=schema).to_table(columns=columns, filter=where)


def columns_of(name: str) -> pa.Schema:
    """The same as Arrow has them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema_of(name), timezone="UTC")


def lake_at(place: str | Path) -> Lake:
    """A lake that is there and can be read."""
    return Lake(place).check()


def complete_until(lake: Lake) -> dt.datetime:
    """Up to when the lake has what happened: its histories were read then. Now, for a lake that does not say it."""
    at = lake.table("bronze/events").now().at
    return dt.datetime.fromtimestamp(at, dt.UTC) if at else dt.datetime.now(dt.UTC)


def first_line(error: Exception) -> str:
    """delta-rs adds a trace of its own."""
    return str(error).partition("\n")[0]


def schema_of(name: str) -> StructType:
    """The columns of a table as the stages make it."""
    from .stages import events, failures, jobs, queues, shares, workers

    schemas: dict[str, StructType] = {
        "bronze/events": events.EVENTS, "silver/events": events.EVENTS, "silver/jobs": jobs.JOBS,
        "gold/queue_minute": queues.QUEUE_MINUTE, "gold/worker_hour": workers.WORKER_HOUR,
        "gold/failure_day": failures.FAILURE_DAY, "gold/share_hour": shares.SHARE_HOUR,
    }
    return schemas[name]


def parquet_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.parquet") if not path.name.startswith(("_", ".")))


def rows_in(store: Store, path: str) -> int:
    """Rows of a Parquet file, from its end."""
    import pyarrow.parquet as pq

    return int(pq.read_metadata(store.full(path), filesystem=store.fs).num_rows)


def measure(store: Store, path: str) -> tuple[int, str, str]:
    """Rows of a file, and the first and last time in its column `at`, from its end."""
    import pyarrow.parquet as pq

    meta = pq.read_metadata(store.full(path), filesystem=store.fs)
    names = meta.schema.names
    times: list[Any] = []
    for group in range(meta.num_row_groups if "at" in names else 0):
        stats = meta.row_group(group).column(names.index("at")).statistics
        if stats is not None and stats.has_min_max:
            times += [stats.min, stats.max]
    if not times:
        return meta.num_rows, "", ""
    first, last = (each.strftime("%Y-%m-%dT%H:%M:%S.%fZ") for each in (min(times), max(times)))
    return meta.num_rows, first, last
