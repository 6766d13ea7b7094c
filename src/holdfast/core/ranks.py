"""A heap of things that know their place in it: the least is found at once, and any may move or leave.

What stands in one is `Ranked`: two numbers by which it is compared, and where it stands. `heapq` with tuples in it
would do the same with three objects for each change and leftovers to skip; here a change compares some numbers.
Used by rules.py: tenants by whose turn it is, domains by their first job.
"""
from __future__ import annotations

from typing import Final

from mypy_extensions import i64

NOWHERE: Final = -1


class Ranked:
    """Comes before another if its `rank` is less, or with the same rank its `second`."""

    def __init__(self) -> None:
        self.rank: i64 = 0
        self.second: i64 = 0
        self.place: i64 = NOWHERE  # in the heap that it is in; it may be in one at a time


def is_before(a: Ranked, b: Ranked) -> bool:
    return a.rank < b.rank or (a.rank == b.rank and a.second < b.second)


class Ranks:
    def __init__(self) -> None:
        self.items: list[Ranked] = []

    def first(self) -> Ranked | None:
        return self.items[0] if self.items else None

    def put(self, item: Ranked) -> None:
        """It is new here, or its rank has changed."""
        if item.place == NOWHERE:
            item.place = len(self.items)
            self.items.append(item)
            self.rise(item)
        elif item.place == 0 or not self.rise(item):
            self.sink(item)

    def remove(self, item: Ranked) -> None:
        place = item.place
        last = self.items.pop()
        item.place = NOWHERE
        if last is not item:
            last.place = place
            self.items[place] = last
            if not self.rise(last):
                self.sink(last)

    def rise(self, item: Ranked) -> bool:
        """To its place among those above it. Whether it moved."""
        items = self.items
        place = item.place
        while place > 0:
            above = items[(place - 1) // 2]
            if not is_before(item, above):
                break
            items[place] = above
            above.place, place = place, (place - 1) // 2
        if place == item.place:
            return False
        items[place] = item
        item.place = place
        return True

    def sink(self, item: Ranked) -> None:
        """To its place among those below it."""
        items = self.items
        size: i64 = len(items)
        place = item.place
        while True:
            child = 2 * place + 1
            if child >= size:
                break
            below = items[child]
            if child + 1 < size:
                other = items[child + 1]
                if is_before(other, below):
                    below = other
                    child += 1
            if not is_before(below, item):
                break
            items[place] = below
            below.place, place = place, child
        if place != item.place:
            items[place] = item
            item.place = place
