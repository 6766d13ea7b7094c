"""Connections and the life of the process, at a real node: order, time, addresses, signals, settings.

HOLDFAST_PURE=1 runs the same tests with the plain form of the node.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Client, ErrorReply, Node, command, until

KIB = 1024
TRIES = 8
"""Measurements of time: the best of so many, since other processes run here, too."""


@pytest.fixture(scope="module")
def shared() -> Iterator[Node]:
    with Node("--set", "enable-debug=yes", "--set", "latency-monitor-threshold=20") as node:
        node.measure()
        yield node


@pytest.fixture
def node(shared: Node) -> Iterator[Node]:
    yield shared
    shared.check()


def settings(client: Client, pattern: str) -> dict[bytes, bytes]:
    words = client.ask("CONFIG", "GET", pattern)
    return dict(zip(words[::2], words[1::2]))


# -- order --------------------------------------------------------------------------------------------------


def test_a_pipeline_waits_behind_a_blocked_getjob(node: Node) -> None:
    with node.client() as client, node.client() as other:
        client.send_raw(
            command("PING", "before") + command("GETJOB", "FROM", "q") + command("PING", "between")
            + command("GETJOB", "TIMEOUT", 5000, "FROM", "q") + command("QLEN", "q") + b"PING after\r\n"
        )
        assert client.read() == b"before"
        until(lambda: node.info(other, "clients")["blocked_clients"] == "1")
        assert client.is_quiet()
        first = other.ask("ADDJOB", "q", "1", 0)
        assert client.read() == [[b"q", first, b"1"]]
        assert client.read() == b"between"
        assert client.is_quiet()
        second = other.ask("ADDJOB", "q", "2", 0)
        assert client.read() == [[b"q", second, b"2"]]
        assert client.read() == 0 and client.read() == b"after"


def test_what_comes_behind_a_blocked_getjob_may_come_in_pieces(node: Node) -> None:
    """Every cut of a pipeline in two writes, the second after the node has seen the first."""
    stream = command("PING", "1") + command("GETJOB", "TIMEOUT", 20, "FROM", "q") + command("PING", "2") + b"PING 3\r\n"
    clients = []
    for cut in range(1, len(stream)):
        client = node.client()
        client.send_raw(stream[:cut])
        clients.append((client, stream[cut:]))
    with node.client() as other:
        assert other.ask("PING") == b"PONG"
    for client, rest in clients:
        client.send_raw(rest)
    for client, _ in clients:
        assert [client.read() for _ in range(4)] == [b"1", None, b"2", b"3"]
        client.close()


def test_a_protocol_error_behind_a_blocked_getjob_comes_in_its_turn(node: Node) -> None:
    with node.client() as client, node.client() as other:
        client.send_raw(command("GETJOB", "FROM", "q") + b"*x\r\n" + command("PING"))
        until(lambda: node.info(other, "clients")["blocked_clients"] == "1")
        assert client.is_quiet()
        jid = other.ask("ADDJOB", "q", "1", 0)
        assert client.read() == [[b"q", jid, b"1"]]
        assert client.read_to_end() == b"-ERR Protocol error: invalid multibulk length\r\n"


def test_blocked_clients_are_served_in_the_order_they_came(node: Node) -> None:
    with node.client() as producer:
        clients = []
        for i in range(5):
            client = node.client()
            client.send("GETJOB", "FROM", "q")
            clients.append(client)
            until(lambda n=i: node.info(producer, "clients")["blocked_clients"] == str(n + 1))  # type: ignore[misc]
        ids = [producer.ask("ADDJOB", "q", i, 0) for i in range(5)]
        assert [client.read()[0][1] for client in clients] == ids
        for client in clients:
            client.close()


def test_each_command_is_counted_once(node: Node) -> None:
    with node.client() as client:
        client.ask("CONFIG", "RESETSTAT")
        jid = client.ask("ADDJOB", "counted", "x", 0)
        client.ask("ADDJOB", "counted", "x", 0)
        client.ask("GETJOB", "NOHANG", "FROM", "counted")
        client.ask("GETJOB", "NOHANG", "FROM", "nothing here")
        client.ask("ACKJOB", jid)
        calls = {
            name: facts.split(",")[0] for name, facts in node.info(client, "commandstats").items()
            if name in ("cmdstat_addjob", "cmdstat_getjob", "cmdstat_ackjob")
        }
        assert calls == {"cmdstat_addjob": "calls=2", "cmdstat_getjob": "calls=2", "cmdstat_ackjob": "calls=1"}


# -- time ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [10, 100])
def test_a_timeout_is_exact(node: Node, timeout: int) -> None:
    """Never early, and where the machine is quiet at most 15 ms late."""
    best = 1e9
    with node.client() as client:
        for _ in range(TRIES):
            began = time.perf_counter()
            assert client.ask("GETJOB", "TIMEOUT", timeout, "FROM", "nothing") is None
            took = (time.perf_counter() - began) * 1000
            assert took >= timeout - 1, "early"
            best = min(best, took)
            if best < timeout + 5:
                break
    assert timeout - 1 <= best <= timeout + 15


def test_many_timeouts_at_once_are_exact_too(node: Node) -> None:
    """A thousand clients that give up at different times: none early, none much later than the first."""
    clients = [node.client() for _ in range(500)]
    best = 1e9
    for _ in range(3):
        began = time.perf_counter()
        for i, client in enumerate(clients):
            client.send("GETJOB", "TIMEOUT", 100 + i % 50, "FROM", "nothing")
        for client in clients:
            assert client.read() is None
        best = min(best, time.perf_counter() - began)
    for client in clients:
        client.close()
    assert 0.14 <= best < 0.6


def test_an_idle_client_is_closed_and_a_waiting_one_is_not() -> None:
    with Node("--set", "timeout=1") as node, node.client() as idle, node.client() as waiting, node.client() as busy:
        waiting.send("GETJOB", "FROM", "q")
        monitor = node.client()
        assert monitor.ask("MONITOR") == b"OK"
        assert idle.ask("PING") == b"PONG"
        began = time.monotonic()
        idle.sock.settimeout(0.05)

        def is_closed() -> bool:
            assert busy.ask("PING") == b"PONG"
            try:
                return idle.sock.recv(1) == b""
            except TimeoutError:
                return False

        until(is_closed)
        assert 1.0 <= time.monotonic() - began < 4
        busy.ask("ADDJOB", "q", "x", 0)
        assert waiting.read()[0][2] == b"x"
        assert monitor.read_line().endswith(b'"PING"')
        monitor.close()


# -- addresses ----------------------------------------------------------------------------------------------


def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    with Node("--set", f"unixsocket={path}", "--set", "unixsocketperm=600") as node:
        assert path.stat().st_mode & 0o777 == 0o600
        with Client(str(path)) as client, node.client() as other:
            client.send("GETJOB", "FROM", "q")
            jid = other.ask("ADDJOB", "q", "x", 0)
            assert client.read() == [[b"q", jid, b"x"]]
            assert b" addr=unix:" in client.ask("CLIENT", "INFO")
    assert not path.exists()


def test_a_unix_socket_alone(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    with Node("--bind", "", "--set", f"unixsocket={path}", wait=False) as node:
        until(lambda: "ready on" in node.log() or node.process.poll() is not None)
        assert node.process.poll() is None, node.log()
        with Client(str(path)) as client:
            assert client.ask("PING") == b"PONG"


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_several_addresses() -> None:
    addresses = ["127.0.0.1", "127.0.0.2"] + (["::1"] if has_ipv6() else [])
    with Node("--bind", " ".join(addresses)) as node:
        for address in addresses:
            with Client((address, node.port)) as client:
                assert client.ask("PING") == b"PONG"
                shown = f"[{address}]" if ":" in address else "127.0.0.1"
                assert f" addr={shown}:".encode() in client.ask("CLIENT", "INFO")
        with pytest.raises(OSError):
            Client(("127.0.0.3", node.port))


def fails_to_start(*flags: str, port: int = 0, env: dict[str, str] | None = None) -> str:
    """What a node says that ends with 1 instead of starting."""
    node = Node(*flags, port=port, env=env, wait=False)
    try:
        assert node.wait() == 1, node.log()
        log = node.log()
        assert "Traceback" not in log and len(log.strip().splitlines()) == 1
        return log
    finally:
        node.stop()


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "127.0.0.1 0.0.0.0"])
def test_not_for_strangers_without_a_password(address: str) -> None:
    said = fails_to_start("--bind", address)
    assert f"refusing to listen on {address.split()[-1]} without users or a password" in said


def test_for_strangers_with_a_password_or_on_request() -> None:
    for flag in ("requirepass=secret", "protected-mode=no"):
        with Node("--bind", "0.0.0.0", "--set", flag) as node, node.client() as client:
            assert client.ask("PING") in (b"PONG", b"NOAUTH Authentication required.")


def test_a_port_that_is_taken(node: Node) -> None:
    said = fails_to_start(port=node.port)
    assert f"cannot listen on 127.0.0.1 port {node.port}: Address already in use" in said


def test_a_port_above_which_there_is_none_for_other_nodes() -> None:
    high = next(filter(is_free, range(55536, 65535)))
    assert f"port {high}: other nodes would be met at port + 10000" in fails_to_start("--port", str(high))
    with Node("--port", str(high), "--set", f"cluster-bus-port={high - 10_000}") as node:
        assert f"bus on 127.0.0.1:{high - 10_000}" in node.log()


def is_free(port: int) -> bool:
    """And 10000 below it, too."""
    try:
        for each in (port, port - 10_000):
            socket.create_server(("127.0.0.1", each)).close()
    except OSError:
        return False
    return True


def test_settings_that_cannot_be() -> None:
    assert "maxclients" in fails_to_start("--set", "maxclients=many")
    assert "there is no file" in fails_to_start("--config", "/nonexistent/holdfast.toml")
    assert "Unix socket" in fails_to_start("--set", "unixsocket=/nonexistent/node.sock")
    assert "octal" in fails_to_start("--set", "unixsocket=node.sock", "--set", "unixsocketperm=999")
    assert "cannot write the log" in fails_to_start("--set", "logfile=/nonexistent/node.log")
    assert "no such address" in fails_to_start("--bind", "300.1.1.1")
    assert "there is no setting" in fails_to_start("--set", "nonsense=1")
    assert "which is it" in fails_to_start("--bind", "127.0.0.1", "--set", "bind=127.0.0.2")


def test_a_variable_that_names_no_setting_is_said_and_ignored() -> None:
    """Kubernetes puts such variables there for a service of our name."""
    with Node(env={"HOLDFAST_MAXCLIENT": "1", "HOLDFAST_PORT": "tcp://10.0.0.1:7711"}) as node, node.client() as client:
        assert client.ask("PING") == b"PONG"
        assert "HOLDFAST_MAXCLIENT" in node.log()


def test_a_folder_is_one_nodes(tmp_path: Path) -> None:
    with Node("--dir", str(tmp_path)) as node, node.client() as client:
        assert "used by another node" in fails_to_start("--dir", str(tmp_path))
        assert client.ask("PING") == b"PONG"
    with Node("--dir", str(tmp_path)) as node, node.client() as client:
        assert client.ask("PING") == b"PONG"


def test_a_unix_socket_is_one_nodes(tmp_path: Path) -> None:
    """One that is in use is not taken away; one that was left behind is."""
    path = tmp_path / "node.sock"
    with Node("--set", f"unixsocket={path}"):
        assert "another process" in fails_to_start("--set", f"unixsocket={path}")
        assert path.is_socket()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with Node("--set", f"unixsocket={path}", "--set", "unixsocketperm=600"):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_browser_is_turned_away_before_its_body_is_read() -> None:
    """A web page could make it send commands to a node on the same machine."""
    with Node() as node, node.client() as client, node.client() as browser:
        browser.send_raw(b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nADDJOB evil body 0\r\n")
        assert browser.read_to_end().startswith(b"-ERR this is not an HTTP server")
        assert client.ask("QLEN", "evil") == 0


def test_replies_that_are_owed_are_sent_before_the_end() -> None:
    with Node() as node, node.client() as client, node.client() as reader:
        for _ in range(20):
            client.ask("ADDJOB", "q", b"x" * 500_000, "0")
        reader.send("QPEEK", "q", "20")
        until(lambda: int(node.info(client, "stats")["total_net_output_bytes"]) > 100_000)
        node.signal(signal.SIGTERM)
        assert len(reader.read_to_end()) > 10_000_000
        assert node.wait() == 0


# -- signals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well(number: signal.Signals) -> None:
    with Node() as node, node.client() as idle, node.client() as blocked, node.client() as half:
        assert idle.ask("PING") == b"PONG"
        blocked.send("GETJOB", "FROM", "q")
        until(lambda: node.info(idle, "clients")["blocked_clients"] == "1")
        half.send_raw(b"*2\r\n$4\r\nPI")
        began = time.monotonic()
        node.signal(number)
        assert node.wait() == 0
        assert time.monotonic() - began < 5
        for client in (idle, blocked, half):
            assert client.read_to_end() == b""
        assert number.name in node.log() and "stopped" in node.log() and node.alarms() == []


def test_shutdown_ends_it_well() -> None:
    with Node() as node, node.client() as client, node.client() as blocked:
        blocked.send("GETJOB", "FROM", "q")
        client.send("SHUTDOWN")
        assert client.read_to_end() == b"" and blocked.read_to_end() == b""
        assert node.wait() == 0 and node.alarms() == []


def test_hup_reads_the_file_again(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("slowlog-max-len = 10\nmaxclients = 50\n")
    with Node("--config", str(file)) as node, node.client() as client:
        assert settings(client, "slowlog-max-len") == {b"slowlog-max-len": b"10"}
        client.ask("CONFIG", "SET", "maxclients", 60)  # a newer word than the file's
        file.write_text("slowlog-max-len = 20\nmaxclients = 70\n")
        node.signal(signal.SIGHUP)
        until(lambda: settings(client, "slowlog-max-len") == {b"slowlog-max-len": b"20"})
        assert settings(client, "maxclients") == {b"maxclients": b"60"}
        until(lambda: "settings reloaded: slowlog-max-len" in node.log())
        assert node.alarms() == []
        file.write_text("slowlog-max-len = no number\n")
        node.signal(signal.SIGHUP)
        until(lambda: "settings not reloaded" in node.log())
        assert client.ask("PING") == b"PONG"
        assert settings(client, "slowlog-max-len") == {b"slowlog-max-len": b"20"}


# -- CLIENT -------------------------------------------------------------------------------------------------


def test_client_kill(node: Node) -> None:
    with node.client() as killer:
        victim = node.client()
        number = victim.ask("CLIENT", "ID")
        victim.send("GETJOB", "FROM", "q")
        until(lambda: node.info(killer, "clients")["blocked_clients"] == "1")
        assert killer.ask("CLIENT", "KILL", "ID", number) == 1
        assert victim.read_to_end() == b""
        assert killer.ask("CLIENT", "KILL", "ID", number) == 0
        jid = killer.ask("ADDJOB", "q", "x", 0)  # not for the dead
        assert killer.ask("GETJOB", "NOHANG", "FROM", "q") == [[b"q", jid, b"x"]]

        victim = node.client()
        assert victim.ask("PING") == b"PONG"
        assert killer.ask("CLIENT", "KILL", victim.name()) == b"OK"
        assert victim.read_to_end() == b""
        assert killer.ask("CLIENT", "KILL", "127.0.0.1:1") == b"ERR No such client"
        victims = [node.client() for _ in range(3)]
        for victim in victims:
            assert victim.ask("PING") == b"PONG"
        assert killer.ask("CLIENT", "KILL", "TYPE", "normal") == 3
        for victim in victims:
            assert victim.read_to_end() == b""
        killer.send_raw(command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no") + command("PING"))
        assert killer.read_to_end() == b":1\r\n"


def test_quit(node: Node) -> None:
    with node.client() as client:
        client.send_raw(command("PING") + command("QUIT") + command("ADDJOB", "q", "x", 0) + b"*x\r\n")
        assert client.read_to_end() == b"+PONG\r\n+OK\r\n"
    with node.client() as client:
        assert client.ask("QLEN", "q") == 0


def test_client_pause(node: Node) -> None:
    with node.client() as client, node.client() as other:
        blocked = node.client()
        blocked.send("GETJOB", "TIMEOUT", 20, "FROM", "q")
        until(lambda: node.info(client, "clients")["blocked_clients"] == "1")
        began = time.monotonic()
        client.send_raw(command("CLIENT", "PAUSE", 200) + command("PING", "1") + command("ADDJOB", "q", "x", 0))
        assert client.read() == b"OK"
        other.send_raw(command("PING", "2") + command("PING", "3"))
        assert blocked.read() is None  # who waited before waits on, and gives up in time
        assert time.monotonic() - began < 0.2
        assert client.read() == b"1" and client.read().startswith(b"DI")
        assert time.monotonic() - began >= 0.199
        assert other.read() == b"2" and other.read() == b"3"
        blocked.close()


def test_client_reply(node: Node) -> None:
    with node.client() as client:
        client.send_raw(
            command("CLIENT", "REPLY", "SKIP") + command("PING", "no") + command("PING", "1")
            + command("CLIENT", "REPLY", "OFF") + command("PING", "no") + command("ADDJOB", "q", "x", 0)
            + command("CLIENT", "REPLY", "SKIP") + command("PING", "no") + command("PING", "no")
            + command("GETJOB", "TIMEOUT", 10, "FROM", "nothing") + command("CLIENT", "REPLY", "ON")
            + command("QLEN", "q")
        )
        assert client.read() == b"1" and client.read() == b"OK" and client.read() == 1
        client.send_raw(
            command("CLIENT", "REPLY", "SKIP") + command("GETJOB", "TIMEOUT", 10, "FROM", "nothing")
            + command("PING", "2")
        )
        assert client.read() == b"2"


def test_a_client_without_replies_may_send_much_behind_a_wait(node: Node) -> None:
    """More than is read ahead for a blocked client: reading must go on although nothing is ever sent to it."""
    count = 5000
    with node.client() as client, node.client() as other:
        client.send_raw(command("CLIENT", "REPLY", "OFF") + command("GETJOB", "TIMEOUT", 300, "FROM", "nothing"))
        until(lambda: node.info(other, "clients")["blocked_clients"] == "1")
        client.send_raw(command("ADDJOB", "q", "x" * 1000, 0) * count)
        until(lambda: other.ask("QLEN", "q") == count)


def test_monitor(node: Node) -> None:
    with node.client() as monitor, node.client() as client:
        assert monitor.ask("MONITOR") == b"OK"
        client.ask("ADDJOB", "q", b'a "b"\r\n\xff', 0)
        client.ask("GETJOB", "FROM", "q")
        client.ask("nonsense")
        lines = [monitor.read() for _ in range(3)]
        stamp, address, rest = lines[0].split(b" ", 2)
        assert abs(float(stamp) - time.time()) < 60 and address == b"[" + client.name() + b"]"
        assert rest == rb'"ADDJOB" "q" "a \"b\"\r\n\xff" "0"'  # as Disque quotes
        assert lines[1].endswith(b'"GETJOB" "FROM" "q"') and lines[2].endswith(b'"nonsense"')
        assert monitor.ask("PING") == b"PONG"
        assert b" flags=O " in client.ask("CLIENT", "LIST")


def test_monitor_shows_no_passwords() -> None:
    with Node("--set", "requirepass=secret") as node, node.client() as monitor, node.client() as client:
        assert monitor.ask("AUTH", "secret") == b"OK" and monitor.ask("MONITOR") == b"OK"
        assert client.ask("AUTH", "secret") == b"OK"
        assert isinstance(client.ask("HELLO", 3, "AUTH", "default", "secret"), dict)
        assert client.ask("CONFIG", "SET", "requirepass", "secret2") == b"OK"
        assert client.ask("PING") == b"PONG"
        lines = []
        while not lines or b"PING" not in lines[-1]:
            lines.append(monitor.read())
        assert b"secret" not in b"".join(lines)


def test_the_last_command_of_a_client_is_shown(node: Node) -> None:
    with node.client() as worker, node.client() as client:
        jid = worker.ask("ADDJOB", "q", "x", 0)
        worker.ask("GETJOB", "FROM", "q")
        worker.ask("ACKJOB", jid)
        mine = [line for line in client.ask("CLIENT", "LIST").splitlines() if b"addr=" + worker.name() in line]
        assert b" cmd=ackjob " in mine[0]


def test_resp3(node: Node) -> None:
    with node.client() as client:
        greeting = client.ask("HELLO", 3)
        assert greeting[b"proto"] == 3 and greeting[b"server"] == b"holdfast"
        for words in (
            ["GETJOB", "NOHANG", "FROM", "none"], ["GETJOB", "TIMEOUT", 1, "FROM", "none"], ["QSTAT", "none2"],
            ["SHOW", b"DI" + b"0" * 40 + b"05a1SQ"], ["CLIENT", "GETNAME"],
        ):
            client.send(*words)
            assert client.read_line() == b"_", words
        assert isinstance(client.ask("CONFIG", "GET", "maxclients"), dict)
        assert client.ask("HELLO", 2)[0] == b"server"
        client.send("GETJOB", "NOHANG", "FROM", "none")
        assert client.read_line() == b"*-1"


# -- settings -----------------------------------------------------------------------------------------------


def test_what_is_rewritten_holds_after_a_restart(tmp_path: Path) -> None:
    """With the same command line, also where that names the setting; a changed command line is a newer word."""
    folder = str(tmp_path / "data")
    flags = ["--dir", folder, "--set", "slowlog-max-len=11", "--set", "maxclients=500"]
    nasty = 'C:\\xyz "ü" \t\x7f\\'
    with Node(*flags) as node, node.client() as client:
        node_id = client.ask("CLUSTER", "MYID")
        for name, value in (("slowlog-max-len", "12"), ("tcp-keepalive", "77"), ("requirepass", nasty)):
            assert client.ask("CONFIG", "SET", name, value) == b"OK"
        assert client.ask("CONFIG", "REWRITE") == b"OK"
        client.ask("CONFIG", "SET", "timeout", 99)  # not rewritten
    with Node(*flags) as node, node.client() as client:
        assert client.ask("AUTH", nasty) == b"OK"
        assert client.ask("CLUSTER", "MYID") == node_id
        assert settings(client, "slowlog-max-len") == {b"slowlog-max-len": b"12"}
        assert settings(client, "tcp-keepalive") == {b"tcp-keepalive": b"77"}
        assert settings(client, "maxclients") == {b"maxclients": b"500"}
        assert settings(client, "timeout") == {b"timeout": b"0"}
    with Node(*flags, "--set", "slowlog-max-len=13") as node, node.client() as client:
        assert client.ask("AUTH", nasty) == b"OK"
        assert settings(client, "slowlog-max-len") == {b"slowlog-max-len": b"13"}


def test_a_password_of_any_bytes_survives_a_rewrite_or_is_refused(tmp_path: Path) -> None:
    flags = ["--dir", str(tmp_path / "data")]
    with Node(*flags) as node, node.client() as client:
        if isinstance(client.ask("CONFIG", "SET", "requirepass", b"\xff\xfe"), ErrorReply):
            return  # to refuse what cannot be kept is as good
        assert client.ask("CONFIG", "REWRITE") == b"OK"
    with Node(*flags) as node, node.client() as client:
        assert client.ask("AUTH", b"\xff\xfe") == b"OK"


def test_without_a_dir_nothing_can_be_rewritten(node: Node) -> None:
    with node.client() as client:
        reply = client.ask("CONFIG", "REWRITE")
        assert isinstance(reply, ErrorReply) and reply == b"ERR The server is running without a config file"


def test_flag_over_variable_over_saved_over_file(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    names = ["slowlog-max-len", "timeout", "tcp-keepalive", "latency-monitor-threshold"]
    file.write_text("".join(f"{name} = 1\n" for name in names))
    folder = str(tmp_path / "data")
    os.mkdir(folder)
    (Path(folder) / "settings.toml").write_text("".join(f'{name} = "2"\n' for name in names[:3]))
    env = {"HOLDFAST_SLOWLOG_MAX_LEN": "3", "HOLDFAST_TIMEOUT": "3"}
    flags = ["--config", str(file), "--dir", folder, "--set", "slowlog-max-len=4"]
    with Node(*flags, env=env) as node, node.client() as client:
        assert [settings(client, name)[name.encode()] for name in names] == [b"4", b"3", b"2", b"1"]


# -- slowness -----------------------------------------------------------------------------------------------


def test_debug_sleep_shows_in_slowlog_and_latency(node: Node) -> None:
    with node.client() as client:
        client.ask("SLOWLOG", "RESET")
        client.ask("LATENCY", "RESET")
        began = time.monotonic()
        assert client.ask("DEBUG", "SLEEP", "0.05") == b"OK"
        assert time.monotonic() - began >= 0.05
        entries = client.ask("SLOWLOG", "GET")
        assert [entry[3][:2] for entry in entries] == [[b"DEBUG", b"SLEEP"]]
        assert entries[0][2] >= 50_000 and client.ask("SLOWLOG", "LEN") == 1
        latest = {event[0]: event[2] for event in client.ask("LATENCY", "LATEST")}
        assert latest[b"command"] >= 50
        assert b"command" in client.ask("LATENCY", "DOCTOR")


def test_debug_is_refused_unless_allowed() -> None:
    with Node() as node, node.client() as client:
        for words in (["SLEEP", "0.01"], ["SEGFAULT"], ["FLUSHALL"], ["nonsense"]):
            assert client.ask("DEBUG", *words).startswith(b"ERR DEBUG is off")
        assert isinstance(client.ask("CONFIG", "SET", "enable-debug", "yes"), ErrorReply)
