"""`holdfast bench`: every mode does its work, checks it, and leaves the node as it was."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.bench import Phase, bench
from holdfast.client.connection import Connection
from holdfast.client.resp import Reply
from holdfast.client.target import Target


def run(port: int, *words: str) -> Result:
    return CliRunner().invoke(bench, ["-p", str(port), *words])


def ask(port: int, *words: str) -> Reply:
    connection = Connection(Target(port=port))
    reply = connection.call(words)
    connection.close()
    return reply


def registered(port: int) -> str:
    info = ask(port, "INFO", "jobs")
    assert isinstance(info, bytes)
    return next(line for line in info.decode().splitlines() if line.startswith("registered_jobs"))


@pytest.mark.parametrize(("mode", "names"), [("add", ["add"]), ("get", ["get"]), ("ack", ["ack"]),
                                             ("cycle", ["add", "get", "ack", "cycle"])])
def test_each_mode_does_all_its_jobs_and_cleans_up(port: int, mode: str, names: list[str]) -> None:
    result = run(port, "--mode", mode, "--jobs", "105", "--connections", "7", "--pipeline", "4", "--json")
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.output)
    assert [phase["name"] for phase in report["phases"]] == names
    for phase in report["phases"]:
        assert phase["jobs"] == 105 and phase["jobs_per_second"] > 0
        assert 0 < phase["p50_ms"] <= phase["p99_ms"] <= phase["max_ms"]
    assert registered(port) == "registered_jobs:0"


def test_a_table_for_people(port: int) -> None:
    result = run(port, "--jobs", "10")
    assert result.exit_code == 0
    assert "jobs/s" in result.output and "cycle" in result.output and "10 connections" in result.output


def test_other_peoples_jobs_are_not_touched(port: int) -> None:
    ask(port, "ADDJOB", "theirs", "body", "0")
    result = run(port, "--queue", "theirs", "--jobs", "10")
    assert result.exit_code == 1 and "already holds 1 jobs" in result.output
    assert ask(port, "QLEN", "theirs") == 1
    ask(port, "QFLUSH", "theirs")


def test_a_run_that_goes_wrong_is_no_result(port: int) -> None:
    ask(port, "PAUSE", "stuck", "in")
    result = run(port, "--queue", "stuck", "--jobs", "100")
    assert result.exit_code == 1 and "given up: PAUSED" in result.output
    assert "jobs/s" not in result.output
    ask(port, "PAUSE", "stuck", "none")


def test_a_body_over_the_limit_shows_what_the_node_says(port: int) -> None:
    result = run(port, "--body", "2000000", "--jobs", "100", "--connections", "5")
    assert result.exit_code == 1 and "max-body-bytes" in result.output
    assert registered(port) == "registered_jobs:0"


def test_nobody_there() -> None:
    result = CliRunner().invoke(bench, ["--unix", "/nowhere/x.sock"])
    assert result.exit_code == 1 and "UNREACHABLE" in result.output


def test_ctrl_c_reports_what_was_done_and_cleans_up(port: int) -> None:
    command = [sys.executable, "-m", "holdfast", "bench", "-p", str(port), "--mode", "add",
               "--jobs", "100000000", "--connections", "5", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while ask(port, "QLEN", "bench") == 0:
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    output, complaints = process.communicate(timeout=60)
    assert process.returncode == 130 and "Stopped early" in complaints
    assert json.loads(output)["phases"][0]["jobs"] > 0
    assert registered(port) == "registered_jobs:0"


def test_percentiles() -> None:
    phase = Phase("add", jobs=100, seconds=2.0, windows=[n / 1000 for n in range(100, 0, -1)])
    report = phase.report()
    assert (report["p50_ms"], report["p99_ms"], report["max_ms"]) == (50.0, 99.0, 100.0)
    assert report["jobs_per_second"] == 50.0
    assert Phase("add").report()["p50_ms"] == 0.0
