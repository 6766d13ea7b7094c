"""Moving the jobs of one queue to another place: an embedded queue that has grown up into a cluster.

Job by job: read it, add it there, and when the answer is here, delete it here. Whatever stops us in between, the job
is in at least one of the two places, and a second run finds it here again. So that the second run does not add it
twice, every add carries a unique key for WINDOW_S: the job's own, or one made from its id. A run that is resumed within
that time doubles nothing.

What goes along: body, queue, priority, retry, what is left of its life and of its delay, keys, headers, attempts and
backoff. A job that somebody had taken from the old queue is moved as well: its worker is gone with the process that
held the folder. What stays, and is counted: dead jobs (`DEAD LIST` shows them), at-most-once jobs that were handed
out, and jobs of a batch. A batch is counted where it was begun: deleting its jobs here would count them as over, and
what is to come when all are done would come now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from . import values
from .adding import AddOptions
from .errors import Error
from .queue import Queue
from .values import JobView

WINDOW_S: Final = 24 * 3600
OWN_WINDOW_S: Final = 600
"""For a job with a unique key of its own: it stays taken for so long, and must not for a day."""


class Promotion:
    """One run. `run()` yields how many jobs were moved so far."""

    def __init__(self, source: Queue, target: Queue, queues: Collection[str] = ()) -> None:
        self.moved = 0
        self.dead = 0
        self.spent = 0
        """At-most-once jobs that were handed out: moving them could hand them out again."""
        self.batched = 0
        """Jobs of a batch."""
        self._source = source
        self._target = target
        self._queues = frozenset(queues)

    def run(self) -> Iterator[int]:
        """Move everything."""
        for view in self._views():
            if self._is_movable(view):
                self._move(view)
                yield self.moved

    def count(self) -> int:
        """How many there are to move."""
        return sum(self._is_movable(view) for view in self._views())

    def summary(self) -> str:
        """What was done, in a sentence."""
        left = [f"{count} {what}" for count, what in (
            (self.dead, "dead jobs stay where they are"),
            (self.spent, "at-most-once jobs had been handed out and stay"),
            (self.batched, "jobs of batches stay until their batch is done here"),
        ) if count]
        return "; ".join([f"{self.moved} jobs moved", *left])

    def _views(self) -> Iterator[JobView]:
        """All jobs of the source, a page at a time: a page is read before its jobs are moved."""
        for view in self._source.browse():
            if not self._queues or view.queue in self._queues:
                yield view

    def _is_movable(self, view: JobView) -> bool:
        if view.state == "dead":
            self.dead += 1
            return False
        if view.state not in ("queued", "active") or view.queue is None:
            return False
        if view.body is None:
            self.spent += 1
            return False
        if "batch" in view.more:
            self.batched += 1
            return False
        return True

    def _move(self, view: JobView) -> None:
        assert view.queue is not None and view.body is not None
        self._target.add(view.queue, view.body, **options_of(view))
        # Only now. If this is lost with us, the next run adds the job again, and its key says that it is there.
        if not self._source.delete(view.id):
            raise Error(f"job {view.id} is in both places: it could not be deleted here")
        self.moved += 1


def options_of(view: JobView) -> AddOptions:
    """The options with which to add a job so that it is what it was."""
    options = AddOptions(retry=view.retry, ttl=max(1, view.ttl), unique=f"promote:{view.id}", window=WINDOW_S)
    if view.retry == 0:
        options["replicate"] = 1
    more = view.more
    if view.state == "active" and view.next_requeue_ms and "token" not in more and view.delay:
        options["delay"] = min(view.next_requeue_ms / 1000, max(0, view.ttl - 1))
    if "onexpire" in more:
        options["on_expire"] = "dead" if values.text(more["onexpire"]) == "dead" else "drop"
    if "priority" in more:
        options["priority"] = values.whole(more["priority"])
    if "unique" in more:
        options["unique"] = values.text(more["unique"])
        options["window"] = OWN_WINDOW_S
        options["until"] = "started" if "until" in more else "done"
    if "group" in more:
        options["group"] = values.text(more["group"])
        options["on_fail"] = "skip" if "onfail" in more else "hold"
    if "domain" in more:
        options["domain"] = values.text(more["domain"])
    if "tenant" in more:
        options["tenant"] = values.text(more["tenant"])
    if "parent" in more:
        options["parent"] = values.text(more["parent"])
    if "headers" in more:
        options["headers"] = values.strings(more["headers"])
    if "attempts" in more:
        left = values.whole(more["attempts"]) - values.whole(more.get("failures", 0))
        options["attempts"] = max(1, left)
    if "backoff-ms" in more:
        first, most = values.whole(more["backoff-ms"]) / 1000, values.whole(more["backoff-most-ms"]) / 1000
        options["backoff"] = (first, most)
    return options
