"""How figures are made from runs and judged, and that what is written does not tell whose machine it was."""

from __future__ import annotations

import getpass
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bench import common, core, report


def load(cpu_us: float) -> common.Load:
    latency = {"p50": 1, "p99": 2, "p999": 3, "max": 4}
    return common.Load(1000, 1.0, 1000.0, cpu_us, server_wait_seconds=0.01, latency_us=latency)


def results(ratio: float = 2.0, gc_ms: float | None = 10.0, bytes_per_job: float = 250.0) -> core.Results:
    speeds = [
        core.Speed(pair, pipeline, redis=[load(ratio)] * 3, ours=[load(1.0)] * 3)
        for pipeline in core.PIPELINES
        for pair in core.PAIRS
    ]
    memory = core.Memory(1000, bytes_per_job, None)
    pauses = core.Pauses(2000, gc_ms, None, 1.5, 100)
    return core.Results(speeds, memory, memory, pauses, "7.0.0", "compiled, 9 modules")


def verdicts(found: core.Results) -> dict[str, str]:
    return {item.goal.key: item.verdict for item in core.judge(core.GOALS, found.value_of)}


def test_the_ratio_is_the_median_of_the_rounds_not_the_ratio_of_medians() -> None:
    """The middle round was slow for both: its ratio is as good as any, its times are not."""
    speed = core.Speed(
        core.ADD, 1, redis=[load(2.0), load(40.0), load(3.0)], ours=[load(1.0), load(10.0), load(1.0)]
    )
    assert speed.ratios() == [2.0, 4.0, 3.0]
    assert speed.ratio() == 3.0


def test_every_goal_is_judged() -> None:
    assert set(verdicts(results()).values()) == {"pass"}
    assert len(verdicts(results())) == len(core.GOALS) == 8
    assert verdicts(results(ratio=1.2))["getjob-32"] == "falls short"
    assert verdicts(results(ratio=1.2))["addjob-32"] == "pass"
    assert verdicts(results(ratio=0.9))["ackjob-1"] == "falls short"
    assert verdicts(results(bytes_per_job=351.0))["memory"] == "falls short"
    assert verdicts(results(gc_ms=None))["pause"] == "void"


def test_a_shortfall_is_told_with_its_size() -> None:
    by_key = {item.goal.key: item for item in core.judge(core.GOALS, results(ratio=0.75, bytes_per_job=385).value_of)}
    assert "0.75, 25% below the goal of ≥ 1." in by_key["addjob-1"].sentence()
    assert "385.00 bytes, 10% above the goal of ≤ 350 bytes." in by_key["memory"].sentence()


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"misses": 3}, "3 misses"),
        ({"errors": 1, "first_error": "bad"}, "bad"),
        ({"stopped": "stalled"}, "stalled"),
    ],
)
def test_a_run_with_a_wrong_reply_gives_no_number(wrong: dict[str, object], word: str) -> None:
    fine = {
        "ops": 10, "seconds": 1.0, "rate": 10.0, "misses": 0, "errors": 0, "first_error": None,
        "stopped": None, "server_cpu_us": 50.0, "server_wait_us": 0.0, "batch_latency_us": {},
    }  # fmt: skip
    assert common.read_load("redis lpush", fine).cpu_us_per_op == 5.0
    with pytest.raises(common.Void, match=word):
        common.read_load("redis lpush", {**fine, **wrong})


def test_files_are_the_same_for_the_same_numbers_and_tell_nothing_private(tmp_path: Path) -> None:
    document = core.as_json(results(), core.judge(core.GOALS, results().value_of), core.FULL, is_quick=False)
    for name in ("one", "two"):
        report.write_files(document, tmp_path / name)
    for file in ("core.json", "core.svg"):
        first = (tmp_path / "one" / file).read_bytes()
        assert first == (tmp_path / "two" / file).read_bytes()
        for private in (
            socket.gethostname(),
            str(common.ROOT),
            str(Path.home()) + os.sep,
            f"/{getpass.getuser()}/",
        ):
            assert private.encode() not in first
    assert json.loads((tmp_path / "one" / "core.json").read_text()) == document


@pytest.mark.parametrize("is_quick", [False, True])
def test_tables_print(is_quick: bool, capsys: pytest.CaptureFixture[str]) -> None:
    found = results(gc_ms=None)
    document = core.as_json(found, core.judge(core.GOALS, found.value_of), core.FULL, is_quick)
    report.print_tables(document)
    printed = capsys.readouterr().out
    assert "GETJOB" in printed and "not told" in printed
    assert ("not judged" in printed) == is_quick and ("void" in printed) != is_quick


def test_a_missing_program_is_said_clearly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(common, "build_loadgen", lambda: Path("loadgen"))
    monkeypatch.setattr(common, "leave_the_server_alone", lambda: None)
    monkeypatch.setattr(common.shutil, "which", lambda _name: None)
    assert core.main(["--quick"]) == common.EXIT_SKIPPED
    error = capsys.readouterr().err
    assert "SKIPPED" in error and "redis-server" in error


ANSWERS_PING = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    client = listener.accept()[0]
    while client.recv(1000):
        client.sendall(b"+PONG\\r\\n")
"""


def test_a_server_is_started_measured_and_stopped() -> None:
    with common.running("fake", [sys.executable, "-c", ANSWERS_PING, "{port}"]) as server:
        assert server.rss_bytes() > 1_000_000
        assert server.cpu_time().ran > 0
        assert server.compiled_modules() == 0
        assert os.sched_getaffinity(server.pid) == common.SERVER_CORE
        pid = server.pid
    assert not Path(f"/proc/{pid}").exists()


def test_a_server_that_ends_at_start_is_void_with_its_last_words() -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such disk')"]
    with pytest.raises(common.Void, match="no such disk"), common.running("fake", command):
        pass


def test_a_run_of_another_node_is_void_when_its_replies_are_wrong() -> None:
    """End to end: a server that answers PONG to everything must not get a figure."""
    if common.shutil.which("redis-server") is None or common.shutil.which("cc") is None:
        pytest.skip("needs redis-server and cc")
    node = f"{sys.executable} {Path(__file__).with_name('pong_server.py')} {{port}}"
    command = [sys.executable, "-m", "bench.core", "--quick", "--rounds", "1", "--requests", "200"]
    done = subprocess.run(
        [*command, "--node-command", node], cwd=common.ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == common.EXIT_VOID, done.stderr
    assert "void: node addjob" in done.stderr
