"""bench/seal.py: each goal gets a figure, and longer frames cost more."""
from __future__ import annotations

import json
from pathlib import Path

from bench.seal import GOALS, frame_us

from bench import common, seal


def test_every_goal_gets_a_figure(tmp_path: Path) -> None:
    assert seal.main(["--quick", "--out", str(tmp_path)]) == common.EXIT_PASS
    figures = json.loads((tmp_path / "seal.json").read_text())["figures"]
    assert set(figures) == {goal.key for goal in GOALS}
    assert all(0 < figure["value"] < 1 and figure["frames_per_job"] > 0 for figure in figures.values())


def test_a_long_frame_costs_more_than_a_short_one() -> None:
    assert 0 < frame_us(100) < frame_us(1_000_000)
