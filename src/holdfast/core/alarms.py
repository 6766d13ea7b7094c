"""Alarms: who wants to be looked at when.

The machine never waits; it says when it wants to be called again (`Alarms.next`), and the shell keeps one
timer for that. What can have an alarm: a page of jobs (delays, leases and lifetimes of its jobs share one),
a session (its patience), a queue (its idleness).

Setting an alarm earlier, or dropping it, leaves the old entry in the heap; an entry counts only while it
says the same time as its owner. Such leftovers are swept when they outnumber the live ones, so the heap
stays within twice its useful size and the cost stays constant per alarm.
"""
from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core.limits import NEVER

if TYPE_CHECKING:
    from holdfast.core.node import Node

SWEEP_AT_LEAST: Final = 1024


class Alarm:
    """Something that can be woken. `wake` is the time it waits for, NEVER if none."""

    def __init__(self) -> None:
        self.wake: i64 = NEVER


class Chore(Alarm):
    """Something a node does from time to time, and says itself when next."""

    def run(self, node: Node) -> None:
        raise NotImplementedError


class Alarms:
    def __init__(self) -> None:
        self.heap: list[tuple[int, int, Alarm]] = []
        self.count: i64 = 0  # makes entries of the same time come in the order they were set
        self.sweep_above: i64 = SWEEP_AT_LEAST

    def set(self, alarm: Alarm, when: i64) -> None:
        """Wake `alarm` at `when`, whatever it was set to before."""
        if alarm.wake == when:
            return
        alarm.wake = when
        if when >= NEVER:
            return
        self.count += 1
        heappush(self.heap, (when, self.count, alarm))
        if len(self.heap) > self.sweep_above:
            self.sweep()

    def at_latest(self, alarm: Alarm, when: i64) -> None:
        """Wake `alarm` at `when` unless it wakes earlier anyway."""
        if when < alarm.wake:
            self.set(alarm, when)

    def next(self) -> i64:
        """When the next alarm is due; NEVER if there is none."""
        heap = self.heap
        while heap:
            first = heap[0]
            when: i64 = first[0]
            if first[2].wake == when:
                return when
            heappop(heap)
        return NEVER

    def pop_due(self, now: i64) -> Alarm | None:
        """The next alarm whose time has come, with its alarm taken off; None if there is none."""
        if self.next() > now:
            return None
        alarm = heappop(self.heap)[2]
        alarm.wake = NEVER
        return alarm

    def sweep(self) -> None:
        live = [entry for entry in self.heap if entry[2].wake == entry[0]]
        heapify(live)
        self.heap = live
        self.sweep_above = max(SWEEP_AT_LEAST, 2 * len(live))
