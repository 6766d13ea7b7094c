"""The commands of the shell at a real node: what they print, what programs get, and how they end."""
from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from harness import Node


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node() as node:
        yield node


def run(node: Node, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    url = f"holdfast://127.0.0.1:{node.port}"
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *words, "--connect", url], input=stdin, capture_output=True, text=True,
        timeout=60,
    )


def test_a_job_is_added_looked_at_explained_taken_and_acknowledged(node: Node) -> None:
    made = run(node, "add", "mail", "hello", "--priority", "9", "--tenant", "t")
    job = made.stdout.strip()
    assert made.returncode == 0 and len(job) == 48, made.stderr
    assert "mail" in run(node, "queues").stdout
    with node.client() as client:
        assert client.ask("ADDJOB", "", "in the queue without a name", "0").startswith(b"DI")
    assert "(empty)" in run(node, "queues").stdout
    assert json.loads(run(node, "show", job, "--json").stdout)["queue"] == "mail"
    assert "queued" in run(node, "explain", job).stdout
    assert [row["id"] for row in json.loads(run(node, "jobs", "--queue", "mail", "--json").stdout)] == [job]
    taken = json.loads(run(node, "take", "mail", "--json").stdout)
    assert taken["id"] == job and taken["body"] == "hello"
    assert run(node, "take", "mail").returncode == 3
    assert run(node, "ack", job).returncode == 0
    assert run(node, "ack", job).returncode == 3


def test_lines_of_standard_input_become_jobs(node: Node) -> None:
    made = run(node, "add", "lines", "-", stdin="one\ntwo\n")
    assert len(made.stdout.split()) == 2
    taken = run(node, "take", "lines", "--count", "5", "--ack")
    assert [line.split()[-1] for line in taken.stdout.splitlines()] == ["one", "two"]


def test_dead_jobs_are_listed_and_sent_back(node: Node) -> None:
    job = run(node, "add", "sick", "x", "--attempts", "1").stdout.strip()
    with node.client() as client:
        client.ask("GETJOB", "FROM", "sick")
        assert client.ask("NACK", job, "ERROR", "no way") == 1
    [row] = json.loads(run(node, "dead", "list", "--queue", "sick", "--json").stdout)
    assert row["id"] == job and row["error"] == "no way"
    assert "which" in run(node, "dead", "retry").stderr
    assert run(node, "dead", "retry", "--queue", "sick").stdout == "1 job queued again\n"
    assert run(node, "take", "sick").stdout.startswith(job)


def test_errors_are_sentences_and_exit_codes(node: Node) -> None:
    nobody = "DI" + "0" * 44 + "SQ"
    assert run(node, "show", nobody).returncode == 3
    wrong = run(node, "show", "nonsense")
    assert wrong.returncode == 1 and wrong.stderr.startswith("holdfast: BADID")
    assert run(node, "add", "q", "x", "--priority", "10").returncode == 2
    nowhere = [sys.executable, "-m", "holdfast", "health", "--connect", "holdfast://127.0.0.1:1"]
    away = subprocess.run(nowhere, timeout=60, capture_output=True, text=True)
    assert away.returncode == 1 and "Traceback" not in away.stderr
    assert run(node, "health").returncode == 0


def test_the_cluster_is_listed(node: Node) -> None:
    listed = run(node, "cluster", "nodes").stdout
    assert "myself" in listed and f"127.0.0.1:{node.port}" in listed
    assert "cluster_state" in run(node, "cluster", "info").stdout
