"""A real node and the clients people have: redis-cli, redis-py with its defaults, pydisque from PyPI.

They are here for what a test of our own would not think of: the greeting a client opens with, the way it
reads types, the commands it sends without being asked. What each command answers to the letter is the
business of tests/conformance.
"""
from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from pydisque.client import Client as Pydisque
from redis.exceptions import ResponseError

START_S = 20.0
PATIENCE_S = 5.0
UNKNOWN = b"DIffffffff0000000000000000000000000000000005a1SQ"


# -- the node, and how to wait for it ------------------------------------------------------------------------


def until(is_so: Callable[[], Any], seconds: float = PATIENCE_S) -> Any:
    """What `is_so` says once it is true; no longer than that."""
    end = time.monotonic() + seconds
    while not (found := is_so()):
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.002)
    return found


@pytest.fixture(scope="module")
def node_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("node") / "log"


@pytest.fixture(scope="module")
def port(node_log: Path) -> Iterator[int]:
    command = [sys.executable, "-m", "holdfast", "node", "--port", "0", "--dir", str(node_log.parent / "dir")]
    with node_log.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        line = until(lambda: ready_line(node_log, process), START_S)
        yield int(line.split("ready on ")[1].split(",")[0].rpartition(":")[2])
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait(PATIENCE_S)
    assert " ERROR " not in node_log.read_text()


def ready_line(path: Path, process: subprocess.Popen[bytes]) -> str | None:
    text = path.read_text()
    assert process.poll() is None, text
    return next((line for line in text.splitlines() if "ready on " in line), None)


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue of its own for every test."""
    return str(request.node.name)


@pytest.fixture(autouse=True)
def nothing_is_left(port: int) -> Iterator[None]:
    """Every test begins with an empty node, and ends with one that is well and that nobody waits at."""
    yield
    with redis.Redis(port=port, retry=None) as look:
        until(lambda: look.info("clients")["blocked_clients"] == 0)
        look.execute_command("DISQUE", "FLUSHALL")
        assert look.info("stats")["faults"] == 0


# -- any client, over a network ------------------------------------------------------------------------------

MULTIBULK = [
    b"*2\r\n$4\r\nPING\r\n$1\r\na\r\n", b"*2\r\n$4\r\nQLEN\r\n$1\r\nq\r\n", b"*2\r\n$4\r\nPING\r\n$2\r\nbb\r\n",
]
LINES = [b"PING a\r\n", b"QLEN q\n", b"PING bb\r\n"]
REPLIES = [b"$1\r\na\r\n", b":0\r\n", b"$2\r\nbb\r\n"]


@pytest.mark.parametrize("commands", [MULTIBULK, LINES, [MULTIBULK[0], LINES[1], MULTIBULK[2]]],
                         ids=["multibulk", "lines", "both"])
def test_commands_that_come_in_two_pieces_cut_anywhere(port: int, commands: list[bytes]) -> None:
    sent = b"".join(commands)
    ends = [len(b"".join(commands[:i])) for i in range(len(commands) + 1)]
    for cut in range(1, len(sent)):
        whole = sum(end <= cut for end in ends) - 1
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(sent[:cut])
            if whole == 0:
                time.sleep(0.001)
            assert receive(sock, b"".join(REPLIES[:whole])), f"cut after {sent[:cut]!r}"
            sock.sendall(sent[cut:])
            assert receive(sock, b"".join(REPLIES[whole:])), f"cut after {sent[:cut]!r}"


def receive(sock: socket.socket, wanted: bytes) -> bool:
    got = b""
    while len(got) < len(wanted) and (more := sock.recv(len(wanted) - len(got))):
        got += more
    return got == wanted


# -- redis-cli -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def redis_cli(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = shutil.which("redis-cli")
    if found is None and os.geteuid() == 0 and os.environ.get("CI"):
        with (tmp_path_factory.mktemp("apt") / "log").open("wb") as log:
            command = ["apt-get", "install", "-y", "--no-install-recommends", "redis-tools"]
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=120, check=False)
        found = shutil.which("redis-cli")
    if found is None:
        pytest.skip("SKIPPED: there is no redis-cli here (Debian: redis-tools); CI installs it, as root")
    return found


class Cli:
    def __init__(self, program: str, port: int) -> None:
        self.start = [program, "-p", str(port)]

    def __call__(self, *words: str, stdin: str = "", code: int = 0) -> str:
        done = subprocess.run(
            [*self.start, *words], input=stdin.encode(), capture_output=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stdout.decode()


@pytest.fixture
def cli(redis_cli: str, port: int) -> Cli:
    return Cli(redis_cli, port)


def test_redis_cli_carries_a_job_from_add_to_ack(cli: Cli, queue: str) -> None:
    job = cli("addjob", queue, "the body", "0").strip()
    assert len(job) == 48
    shown = cli("--no-raw", "getjob", "withcounters", "from", queue).splitlines()
    assert shown == [
        f'1) 1) "{queue}"', f'   2) "{job}"', '   3) "the body"', '   4) "nacks"', "   5) (integer) 0",
        '   6) "additional-deliveries"', "   7) (integer) 0",
    ]
    assert cli("--no-raw", "getjob", "nohang", "from", queue) == "(nil)\n"
    assert cli("--no-raw", "ackjob", job) == "(integer) 1\n"
    assert cli("--no-raw", "show", job) == "(nil)\n"


def test_redis_cli_reads_commands_and_bodies_from_its_input(cli: Cli, queue: str) -> None:
    script = f'ADDJOB {queue} "a b\\x00" 0\nQLEN {queue}\nNOSUCH\nPING\n'
    job, length, error, _, pong = cli(stdin=script).splitlines()
    assert (len(job), length, error, pong) == (48, "1", "ERR unknown command 'NOSUCH'", "PONG")
    assert len(cli("-X", "BODY", "addjob", queue, "BODY", "0", stdin="line 1\nline 2").strip()) == 48
    assert cli("--csv", "qpeek", queue, "-1").rstrip().endswith('"line 1\\nline 2"')
    cli("-e", "nosuch", code=1)


def test_redis_cli_in_resp3(cli: Cli, queue: str) -> None:
    assert cli("-3", "--no-raw", "getjob", "nohang", "from", queue) == "(nil)\n"
    cli("-3", "addjob", queue, "x", "0")
    facts = json.loads(cli("-3", "--json", "qstat", queue))
    assert dict(zip(facts[::2], facts[1::2]))["jobs-in"] == 1
    assert json.loads(cli("-3", "--json", "hello", "3"))["server"] == "holdfast"
    assert json.loads(cli("-3", "--json", "config", "get", "maxclients")) == {"maxclients": "10000"}


def test_redis_cli_knows_its_way_around(cli: Cli) -> None:
    assert "registered_jobs:" in cli("info")
    assert "cmd=client" in cli("client", "list")
    assert "Fetch jobs" in cli("command", "docs", "getjob")
    assert cli("-r", "3", "-i", "0.001", "ping") == "PONG\n" * 3
    node = cli("cluster", "myid").strip()
    assert cli("hello").split() == ["1", node, node, cli("config", "get", "port").split()[1], "1"]


def test_redis_cli_with_a_password(cli: Cli, port: int) -> None:
    with redis.Redis(port=port) as admin:
        admin.ping()
        admin.config_set("requirepass", "secret")
        try:
            assert cli("ping") == "NOAUTH Authentication required.\n\n"
            assert cli("-a", "secret", "--no-auth-warning", "ping") == "PONG\n"
            assert cli("--user", "default", "--pass", "secret", "--no-auth-warning", "-3", "ping") == "PONG\n"
            for protocol in (2, 3):
                with redis.Redis(port=port, password="secret", protocol=protocol) as one:
                    assert one.ping()
                with (
                    redis.Redis(port=port, password="wrong", protocol=protocol, retry=None) as one,
                    pytest.raises(redis.exceptions.AuthenticationError),
                ):
                    one.ping()
        finally:
            admin.config_set("requirepass", "")


def test_redis_cli_waits_and_watches(cli: Cli, port: int, queue: str, tmp_path: Path) -> None:
    """One redis-cli blocks in GETJOB, another is a MONITOR, a third adds the job."""
    got, seen = tmp_path / "got", tmp_path / "seen"
    with got.open("wb") as got_file, seen.open("wb") as seen_file:
        monitor = subprocess.Popen([*cli.start, "monitor"], stdin=subprocess.DEVNULL, stdout=seen_file)
        waiter = subprocess.Popen([*cli.start, "getjob", "from", queue], stdin=subprocess.DEVNULL, stdout=got_file)
    try:
        until(lambda: "OK" in seen.read_text())
        with redis.Redis(port=port) as one:
            until(lambda: one.info("clients")["blocked_clients"] == 1)
            job = one.execute_command("ADDJOB", queue, "for the one who waits", 0).decode()
        assert waiter.wait(PATIENCE_S) == 0
        assert got.read_text().splitlines() == [queue, job, "for the one who waits"]
        until(lambda: f'"ADDJOB" "{queue}" "for the one who waits" "0"' in seen.read_text())
    finally:
        for process in (monitor, waiter):
            process.kill()
            process.wait(PATIENCE_S)


# -- redis-py ------------------------------------------------------------------------------------------------

PROTOCOLS = pytest.mark.parametrize("options", [{}, {"protocol": 2}, {"protocol": 3}], ids=["defaults", "2", "3"])


@pytest.fixture
def connect(port: int) -> Iterator[Callable[..., redis.Redis]]:
    opened: list[redis.Redis] = []

    def open_one(**options: Any) -> redis.Redis:
        # Defaults, but for one: a test that fails should not try again and again before it says so.
        opened.append(redis.Redis(port=port, **{"retry": None, **options}))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


Connect = Callable[..., redis.Redis]


@PROTOCOLS
def test_redis_py_introduces_itself(connect: Connect, options: dict[str, Any]) -> None:
    """By default it opens with HELLO 3 and two CLIENT SETINFO in one go."""
    one = connect(client_name="me", **options)
    facts = one.client_info()
    assert (facts["name"], facts["lib-name"], facts["lib-ver"]) == ("me", "redis-py", redis.__version__)
    assert facts["resp"] == str(options.get("protocol", 3))
    assert one.client_getname() in ("me", b"me")


@PROTOCOLS
def test_redis_py_carries_a_job_from_add_to_ack(connect: Connect, queue: str, options: dict[str, Any]) -> None:
    ask = connect(**options).execute_command
    body = bytes(range(256)) * 400
    job = ask("ADDJOB", queue, body, 0, "RETRY", 60, "TTL", 600)
    assert (len(job), job[:2], job[-6:]) == (48, b"DI", b"000bSQ")
    name = queue.encode()
    assert ask("QPEEK", queue, 5) == [[name, job, body]]
    counters = [b"nacks", 0, b"additional-deliveries", 0]
    assert ask("GETJOB", "WITHCOUNTERS", "FROM", queue) == [[name, job, body, *counters]]
    assert ask("GETJOB", "NOHANG", "FROM", queue) is None
    assert ask("WORKING", job) == 60
    facts = ask("SHOW", job)
    assert dict(zip(facts[::2], facts[1::2]))[b"state"] == b"active"
    assert ask("JSCAN", "QUEUE", queue) == [b"0", [job]]
    assert ask("ACKJOB", job, UNKNOWN) == 1
    assert ask("SHOW", job) is None


@PROTOCOLS
def test_redis_py_raises_what_it_is_told(connect: Connect, queue: str, options: dict[str, Any]) -> None:
    ask = connect(**options).execute_command
    with pytest.raises(ResponseError, match=r"^BADID Invalid Job ID format\.$"):
        ask("ACKJOB", "x")
    with pytest.raises(ResponseError, match=r"^NOREPL Not enough reachable nodes"):
        ask("ADDJOB", queue, "x", 0, "REPLICATE", 3)
    with pytest.raises(ResponseError, match=r"^unknown command 'NOSUCH'$"):
        ask("NOSUCH")
    assert ask("QLEN", queue) == 0


@PROTOCOLS
def test_redis_py_pipelines(connect: Connect, queue: str, options: dict[str, Any]) -> None:
    pipe = connect(**options).pipeline(transaction=False)
    for i in range(1000):
        pipe.execute_command("ADDJOB", queue, i, 0)
    pipe.execute_command("NOSUCH")
    pipe.execute_command("GETJOB", "COUNT", 1000, "FROM", queue)
    replies = pipe.execute(raise_on_error=False)
    ids, error, jobs = replies[:1000], replies[1000], replies[1001]
    assert isinstance(error, ResponseError)
    assert jobs == [[queue.encode(), job, b"%d" % i] for i, job in enumerate(ids)]


@PROTOCOLS
def test_redis_py_keeps_the_order_behind_a_command_that_waits(
    connect: Connect, queue: str, options: dict[str, Any]
) -> None:
    """A GETJOB in the middle of a pipeline waits; what stands behind it is answered after it."""
    first, second = connect(**options), connect(**options)
    pipe = first.pipeline(transaction=False)
    pipe.execute_command("QLEN", queue)
    pipe.execute_command("GETJOB", "TIMEOUT", 4000, "FROM", queue)
    pipe.execute_command("QPEEK", queue, 1)
    with ThreadPoolExecutor(1) as threads:
        replies = threads.submit(pipe.execute)
        until(lambda: is_waited_for(second, queue))
        job = second.execute_command("ADDJOB", queue, "x", 0)
        got = replies.result(PATIENCE_S)
    assert got == [0, [[queue.encode(), job, b"x"]], []]


@PROTOCOLS
def test_redis_py_waits_for_jobs(connect: Connect, queue: str, options: dict[str, Any]) -> None:
    one = connect(**options)
    start = time.monotonic()
    assert one.execute_command("GETJOB", "TIMEOUT", 50, "FROM", queue) is None
    assert 0.05 <= time.monotonic() - start < 1
    with ThreadPoolExecutor(8) as threads:
        waiting = [threads.submit(one.execute_command, "GETJOB", "COUNT", 9, "FROM", queue) for _ in range(8)]
        until(lambda: blocked(one, queue) == 8)
        bodies = [b"%d" % i for i in range(8)]
        for body in bodies:
            one.execute_command("ADDJOB", queue, body, 0)
        replies = [each.result(PATIENCE_S) for each in waiting]
    assert all(len(reply) == 1 for reply in replies)
    assert sorted(reply[0][2] for reply in replies) == bodies


def test_a_redis_py_that_loses_patience_is_not_served(connect: Connect, queue: str) -> None:
    """Its socket times out and is closed; the job that comes then goes to somebody who is there."""
    hasty = connect(socket_timeout=0.05)
    with pytest.raises(redis.exceptions.TimeoutError):
        hasty.execute_command("GETJOB", "FROM", queue)
    one = connect()
    until(lambda: not is_waited_for(one, queue))
    job = one.execute_command("ADDJOB", queue, "x", 0)
    assert one.execute_command("GETJOB", "NOHANG", "FROM", queue)[0][1] == job


def is_waited_for(one: redis.Redis, queue: str) -> bool:
    return blocked(one, queue) > 0


def blocked(one: redis.Redis, queue: str) -> int:
    facts = one.execute_command("QSTAT", queue)
    return 0 if facts is None else int(facts[facts.index(b"blocked") + 1])


@PROTOCOLS
def test_redis_py_methods_for_the_server(connect: Connect, options: dict[str, Any]) -> None:
    """The methods redis-py has for commands that Disque shares with Redis."""
    one = connect(**options)
    assert one.ping() is True
    assert one.info("server")["disque_version"]
    assert one.info()["registered_jobs"] >= 0
    assert one.config_get("max*")["maxclients"] == "10000"
    assert one.config_set("slowlog-max-len", 100)
    assert one.config_get("slowlog-max-len") == {"slowlog-max-len": "100"}
    assert one.config_resetstat()
    assert abs(one.time()[0] - time.time()) < 60
    assert one.command()["getjob"]["arity"] == -2
    assert one.command_count() == len(one.command_list())
    assert one.slowlog_reset() and one.slowlog_len() == 0 and one.slowlog_get() == []
    assert one.latency_latest() == [] and one.latency_reset() == 0
    assert one.client_setname("me") and one.client_getname() in ("me", b"me")
    mine = one.client_id()
    assert str(mine) in [each["id"] for each in one.client_list()]
    other = connect(**options)
    assert one.client_kill_filter(_id=other.client_id()) == 1
    with pytest.raises(redis.exceptions.AuthenticationError, match="no password is set"):
        one.execute_command("AUTH", "x")
    assert one.config_rewrite() in (True, b"OK", "OK")


@PROTOCOLS
async def test_redis_py_asyncio(port: int, queue: str, options: dict[str, Any]) -> None:
    async with redis.asyncio.Redis(port=port, **options) as one:
        ask = one.execute_command
        assert await one.ping()
        waiting = [asyncio.create_task(ask("GETJOB", "FROM", queue)) for _ in range(20)]
        while (facts := await ask("QSTAT", queue)) is None or facts[facts.index(b"blocked") + 1] != 20:
            await asyncio.sleep(0.001)
        async with one.pipeline(transaction=False) as pipe:
            for i in range(20):
                pipe.execute_command("ADDJOB", queue, i, 0)
            ids = await pipe.execute()
        replies = await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S)
        assert sorted(reply[0][1] for reply in replies) == sorted(ids)
        assert await ask("ACKJOB", *ids) == 20
        with pytest.raises(ResponseError, match="BADID"):
            await ask("SHOW", "x")


async def test_a_cancelled_redis_py_task_is_not_served(port: int, queue: str) -> None:
    async with redis.asyncio.Redis(port=port) as one:
        ask = one.execute_command
        task = asyncio.create_task(ask("GETJOB", "FROM", queue))
        while (facts := await ask("QSTAT", queue)) is None or facts[facts.index(b"blocked") + 1] != 1:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while (facts := await ask("QSTAT", queue))[facts.index(b"blocked") + 1] != 0:
            await asyncio.sleep(0.001)
        job = await ask("ADDJOB", queue, "x", 0)
        assert (await ask("GETJOB", "NOHANG", "FROM", queue))[0][1] == job


def test_many_redis_py_clients_at_once(connect: Connect, queue: str) -> None:
    """Producers and consumers, each with a connection of its own: every job once, none lost."""
    producers, consumers, each = 4, 4, 100
    got: list[bytes] = []
    lock = threading.Lock()

    def produce(number: int) -> None:
        one = connect()
        for i in range(each):
            one.execute_command("ADDJOB", queue, f"{number}.{i}", 0)

    def consume() -> None:
        one = connect()
        while reply := one.execute_command("GETJOB", "TIMEOUT", 500, "COUNT", 3, "FROM", queue):
            assert one.execute_command("ACKJOB", *[job[1] for job in reply]) == len(reply)
            with lock:
                got.extend(job[2] for job in reply)

    with ThreadPoolExecutor(producers + consumers) as threads:
        tasks = [threads.submit(consume) for _ in range(consumers)]
        tasks += [threads.submit(produce, number) for number in range(producers)]
        for task in tasks:
            task.result(PATIENCE_S)
    assert sorted(got) == sorted(f"{n}.{i}".encode() for n in range(producers) for i in range(each))


# -- pydisque ------------------------------------------------------------------------------------------------


class Pydisquette:
    """pydisque's client, noting which of its methods were used."""

    def __init__(self, port: int) -> None:
        self.client = Pydisque([f"127.0.0.1:{port}"])
        self.used: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.used.add(name)
        return getattr(self.client, name)

    def unused(self) -> set[str]:
        public = {name for name in vars(Pydisque) if not name.startswith("_")}
        return public - self.used - {"execute_command"}


def test_pydisque_all_of_it(port: int, queue: str) -> None:
    """The whole of its API, on top of whatever redis-py is installed, with that one's defaults."""
    client = Pydisquette(port)
    name = queue.encode()
    client.connect()
    assert client.get_connection() is client.connected_node.connection
    version, node_id, (same_id, address, port_text, priority) = client.hello()
    assert (version, same_id, address, port_text, priority) == (1, node_id, b"", b"%d" % port, b"1")
    assert client.connected_node.node_id == node_id

    one = client.add_job(queue, "one", timeout=100, replicate=1, retry=60, ttl=600, maxlen=10, asynchronous=True)
    two = client.add_job(queue, "two", delay=0)
    late = client.add_job(queue, "late", delay=3600)
    once = client.add_job(queue, "once", retry=0)
    assert [len(each) for each in (one, two, late, once)] == [48] * 4
    assert client.qlen(queue) == 3
    assert client.qpeek(queue, 2) == [[name, one, b"one"], [name, two, b"two"]]
    assert client.qpeek(queue, -1) == [[name, once, b"once"]]

    assert client.get_job([queue]) == [(name, one, b"one")]
    assert client.working(one) == 60
    assert client.nack_job(one) is None
    assert client.get_job([queue], timeout=100, count=5, withcounters=True) == [
        (name, one, b"one", 1, 0), (name, two, b"two", 0, 0), (name, once, b"once", 0, 0),
    ]
    assert client.get_job([queue], nohang=True) == []
    assert client.get_job([queue], timeout=10) == []

    assert client.enqueue(late, once) == 1
    assert client.dequeue(late) == 1
    facts = client.show(late, return_dict=True)
    assert (facts[b"state"], facts[b"delay"], facts[b"nodes-delivered"]) == (b"active", 3600, [node_id])
    assert len(client.show(late)) == 32  # Disque's thirty, and the status
    figures = client.qstat(queue, return_dict=True)
    assert (figures[b"len"], figures[b"jobs-in"], figures[b"jobs-out"], figures[b"pause"]) == (0, 5, 4, b"none")
    assert len(client.qstat(queue)) == 54

    assert client.ack_job(one) is None
    assert client.fast_ack(two) is None
    assert client.del_job(late, UNKNOWN) == 1
    assert client.show(one) is None
    assert client.info()["registered_jobs"] >= 1

    assert client.pause(queue, kw_in=True) == b"in"
    with pytest.raises(ResponseError, match=r"^PAUSED "):
        client.add_job(queue, "x")
    assert client.pause(queue, kw_out=True, kw_in=True, kw_bcast=True) == b"all"
    assert client.pause(queue, kw_state=True) == b"all"
    assert client.pause(queue, kw_all=True) == b"all"
    assert client.pause(queue, kw_none=True) == b"none"

    assert client.qscan() == [b"0", [name]]
    assert client.jscan() == [b"0", [once]]
    assert client.unused() == set()


def test_pydisque_walks_through_all_queues_and_jobs(port: int, queue: str) -> None:
    client = Pydisque([f"127.0.0.1:{port}"])
    client.connect()
    names = sorted(f"{queue}-{i}".encode() for i in range(7))
    ids = [client.add_job(name, "x") for name in names]
    client.add_job(names[0], "y")

    def walk(scan: Callable[..., Any], **options: Any) -> list[Any]:
        found: list[Any] = []
        cursor: Any = 0
        for _ in range(1000):
            cursor, page = scan(cursor, count=2, **options)
            found += page
            if cursor == b"0":
                return found
        raise AssertionError("the scan has no end")

    assert [name for name in walk(client.qscan) if name.startswith(queue.encode())] == names
    assert names[0] in walk(client.qscan, minlen=2) and names[1] not in walk(client.qscan, minlen=2)
    assert names[1] in walk(client.qscan, maxlen=1) and names[0] not in walk(client.qscan, maxlen=1)
    assert client.qscan(importrate=1, busyloop=True) == [b"0", []]
    found = walk(client.jscan)
    assert len(found) == len(set(found)) and set(ids) <= set(found)
    assert walk(client.jscan, queue=names[1], state=["queued", "active"]) == [ids[1]]
    (shown,) = walk(client.jscan, queue=names[1], reply="all")
    assert len(shown) == 32 and shown[:8] == client.show(ids[1])[:8]
    assert client.jscan(busyloop=True, queue=names[1], state=["active"]) == [b"0", []]


def test_pydisque_passes_errors_on(port: int, queue: str) -> None:
    client = Pydisque([f"127.0.0.1:{port}"])
    client.connect()
    for word, ask in {
        "NOREPL": lambda: client.add_job(queue, "x", replicate=3),
        "TTL must be a number > 0": lambda: client.add_job(queue, "x", ttl=-1),
        "BADID": lambda: client.ack_job("x"),
        "NOJOB": lambda: client.working(UNKNOWN),
    }.items():
        with pytest.raises(ResponseError, match=word):
            ask()
