"""The names of all queues in order, for scans whose cursor is the last name returned.

Names come and go much more often than anybody scans, so order is made when it is wanted: new names collect
at the end, and a scan sorts them in, which is cheap for a list that is sorted but for its tail. Names that
are gone are left out then, too.
"""
from __future__ import annotations

from bisect import bisect_right


class Names:
    def __init__(self) -> None:
        self.known: set[bytes] = set()
        self.order: list[bytes] = []
        self.is_sorted: bool = True
        self.gone: int = 0

    def add(self, name: bytes) -> None:
        self.known.add(name)
        self.order.append(name)
        self.is_sorted = False

    def remove(self, name: bytes) -> None:
        self.known.discard(name)
        self.gone += 1
        if self.gone > 1024 + len(self.known):
            self.sort()

    def sort(self) -> None:
        if self.gone > 0:
            self.order = [name for name in self.order if name in self.known]
            self.gone = 0
        self.order.sort()
        fresh: list[bytes] = []
        for name in self.order:  # a name removed and added again is in the list twice
            if not fresh or fresh[-1] != name:
                fresh.append(name)
        self.order = fresh
        self.is_sorted = True

    def start(self, last: bytes | None) -> int:
        """Where in `order` the names after `last` begin; sorts first if need be. None: the beginning."""
        if not self.is_sorted or self.gone > 0:
            self.sort()
        return 0 if last is None else bisect_right(self.order, last)
