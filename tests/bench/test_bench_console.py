"""What the console costs: the run itself, in small; and a page whose commands nobody runs is noticed."""
from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from bench.show import fresh_clone

from bench import common, console


def test_a_small_run_finds_every_figure(tmp_path: Path) -> None:
    assert console.main(["--quick", "--out", str(tmp_path)]) == common.EXIT_PASS
    document = json.loads((tmp_path / "console.json").read_text())
    assert {key: figure["verdict"] for key, figure in document["figures"].items()}.keys() == {"pages", "page", "step"}
    assert "void" not in [figure["verdict"] for figure in document["figures"].values()]
    assert document["parts"]["pages"]["pages opened"] > 0
    assert document["figures"]["pages"]["spread"]["least"] > 0


def test_commands_are_read_from_a_page() -> None:
    page = "words\n```sh\nmake        # lists\n# words\nholdfast node \\\n  --port 1\n```\n```console\n$ ls\n```\n"
    assert [re.sub(" +", " ", line) for line in fresh_clone.commands(page)] == ["make", "holdfast node --port 1"]


def test_each_command_of_readme_and_tutorial_has_somebody_who_runs_it() -> None:
    known = re.compile(r"make( run| test)?$|source \.venv/bin/activate$|pip install \.$|holdfast node ")
    for page in fresh_clone.PAGES:
        found = fresh_clone.commands((common.ROOT / page).read_text("utf-8"))
        assert found and [line for line in found if not known.match(line)] == []


def test_taken_ports_give_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_clone, "is_listened_at", lambda port: port == 7712)
    assert fresh_clone.follow_the_readme() == ("ports that the pages name are taken: 7712", None)


def test_somebody_elses_shell_has_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "HOLDFAST_PURE", "MAKEFLAGS", "MAKELEVEL", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, "ours")
    monkeypatch.setenv("THEIRS", "kept")
    assert "ours" not in fresh_clone.plain().values() and fresh_clone.plain()["THEIRS"] == "kept"


def test_ctrl_c_reaches_what_make_started_and_make_waits_for_it(tmp_path: Path) -> None:
    """As a person types it: the terminal tells make and its child, which takes its time to say goodbye."""
    (tmp_path / "wait.sh").write_text("trap 'sleep 0.5; echo goodbye; exit 0' INT\necho ready\nsleep 60 & wait\n")
    (tmp_path / "Makefile").write_text("run:\n\t@exec bash wait.sh\n")
    terminal = fresh_clone.Terminal(["make", "run"], tmp_path)
    try:
        fresh_clone.wait_for("its first word", 20, lambda: terminal.is_there(re.compile("ready")))
        assert "goodbye" in terminal.interrupt()
    finally:
        terminal.close()
