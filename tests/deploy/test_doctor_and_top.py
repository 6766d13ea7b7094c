"""`holdfast doctor` finds what is wrong; `holdfast top` shows what is there."""
from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.gateway.running import address
from tests.proc.harness import Node

import holdfast
from holdfast.cli import top
from holdfast.cli.doctor import of_folder


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


def test_the_doctor_looks_into_the_journal_of_a_folder(tmp_path: Path) -> None:
    with holdfast.open(f"file:{tmp_path / 'node'}") as queue:
        queue.add("q", "x" * 1000)
        queue.add("q", "y" * 1000)
    assert ("good", True) in [(each["kind"], "can be read" in each["what"]) for each in doctor_of(tmp_path / "node")]
    segment = next(each for each in (tmp_path / "node" / "journal").iterdir() if b"xxx" in each.read_bytes())
    data = bytearray(segment.read_bytes())
    data[data.index(b"xxx")] ^= 1
    segment.write_bytes(data)
    assert [each for each in doctor_of(tmp_path / "node") if each["kind"] == "bad" and "repair" in each["do"]]


def test_the_doctor_knows_what_is_no_folder_of_a_node(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    found = doctor_of(tmp_path)
    assert [each["what"] for each in found] == [f"{tmp_path} is no folder of a node"]


def doctor_of(folder: Path) -> list[dict[str, Any]]:
    return [asdict(each) for each in of_folder(folder)]


def test_the_doctor_says_that_a_password_is_wanted_and_who_was_never_met() -> None:
    with Node("--set", "requirepass=wanted", "--set", f"cluster-secret={'x' * 16}") as node, node.client() as client:
        code, found = doctor("--connect", address(node))
        assert code == 1 and "HOLDFAST_SECRET" in next(each for each in found if each["kind"] == "bad")["do"]
        assert client.ask("AUTH", "wanted") == b"OK"
        assert client.ask("CLUSTER", "MEET", "127.0.0.1", 1, 2) == b"OK"
        code, found = doctor("--connect", address(node).replace("://", "://:wanted@"))
    words = {each["what"]: each["kind"] for each in found}
    assert code == 0 and words["1 node answers"] == "good"
    assert words["nobody of the cluster answers at 127.0.0.1:1"] == "remark"


async def test_top_shows_queues_sorts_and_finds_them() -> None:
    with Node() as node, holdfast.open(address(node)) as queue:
        queue.add_many("mail", ["x"] * 12)
        queue.add_many("pictures", ["x"] * 3)
        queue.add_many("[/x]", ["x"])
        app = top.make_app(address(node), 0.2)
        async with app.run_test() as pilot:
            table = app.query_one("#queues")

            async def rows(count: int) -> list[str]:
                for _ in range(200):
                    await pilot.pause(0.05)
                    if table.row_count == count:
                        return [str(table.get_row_at(place)[0]) for place in range(count)]
                raise AssertionError(f"{table.row_count} rows")

            assert await rows(3) == ["mail", "pictures", "[/x]"]  # most queued first
            assert str(table.get_row_at(0)[1]) == "12"
            await pilot.press("slash", "p", "i", "c")
            assert await rows(1) == ["pictures"]
