"""The table of homes: a row for each slot, the same at every node in the end (home.py, takeover.py)."""
from __future__ import annotations

from typing import Final

from mypy_extensions import i64

SLOTS: Final = 1024
"""Enough that 62 nodes have about equal shares, few enough that a table of all of them is a few kilobytes."""

# What kind of thing a key names: the same word may be a group and a domain.
GROUP: Final = b"g"
UNIQUE: Final = b"u"
BATCH: Final = b"b"
DOMAIN: Final = b"d"
QUOTA: Final = b"q"
CRON: Final = b"c"


NOBODY: Final = -1

# What HOMED says of a job.
FREE: Final = 0  # nobody has it, or may have had for so many ms
LEASED: Final = 1  # a consumer of the sender has it for so many ms
PUSHED: Final = 2  # it is to be queued now: given back, and counted, where that was said, or its delay was ended


class Homes:
    """Who decides about which slot, as far as this node knows."""

    def __init__(self) -> None:
        self.orders: dict[int, list[int]] = {}  # by slot: indexes of peers; of the members below
        self.members: i64 = 0
        self.owners: list[int] = [NOBODY] * SLOTS  # indexes of peers
        self.epochs: list[int] = [0] * SLOTS
        self.opened: list[bool] = [False] * SLOTS  # ours, and everything about them is gathered
        self.others: i64 = SLOTS  # those that are not; a node that is alone has none

    def open(self, slot: i64) -> None:
        if not self.opened[slot]:
            self.opened[slot] = True
            self.others -= 1

    def close(self, slot: i64) -> None:
        if self.opened[slot]:
            self.opened[slot] = False
            self.others += 1
