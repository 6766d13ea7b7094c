"""A disk that crashes as disks do: what was synced stays, of the rest a prefix.

The node gives records; the shell writes them and, depending on its policy, syncs them at once or every
second. A killed process loses nothing it had written; a power cut keeps the synced records and a random part
of those after them, in order. A torn record is a lost one: the journal cuts it off when it loads.
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

    def power_cut(self, t: int, dice: Random) -> int:
        """Lose a random tail of what was not synced; returns how many records are gone."""
        self.settle(t)
        keep = dice.randint(self.synced, len(self.records))
        lost = len(self.records) - keep
        del self.records[keep:]
        self.synced = keep
        return lost

    def wipe(self) -> None:
        self.records = []
        self.synced = 0
