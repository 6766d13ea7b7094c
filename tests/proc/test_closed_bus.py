"""Who may be a node: without a secret none at a node that is guarded, and at any other the same user's on this machine.

And how the secret is changed while three nodes are at work.
"""
from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster_harness import free_ports
from harness import Node, until
from test_bus import PATIENCE_S, Client, Nodes, Process, Stranger, listening, meet, nodes
from users_file import SECRETS, users

from holdfast.shell import cluster_secret

__all__ = ["nodes"]

NO_BUS = "no bus: no other node can join this one"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this user keeps the secret of the machine, for this test alone."""
    folder = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder / "holdfast" / cluster_secret.MACHINE_FILE


def start(*flags: str) -> subprocess.CompletedProcess[str]:
    """A node that does not come up."""
    command = [sys.executable, "-m", "holdfast", "node", "--port", "0", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL)


# -- a node that is guarded --------------------------------------------------------------------------------


def guards(folder: Path) -> dict[str, list[str]]:
    users(folder / "users.toml", "add", "boss", "--role", "admin", "--secret-stdin", secret=SECRETS["boss"])
    return {
        "users": ["--users-file", f"{folder}/users.toml"],
        "password": ["--set", "requirepass=a password"],
        "unix socket": ["--bind", "", "--set", f"unixsocket={folder}/sock", "--set", "unixsocketperm=700"],
    }


@pytest.mark.parametrize("guard", ["users", "password", "unix socket"])
def test_a_guarded_node_without_a_secret_has_no_bus(guard: str, tmp_path: Path) -> None:
    """Or a stranger who starts a node of his own would be a member, and go past the guard."""
    flags = guards(tmp_path)[guard]
    port = free_ports(1)[0]
    with Node(*flags, port=port, wait=False) as node:
        until(lambda: re.search(r" ready on ", node.log()))
        assert NO_BUS in node.log() and "set cluster-secret-file" in node.log()
        assert not listening(port + 10_000), "a bus listens all the same"
        assert not [line for line in node.log().splitlines() if "bus on" in line]
    refused = start(*flags, "--join", f"127.0.0.1:{port}")
    assert refused.returncode == 1 and "it is to join others" in refused.stderr
    assert "set cluster-secret-file" in refused.stderr and "Traceback" not in refused.stderr


def test_who_meets_by_command_is_told_what_to_set(tmp_path: Path) -> None:
    with Node("--set", "requirepass=a password") as node, node.client() as client:
        client.ask("AUTH", "a password")
        said = client.ask("CLUSTER", "MEET", "127.0.0.1", 1234)
        assert said.startswith(b"ERR no other node can join this one") and b"cluster-secret-file" in said


def test_a_rogue_node_is_not_a_member(nodes: Nodes, tmp_path: Path) -> None:
    """The way it was done: a node is started beside one that has users, and calls it. It knows no secret."""
    flags = guards(tmp_path)["users"]
    cluster_secret.write_new(tmp_path / "secret", [cluster_secret.new_secret().encode()])
    guarded = nodes(*flags, "--cluster-secret-file", str(tmp_path / "secret"))
    rogue = nodes()
    assert rogue.ask("CLUSTER", "MEET", "127.0.0.1", guarded.port, guarded.bus_port) == b"OK"
    until(lambda: "set the same secret at both" in rogue.log())
    assert rogue.connected() == set() and "linked, at" not in guarded.log()


def test_a_member_does_not_start_alone_when_a_guard_takes_its_bus_away(nodes: Nodes) -> None:
    a = nodes()
    b = nodes("--join", a.place())
    meet(a, b)
    assert b.ask("CONFIG", "SET", "requirepass", "a password") == b"OK"
    until(lambda: "This node will not start again as a member" in b.log())
    b.stop()
    refused = start("--dir", str(b.folder / "data"), "--set", "requirepass=a password")
    assert refused.returncode == 1 and "it was in a cluster when it last ran" in refused.stderr


def test_cores_behind_one_port_need_no_flag(tmp_path: Path, state: Path) -> None:
    flags = guards(tmp_path)["password"]
    with Node("--cores", "2", *flags, port=0) as node, node.client() as client:
        client.ask("AUTH", "a password")
        until(lambda: b"cluster_reachable_nodes:1" in client.ask("CLUSTER", "INFO"))
        assert not state.exists(), "these go by a secret of their own"


# -- nodes of one user on one machine ----------------------------------------------------------------------


def test_nodes_of_one_user_on_one_machine_need_no_flag(nodes: Nodes, state: Path) -> None:
    a = nodes()
    b = nodes("--join", a.place())
    meet(a, b)
    assert state.stat().st_mode & 0o777 == 0o600 and state.parent.stat().st_mode & 0o077 == 0
    assert b.ask("ADDJOB", "q", "body", 5000, "REPLICATE", 2).startswith(b"DI")


def test_nodes_that_start_at_the_same_time_come_to_one_secret(tmp_path: Path, state: Path) -> None:
    program = "from holdfast.shell.cluster_secret import machine_secret; print(machine_secret().decode())"
    running = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in range(6)]
    assert len({each.communicate()[0] for each in running}) == 1 and state.exists()


def test_nodes_of_another_user_do_not_join(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = nodes()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    b = nodes("--join", a.place())
    until(lambda: "does not know the cluster's secret" in a.log())
    assert a.connected() == b.connected() == set()


@pytest.mark.parametrize("spoil, words", [
    (lambda path: path.chmod(0o644), "is not a file for its owner alone"),
    (lambda path: path.write_text("short"), "does not hold a secret"),
    (lambda path: (path.unlink(), path.symlink_to("/dev/zero")), "cannot use"),
    (lambda path: (path.unlink(), path.mkdir()), "cannot use"),
])
def test_a_secret_that_others_may_have_touched_is_not_used(
    state: Path, spoil: Callable[[Path], object], words: str
) -> None:
    assert cluster_secret.machine_secret()
    spoil(state)
    with Node() as node:
        assert NO_BUS in node.log() and words in node.log()


# -- another secret, while all nodes are at work -----------------------------------------------------------


class Work:
    """Producers and a worker at three nodes, until the block ends. `done` are jobs that were acknowledged."""

    def __init__(self, *at: Process) -> None:
        self.is_over = threading.Event()
        self.is_empty = threading.Event()
        self.added: set[bytes] = set()
        self.done: set[bytes] = set()
        self.wrong: list[object] = []
        self.threads = [threading.Thread(target=self.add, args=(node,)) for node in at]
        self.threads += [threading.Thread(target=self.work, args=(node,)) for node in at]

    def __enter__(self) -> Work:
        for each in self.threads:
            each.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.is_over.set()
        with contextlib.suppress(AssertionError):  # what is missing is for the test to say
            until(lambda: self.done >= self.added)
        self.is_empty.set()
        for each in self.threads:
            each.join()

    def add(self, node: Process) -> None:
        with Client(node.port) as client:
            while not self.is_over.is_set():
                said = client.ask("ADDJOB", "work", b"x" * 100, 10_000, "REPLICATE", 3, "RETRY", 5)
                (self.added.add if said.startswith(b"DI") else self.wrong.append)(said)
                time.sleep(0.002)

    def work(self, node: Process) -> None:
        with Client(node.port) as client:
            while not self.is_empty.is_set():
                for _, job, _ in client.ask("GETJOB", "TIMEOUT", 100, "COUNT", 50, "FROM", "work") or []:
                    client.ask("ACKJOB", job)
                    self.done.add(job)


def hangup(node: Process, line: str) -> None:
    before = node.log().count(line)
    node.process.send_signal(signal.SIGHUP)
    until(lambda: node.log().count(line) > before)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "holdfast", "secret", *words], capture_output=True, text=True)


def is_welcome(node: Process, secret: str) -> bool:
    with Stranger(node) as caller:
        caller.greet()
        with contextlib.suppress(EOFError, ConnectionError):
            caller.prove(secret)
            return True
    return False


@pytest.fixture
def three(nodes: Nodes, tmp_path: Path) -> Iterator[tuple[list[Process], Path]]:
    """And the file that all of them read, as a folder that is shared would have it."""
    path = tmp_path / "secret"
    assert command("new", str(path)).returncode == 0
    first = nodes("--cluster-secret-file", str(path))
    rest = [nodes("--cluster-secret-file", str(path), "--join", first.place()) for _ in range(2)]
    meet(first, *rest)
    yield [first, *rest], path


def test_a_cluster_changes_its_secret_under_load(three: tuple[list[Process], Path]) -> None:
    """As the documentation says it: a new one beside the old one, each node told; then without the old one."""
    cluster, path = three
    old = path.read_text().strip()
    with Work(*cluster) as work:
        until(lambda: len(work.done) > 100)
        assert command("rotate", str(path)).returncode == 0
        for node in cluster:
            hangup(node, "the cluster's secret has changed: 2 valid")
        new = path.read_text().split()[0]
        assert new != old and is_welcome(cluster[0], old) and is_welcome(cluster[0], new)
        assert command("retire", str(path)).returncode == 0
        for node in cluster:
            hangup(node, "the cluster's secret has changed: 1 valid")
        meet(*cluster)
        so_far = len(work.done)
        until(lambda: len(work.done) > so_far + 100)
    assert not work.wrong, work.wrong[:5]
    assert work.done == work.added
    assert is_welcome(cluster[0], new) and not is_welcome(cluster[0], old)
    for node in cluster:
        assert node.is_unharmed(), node.log()
        assert old not in node.log() and new not in node.log()


def test_what_cannot_be_read_again_closes_the_bus_to_new_links_and_leaves_the_old(
    three: tuple[list[Process], Path]
) -> None:
    cluster, path = three
    secret = path.read_text().strip()
    path.write_text("short\n")
    checked = command("check", str(path))
    assert checked.returncode == 1 and "soon guessed" in checked.stderr
    hangup(cluster[0], "no new links with other nodes until secrets and certificates can be read")
    assert "credentials_reload_failed:1" in cluster[0].ask("INFO", "stats").decode()
    with pytest.raises((EOFError, ConnectionError)):
        is_welcome(cluster[0], secret)
    assert len(cluster[0].connected()) == 2
    assert cluster[0].ask("ADDJOB", "q", "body", 5000, "REPLICATE", 3).startswith(b"DI")
    path.write_text(secret + "\n")
    hangup(cluster[0], "settings reloaded")
    assert is_welcome(cluster[0], secret)
    assert "credentials_reload_failed:0" in cluster[0].ask("INFO", "stats").decode()


def test_a_file_of_secrets_that_the_world_can_read_is_complained_of(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    assert command("new", str(path)).returncode == 0 and os.stat(path).st_mode & 0o777 == 0o600
    assert command("new", str(path)).returncode == 1
    assert command("check", str(path)).stdout == "1. 32 random bytes\n"
    path.chmod(0o644)
    assert command("check", str(path)).returncode == 1
    path.chmod(0o640)
    assert command("rotate", str(path)).returncode == 0 and os.stat(path).st_mode & 0o777 == 0o640
    assert command("rotate", str(path)).returncode == 1
    assert command("retire", str(path)).returncode == 0 and command("retire", str(path)).returncode == 1
    assert command("check", str(tmp_path / "none")).returncode == 1
