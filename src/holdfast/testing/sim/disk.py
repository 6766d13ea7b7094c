"""A disk that crashes as disks do: what was synced stays, of the rest a prefix.

The node gives records; the shell writes them and, depending on its policy, syncs them at once or every
second. A killed process loses nothing it had written; a power cut keeps the synced records and a random part
of those after them, in order. A torn record is a lost one: the journal cuts it off when it loads.

What an earlier process wrote is synced by nobody before the next one has loaded it, which does that before it is ready.
What was synced may still be damaged while no process runs: then a start finds a word that something is missing there
(CUT), as the journal puts it in place of batches that are not as they were written. A disk may be full, and then what
is written waits; or slow to sync.

From time to time the records are rewritten, as the journal's are: slices of the node's state are collected beside
what goes on being written, and in the end take the place of everything before the first of them.
"""
from __future__ import annotations

from random import Random
from typing import Final

from holdfast.core.records import CUT, SALVAGE

ALWAYS: Final = "always"
EVERYSEC: Final = "everysec"
NONE: Final = "none"  # no journal at all: every stop is a wipe
POLICIES: Final = (ALWAYS, EVERYSEC, NONE)

SYNC_PERIOD_MS: Final = 1_000
MISSING: Final = bytes([CUT])
UNSURE: Final = bytes([SALVAGE, 1])
"""All can be read, and whether it was written so cannot be known: a header is gone."""
TOGETHER_MAX: Final = 4
"""So many records of one damage."""


class CrashDisk:
    def __init__(self, policy: str = ALWAYS) -> None:
        self.policy = policy
        self.records: list[bytes] = []
        self.synced = 0  # how many of them are safe
        self.written_t = 0  # when the last ones were written
        self.old = 0  # how many an earlier process wrote that nobody has synced since
        self.is_damaged = False
        self.is_full = False
        self.waiting: list[bytes] = []  # for room
        self.owes = False  # somebody had to wait for some of that
        self.slow_ms = 0  # how long a sync takes
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

    def needs_sync(self, must_sync: bool) -> bool:
        return self.policy != NONE and (must_sync or self.policy == ALWAYS)

    def stop(self, t: int) -> None:
        """The process that writes is no more."""
        self.settle(t)
        self.waiting = []
        self.is_full = self.owes = False

    def load(self, is_synced: bool) -> list[bytes]:
        """What a process finds. Unless a rule is broken it is on the disk before the process is ready."""
        if is_synced:
            self.synced = len(self.records)
        else:
            self.old = len(self.records) if self.synced < len(self.records) else 0
        return list(self.records)

    def replace(self, records: list[bytes]) -> None:
        """A node has written all that it knows anew, since what it found was damaged."""
        self.records = records
        self.synced = len(records)
        self.old = 0
        self.is_damaged = False

    def damage(self, dice: Random, places: int) -> int:
        """Of what was synced some is not any more as it was written; without places a header is gone. Returns how many
        records that costs."""
        lost = 0
        if places == 0:
            self.records.append(UNSURE)
            self.synced = len(self.records)
        for _ in range(places if self.synced else 0):
            begin = dice.randrange(self.synced)
            for i in range(begin, min(self.synced, begin + dice.randint(1, TOGETHER_MAX))):
                lost += self.records[i] != MISSING
                self.records[i] = MISSING
        return lost

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
        self.old = 0
        self.records = self.snapshot + self.records[begin:]
        self.synced += len(self.snapshot) - begin
        self.drop_rewrite()

    def drop_rewrite(self) -> None:
        self.snapshot = []
        self.snapshot_from = -1

    def power_cut(self, t: int, dice: Random) -> int:
        """Lose a random tail of what was not synced; returns how many records are gone."""
        self.settle(t)
        if self.old:
            keep = dice.randrange(self.old)
            lost, self.old = self.old - keep, 0
            del self.records[keep:keep + lost]
            self.synced = max(keep, self.synced - lost)
            return lost
        keep = dice.randint(self.synced, len(self.records))
        lost = len(self.records) - keep
        del self.records[keep:]
        self.synced = keep
        return lost

    def wipe(self) -> None:
        self.drop_rewrite()
        self.replace([])
