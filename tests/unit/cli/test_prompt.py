"""`holdfast cli`: one command, many from a pipe, and the prompt itself, against a real node."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from holdfast.cli import prompt
from holdfast.cli.prompt import Line, Spec, cli, command_table
from holdfast.client.connection import Connection
from holdfast.client.target import Target


def run(port: int, *words: str, typed: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["-p", str(port), *words], input=typed)


@pytest.fixture
def nobody() -> int:
    """A port where nobody listens."""
    unused = socket.create_server(("127.0.0.1", 0))
    port = int(unused.getsockname()[1])
    unused.close()
    return port


def test_one_command_prints_bare_values_in_a_pipe(port: int) -> None:
    result = run(port, "ping")
    assert (result.output, result.exit_code) == ("PONG\n", 0)


def test_types_are_shown_on_a_terminal(port: int) -> None:
    assert run(port, "--no-raw", "ping").output == "PONG\n"
    assert run(port, "--no-raw", "ping", "a b").output == '"a b"\n'
    assert run(port, "--no-raw", "qlen", "none").output == "(integer) 0\n"
    assert run(port, "--no-raw", "hello").output.startswith("1) (integer) 1\n2) \"")
    assert run(port, "--no-raw", "qstat", "never-heard-of").output == "(nil)\n"
    assert run(port, "--no-raw", "info", "jobs").output.startswith("# Jobs")


def test_words_after_the_first_are_not_options_of_ours(port: int) -> None:
    assert run(port, "ping", "--json").output == "--json\n"


def test_json(port: int) -> None:
    run(port, "qflush", "json")
    job_id = json.loads(run(port, "--json", "addjob", "json", "body", "0").output)
    assert json.loads(run(port, "--json", "qpeek", "json", "1").output) == [["json", job_id, "body"]]
    error = run(port, "--json", "ackjob", "x")
    assert json.loads(error.output)["code"] == "BADID" and error.exit_code == 1


def test_resp3_keeps_types(port: int) -> None:
    assert run(port, "--resp3", "--no-raw", "hello", "3").output.startswith("1# ")


def test_an_error_reply_is_exit_code_1(port: int) -> None:
    result = run(port, "--no-raw", "nonsense")
    assert result.output == "(error) ERR unknown command 'nonsense'\n" and result.exit_code == 1


def test_nobody_there_is_exit_code_2_and_a_sentence(nobody: int) -> None:
    result = run(nobody, "ping")
    assert result.exit_code == 2
    assert f"Start a node with `holdfast node --port {nobody}`" in result.output
    missing = CliRunner().invoke(cli, ["--unix", "/nowhere/x.sock", "ping"])
    assert missing.exit_code == 2 and "Unix socket" in missing.output


def test_commands_from_a_pipe(port: int) -> None:
    typed = b'ping\n\nping "a\\x00b\xff"\n  \nping "open\nping end\n'
    result = run(port, typed=typed)
    assert result.stdout_bytes == b"PONG\na\x00b\xff\nend\n"
    assert "Unbalanced quotes" in result.stderr and result.exit_code == 1


def test_a_pipe_stops_when_the_node_is_gone(nobody: int) -> None:
    result = run(nobody, typed="ping\nping\n")
    assert result.exit_code == 2 and result.output.count("No connection") == 1


def test_help_has_examples() -> None:
    output = CliRunner().invoke(cli, ["--help"]).output
    assert "Examples:" in output and "holdfast cli --connect 10.0.0.1:7712 addjob emails hi 0" in output


def test_help_as_words_and_from_a_pipe_needs_no_node(nobody: int) -> None:
    result = run(nobody, "help", "getjob")
    assert result.exit_code == 0 and "GETJOB [NOHANG]" in result.output
    assert "A call that had to wait gets one job" in result.output, "the long text"
    listing = run(nobody, typed="help\nHELP qlen\n? qstat\nquit\nping\n")
    assert listing.exit_code == 0
    assert "ADDJOBS" in listing.output and "QLEN queue" in listing.output and "QSTAT queue" in listing.output
    unknown = run(nobody, "help", "nonsense")
    assert unknown.exit_code == 1 and "There is no command NONSENSE" in unknown.stderr


def test_help_without_the_source_has_the_short_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "manual", lambda name: "")
    assert "Count the jobs queued." in prompt.help_text(command_table(), "qlen")


def test_every_command_has_a_long_text() -> None:
    assert all(prompt.manual(name) for name in command_table())
    assert prompt.manual("NONSENSE") == ""


@pytest.mark.parametrize("word", ["quit", "exit", "QUIT"])
def test_quit_ends_a_pipe(port: int, word: str) -> None:
    result = run(port, typed=f"ping\n{word}\nping\n")
    assert (result.output, result.exit_code) == ("PONG\n", 0)


def test_monitor_streams_until_ctrl_c(port: int) -> None:
    command = [sys.executable, "-m", "holdfast", "cli", "-p", str(port), "monitor"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "OK\n"
    connection = Connection(Target(port=port))
    connection.call(["QLEN", "watched"])
    connection.close()
    assert '"QLEN" "watched"' in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=30)
    assert (process.returncode, complaints) == (0, "")


# -- the prompt ----------------------------------------------------------------------------------------------


@pytest.fixture
def keyboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PipeInput]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        yield keys


def test_the_prompt(port: int, keyboard: PipeInput, capsys: pytest.CaptureFixture[str]) -> None:
    keyboard.send_text("ping\n\nhelp qlen\nhelp\nhelp nonsense\nping 'open\nqlen q\nexit\n")
    assert prompt.interactive(Line(Target(port=port))) == 0
    shown, complaints = capsys.readouterr()
    assert shown.startswith("PONG\n\n  QLEN queue\n")
    assert "GETJOB" in shown and "There is no command NONSENSE" in complaints
    assert shown.endswith("(integer) 0\n")
    assert "Unbalanced" in complaints


def test_ctrl_d_leaves_and_ctrl_c_clears_the_line(port: int, keyboard: PipeInput) -> None:
    keyboard.send_text("half a li\x03\x04")
    assert prompt.interactive(Line(Target(port=port))) == 0


def test_history_is_kept_without_secrets(port: int, keyboard: PipeInput, tmp_path: Path) -> None:
    secrets = "auth hunter2\nconfig set requirepass hunter2\nconfig set requirepass ''\n"
    keyboard.send_text(f"ping\n{secrets}exit\n")
    prompt.interactive(Line(Target(port=port)))
    path = tmp_path / "holdfast" / "cli-history"
    kept = path.read_text()
    assert "+ping" in kept and "hunter2" not in kept
    assert path.stat().st_mode & 0o077 == 0


def test_history_falls_back_to_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    assert type(prompt.history()).__name__ == "InMemoryHistory"


def test_the_prompt_opens_without_a_node_and_says_so(
    nobody: int, keyboard: PipeInput, capsys: pytest.CaptureFixture[str]
) -> None:
    keyboard.send_text("ping\nexit\n")
    assert prompt.interactive(Line(Target(port=nobody))) == 0
    assert capsys.readouterr().err.count("Start a node with") == 2


def test_it_connects_again_and_logs_in_again(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The password was typed by hand; after the connection is lost it is not asked for twice."""
    line = Line(Target(port=port))
    admin = Connection(Target(port=port))
    admin.call(["CONFIG", "SET", "requirepass", "pw"])
    try:
        line.run_line("auth pw")
        line.run_line("client kill type normal skipme no")
        line.close()
        assert line.run_line("ping") == 0
    finally:
        relogin = Connection(Target(port=port, password="pw"))
        relogin.call(["CONFIG", "SET", "requirepass", ""])
        relogin.close()
        line.close()
        admin.close()
    assert capsys.readouterr().out.endswith("PONG\n")


def test_completion() -> None:
    table = command_table()

    def complete(typed: str) -> list[str]:
        return [word for word, _ in prompt.suggestions(table, typed)]

    assert complete("addj") == ["addjob", "addjobs"]
    assert complete("ADDJOB") == ["ADDJOB", "ADDJOBS"]
    assert "GETJOB" in complete("") and "EXIT" in complete("")
    assert complete("ADDJOB q b 0 RE") == ["REPLICATE", "RETRY", "replace", "reject"]
    assert complete("addjob q b 0 retry 5 re") == ["replicate", "replace", "reject"]
    assert complete("pause q ") == ["none", "in", "out", "all", "state", "bcast", "for"]
    assert "meet" in complete("cluster ")
    assert complete("config get maxmemory-p") == ["maxmemory-policy"]
    assert complete("help qst") == ["qstat"]
    assert complete("help qstat q") == [] and complete("nonsense x") == []


def test_the_toolbar_explains_what_is_being_typed() -> None:
    table = {"QLEN": Spec("QLEN", "queue", "Count the jobs queued.", "queues")}
    assert prompt.toolbar(table, "qlen em") == " QLEN queue\n Count the jobs queued."
    assert "Ctrl-D" in prompt.toolbar(table, "") and "Ctrl-D" in prompt.toolbar(table, "other")
