"""The heap of things that know their place, against a sorted list."""
from __future__ import annotations

import random

from holdfast.core.ranks import NOWHERE, Ranked, Ranks


def ranked(rank: int, second: int) -> Ranked:
    made = Ranked()
    made.rank, made.second = rank, second
    return made


def test_the_least_is_first_whatever_came_moved_or_left() -> None:
    dice = random.Random(5)
    ranks = Ranks()
    there: list[Ranked] = []
    for number in range(5_000):
        what = dice.random()
        if what < 0.5 or not there:
            there.append(ranked(dice.randrange(50), number))
            ranks.put(there[-1])
        elif what < 0.8:
            moved = dice.choice(there)
            moved.rank, moved.second = dice.randrange(50), number
            ranks.put(moved)
        else:
            left = there.pop(dice.randrange(len(there)))
            ranks.remove(left)
            assert left.place == NOWHERE
        assert ranks.first() is min(there, key=lambda each: (each.rank, each.second), default=None)
        assert len(ranks.items) == len(there)
    assert all(ranks.items[each.place] is each for each in there)


def test_they_come_out_in_order() -> None:
    ranks = Ranks()
    for number in random.Random(3).sample(range(300), 300):
        ranks.put(ranked(number // 3, number % 3))
    found = []
    while (first := ranks.first()) is not None:
        ranks.remove(first)
        found.append((first.rank, first.second))
    assert found == [(number // 3, number % 3) for number in range(300)]
