"""A disk that crashes as disks do: what was synced stays, of the rest a prefix.

The node gives records; the shell writes them and, depending on its policy, syncs them at once or every
second. A killed process loses nothing it had written; a power cut keeps the synced records and a random part
of those after them, in order. A torn record is a lost one: the journal cuts it off when it loads.

From time to time the records are rewritten, as the journal's are: slices of the node's state are collected beside
what goes on being written, and in the end take the place of everything before the first of them.
"""
from __future__ import annotations

from random import Random
from typing import Final

ALWAYS: Final = "always"
EVERYSEC: Final = "everysec"
NONE: Final = "none"  # no journal at all: every stop is a wipe
POLICIES: Final = (ALWAYS, EVERYSEC, NONE)

SYNC_PERIOD_MS: Final = 1_000


class CrashDisk:
    def __init__(self, policy: str = ALWAYS) -> None:
        self.policy = policy
        self.records: list[bytes] = []
        self.synced = 0  # how many of them are safe
        self.written_t = 0  # when the last ones were written
        self.snapshot: list[bytes] = []  # of a rewrite that is going on
        self.snapshot_from = -1  # the first record that it does not stand for; -1: there is none

    def write(self, records: list[bytes], t: int, must_sync: bool) -> None:
        if self.policy == NONE:
            return
        self.settle(t)
        self.records += records
        self.written_t = t
        if must_sync or self.policy == ALWAYS:
            self.synced = len(self.records)

    def settle(self, t: int) -> None:
        """Account for the sync that happens every second, without an event for it."""
        if t // SYNC_PERIOD_MS > self.written_t // SYNC_PERIOD_MS:
            self.synced = len(self.records)

    def begin_rewrite(self) -> None:
        self.snapshot = []
        self.snapshot_from = self.synced = len(self.records)

    def end_rewrite(self) -> None:
        """One step, as a rename is."""
        begin = self.snapshot_from
        self.records = self.snapshot + self.records[begin:]
        self.synced += len(self.snapshot) - begin
        self.drop_rewrite()

    def drop_rewrite(self) -> None:
        self.snapshot = []
        self.snapshot_from = -1

    def power_cut(self, t: int, dice: Random) -> int:
        """Lose a random tail of what was not synced; returns how many records are gone."""
        self.settle(t)
        keep = dice.randint(self.synced, len(self.records))
        lost = len(self.records) - keep
        del self.records[keep:]
        self.synced = keep
        return lost

    def wipe(self) -> None:
        self.drop_rewrite()
        self.records = []
        self.synced = 0
