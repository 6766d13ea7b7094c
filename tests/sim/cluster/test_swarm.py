"""Whole clusters of real nodes under faults: fixed seeds, fresh ones, and plans that once broke a promise.

CLUSTERS says how many seeds; a few of them were never run before. There will be more of those when `make swarm`, which
runs nothing else, stays quiet for half an hour on everything that was merged: it is the place to hunt. The files in
plans/ are what `shrink` left of failing seeds, named after what was wrong. They stay for ever.
"""
from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.testing.not_yet import BROKEN
from holdfast.testing.sim.__main__ import fresh, report
from holdfast.testing.sim.plan import Plan, draw
from holdfast.testing.sim.run import run
from holdfast.testing.sim.swarm import swarm

PLANS = Path(__file__).parent / "plans"
CLUSTERS = int(os.environ.get("CLUSTERS", "700"))
FRESH_SHARE = 20 / 700
"""Fixed seeds say whether a change broke something; fresh ones find what nobody has thought of yet."""


KEPT = [
    264400641,
    970444838, 127926782, 436788079, 436788511, 436788999, 436789050, 829951334, 829952433, 829953500, 829954533,
    829956081, 251744801, 264400725, 510310296,
    850130056,
    850133526,
    850130493,
    850130169,
    850131023,
    850133147,
    850134578,
    65149783,
    65151991,
    65153718,
    65154300,
    325812402,
    120737994,
    738094711, 738095647, 738097763, 738097996, 738098109, 194780635, 339104099,
    337932856, 337934446, 337935341, 350153284, 645868431, 645871517,
    630440269, 557582306, 557585025, 480748884, 480749138,
    413924683, 219406603,
]
"""Seeds that once broke a promise, and whose story is in the commit that repaired it: with the faults of that time."""


@pytest.mark.parametrize("path", sorted(PLANS.glob("*.json")), ids=lambda path: path.stem)
def test_what_was_broken_once_stays_whole(path: Path) -> None:
    found = run(Plan.from_json(path.read_text())).violations
    assert not found, "\n".join([*map(str, found), f"make replay PLAN={path}"])


@pytest.mark.parametrize("seed", [seed for seed in KEPT if seed not in BROKEN])
def test_a_seed_that_broke_a_promise_once_keeps_them_all(seed: int) -> None:
    assert not run(draw(seed, is_tidy=True)).violations


def test_many_clusters_keep_every_promise_and_are_the_same_when_run_again() -> None:
    """Prints what happened; fails on a broken promise, on a seed that differs the second time, on a quiet swarm."""
    new = max(1, round(CLUSTERS * FRESH_SHARE))
    seeds = [*range(CLUSTERS - new), *fresh(new)]
    assert report(swarm(seeds, jobs=os.cpu_count() or 1)) == 0
