"""`holdfast node --cores n`: several nodes that are one to their users.

One group of two serves the tests that do it no harm; the others start their own.
"""
from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import Client, Node, until

CORES = 2


def children(node: Node) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().split()]


def own(node: Node, number: int) -> Client:
    """A connection to one of the nodes, at its own port."""
    return Client(("127.0.0.1", node.port + number))


def setting(node: Node, number: int, name: str) -> bytes:
    with own(node, number) as client:
        value: bytes = client.ask("CONFIG", "GET", name)[1]
        return value


def told(node: Node, number: int) -> set[bytes]:
    """Ids of the nodes that one tells its clients of."""
    with own(node, number) as client:
        return {row[0] for row in client.ask("HELLO")[2:]}


def until_logged(node: Node, words: str) -> None:
    try:
        until(lambda: words in node.log())
    except AssertionError:
        raise AssertionError(f"never logged: {words}; but:\n{node.log()}") from None


def have_met(node: Node, others: int = CORES - 1) -> bool:
    wanted = b"cluster_reachable_nodes:%d" % others
    for number in range(1, CORES + 1):
        with own(node, number) as client:
            if wanted not in client.ask("CLUSTER", "INFO"):
                return False
    return True


@pytest.fixture(scope="module")
def pair() -> Iterator[Node]:
    with Node("--cores", str(CORES)) as node:
        until(lambda: have_met(node))
        yield node


def test_clients_of_one_port_are_spread_over_all_nodes(pair: Node) -> None:
    def ask() -> bytes:
        with pair.client() as client:
            node_id: bytes = client.ask("CLUSTER", "MYID")
            return node_id

    seen: set[bytes] = set()
    until(lambda: seen.add(ask()) or len(seen) == CORES)


def test_hello_tells_each_node_at_its_own_port(pair: Node) -> None:
    with pair.client() as client:
        rows = client.ask("HELLO")[2:]
    assert {int(row[2]) for row in rows} == {pair.port + number for number in range(1, CORES + 1)}
    for node_id, _, port, _ in rows:
        with Client(("127.0.0.1", int(port))) as client:
            assert client.ask("CLUSTER", "MYID") == node_id


def test_nodes_of_a_machine_talk_over_unix_sockets(pair: Node) -> None:
    """None of their TCP ports has a connection that is not a client's."""
    buses = {f"{pair.port + number + 10_000:04X}" for number in range(1, CORES + 1)}
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    established = [row for row in rows if row[3] == "01"]
    assert not [row for row in established if {row[1][-4:], row[2][-4:]} & buses]


def test_a_consumer_at_one_node_gets_what_is_added_at_another(pair: Node) -> None:
    with own(pair, 1) as producer, own(pair, 2) as consumer:
        consumer.send("GETJOB", "TIMEOUT", 10_000, "FROM", "over")
        job = producer.ask("ADDJOB", "over", "body", 0)
        assert consumer.read() == [[b"over", job, b"body"]]
        assert consumer.ask("ACKJOB", job) == 1


def test_a_job_that_does_not_say_otherwise_has_one_copy_on_one_machine(pair: Node) -> None:
    with own(pair, 1) as client:
        job = client.ask("ADDJOB", "copies", "body", 0)
        assert client.ask("SHOW", job)[7] == 1
        twice = client.ask("ADDJOB", "copies", "body", 0, "REPLICATE", 2)
        assert client.ask("SHOW", twice)[7] == 2
        assert client.ask("ACKJOB", job, twice) == 2


def test_a_setting_changed_at_one_node_is_changed_at_all(pair: Node) -> None:
    with own(pair, 1) as client:
        assert client.ask("CONFIG", "SET", "slowlog-max-len", 77) == b"OK"
    until(lambda: setting(pair, 2, "slowlog-max-len") == b"77")
    with own(pair, 2) as client:
        assert client.ask("CONFIG", "SET", "slowlog-max-len", 78) == b"OK"
    until(lambda: setting(pair, 1, "slowlog-max-len") == b"78")


def test_leaving_said_to_one_is_done_by_all_and_safe_when_all_are() -> None:
    """SHUTDOWN stops all of them: who is told that it is safe must not lose what another core has."""
    with Node("--cores", str(CORES)) as node, Node("--join", f"127.0.0.1:{node.port + 1}") as other:
        until(lambda: have_met(node, CORES))
        with own(node, 1) as first, own(node, 2) as second, other.client() as far:
            given = second.ask("ADDJOB", "given", "body", 0, "REPLICATE", 1)
            kept = second.ask("ADDJOB", "kept", "body", 0, "REPLICATE", 1)
            assert second.ask("GETJOB", "FROM", "kept")[0][1] == kept
            assert first.ask("CLUSTER", "LEAVING", "yes") == b"OK"
            until(lambda: second.ask("CLUSTER", "LEAVING") == b"yes")
            until(lambda: far.ask("QPEEK", "given", 1))
            assert far.ask("QPEEK", "given", 1)[0][1] == given
            assert first.ask("CLUSTER", "LEAVING", "status") == b"draining"
            assert second.ask("ACKJOB", kept) == 1
            for client in (first, second):
                until(lambda client=client: client.ask("CLUSTER", "LEAVING", "status") == b"safe")  # type: ignore[misc]
            assert second.ask("CLUSTER", "LEAVING", "no") == b"OK"
            until(lambda: first.ask("CLUSTER", "LEAVING", "status") == b"no")


def test_a_core_that_comes_back_goes_on_leaving() -> None:
    with Node("--cores", str(CORES)) as node:
        until(lambda: have_met(node))
        with own(node, 1) as first:
            assert first.ask("CLUSTER", "LEAVING", "yes") == b"OK"
        with own(node, 2) as second:
            until(lambda: second.ask("CLUSTER", "LEAVING") == b"yes")
        os.kill(children(node)[1], signal.SIGKILL)
        until_logged(node, "is back")
        for number in range(1, CORES + 1):
            with own(node, number) as client:
                until(lambda client=client: client.ask("CLUSTER", "LEAVING") == b"yes")  # type: ignore[misc]


def test_info_sums_up_all_nodes(pair: Node) -> None:
    with own(pair, 1) as one, own(pair, 2) as two:
        jobs = [client.ask("ADDJOB", f"sum{number}", "x", 0) for number, client in enumerate((one, two, two))]
        for client in (one, two):
            assert pair.info(client, "cores")["cores"] == str(CORES)
            until(lambda client=client: pair.info(client, "cores")["cores_registered_jobs"] == "3")  # type: ignore[misc]
        assert pair.info(one, "cores")["cores_running"] == str(CORES)
        before = int(pair.info(two, "stats")["total_commands_processed"])
        one.ask("CONFIG", "RESETSTAT")
        until(lambda: int(pair.info(two, "stats")["total_commands_processed"]) < before)
        for client, job in zip((one, two, two), jobs):
            assert client.ask("ACKJOB", job) == 1


def test_a_node_that_dies_comes_back_as_the_same_with_what_was_set() -> None:
    with Node("--cores", str(CORES)) as node:
        until(lambda: len(told(node, 2)) == CORES)
        ids = told(node, 2)
        with own(node, 2) as client:
            client.ask("CONFIG", "SET", "slowlog-max-len", 79)
        first = children(node)[0]
        os.kill(first, signal.SIGKILL)
        until_logged(node, "is back")
        assert "has ended by SIGKILL; starting it again" in node.log()
        for number in range(1, CORES + 1):
            until(lambda number=number: setting(node, number, "slowlog-max-len") == b"79")  # type: ignore[misc]
        until(lambda: told(node, 1) == ids)
        assert first not in children(node)


def test_shutdown_of_one_stops_all() -> None:
    with Node("--cores", str(CORES)) as node:
        pids = children(node)
        with node.client() as client:
            client.send("SHUTDOWN")
            assert node.wait() == 0
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_stop_all_with_code_0(number: signal.Signals) -> None:
    with Node("--cores", str(CORES)) as node:
        pids = children(node)
        node.signal(number)
        assert node.wait() == 0
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_nodes_do_not_outlive_the_process_that_started_them() -> None:
    node = Node("--cores", str(CORES))
    try:
        pids = children(node)
        node.process.kill()
        node.wait()
        until(lambda: not [pid for pid in pids if is_running(pid)])
    finally:
        node.stop()


def is_running(pid: int) -> bool:
    """A process nobody waits for any more may stay in the table, without being one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_each_node_has_a_folder_of_its_own_and_is_the_same_after_a_restart(tmp_path: Path) -> None:
    flags = ("--cores", str(CORES), "--dir", str(tmp_path / "data"))
    ids = []
    for _ in range(2):
        with Node(*flags) as node:
            with own(node, 1) as client:
                ids.append(client.ask("CLUSTER", "MYID"))
                assert client.ask("CONFIG", "SET", "slowlog-max-len", 55) == b"OK"
                assert client.ask("CONFIG", "REWRITE") == b"OK"
            saved = tmp_path / "data" / "2" / "settings.toml"
            until(lambda saved=saved: saved.exists() and "55" in saved.read_text())  # type: ignore[misc]
    assert ids[0] == ids[1]
    assert (tmp_path / "data" / "1" / "node-id").read_bytes().strip() == ids[0]


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (3, 2)])
def test_a_folder_with_jobs_that_would_not_be_seen_is_refused(tmp_path: Path, before: int, after: int) -> None:
    """The journals lie elsewhere with another number of cores: the node would seem to have lost its jobs."""
    with Node("--cores", str(before), "--dir", str(tmp_path)) as node, node.client() as client:
        jid = client.ask("ADDJOB", "q", "kept", 0)
    wrong = Node("--cores", str(after), "--dir", str(tmp_path), wait=False)
    try:
        assert wrong.wait() == 1
        assert "has the jobs of a node that would not run now" in wrong.log() and "Traceback" not in wrong.log()
    finally:
        wrong.stop()
    with Node("--cores", str(before), "--dir", str(tmp_path)) as node, node.client() as client:
        assert client.ask("GETJOB", "TIMEOUT", 10_000, "FROM", "q")[0][1] == jid, "nothing was lost by trying"


def test_a_folder_that_several_cores_use_is_taken(tmp_path: Path) -> None:
    with Node("--cores", str(CORES), "--dir", str(tmp_path)):
        other = Node("--dir", str(tmp_path), wait=False)
        try:
            assert other.wait() == 1
            assert "is used by another node" in other.log()
        finally:
            other.stop()


def test_sighup_reaches_all(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("slowlog-max-len = 5\n")
    with Node("--cores", str(CORES), "--config", str(file)) as node:
        file.write_text("slowlog-max-len = 6\n")
        node.signal(signal.SIGHUP)
        for number in range(1, CORES + 1):
            until(lambda number=number: setting(node, number, "slowlog-max-len") == b"6")  # type: ignore[misc]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--port", "65535"), "choose a lower port"),
        (("--port", "55535"), "or set cluster-bus-port"),
        (("--set", "cluster-bus-unixsocket=x"), "leave cluster-bus-unixsocket"),
        (("--bind", "0.0.0.0", "--set", "requirepass=x", "--set", f"cluster-secret={'x' * 16}"), "set announce-ip"),
        (("--set", "core=1"), "say how many nodes you want with --cores"),
        (("--set", "maxmemory=lots"), "is not a size"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(flags: tuple[str, ...], words: str) -> None:
    node = Node("--cores", str(CORES), *flags, wait=False)
    try:
        assert node.wait() == 1
        assert re.search(words, node.log()) and "Traceback" not in node.log()
    finally:
        node.stop()


def test_a_port_in_use_is_said_even_by_those_who_would_share_it(pair: Node) -> None:
    same = ("--port", str(pair.port), "--set", "cluster-bus-port=20000")  # a drawn port may be too high without
    node = Node("--cores", str(CORES), *same, wait=False)
    try:
        assert node.wait() == 1
        assert f"port {pair.port}: Address already in use" in node.log()
    finally:
        node.stop()


def test_a_node_that_cannot_start_ends_all() -> None:
    """The shared port is free, and so is the first node's own; the second one's is not."""
    with taken_port() as port:
        node = Node("--cores", "2", "--port", str(port - 2), wait=False)
        try:
            assert node.wait() == 1
            assert "could not start" in node.log() and "Address already in use" in node.log()
        finally:
            node.stop()


@contextmanager
def taken_port() -> Iterator[int]:
    """A port that somebody listens on; the two below it are free."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port: int = taken.getsockname()[1]
            if port + 10_000 > 65535:
                continue
            try:
                for below in (port - 2, port - 1):
                    socket.create_server(("127.0.0.1", below)).close()
            except OSError:
                continue
            yield port
            return

