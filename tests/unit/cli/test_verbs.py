"""What an operator does at night, at a real node: pause, settle, limit, move, cancel; and what is refused in words."""
from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.proc.harness import until

import holdfast
from holdfast import doors
from holdfast.cli.main import main


class Desk:
    """The command line, and a queue beside it that knows what came of it."""

    def __init__(self, port: int, queue: holdfast.Queue) -> None:
        self.where = f"127.0.0.1:{port}"
        self.queue = queue

    def run(self, *words: str, typed: str = "") -> Result:
        return CliRunner().invoke(main, [*words, "--connect", self.where], input=typed, prog_name="holdfast")

    def done(self, *words: str) -> Any:
        """What a command says to programs, which works."""
        answer = self.run(*words, "--json")
        assert answer.exit_code == 0, answer.output
        return json.loads(answer.stdout)


@pytest.fixture
def desk(port: int) -> Iterator[Desk]:
    with doors.open(f"127.0.0.1:{port}") as queue:
        yield Desk(port, queue)


def test_a_queue_is_paused_seen_and_resumed(desk: Desk) -> None:
    """A paused queue looked like any other."""
    desk.queue.add("mail", "x")
    said = desk.run("pause", "mail", "--out")
    assert "mail is paused for workers, until `holdfast resume mail`" in said.stdout
    listed = desk.run("queues", "mail")
    assert listed.stdout.splitlines()[1].split()[-1] == "out"
    assert "mail is paused (out): holdfast resume mail" in listed.stderr
    assert desk.done("queues", "mail")[0]["paused"] == "out"
    assert desk.queue.take("mail") == []
    assert desk.done("resume", "mail") == {"queue": "mail", "paused": "none"}
    assert len(desk.queue.take("mail")) == 1


def test_a_pause_of_a_queue_that_is_not_there_is_no_silent_success(desk: Desk) -> None:
    """It made a queue of the mistyped name, and the one that was meant went on."""
    desk.queue.add("invoices", "x")
    refused = desk.run("pause", "invoces")
    assert refused.exit_code == 1 and "there is no queue 'invoces' yet; did you mean 'invoices'?" in refused.stderr
    assert desk.queue.figures("invoces").queues == ()
    assert desk.done("pause", "soon", "--new", "--for", "60")["paused"] == "all"
    desk.queue.resume("soon")
    wrong = desk.run("queues", "invoces")
    assert wrong.exit_code == 1 and "did you mean 'invoices'?" in wrong.stderr


def test_settings_of_a_queue_are_shown_and_changed(desk: Desk) -> None:
    desk.queue.add("tuned", "x")
    assert desk.done("settings", "tuned", "attempts=5", "rate=10/s")["attempts"] == 5
    assert desk.queue.settings("tuned")["rate"] == b"10/s"
    wrong = desk.run("settings", "tuned", "atempts=5")
    assert wrong.exit_code == 2 and "there is no setting 'atempts' of queues; did you mean 'attempts'?" in wrong.stderr
    assert "by name=value" in desk.run("settings", "tuned", "attempts").stderr


def test_a_queue_is_emptied_on_somebodys_word(desk: Desk) -> None:
    desk.queue.add_many("heap", ["x"] * 3)
    refused = desk.run("flush", "heap")
    assert refused.exit_code == 1 and "--yes does it" in refused.stderr
    assert desk.done("flush", "heap", "--yes") == {"count": 3}


def test_domains_are_limited_listed_and_freed(desk: Desk) -> None:
    desk.done("limit", "set", "slow.example", "10/s", "--concurrency", "3")
    [row] = [row for row in desk.done("limit", "list") if row["name"] == "slow.example"]
    assert (row["rate"], row["concurrency"]) == ("10/s", 3)
    desk.done("limit", "delete", "slow.example")
    assert desk.run("limit", "delete", "slow.example").exit_code == 3


def test_tenants_are_weighed_and_listed(desk: Desk) -> None:
    desk.queue.add("shared", "x", tenant="acme")
    desk.done("tenant", "set", "shared", "acme", "3")
    assert desk.done("tenant", "list", "shared") == [{"tenant": "acme", "weight": 3, "queued": 1}]


def test_jobs_are_changed_by_their_ids(desk: Desk) -> None:
    one, two = (desk.queue.add("from", "x", delay=600) for _ in range(2))
    assert desk.done("run-now", one)["count"] == 1
    assert [each.id for each in desk.queue.peek("from")] == [one]
    assert desk.done("prioritize", one, "--priority", "9")["count"] == 1
    assert desk.done("move", one, "--to", "into")["count"] == 1
    assert desk.queue.length("into") == 1
    assert desk.done("cancel", two)["count"] == 1
    assert desk.run("show", two).exit_code == 3
    assert desk.done("delete", one)["count"] == 1
    assert desk.run("delete", one).exit_code == 3


def test_jobs_are_changed_by_a_filter_after_they_were_counted(desk: Desk) -> None:
    desk.queue.add_many("bulk", ["x"] * 3, delay=600)
    desk.queue.add("bulk", "now")
    refused = desk.run("cancel", "--queue", "bulk", "--state", "delayed")
    assert refused.exit_code == 1 and "3 jobs would be cancelled; --yes does it" in refused.stderr
    assert desk.done("cancel", "--queue", "bulk", "--state", "delayed", "--yes")["count"] == 3
    assert [row["status"] for row in desk.done("jobs", "--queue", "bulk")] == ["queued"]
    assert desk.run("cancel").exit_code == 2, "without a filter it would be every job there is"


def test_a_job_that_a_worker_has_is_not_moved_and_it_is_said_why(desk: Desk) -> None:
    job = desk.queue.add("busy", "x")
    desk.queue.take("busy")
    answer = desk.run("move", job, "--to", "elsewhere")
    assert answer.exit_code == 3 and "1 job not: " in answer.stderr


def test_a_job_that_failed_is_listed_as_retrying_and_shown_in_words(desk: Desk) -> None:
    job = desk.queue.add("flaky", "x", backoff=600, attempts=3)
    desk.queue.next("flaky", timeout=5).fail("boom")
    assert [row["id"] for row in desk.done("jobs", "--state", "retrying", "--queue", "flaky")] == [job]
    assert "retrying: it failed, and waits before it is tried again" in desk.run("show", job).stdout
    assert desk.run("explain", job).stdout.startswith("retrying: ")
    found = until(lambda: (row := desk.done("queues", "flaky")[0])["retrying"] and row, 10)  # counted once a second
    assert (found["retrying"], found["delayed"], found["queued"]) == (1, 0, 0)


def test_workers_are_listed_with_what_they_did(desk: Desk) -> None:
    desk.queue.beat("w1", seconds=60, facts={"host": "h", "queues": "mail", "running": "2", "done": "17"})
    assert "w1" in desk.run("workers").stdout
    [row] = [row for row in desk.done("workers") if row["name"] == "w1"]
    assert (row["running"], row["done"], row["host"]) == (2, 17, "h")


def test_the_next_jobs_are_shown_and_stay(desk: Desk) -> None:
    first = desk.queue.add("peeked", "a")
    last = desk.queue.add("peeked", "b")
    assert [row["id"] for row in desk.done("peek", "peeked")] == [first, last]
    assert [row["id"] for row in desk.done("peek", "peeked", "--count", "1", "--newest")] == [last]
    assert desk.queue.length("peeked") == 2


def test_dead_jobs_are_sent_back_in_words(desk: Desk) -> None:
    job = desk.queue.add("grave", "x", attempts=1)
    desk.queue.next("grave", timeout=5).fail("boom")
    assert desk.run("dead", "retry", job).stdout == "1 job queued again\n"


def test_where_is_a_url_or_a_host_and_a_port_or_a_variable(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.queue.add("placed", "x")
    port = desk.where.rpartition(":")[2]
    for place in (desk.where, f"holdfast://{desk.where}", f"localhost:{port}"):
        assert CliRunner().invoke(main, ["queues", "placed", "--connect", place]).exit_code == 0, place
    monkeypatch.setenv("HOLDFAST_URL", desk.where)
    assert CliRunner().invoke(main, ["queues", "placed"]).exit_code == 0
    assert CliRunner().invoke(main, ["cli", "ping"]).stdout == "PONG\n"
    assert CliRunner().invoke(main, ["health"]).exit_code == 0
    monkeypatch.setenv("HOLDFAST_URL", "http://127.0.0.1:1")
    refused = CliRunner().invoke(main, ["cli", "ping"])
    assert refused.exit_code == 2 and "speaks to a node" in refused.stderr
    assert CliRunner().invoke(main, ["cli", "-p", port, "ping"]).stdout == "PONG\n", "the alias wins over the variable"


def test_the_node_that_was_asked_is_not_forgotten_and_a_stranger_is_none(desk: Desk) -> None:
    own = desk.queue.nodes()[0]
    assert "is the node that was asked" in desk.run("cluster", "forget", own.near).stderr
    nobody = desk.run("cluster", "forget", "ffffffff")
    assert nobody.exit_code == 1 and own.near in nobody.stderr
