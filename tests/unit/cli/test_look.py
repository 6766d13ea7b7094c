"""Tables that people read: nothing of others is taken for an order, no id is cut off, and what is left out is said."""
from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner, Result

from holdfast import doors
from holdfast.cli import common, look
from holdfast.cli.cron import cron
from holdfast.cli.dead import dead
from holdfast.cli.handle import add, take
from holdfast.cli.main import main
from holdfast.cli.top import short, top


def run(command: click.Command, port: int, *words: str) -> Result:
    return CliRunner().invoke(command, [*words, "--connect", f"holdfast://127.0.0.1:{port}"])


def test_words_in_brackets_and_control_characters_are_shown_as_they_are(port: int) -> None:
    """A queue of this name, or a body like this, ended the table with a traceback, or coloured the rest of it."""
    name, body = "[/x]", "[/b] closing \x1b[31mred\a\n"
    assert run(add, port, name, body).exit_code == 0
    shown = run(look.jobs, port, "--queue", name)
    assert shown.exit_code == 0 and name in shown.stdout and r"[/b] closing \x1b[31mred\a\n" in shown.stdout
    assert run(look.queues, port).stdout.splitlines()[1].startswith(name)
    job = json.loads(run(take, port, name, "--json").stdout)
    assert job["body"] == body
    one = run(look.show_job, port, job["id"])
    assert one.exit_code == 0 and r"\x1b[31mred" in one.stdout and "\x1b" not in one.stdout


def test_ids_are_whole_and_what_is_left_out_is_said(port: int) -> None:
    with doors.open(f"holdfast://127.0.0.1:{port}") as queue:
        ids = {queue.add("many", "x" * 200) for _ in range(5)}
    shown = run(look.jobs, port, "--queue", "many", "--limit", "3")
    found = {line.split()[0] for line in shown.stdout.splitlines()[1:]}
    assert len(found) == 3 and found <= ids
    assert "the first 3; --limit" in shown.stderr
    assert not run(look.jobs, port, "--queue", "many", "--limit", "5").stderr


def test_a_job_is_listed_in_the_state_it_is_in(port: int) -> None:
    with doors.open(f"holdfast://127.0.0.1:{port}") as queue:
        made = {queue.add("states", "later", delay=1000): "delayed"}
        leased = queue.add("states", "taken")
        made[leased] = "leased"
        assert [job.id for job in queue.take("states")] == [leased]
        made[queue.add("states", "waits")] = "queued"
    rows = json.loads(run(look.jobs, port, "--queue", "states", "--json").stdout)
    assert {row["id"]: row["status"] for row in rows} == made
    only = json.loads(run(look.jobs, port, "--queue", "states", "--state", "leased", "--json").stdout)
    assert [row["id"] for row in only] == [leased]


def test_a_schedule_is_listed_with_the_time_of_its_next_run(port: int) -> None:
    assert run(cron, port, "set", "nightly", "0 3 * * *", "reports", "body", "--zone", "UTC").exit_code == 0
    head, line = run(cron, port, "list").stdout.splitlines()
    assert head.split() == ["name", "schedule", "zone", "queue", "next"]
    assert line.startswith("nightly  0 3 * * *  UTC   reports  2") and ":00:00" in line


def test_a_queue_that_is_not_there_is_no_success(port: int) -> None:
    shown = run(look.queues, port, "nosuch")
    assert shown.exit_code == 1 and "no queue matches 'nosuch'" in shown.stderr


def test_queues_are_found_by_pattern(port: int) -> None:
    for name in ("bulk.a", "bulk.b", "other"):
        assert run(add, port, name, "x").exit_code == 0
    rows = json.loads(run(look.queues, port, "bulk.*", "--json").stdout)
    assert [row["name"] for row in rows] == ["bulk.a", "bulk.b"]
    assert run(look.queues, port, "none.*").exit_code == 1


NOBODYS = "DI0f0c0cb7000660583a96f481c08a9ff960623a8805a1SQ"


@pytest.mark.parametrize(("command", "words"), [
    (look.explain, [NOBODYS]), (look.explain, [NOBODYS, "--json"]), (look.show_job, [NOBODYS]),
    (dead, ["delete", NOBODYS]), (dead, ["retry", NOBODYS]),
])
def test_a_job_that_is_not_there_is_no_success(port: int, command: click.Command, words: list[str]) -> None:
    assert run(command, port, *words).exit_code == common.NOTHING


def test_a_state_there_is_none_of_is_answered_with_those_there_are(port: int) -> None:
    shown = run(look.jobs, port, "--state", "bogus")
    assert shown.exit_code == 2 and "leased" in shown.stderr and "delayed" in shown.stderr


def test_a_job_is_shown_in_words(port: int) -> None:
    with doors.open(f"holdfast://127.0.0.1:{port}") as queue:
        job = queue.add("words", "x", headers={"a": "b"}, retry=300)
    shown = run(look.show_job, port, job).stdout
    lines = {name: text.strip() for name, _, text in (line.partition("  ") for line in shown.splitlines())}
    assert lines["added"].startswith("2") and lines["added"].count(":") == 2
    assert (lines["time of a worker"], lines["headers"]) == ("5 min", "a: b")
    assert "queued again in" not in lines, "it waits for no time"
    assert "None" not in shown and "[" not in shown
    assert isinstance(json.loads(run(look.show_job, port, job, "--json").stdout)["ctime"], int)


def test_empty_lines_are_no_jobs_and_a_queue_has_a_name(port: int) -> None:
    words = ["lines", "-", "--connect", f"holdfast://127.0.0.1:{port}"]
    added = CliRunner().invoke(add, words, input="one\n\n  \ntwo\r\n")
    assert added.exit_code == 0 and len(added.stdout.split()) == 2
    with doors.open(f"holdfast://127.0.0.1:{port}") as queue:
        assert [job.text for job in queue.take("lines")] == ["one", "two"]
    nameless = run(add, port, "", "x")
    assert nameless.exit_code == 2 and "name of the queue is empty" in nameless.stderr


def test_no_summary_of_a_command_is_cut_off() -> None:
    assert "..." not in CliRunner().invoke(main, ["--help"]).stdout.partition("Run Holdfast:")[2]


def test_a_long_name_leaves_room_for_the_figures() -> None:
    assert short("q" * 41) == "q" * 41
    assert short("a" * 100 + "b" * 100) == "a" * 20 + "…" + "b" * 20


def test_top_is_not_drawn_into_a_pipe(port: int) -> None:
    shown = run(top, port)
    assert shown.exit_code == 1 and "terminal" in shown.stderr


def test_only_the_last_column_is_cut_to_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    rows = [["id", "body"], ["D" * 48, "b" * 100], ["d", "世" * 30]]
    _, line, wide = common.lines_of(rows)
    assert line == "D" * 48 + "  " + "b" * 29 + "…"
    assert common.cell_len(wide) <= 80
    monkeypatch.setenv("COLUMNS", "40")
    assert list(common.lines_of(rows))[1] == "D" * 48 + "  " + "b" * 19 + "…"


def test_where_a_job_failed_is_shown_line_by_line(port: int) -> None:
    with doors.open(f"holdfast://127.0.0.1:{port}") as queue:
        made = queue.add("traces", "x", attempts=1)
        queue.next("traces", timeout=5).fail("ValueError: no\nTraceback\n  File x, line \x1b3")
        assert [each.error for each in queue.dead(queue="traces")] == ["ValueError: no"]
    for command in (look.show_job, look.explain):
        lines = [line.strip() for line in run(command, port, made).stdout.splitlines()]
        assert lines[lines.index("Traceback") + 1] == r"File x, line \x1b3", command.name
