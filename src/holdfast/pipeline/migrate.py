"""`holdfast pipeline migrate`: a lake of lists, as earlier versions kept it, becomes one of Delta tables.

The files stay where they are: the first commit of each table names those that the last list named, and says what the
list said the table was made from. Interrupted, it goes on: a table that has a commit is done, and the lake counts as
migrated when all are. Only then do the lists go; until then an earlier version can still read the lake.
"""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from .lake import FORM, TABLES, Lake, LakeError, Table, parquet_files
from .refresh import BRONZE

LISTS: Final = "_parts-*.json"


def migrate(lake: Lake) -> dict[str, int]:
    """Rows of each table."""
    if not lake.store.is_local:
        raise LakeError(f"{lake.store} is no folder: earlier versions wrote lakes into folders only")
    if (form := lake.said()["form"]) != 1:
        raise LakeError(f"{lake.folder} is a lake of form {form} already: there is nothing to migrate"
                        if form == FORM else f"{lake.folder} was written by a newer Holdfast: upgrade this one")
    names = {key: f"{key}@{part['folder']}" for key, part in last_list(lake.table(BRONZE))["parts"].items()}
    counts = {name: migrate_one(lake.table(name), names) for name in TABLES}
    renamed = {old: f"{key}@{lake.table(BRONZE).now().parts[key].name}" for key, old in names.items()
               if key in lake.table(BRONZE).now().parts}
    for name in TABLES:
        table = lake.table(name)
        now = table.now()
        if old := now.read & set(renamed):
            table.change({}, on=now, read=[renamed[each] for each in old], unread=old)
    lake.mark()
    for name in TABLES:
        for path in lake.table(name).folder.glob(LISTS):
            path.unlink()
    return counts


def migrate_one(table: Table, bronze: dict[str, str]) -> int:
    """One table; how many rows it has. Of what it was made from only what bronze still has is worth knowing."""
    said = last_list(table)
    if table.delta() is None and said["version"]:
        files = {key: parquet_files(table.folder / part["folder"]) for key, part in said["parts"].items()}
        written = {key: [file.relative_to(table.folder).as_posix() for file in found] for key, found in files.items()
                   if found}
        read = set(said["read"]) & set(bronze.values())
        table.change(written, read=read, offset=said.get("offset"))
    return sum(part.rows for part in table.now().parts.values())


def last_list(table: Table) -> dict[str, Any]:
    lists: list[Path] = sorted(table.folder.glob(LISTS))
    if not lists:
        return {"version": 0, "parts": {}, "read": []}
    try:
        said: dict[str, Any] = json.loads(lists[-1].read_text())
        return said
    except ValueError as error:
        raise LakeError(f"{lists[-1]} is damaged ({error}); remove it to go back to the change before it") from error
