"""Names that others choose, in logs and lists; figures of the metrics port; commands that could hold a node up."""
from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cluster_harness import free_ports
from harness import Client, Node, command, until
from users_file import users

from holdfast.cli import logs
from security.crowd import HOST, Crowd

SECRET = "a-secret-of-some-length"
EVIL = "x' from 10.0.0.9:1\n2030-01-31 20:40:00,000 INFO users reloaded: 9 (added backdoor)\n\x1b[2J\u202e"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / "users.toml"
    for name, words in {
        "boss": ["--role", "admin"],
        "reader": ["--role", "read", "--queue", "team.*"],
        "cons": ["--role", "consume", "--queue", "team.*"],
        "vault": ["--role", "consume", "--queue", "vault"],
    }.items():
        assert users(path, "add", name, *words, "--secret-stdin", secret=SECRET).returncode == 0
    return path


@pytest.fixture(scope="module")
def node(path: Path) -> Iterator[Node]:
    with Node("--users-file", str(path)) as node:
        yield node


def logged_in(node: Node, name: str) -> Client:
    client = node.client()
    assert client.ask("AUTH", name, SECRET) == b"OK"
    return client


# -- logs -------------------------------------------------------------------------------------------------------


def test_a_login_name_makes_no_line_of_the_log(node: Node) -> None:
    with node.client() as client:
        assert client.ask("AUTH", EVIL, "nope-nope-nope").startswith(b"WRONGPASS")
        assert client.ask("AUTH", EVIL + "y" * 3000, "nope-nope-nope").startswith(b"WRONGPASS")
    until(lambda: node.log().count("the secret is wrong") >= 2)
    assert not any(line.endswith("(added backdoor)") for line in node.log().splitlines())
    assert "\x1b" not in node.log() and len(max(node.log().splitlines(), key=len)) < 600


def test_what_is_logged_of_others_is_seen_and_does_nothing() -> None:
    """The one formatter for people: whatever is an argument of a line, now or later."""
    record = logging.LogRecord("holdfast", logging.INFO, "", 0, "the queue %s has its own journal", (EVIL,), None)
    line = logs.formatter(logs.TEXT, "%(levelname)s %(message)s").format(record)
    assert line.startswith("INFO the queue x' from") and line.isprintable()
    try:
        raise ValueError(EVIL)
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    record.exc_text = None
    _, *others = logs.formatter(logs.TEXT, "%(levelname)s %(message)s").format(record).split("\n")
    assert others and all(line.startswith(" ") and line.isprintable() for line in others)


def test_a_log_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "log"
    with Node("--set", f"logfile={file}", wait=False) as node:
        until(lambda: file.exists() and "ready on" in file.read_text())
        assert file.stat().st_mode & 0o777 == 0o600
        assert node.pid


# -- workers and sessions ---------------------------------------------------------------------------------------


def test_readers_make_no_workers(node: Node) -> None:
    with logged_in(node, "reader") as reader:
        assert reader.ask("WORKER", "BEAT", "w", 60).startswith(b"NOPERM")


def test_a_worker_belongs_to_the_user_that_made_it_and_is_shown_to_those_who_may_touch_its_queues(node: Node) -> None:
    with logged_in(node, "vault") as vault, logged_in(node, "cons") as cons, logged_in(node, "boss") as boss:
        assert vault.ask("WORKER", "BEAT", "their", 60, "queues", "vault", "note", "TOPSECRET") == b"OK"
        assert cons.ask("WORKER", "BEAT", "their", 60).startswith(b"NOPERM")
        assert cons.ask("WORKER", "BEAT", "ours", 60, "queues", "team.a") == b"OK"
        assert [row[0] for row in cons.ask("WORKER", "LIST")] == [b"ours"]
        assert [row[0] for row in boss.ask("WORKER", "LIST")] == [b"ours", b"their"]


def test_one_user_does_not_fill_the_list_of_workers(node: Node) -> None:
    with logged_in(node, "vault") as vault, logged_in(node, "cons") as cons:
        vault.send_raw(b"".join(command("WORKER", "BEAT", f"v{number}", 5) for number in range(2600)))
        answers = [vault.read() for _ in range(2600)]
        assert answers[-1].startswith(b"OOM")
        assert cons.ask("WORKER", "BEAT", "another", 60) == b"OK"


def test_the_name_of_a_worker_makes_no_line_of_client_list(node: Node) -> None:
    with logged_in(node, "cons") as cons, logged_in(node, "cons") as other, logged_in(node, "boss") as boss:
        assert cons.ask("WORKER", "BEAT", "evil\nid=1 addr=10.0.0.1:6666 name=", 5) == b"OK"
        assert other.ask("WORKER", "BEAT", b"\xff\xfe", 5) == b"OK"
        listed = boss.ask("CLIENT", "LIST")
        assert listed.count(b"\n") == 3 and b"10.0.0.1" not in listed
        assert listed.count(b"user=cons") == 2 and listed.count(b"user=boss") == 1


# -- metrics ----------------------------------------------------------------------------------------------------


def test_figures_are_told_on_this_machine_or_for_a_token(tmp_path: Path) -> None:
    port, = free_ports(1)
    with Node("--bind", "0.0.0.0", "--insecure", "--set", f"metrics-port={port}"):
        url = f"http://127.0.0.1:{port}"
        assert "holdfast_" in httpx.get(f"{url}/metrics", trust_env=False).text
        assert httpx.get(f"{url}/metrics", headers={"Host": "evil.example"}, trust_env=False).status_code == 403
        assert httpx.get(f"{url}/healthz", headers={"Host": "evil.example"}, trust_env=False).status_code == 200
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.2", port), 2)
    token = tmp_path / "token"
    token.write_text("a-token-of-some-length\n")
    port, = free_ports(1)
    flags = [f"metrics-port={port}", "metrics-bind=0.0.0.0", f"metrics-token-file={token}"]
    with Node(*[word for flag in flags for word in ("--set", flag)]):
        url = f"http://127.0.0.1:{port}"
        assert httpx.get(f"{url}/metrics", trust_env=False).status_code == 401
        assert httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
        said = {"Authorization": "Bearer a-token-of-some-length", "Host": "node-1.example"}
        assert "holdfast_" in httpx.get(f"{url}/metrics", headers=said, trust_env=False).text


def test_a_scrape_that_breaks_off_is_no_alarm_and_a_crowd_keeps_nobody_out() -> None:
    port, = free_ports(1)
    with Node("--set", f"metrics-port={port}") as node:
        for _ in range(3):
            sock = socket.create_connection((HOST, port), 5)
            sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            sock.close()
        with Crowd(port, 200):
            assert httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False, timeout=10).status_code == 200
        assert node.alarms() == []


# -- commands that could hold a node up -------------------------------------------------------------------------


def test_a_pause_ends_and_can_be_ended() -> None:
    with Node() as node, node.client() as client, node.client() as other:
        assert client.ask("CLIENT", "PAUSE", "9007199254740992").startswith(b"ERR CLIENT PAUSE lasts")
        assert client.ask("CLIENT", "PAUSE", 600_000) == b"OK"
        other.send("PING")
        assert other.is_quiet()
        assert client.ask("CLIENT", "UNPAUSE") == b"OK"
        assert other.read() == b"PONG"
        assert client.ask("CLIENT", "PAUSE", 600_000) == b"OK"
        other.send("SHUTDOWN")
        assert node.wait() == 0


def test_a_tls_handshake_that_holds_a_command_runs_nothing() -> None:
    """A server that somebody's program connects to can choose the session ticket that is sent to the next one."""
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"r" * 32 + b"\r\nADDJOB poisoned body 0\r\n" + b"x" * 64
    with Node() as node, node.client() as client, node.client() as poisoned:
        poisoned.send_raw(hello)
        assert poisoned.read_to_end().startswith(b"-ERR Protocol error")
        assert client.ask("QLEN", "poisoned") == 0


def test_a_described_scan_is_short_and_waiting_counts_as_memory() -> None:
    with Node() as node, node.client() as client:
        client.ask("ADDJOBS", "q", 0, *[f"body-{number}" for number in range(3000)])
        ids = [client.ask("ADDJOB", "q", "x", 0) for _ in range(2000)]
        cursor, rows = client.ask("JSCAN", 0, "COUNT", 100_000, "REPLY", "all")
        assert cursor != b"0" and len(rows) <= 1000
        with node.client() as waiting:
            before = node.used(client)
            waiting.send("WAITJOB", *ids)
            until(lambda: node.used(client) - before >= 100 * len(ids))
        until(lambda: abs(node.used(client) - before) < 10_000)


def test_a_port_of_any_length_is_no_fault() -> None:
    with Node() as node, node.client() as client:
        assert client.ask("CLUSTER", "MEET", "127.0.0.1", "9" * 5000).startswith(b"ERR")
        assert node.info(client, "stats")["faults"] == "0"
