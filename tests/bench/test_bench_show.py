"""The table of promises: a line that found nothing out must never look like one that passed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from bench.show import by_hand, judging, lines, node
from bench.show.__main__ import LISTS

from bench import common

PONG_SERVER = [sys.executable, str(Path(__file__).with_name("pong_server.py"))]


def line(key: str, answer: lines.Answer) -> lines.Line:
    return lines.Line(key, f"line {key}", "a goal", lambda: answer)


def broken() -> lines.Answer:
    raise common.Void("nobody answered")


@pytest.mark.parametrize(
    ("answer", "verdict"), [(("3", True), "pass"), (("2", False), "falls short"), (("?", None), "void")]
)
def test_verdicts(answer: lines.Answer, verdict: str) -> None:
    assert judging.judge(line("a", answer)).verdict == verdict


def test_a_line_that_breaks_is_void_and_the_others_still_run(tmp_path: Path) -> None:
    some = [lines.Line("b", "breaks", "a goal", broken), line("a", ("3 [of] 3", True))]
    assert judging.show("some", some, tmp_path) == 1
    written = json.loads((tmp_path / "show-some.json").read_text())["lines"]
    assert [item["verdict"] for item in written] == ["void", "pass"]
    assert "nobody answered" in written[0]["figure"]


def test_all_pass_is_the_only_success(tmp_path: Path) -> None:
    assert judging.show("some", [line("a", ("1", True))], None) == 0
    assert judging.show("some", [line("a", ("1", True)), line("b", ("1", None))], None) == 1


def test_some_lines_can_be_chosen_and_a_wrong_name_is_told() -> None:
    some = node.lines()
    assert [item.key for item in judging.chosen(some, "run,test")] == ["test", "run"]
    assert len(judging.chosen(some, "core")) == 8
    with pytest.raises(SystemExit, match="no such line: nope"):
        judging.chosen(some, "run,nope")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("12 passed in 0.31s", (12, 0, 0)),
        ("===== 1 failed, 12 passed, 2 skipped in 3.00s =====", (12, 2, 1)),
        ("3 passed in 1.0s\nmore\n4 passed, 1 warning in 2.0s (0:02:00)", (7, 0, 0)),
        ("1 error in 0.10s", (0, 0, 1)),
        ("2 passed, 1 xfailed in 0.10s", (2, 1, 0)),
        ("we passed 7 passed exams", (0, 0, 0)),
    ],
)
def test_counts_are_read_from_the_last_line_of_pytest(output: str, expected: tuple[int, int, int]) -> None:
    counts = lines.pytest_counts(output)
    assert (counts.passed, counts.skipped, counts.failed) == expected


def test_a_skipped_test_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LOGS", tmp_path)
    file = tmp_path / "test_two.py"
    file.write_text("import pytest\ndef test_a(): pass\n@pytest.mark.skip\ndef test_b(): pass\n")
    assert lines.tests("two", str(file)) == ("1 passed, 1 skipped", False)
    assert lines.tests("two", str(file), "-k", "test_none")[1] is not True
    assert lines.tests("two", str(tmp_path / "missing.py"))[1] is None


def test_a_node_started_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_hand, "LOGS", tmp_path)
    port = str(common.free_port())
    figure, passed = by_hand.started_by_hand([*PONG_SERVER, port])
    assert passed is True and port in figure and "exit code 0" in figure
    # One process further down, as under make.
    figure, passed = by_hand.started_by_hand(["sh", "-c", f"{' '.join(PONG_SERVER)} {port}; exit $?"])
    assert passed is True, figure


def test_a_node_that_ends_before_it_is_ready_falls_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_hand, "LOGS", tmp_path)
    assert by_hand.started_by_hand(["echo", "already there"]) == ("no line with 'ready' appeared", False)


def test_a_failed_bench_is_run_once_and_voids_each_of_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []

    def fail(key: str, _command: list[str]) -> lines.Finished:
        runs.append(key)
        return lines.Finished(2, "void: node addjob: 3 errors\n", 1.0)

    monkeypatch.setattr(lines, "run", fail)
    some = judging.chosen(node.lines(), "core")
    assert {judging.judge(item).verdict for item in some} == {"void"}
    assert runs == ["core"]


@pytest.mark.parametrize("name", sorted(LISTS))
def test_every_list_has_lines_with_keys_of_their_own(name: str) -> None:
    keys = [item.key for item in LISTS[name]()]
    assert keys and len(set(keys)) == len(keys)
