"""`holdfast pipeline run`: keeps the lake up to date, once or for as long as it is let.

Batch after batch of the histories goes into bronze (`ingest.py`), and the commit of each says up to where they were
read: the lake is its own checkpoint. Silver and gold follow at the end (`once`), or every so often; bronze that all of
them were made from goes.

A node that does not answer keeps its place and is told of, the others go on. What is read is never planned ahead, so
nothing waits for a node to come back. Nodes that go away in the middle of a read are asked again for a while first.
"""
from __future__ import annotations

import contextlib
import datetime as dt
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.client.errors import Refused, Unknown

from .ingest import TABLE, ingest, nothing_came
from .lake import Lake, LakeConflict, LakeError
from .refresh import Refreshed, refresh, retain
from .sources.histories import Histories
from .sources.places import Offset, Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINT: Final = "checkpoints/events"
"""Where lakes of earlier versions have Spark's own log of how far they are."""
IDLE_ROUNDS: Final = 3
"""With `once`: how often a node may give nothing of what it says it has before it is left for the next run."""

TRIES: Final = 10
"""How often silver and gold are made anew because somebody else was faster: each time somebody has got further."""
TELL_S: Final = 60.0
"""How often the lake is told that nothing happened, while nothing does."""


@dataclass(frozen=True)
class Plan:
    """How to run."""

    url: str
    once: bool = False
    every_s: float = 10.0
    refresh_s: float = 60.0
    max_events: int = 2_000_000
    starting: str = "earliest"
    fail_on_loss: bool = True
    silver_days: int = 400
    gold_days: int = 4000
    retry_s: float | None = None
    """How long a node is asked again that goes away while it is read; None: as the source does."""

    def options(self, starting: str) -> dict[str, str]:
        """As the data source would have them."""
        given = {"url": self.url, "startingOffsets": starting, "failOnDataLoss": str(self.fail_on_loss).lower()}
        return given if self.retry_s is None else given | {"retrySeconds": f"{self.retry_s:g}"}


def place_of(lake: Lake) -> Offset | None:
    """Up to where the histories were read into the lake; None if nothing was."""
    said = lake.table(TABLE).now().offset
    return Offset.load(said) if said is not None else place_of_checkpoint(lake)


def place_of_checkpoint(lake: Lake) -> Offset | None:
    """The same of a lake that an earlier version has filled: the last batch in Spark's log of committed ones."""
    if not lake.store.is_local:
        return None
    folder = lake.folder / CHECKPOINT
    done = [int(path.name) for path in (folder / "commits").glob("*") if path.name.isdigit()]
    if not done:
        return None
    try:
        said: dict[str, Any] = json.loads((folder / "offsets" / str(max(done))).read_text().splitlines()[2])
        return Offset.load(said)
    except (OSError, ValueError, IndexError, AttributeError) as error:
        raise LakeError(
            f"the checkpoint in {folder} is damaged ({error}): move it away to read the history from its "
            "beginning again; events that are in the lake already are not counted twice"
        ) from error


def run(
    spark: SparkSession, lake: Lake, plan: Plan, tell: Callable[[str], None], done: threading.Event | None = None
) -> int:
    """Read events into the lake; how many. With `once` up to where the histories are now, else until interrupted.

    When `done` is set it ends soon, and leaves it to the next run to bring silver and gold up to what was read.
    """
    lake.create()
    done = done or threading.Event()
    at = place_of(lake)
    # An earlier version that died in its first batch has not written down where that began.
    is_begun = at is None and lake.store.is_local and any((lake.folder / CHECKPOINT / "offsets").glob("[0-9]*"))
    histories = Histories(plan.options("earliest" if is_begun else plan.starting))
    reading = Reading(spark, lake, histories, plan, tell, at or Offset())
    ended = threading.Event()
    threading.Thread(target=cancel_when, args=(spark, done, ended), name="canceller", daemon=True).start()
    try:
        reading.go_on(done)
        if not done.is_set():
            bring_up(spark, lake, plan, tell)
    except Exception:
        if not done.is_set():  # else it is what was cancelled in the middle of its work
            raise
    finally:
        ended.set()
        histories.nodes.close()
    return reading.rows


class Reading:
    """Batches of the histories, one after the other."""

    def __init__(
        self, spark: SparkSession, lake: Lake, histories: Histories, plan: Plan, tell: Callable[[str], None], at: Offset
    ) -> None:
        self.spark, self.lake, self.histories, self.plan, self.tell = spark, lake, histories, plan, tell
        self.at = at
        self.rows = 0
        self.batches = 0
        self.away: frozenset[str] = frozenset()

    def go_on(self, done: threading.Event) -> None:
        if self.plan.once:
            self.catch_up(done)
            return
        refreshed = time.monotonic()
        while not done.is_set():
            begun = time.monotonic()
            rows = self.rows
            try:
                self.step(None)
            except (Refused, Unknown) as error:
                self.tell_away({"cluster": str(error)})
            if time.monotonic() - refreshed >= self.plan.refresh_s:
                bring_up(self.spark, self.lake, self.plan, self.tell)
                refreshed = time.monotonic()
            if self.rows - rows < self.plan.max_events / 2:  # else there is more already
                done.wait(max(0.0, self.plan.every_s - (time.monotonic() - begun)))

    def catch_up(self, done: threading.Event) -> None:
        """Up to where the histories are now, of all nodes that can be reached."""
        goal = self.histories.lasts()
        idle = 0
        while not done.is_set() and idle < IDLE_ROUNDS:
            has_moved, is_through = self.step(goal)
            if is_through:
                return
            idle = 0 if has_moved else idle + 1

    def step(self, goal: Mapping[str, Place] | None) -> tuple[bool, bool]:
        """One batch: whether it came any further, and whether there was nothing to read."""
        end = self.histories.end(self.at, self.plan.max_events, goal)
        away = dict(self.histories.unreached)
        is_through = end == self.at
        before = self.at
        if not is_through:
            try:
                got = ingest(self.spark, self.lake, self.histories, before, end)
            except LakeConflict:
                self.tell("another pipeline has read meanwhile; going on from where it is")
                self.at = place_of(self.lake) or self.at
                return True, False
            self.at = got.offset
            self.rows += got.rows
            away |= got.away
            if got.rows:
                self.tell(f"batch {self.batches}: {got.rows} events")
                self.batches += 1
        elif is_stale(self.lake):
            with contextlib.suppress(LakeConflict):
                nothing_came(self.lake, self.at)
        self.tell_away(away)
        return self.at != before, is_through

    def tell_away(self, away: Mapping[str, str]) -> None:
        """Once when a node goes away, and once when it is back."""
        for node in sorted(set(away) - self.away):
            self.tell(f"node {node[:8]} is away, its events wait for it: {away[node]}")
        for node in sorted(self.away - set(away)):
            self.tell(f"node {node[:8]} is back")
        self.away = frozenset(away)


def is_stale(lake: Lake) -> bool:
    """Whether it is long ago that the lake was told up to when it is complete."""
    return time.time() - lake.table(TABLE).now().at > TELL_S


def cancel_when(spark: SparkSession, done: threading.Event, ended: threading.Event) -> None:
    """Ends what Spark is at as soon as `done` is set: a refresh may take minutes, and the next run makes it anew."""
    while not ended.is_set():
        if done.wait(1.0):
            if not ended.is_set():
                spark.sparkContext.cancelAllJobs()
            return


def bring_up(spark: SparkSession, lake: Lake, plan: Plan, tell: Callable[[str], None]) -> Refreshed:
    """Silver and gold as bronze is, and what is too old taken out. If others do the same, by whoever comes first."""
    for left in reversed(range(TRIES)):
        try:
            done = refresh(spark, lake, tell)
            today = dt.datetime.now(dt.UTC).date()
            retain(lake, silver_days=plan.silver_days, gold_days=plan.gold_days, today=today)
            return done
        except LakeConflict:
            if not left:
                raise
            tell("another pipeline has changed the tables meanwhile; looking again")
    raise AssertionError("either it was done or it was raised")
