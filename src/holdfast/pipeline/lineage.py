"""`holdfast pipeline lineage`: from which job a job came, and which came from it. Reads silver jobs without Spark."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from .lake import Lake

COLUMNS: Final = ["job_id", "parent_id", "queue", "outcome", "attempts", "added_at", "ended_at", "error"]
MOST: Final = 10_000
"""Jobs of one family that are shown: a family may be millions."""


class NoSuchJob(LookupError):
    """The lake knows nothing of it."""


@dataclass
class Relative:
    """A job and its children."""

    job: dict[str, Any]
    children: list[Relative] = field(default_factory=list)

    def all(self) -> Iterator[Relative]:
        yield self
        for child in self.children:
            yield from child.all()


def family(lake: Lake, job_id: str) -> Relative:
    """The whole tree a job belongs to, from the first ancestor that the lake knows."""
    root = find(lake, "job_id", [job_id])
    if not root:
        raise NoSuchJob(f"the lake knows no job {job_id}; has `holdfast pipeline run` read its events yet?")
    top = root[0]
    seen = {top["job_id"]}
    while top["parent_id"] and top["parent_id"] not in seen:
        above = find(lake, "job_id", [top["parent_id"]])
        if not above:
            break
        top = above[0]
        seen.add(top["job_id"])
    tree = Relative(top)
    level = {top["job_id"]: tree}
    known = {top["job_id"]}
    while level and len(known) < MOST:
        below: dict[str, Relative] = {}
        for child in find(lake, "parent_id", list(level)):
            if child["job_id"] not in known:
                known.add(child["job_id"])
                below[child["job_id"]] = Relative(child)
                level[child["parent_id"]].children.append(below[child["job_id"]])
        level = below
    return tree


def find(lake: Lake, column: str, values: list[str]) -> list[dict[str, Any]]:
    import pyarrow.dataset as ds

    found = lake.table("silver/jobs").to_arrow(COLUMNS, where=ds.field(column).isin(values))
    rows: list[dict[str, Any]] = found.to_pylist()
    return sorted(rows, key=lambda row: (str(row["added_at"]), row["job_id"]))
