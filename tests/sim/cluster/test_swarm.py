"""Whole clusters of real nodes from fixed and remembered seeds; `make sim` runs many more."""
from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing.sim.plan import draw
from holdfast.testing.sim.run import run
from holdfast.testing.sim.swarm import swarm

pytest.importorskip("holdfast.core.peers")

REMEMBERED = [
    int(line.split()[0])
    for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines() if line.strip() and line[0] != "#"
]


@pytest.mark.parametrize("seed", REMEMBERED)
def test_what_was_broken_once_stays_whole(seed: int) -> None:
    found = run(draw(seed)).violations
    assert not found, "\n".join([*map(str, found), f"make replay SEED={seed}"])


def test_the_first_seeds_keep_every_promise_and_give_the_same_run_twice() -> None:
    totals = swarm(range(120), twice=10)
    assert not totals.failures, f"make replay SEED={totals.failures[0].seed}: {totals.failures[0]}"
    assert not totals.complaints()
