"""What makes .venv ready: each step after those it needs, none twice, and one line for what a machine has not got."""
from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tools.prepare import Failed, Screen, Step, carry_out_all

from tools import prepare


def noted(done: list[str], name: str) -> Callable[[Step], None]:
    return lambda _step: done.append(name)


def carry_out(*steps: Step) -> str:
    out = io.StringIO()
    carry_out_all(steps, Screen(steps, out))
    return out.getvalue()


def test_a_step_waits_for_those_before_it_and_one_that_is_there_is_not_done_again() -> None:
    done: list[str] = []
    steps = [
        Step("last", noted(done, "last"), ("middle",)),
        Step("middle", noted(done, "middle"), ("first", "kept")),
        Step("kept", noted(done, "kept"), is_needed=lambda: False),
        Step("first", noted(done, "first")),
    ]
    carry_out(*steps)
    assert done == ["first", "middle", "last"]
    assert [step.state for step in steps] == ["done", "done", "is there", "done"]


def test_steps_that_do_not_need_each_other_run_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=30)

    def meet(_step: Step) -> None:
        both.wait()

    carry_out(Step("one", meet), Step("other", meet))


def test_a_failure_ends_all_with_its_words() -> None:
    done: list[str] = []

    def fail(step: Step) -> None:
        prepare.run(step, ["sh", "-c", "echo the reason; exit 7"])

    with pytest.raises(Failed, match=r"packages could not be done:\nthe reason"):
        carry_out(Step("packages", fail), Step("next", noted(done, "next"), ("packages",)))
    assert done == []


def test_each_step_says_that_it_begins_and_how_long_it_took() -> None:
    said = carry_out(Step("assets", lambda step: setattr(step, "detail", "2 of 3")), Step("there", noted([], ""),
                     is_needed=lambda: False))
    assert "assets: done in 0.0 s\n" in said
    assert "there" not in said


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone that was never set up: what prepare knows of it is in this folder."""
    (tmp_path / ".venv").mkdir()
    monkeypatch.setattr(prepare, "STATE", tmp_path / ".venv" / ".prepared.json")
    return tmp_path


def test_packages_are_there_for_each_need_that_an_earlier_one_includes(empty: Path) -> None:
    assert not prepare.is_installed("run", "these files")
    prepare.remember(**{"packages-test": "these files"})
    assert all(prepare.is_installed(need, "these files") for need in ("run", "check", "sim", "test"))
    assert not prepare.is_installed("run", "changed files")
    prepare.remember(**{"packages-test": "changed files", "packages-run": "changed files"})
    assert prepare.is_installed("run", "changed files")
    assert json.loads(prepare.STATE.read_text()) == {"packages-test": "changed files", "packages-run": "changed files"}


def test_what_was_remembered_by_a_run_that_was_killed_is_no_obstacle(empty: Path) -> None:
    prepare.STATE.write_text('{"packages-te')
    assert prepare.remembered() == {}


@pytest.mark.parametrize(("step", "missing", "words"), [
    (prepare.fetch_assets, "npm", "apt-get install nodejs npm"),
    (prepare.compile_it, "gcc", "apt-get install gcc"),
])
def test_what_the_machine_has_not_got_is_one_line_with_the_command_that_helps(
    step: Callable[[Step], None], missing: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare.shutil, "which", lambda _name: None)
    monkeypatch.setattr(prepare, "run", lambda *_words, **_more: prepare.NOTHING_TO_COMPILE_WITH)
    told = Step(missing, step)
    step(told)
    (line,) = told.notes
    assert line.startswith(f"no {missing}" if missing == "npm" else "no C compiler") and words in line


@pytest.mark.parametrize("words", [["nothing"], ["run", "test"]])
def test_a_need_that_does_not_exist_is_told(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare.main(words) == 2
    assert f"not {' '.join(words)}" in capsys.readouterr().err


def test_a_python_that_is_too_old_is_told_before_anything_is_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prepare, "OLDEST_PYTHON", (4, 0))
    assert prepare.main(["run"]) == 1
    assert "make run PYTHON=" in capsys.readouterr().err


@pytest.mark.parametrize(("settings", "expected"), [
    ("global.index-url='https://index.example/simple'", {"UV_DEFAULT_INDEX": "https://index.example/simple"}),
    (":env:.cert='/a/cert.pem'\nglobal.timeout='9'", {"SSL_CERT_FILE": "/a/cert.pem"}),
    ("", {}),
])
def test_the_index_that_pip_knows_holds_for_uv_as_well(
    settings: str, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pip = tmp_path / "pip"
    pip.write_text(f"#!/bin/sh\ncat <<'END'\n{settings}\nEND\n")
    pip.chmod(0o755)
    monkeypatch.setattr(prepare, "PIP", (str(pip),))
    for name in ("UV_INDEX_URL", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(name, raising=False)
    assert prepare.index_of_pip() == expected
    monkeypatch.setenv("UV_INDEX_URL", "https://mine.example/simple")
    assert prepare.index_of_pip() == {}
