"""Every rule is needed: without it some check fails. See also test_scenarios.py, which has most of them."""
from __future__ import annotations

import pytest

from holdfast.testing.not_yet import UNNOTICED
from holdfast.testing.sim.__main__ import caught_by_plan
from holdfast.testing.sim.mutants import MUTANTS, switches
from holdfast.testing.sim.scenarios import SCENARIOS
from holdfast.testing.sim.swarm import swarm

from .test_swarm import PLANS

DIRECTED = {mutant for scenario in SCENARIOS.values() for mutant in scenario.catches}
SEEDS = 500


def test_scenarios_name_mutants_there_are() -> None:
    assert set(MUTANTS) >= DIRECTED


@pytest.mark.parametrize("mutant", sorted(set(MUTANTS) - DIRECTED - set(UNNOTICED)))
def test_a_mutant_without_a_scenario_is_caught(mutant: str) -> None:
    """By a plan that found the hole once, or by one of the first seeds."""
    if caught_by_plan(mutant, str(PLANS)):
        return
    assert swarm(range(SEEDS), mutants=switches(mutant), twice=0, stop_at_first=True).failures
