"""The names of queues in order, against a set."""
from __future__ import annotations

import random

from holdfast.core.names import Names


def after(names: Names, last: bytes | None) -> list[bytes]:
    start = names.start(last)
    return names.order[start:]


def test_against_a_set() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        names = Names()
        known: set[bytes] = set()
        for _ in range(800):
            name = rng.choice([b"", b"a", b"aa", b"b", b"\xff", b"%d" % rng.randrange(40)])
            if name not in known:
                names.add(name)
                known.add(name)
            elif rng.randrange(2):
                names.remove(name)
                known.remove(name)
            if rng.randrange(6) == 0:
                last = rng.choice([None, b"", name, b"a", b"zzz"])
                assert after(names, last) == sorted(each for each in known if last is None or each > last)


def test_names_that_are_gone_do_not_pile_up() -> None:
    names = Names()
    for i in range(10_000):
        names.add(b"%d" % i)
        names.remove(b"%d" % i)
    assert len(names.order) <= 1100
    assert after(names, None) == []
