"""The directed scenarios: the node as it is passes each, and fails those that name a mutant when it is one."""
from __future__ import annotations

import pytest

from holdfast.testing.sim.mutants import switches
from holdfast.testing.sim.scenarios import SCENARIOS, play

CAUGHT = [(mutant, name) for name, scenario in SCENARIOS.items() for mutant in scenario.catches]


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_node_passes(name: str) -> None:
    play(SCENARIOS[name])


@pytest.mark.parametrize(("mutant", "name"), CAUGHT)
def test_the_mutant_does_not(mutant: str, name: str) -> None:
    with pytest.raises(AssertionError):
        play(SCENARIOS[name], switches(mutant))
