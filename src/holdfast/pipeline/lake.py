"""The lake: tables of Parquet files in a folder, each with a list of what belongs to it. Needs pyarrow, not Spark.

    lake/
      lake.json                         version of the lake's form
      silver/jobs/
        _parts-00000007.json            what the table consists of, as of its 7th change; the highest counts
        5f2c…/part=2026-11-17/*.parquet files; those no list names are left over from a crash or from before

A table is parts by name (`2026-11-17`; for bronze the stream and batch), and a part is a folder of files. A change
writes new folders first and then one new list, by a link that fails if somebody else has made the same change number:
readers see the table before or after it, never in between; a crash leaves a folder nobody names; and writing a part
again replaces it, so that a replayed batch is no second one. Each list also says which parts of other tables have been
read for it (`read`), in the same file: what was done and what was done it for cannot come apart.

Old lists and folders are removed by `sweep`, after a time that readers may take.
"""
from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

FORM: Final = 1
"""Version of the lists and of `lake.json`. A lake of a higher one was written by a newer Holdfast."""
SCHEMA: Final = 1
"""Version of the tables' columns. Columns are only ever added, and may be null in older files."""
READERS_S: Final = 3600.0
"""How long files that are no longer part of a table stay, for those who are still reading."""
TABLES: Final = (
    "bronze/events", "silver/events", "silver/jobs", "gold/queue_minute", "gold/worker_hour", "gold/failure_day",
    "gold/share_hour",
)


class LakeError(RuntimeError):
    """The lake cannot be read or written; the text says what to do."""


@dataclass(frozen=True)
class Part:
    """One part of a table: where its files are (below the table's folder), how many rows, first and last time."""

    folder: str
    rows: int = 0
    size: int = 0
    first: str = ""
    last: str = ""


@dataclass(frozen=True)
class Parts:
    """What a table consists of at one moment."""

    version: int = 0
    parts: Mapping[str, Part] = field(default_factory=dict)
    read: frozenset[str] = frozenset()


class Lake:
    """A folder of tables."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()

    def table(self, name: str) -> Table:
        if name not in TABLES:
            raise LakeError(f"there is no table {name}; there are {', '.join(TABLES)}")
        return Table(self.folder / name, name)

    def create(self) -> Lake:
        """Make the folder, or see that it is a lake that we know how to write."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        mark = self.folder / "lake.json"
        if not mark.exists():
            fresh = mark.with_suffix(f".{uuid.uuid4().hex}")
            fresh.write_text(json.dumps({"form": FORM, "schema": SCHEMA}))
            fresh.replace(mark)
        return self.check()

    def check(self) -> Lake:
        """`LakeError` unless it is a lake that this version can read."""
        mark = self.folder / "lake.json"
        try:
            said = json.loads(mark.read_text())
        except FileNotFoundError:
            raise LakeError(f"{self.folder} is no lake: make one with `holdfast pipeline run --lake DIR`") from None
        except (OSError, ValueError) as error:
            raise LakeError(f"{mark} cannot be read ({error}); restore it from a copy of the lake") from error
        if said.get("form", 0) > FORM or said.get("schema", 0) > SCHEMA:
            raise LakeError(
                f"{self.folder} was written by a newer Holdfast (form {said.get('form')}, schema {said.get('schema')}; "
                f"this one knows {FORM} and {SCHEMA}): upgrade this one, or use another folder"
            )
        return self


class Table:
    """One table of a lake. Many may read it; one at a time changes it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name

    # -- what it consists of -------------------------------------------------------------------------------

    def now(self) -> Parts:
        """What it consists of now."""
        for _ in range(10):
            lists = sorted(self.folder.glob("_parts-*.json"))
            if not lists:
                return Parts()
            try:
                said = json.loads(lists[-1].read_text())
            except FileNotFoundError:
                continue  # swept away between the two; a newer one is there
            except ValueError as error:
                raise LakeError(
                    f"{lists[-1]} is damaged ({error}); remove it to go back to the change before it"
                ) from error
            if said["form"] > FORM:
                raise LakeError(f"{lists[-1]} was written by a newer Holdfast: upgrade this one")
            parts = {key: Part(**each) for key, each in said["parts"].items()}
            return Parts(said["version"], parts, frozenset(said["read"]))
        raise LakeError(f"the lists in {self.folder} change faster than they can be read")

    def paths(self, keys: Iterable[str] | None = None) -> list[str]:
        """Folders of all parts, or of those named, for Spark's reader."""
        now = self.now()
        chosen = sorted(now.parts) if keys is None else [key for key in keys if key in now.parts]
        return [str(self.folder / now.parts[key].folder) for key in chosen]

    def names(self) -> list[str]:
        """Names of its parts, in order."""
        return sorted(self.now().parts)

    # -- changing it ---------------------------------------------------------------------------------------

    def new_folder(self) -> Path:
        """Where to write files that a later `change` makes part of the table."""
        return self.folder / uuid.uuid4().hex

    def change(
        self, written: Mapping[str, Path], *, drop: Iterable[str] = (), read: Iterable[str] = (),
        unread: Iterable[str] = (), time_column: str = "",
    ) -> Parts:
        """Put folders in the places of parts, take others out, note what was read for it: all at once, or nothing."""
        now = self.now()
        parts = {key: part for key, part in now.parts.items() if key not in set(drop)}
        for key, folder in written.items():
            parts[key] = measure(self.folder, folder, time_column)
        after = Parts(now.version + 1, parts, (now.read | frozenset(read)) - frozenset(unread))
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self.folder / f".{uuid.uuid4().hex}"
        with fresh.open("w") as file:
            json.dump({
                "form": FORM, "version": after.version, "read": sorted(after.read),
                "parts": {key: vars(part) for key, part in after.parts.items()},
            }, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, self.folder / f"_parts-{after.version:08d}.json")
        except FileExistsError:
            raise LakeError(f"somebody else writes {self.name} now; only one pipeline may run on a lake") from None
        finally:
            fresh.unlink()
        return after

    def sweep(self, older_s: float = READERS_S) -> int:
        """Remove lists before the last, and folders nobody names, once they are old; how many were removed."""
        if not self.folder.exists():
            return 0
        now = self.now()
        before = time.time() - older_s
        named = {part.folder.partition("/")[0] for part in now.parts.values()}
        removed = 0
        for path in sorted(self.folder.iterdir()):
            is_list = path.name.startswith("_parts-") and path.name != f"_parts-{now.version:08d}.json"
            is_left = path.is_dir() and path.name not in named
            if (is_list or is_left or path.name.startswith(".")) and path.stat().st_mtime < before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                removed += 1
        return removed

    # -- reading it without Spark --------------------------------------------------------------------------

    def to_arrow(
        self, columns: list[str] | None = None, keys: Iterable[str] | None = None, where: Any = None
    ) -> pa.Table:
        """Rows as an Arrow table: all parts or those named, all columns or those named, filtered by an expression."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        files = [str(file) for path in self.paths(keys) for file in parquet_files(Path(path))]
        if not files:
            return pa.table({name: [] for name in columns or []})
        schema = pa.unify_schemas([ds.dataset(file, format="parquet").schema for file in files])
        return ds.dataset(files, format="parquet", schema=schema).to_table(columns=columns, filter=where)


def parquet_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.parquet") if not path.name.startswith(("_", ".")))


def measure(table: Path, folder: Path, time_column: str) -> Part:
    """Rows, bytes, and first and last time of a part, from the ends of its files."""
    import pyarrow.parquet as pq

    rows = size = 0
    times: list[str] = []
    for file in parquet_files(folder):
        meta = pq.read_metadata(file)
        rows += meta.num_rows
        size += file.stat().st_size
        names = meta.schema.names
        for group in range(meta.num_row_groups if time_column in names else 0):
            stats = meta.row_group(group).column(names.index(time_column)).statistics
            if stats is not None and stats.has_min_max:
                times += [stats.min.isoformat(), stats.max.isoformat()]
    return Part(str(folder.relative_to(table)), rows, size, min(times, default=""), max(times, default=""))
