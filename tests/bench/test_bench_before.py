"""bench/before.py: both builds run in turn, each goal gets a figure, and one that costs more falls short."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.before import GOALS, Build, alternate, ratios

from bench import before, common, earlier


def test_every_goal_gets_a_figure_from_both_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier build is this one: what is measured is that all steps work, not what they cost."""
    monkeypatch.setattr(earlier, "build", lambda commit: common.ROOT)
    assert before.main(["--quick", "--commit", "HEAD", "--out", str(tmp_path)]) == common.EXIT_PASS
    figures = json.loads((tmp_path / "before.json").read_text())["figures"]
    assert set(figures) == {goal.key for goal in GOALS}
    assert all(figure["this_us"] > 0 and figure["earlier_us"] > 0 for figure in figures.values())


def test_the_first_round_warms_up_and_every_second_one_is_in_the_other_order() -> None:
    builds = (Build("this", []), Build("earlier", []))
    turns: list[str] = []

    def turn(build: Build) -> None:
        turns.append(build.name)
        build.note("addjob-1", float(len(turns)))

    alternate("node", builds, 2, turn)
    assert turns == ["this", "earlier", "this", "earlier", "earlier", "this"]
    assert [build.costs for build in builds] == [{"addjob-1": [3.0, 6.0]}, {"addjob-1": [4.0, 5.0]}]
    assert ratios(builds, "addjob-1") == [3.0 / 4.0, 6.0 / 5.0]


def test_a_build_that_costs_more_falls_short() -> None:
    goal = next(goal for goal in GOALS if goal.key == "addjob-32")
    assert goal.is_met_by(1.019) and not goal.is_met_by(1.021)


def test_a_commit_that_is_not_there_is_named() -> None:
    assert before.main(["--commit", "no-such-commit"]) == common.EXIT_SKIPPED
