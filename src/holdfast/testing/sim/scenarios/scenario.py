"""What a directed scenario is, and how one says which mutants it catches."""
from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

from holdfast.testing.sim.cluster import Cluster

New: TypeAlias = Callable[..., Cluster]
Play: TypeAlias = Callable[[New], None]


class Scenario(NamedTuple):
    name: str
    play: Play
    catches: tuple[str, ...]


def catches(*mutants: str) -> Callable[[Play], Play]:
    """Mark a function as a scenario; with these mutants it must fail."""

    def mark(play: Play) -> Play:
        play.__dict__["catches"] = mutants
        return play

    return mark


def scenarios_of(module: ModuleType) -> list[Scenario]:
    return [
        Scenario(name, value, value.__dict__["catches"])
        for name, value in vars(module).items()
        if "catches" in getattr(value, "__dict__", {})
    ]


def node_of(sim: Cluster, name: str) -> Any:
    """The node itself, to look inside: not what stands before it while a transcript is written."""
    node = sim.hosts[name].node
    return getattr(node, "machine", node)


def end_well(sim: Cluster, *jobs: str, deliveries: int = 1) -> None:
    """Heal, let the nodes settle, then consume what is left: the jobs named were delivered as often as they
    should be, nothing is left of them, and no promise is broken."""
    sim.heal()
    sim.settle()
    sim.consume_everything()
    sim.run_for(seconds=15)
    sim.settle()
    for job in jobs:
        assert sim.history.deliveries(job) <= deliveries, f"{job} came back after its ack"
        assert sim.copies(job) == {}, f"{job} is still at {sim.copies(job)}"
    sim.check()
