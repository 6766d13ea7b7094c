"""How the figures of a cluster are made from runs and judged."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from bench.show import cluster as cluster_list

from bench import cluster, cluster_report, common

LATENCY = {"p50": 100, "p99": 900, "p999": 1000, "max": 2000}


def step(*cpu_us: float) -> cluster.Step:
    return cluster.Step(1000.0, list(cpu_us), bus_bytes=400.0 if len(cpu_us) > 1 else 0.0, latency_us=LATENCY)


def copies(pipeline: int, times_redis: float = 2.0) -> cluster.Copies:
    found = cluster.Copies(pipeline)
    for _ in range(3):
        found.note("lpush", step(10.0))
        found.note("rpop", step(10.0))
        for safety in cluster.SAFETY:
            for mode in ("addjob", "getjob", "ackjob"):
                found.note(f"{mode} {safety}", step(times_redis * 5, times_redis * 3, times_redis * 2))
    return found


def cores(pipeline: int, cpu: float = 1.1, rate: float = 1.5) -> cluster.Cores:
    one = [cluster.Together(10.0, 11.0, 1000.0, 0.3)] * 3
    many = [cluster.Together(10.0 * cpu, 11.0, 1000.0 * rate, 0.4)] * 3
    return cluster.Cores(pipeline, one, many)


def results(times_redis: float = 2.0, cpu: float = 1.1, rate: float = 1.5, ms: float = 0.5) -> cluster.Results:
    return cluster.Results(
        [copies(pipeline, times_redis) for pipeline in cluster.PIPELINES],
        [cores(pipeline, cpu, rate) for pipeline in cluster.PIPELINES],
        [ms] * 100, "7.0.0", "compiled, 9 modules",
    )  # fmt: skip


def verdicts(found: cluster.Results) -> dict[str, str]:
    return {item.goal.key: item.verdict for item in cluster.judge(cluster.GOALS, found.value_of)}


def test_the_nodes_are_summed_and_compared_with_redis_in_the_same_round() -> None:
    found = cluster.Copies(1)
    for redis, ours in ((10.0, (10.0, 5.0, 5.0)), (20.0, (40.0, 10.0, 10.0)), (10.0, (12.0, 5.0, 5.0))):
        found.note("lpush", step(redis))
        found.note("addjob REPLICATE 3", step(*ours))
    assert found.ratios("addjob REPLICATE 3") == [2.0, 3.0, 2.2]
    row = found.row("addjob REPLICATE 3")
    assert row["ratio"] == 2.2 and row["cpu_us"] == [12.0, 5.0, 5.0] and row["bus_bytes"] == 400.0


def test_every_goal_is_judged() -> None:
    assert set(verdicts(results()).values()) == {"pass"} and len(verdicts(results())) == len(cluster.GOALS)
    assert verdicts(results(times_redis=4.0))["copies-1"] == "falls short"
    assert verdicts(results(times_redis=4.0))["copies-32"] == "pass"
    assert verdicts(results(cpu=1.2))["cores-cpu-32"] == "falls short"
    assert verdicts(results(rate=0.9))["cores-rate"] == "falls short"
    assert verdicts(results(ms=60.0))["latency-p99"] == "falls short"


def test_files_are_the_same_for_the_same_numbers_and_tell_nothing_private(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = cluster.judge(cluster.GOALS, results().value_of)
    document = cluster.as_json(results(), judged, cluster.FULL, is_quick=False)
    for name in ("one", "two"):
        cluster_report.write_files(document, tmp_path / name)
    for file in ("cluster.json", "cluster.svg"):
        first = (tmp_path / "one" / file).read_bytes()
        assert first == (tmp_path / "two" / file).read_bytes()
        assert socket.gethostname().encode() not in first and str(common.ROOT).encode() not in first
    assert json.loads((tmp_path / "one" / "cluster.json").read_text()) == document
    cluster_report.print_tables(document)
    assert "addjob REPLICATE 3" in capsys.readouterr().out


def test_the_list_of_the_cluster_has_a_line_for_every_goal() -> None:
    keys = [line.key for line in cluster_list.lines()]
    assert {f"bench-{goal.key}" for goal in cluster.GOALS} <= set(keys) and len(keys) == len(set(keys))
