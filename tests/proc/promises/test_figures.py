"""Every job is in some figure: also those of a node that was killed a moment ago, wherever one looks.

Three nodes with default settings, so that a node that is gone counts as failed after 15 s: long after the looks.
"""
from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cluster_harness import SETTINGS as ON_DISK
from cluster_harness import Cluster, Member, free_ports, until
from prometheus_client.parser import text_string_to_metric_families

import holdfast
from holdfast.client.figures import STATES

Figure = Callable[[str, float, float], None]

EACH = 100
"""Jobs added at each node."""
SETTINGS = {**ON_DISK, "cluster-node-timeout": "15000"}
SEEN_S = 2.0
"""A link that ends, and a look of the command line."""
RIGHT_S = 5.0
"""Counts are of the last walk over all jobs, one a second; and a worker may have been given a job meanwhile."""




@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("figures"), 3, SETTINGS)
    yield cluster
    cluster.stop()


def url_of(*nodes: Member) -> str:
    return "holdfast://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)


def said(node: Member, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast", *words, "--connect", url_of(node)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def of_queue(node: Member) -> dict[str, Any]:
    with holdfast.open(url_of(node)) as queue:
        [row] = queue.figures("q").queues
    return {**row.row(), "jobs": row.jobs}


def fill(cluster: Cluster) -> None:
    """300 jobs, 100 at each node; some delayed, some with workers."""
    for node in cluster:
        for number in range(EACH):
            node.add("q", "body", "REPLICATE", 3, "RETRY", 600, *(("DELAY", 500) if number % 10 == 0 else ()))
    taken = cluster[2].ask("GETJOB", "COUNT", 10, "FROM", "q")
    assert len(taken) == 10
    until(lambda: of_queue(cluster[0])["jobs"] == 3 * EACH and of_queue(cluster[0])["leased"] == 10)


def test_jobs_of_a_killed_node_are_counted_at_once(cluster: Cluster, figure: Figure) -> None:
    """In the figures of queues, whoever of the others is asked, and in what people read."""
    a, b, c = cluster
    fill(cluster)
    before = of_queue(a)
    assert (before["queued"], before["delayed"], before["leased"], before["node_away"]) == (260, 30, 10, 0)
    c.kill()
    began = time.monotonic()
    until(lambda: all(of_queue(node)["node_away"] == EACH for node in (a, b)))
    figure("jobs of a killed node are in the figures after s", time.monotonic() - began, SEEN_S)
    for node in (a, b):
        row = of_queue(node)
        assert sum(row[name] for name in STATES) == row["jobs"] == 3 * EACH
        assert (row["queued"], row["delayed"], row["leased"]) == (180, 20, 0)
    figure("jobs in no figure while a node is away", 3 * EACH - of_queue(a)["jobs"], 0)

    near = c.id[:8].decode()
    table = said(a, "queues")
    assert "node away" in table.stdout and f"{EACH} jobs wait for node {near}" in table.stderr
    listed = json.loads(said(b, "jobs", "--state", "node-away", "--limit", "1000", "--json").stdout)
    assert len(listed) == len({row["id"] for row in listed}) == EACH
    assert {row["waits-for"] for row in listed} == {c.id.decode()}
    everything = json.loads(said(b, "jobs", "--limit", "1000", "--json").stdout)
    assert len({row["id"] for row in everything}) == 3 * EACH
    found = said(a, "doctor", "--json")
    [wrong] = [each for each in json.loads(found.stdout) if "wait for" in each["what"]]
    assert found.returncode == 1 and wrong["kind"] == "bad"
    assert wrong["what"].startswith(f"{EACH} jobs wait for node {near} at ") and "(away " in wrong["what"]
    assert "start it again with the same folder" in wrong["do"] and "counts as failed" in wrong["do"]
    with holdfast.open(url_of(a)) as queue:
        explained = queue.explain(listed[0]["id"])
    assert explained is not None and explained.state == "node-away"
    assert f"node {near} (away for " in explained.summary
    assert explained.reasons[0].ms_until is not None, "nobody says when another queues it"


def scraped(port: int) -> dict[tuple[str, str], float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {
        (sample.name, sample.labels.get("state") or sample.labels.get("peer") or ""): sample.value
        for family in text_string_to_metric_families(text) for sample in family.samples
        if not set(sample.labels) - {"state", "peer", "queue"}
    }


def test_figures_of_prometheus_add_up(tmp_path_factory: pytest.TempPathFactory, figure: Figure) -> None:
    ports = free_ports(3)
    cluster = Cluster(tmp_path_factory.mktemp("scraped"), 3, SETTINGS)
    try:
        for node, port in zip(cluster, ports, strict=True):
            node.stop()
            node.settings = {**SETTINGS, "metrics-port": str(port)}
            node.start()
        cluster.settle()
        fill(cluster)
        away = cluster[2].id.decode()
        cluster[2].kill()

        def sums() -> tuple[float, float, float]:
            found = [scraped(port) for port in ports[:2]]
            jobs = sum(value for each in found for (name, _), value in each.items() if name == "holdfast_jobs_counted")
            of_queue = sum(each.get(("holdfast_queue_jobs", "node-away"), 0) for each in found)
            return jobs, of_queue, sum(each.get(("holdfast_jobs_waiting_for_node", away), 0) for each in found)

        until(lambda: sums() == (3 * EACH, EACH, EACH), 30)
        figure("jobs in no figure of Prometheus while a node is away", 3 * EACH - sums()[0], 0)
        assert all(scraped(port)["holdfast_node_away_seconds", away] > 0 for port in ports[:2])
    finally:
        cluster.stop()


def test_figures_add_up_when_the_node_is_back(cluster: Cluster, figure: Figure) -> None:
    a, b, c = cluster
    fill(cluster)
    b.kill()
    until(lambda: of_queue(a)["node_away"] == EACH)
    b.start()
    cluster.settle()
    began = time.monotonic()
    until(lambda: of_queue(c)["jobs"] == 3 * EACH)
    figure("figures add up after the node is back, s", time.monotonic() - began, RIGHT_S)
