"""Whole clusters of real nodes, from fixed seeds and from plans that once broke a promise; `make sim` runs more.

The files in plans/ are what `shrink` left of failing seeds, named after what was wrong. They stay for ever.
"""
from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing.sim.plan import Plan
from holdfast.testing.sim.run import run
from holdfast.testing.sim.swarm import swarm

pytest.importorskip("holdfast.core.peers")

PLANS = sorted((Path(__file__).parent / "plans").glob("*.json"))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_what_was_broken_once_stays_whole(path: Path) -> None:
    found = run(Plan.from_json(path.read_text())).violations
    assert not found, "\n".join([*map(str, found), f"make replay PLAN={path}"])


def test_the_first_seeds_keep_every_promise_and_give_the_same_run_twice() -> None:
    totals = swarm(range(120), twice=10)
    assert not totals.failures, f"make replay SEED={totals.failures[0].seed}: {totals.failures[0]}"
    assert not totals.complaints()
