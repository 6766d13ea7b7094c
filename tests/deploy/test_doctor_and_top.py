"""`holdfast doctor` finds what is wrong; `holdfast top` shows what is there."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.gateway.running import address
from tests.proc.harness import Node

import holdfast
from holdfast.cli import top


def doctor(*words: str) -> tuple[int, list[dict[str, Any]]]:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "doctor", "--json", *words], capture_output=True, text=True, timeout=60
    )
    return done.returncode, json.loads(done.stdout)


def test_the_doctor_of_a_well_node_and_of_none(tmp_path: Path) -> None:
    with Node("--dir", str(tmp_path / "node")) as node:
        code, found = doctor("--connect", address(node), "--dir", str(tmp_path / "node"))
        url = address(node)
    words = {each["what"]: each["kind"] for each in found}
    assert code == 0 and "bad" not in words.values()
    assert words["the journal is written"] == "good" and words["1 node answers"] == "good"
    assert any("fewer than three nodes" in each for each in words)
    code, found = doctor("--connect", url, "--dir", str(tmp_path / "nowhere"))
    bad = [each for each in found if each["kind"] == "bad"]
    assert code == 1 and len(bad) == 2
    assert all(each["do"] for each in bad)


async def test_top_shows_queues_sorts_and_finds_them() -> None:
    with Node() as node, holdfast.open(address(node)) as queue:
        queue.add_many("mail", ["x"] * 12)
        queue.add_many("pictures", ["x"] * 3)
        app = top.make_app(address(node), 0.2)
        async with app.run_test() as pilot:
            table = app.query_one("#queues")

            async def rows(count: int) -> list[str]:
                for _ in range(200):
                    await pilot.pause(0.05)
                    if table.row_count == count:
                        return [str(table.get_row_at(place)[0]) for place in range(count)]
                raise AssertionError(f"{table.row_count} rows")

            assert await rows(2) == ["mail", "pictures"]  # most queued first
            assert str(table.get_row_at(0)[1]) == "12"
            await pilot.press("slash", "p", "i", "c")
            assert await rows(1) == ["pictures"]
