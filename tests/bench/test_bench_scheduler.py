"""bench/scheduler.py: its verdicts can be bad ones, and no goal is without a part that finds out about it."""
from __future__ import annotations

import pytest
from bench.common import Void

from bench import scheduler, scheduler_cluster


def evenly(number: int, seconds: int, times_rate: float = 1.0) -> list[float]:
    """Hand-outs of a domain at its rate, or so many times that."""
    rate = scheduler_cluster.rate_of(number) / 3600 * times_rate
    return [each / rate for each in range(int(seconds * rate))]


def test_every_goal_has_a_part() -> None:
    assert {scheduler.part_of(goal) for goal in scheduler.GOALS} == set(scheduler.PARTS)


def test_a_part_that_is_void_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: scheduler.Size) -> dict[str, float]:
        raise Void("a node hung up")

    monkeypatch.setitem(scheduler.PARTS, "bound", fails)
    monkeypatch.setitem(scheduler.PARTS, "fairness", lambda _: {"fairness": 3})
    figures = scheduler.document(scheduler.QUICK, True, ["fairness", "bound"])["figures"]
    assert {key: figure["verdict"] for key, figure in figures.items()} == {
        "fairness": "falls short", "bound": "void", "bound-above": "void",
    }


def test_rates_that_are_kept_and_used() -> None:
    found = scheduler_cluster.judge_rates({number: evenly(number, 60) for number in range(50)}, 50, 0, 60)
    assert found["rates-above"] <= 0 and found["rates-used"] >= 0.95


def test_a_domain_above_its_rate_is_seen() -> None:
    times = {number: evenly(number, 60) for number in range(50)}
    times[7] = sorted([*times[7], *[30 + each / 100 for each in range(6)]])
    assert scheduler_cluster.judge_rates(times, 50, 0, 60)["rates-above"] > 0


def test_a_domain_that_is_not_used_is_seen() -> None:
    times = {number: evenly(number, 60) for number in range(50)}
    times[7] = evenly(7, 60, 0.9)
    assert scheduler_cluster.judge_rates(times, 50, 0, 60)["rates-used"] < 0.95
