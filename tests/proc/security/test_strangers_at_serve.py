"""What a program spends on strangers that reach the embedded queue it serves."""
from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import pytest
from harness import Client, ErrorReply, command, until

from security.crowd import MIB, Crowd, Peak, bound_client, p99

PASSWORD = "open-sesame-open"
PROGRAM = f"""
import holdfast, sys
queue = holdfast.open("memory:")
with holdfast.serve(queue, resp=0, http=0, password={PASSWORD!r}) as serving:
    print(serving.ports["resp"], serving.ports["http"], flush=True)
    sys.stdin.read()
"""
CROWD_HOSTS = tuple(f"127.0.0.{number}" for number in range(10, 20))
ROOM_MIB = 64


class Program:
    """A program that serves its queue."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.resp, self.http = (int(word) for word in process.stdout.readline().split())

    def client(self) -> Client:
        client = Client(("127.0.0.1", self.resp))
        assert client.ask("AUTH", PASSWORD) == b"OK"
        return client


@pytest.fixture
def program() -> Iterator[Program]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    try:
        yield Program(process)
    finally:
        process.communicate("", timeout=15)


def test_guesses_are_few_per_second_over_resp_and_http(program: Program) -> None:
    """75,000 guesses were answered in a second."""
    with bound_client("127.0.0.77", program.resp) as sock:
        sock.sendall(b"".join(command("AUTH", f"guess-{number}") for number in range(200)))
        answers = b""
        while b"TRYAGAIN" not in answers:
            answers += sock.recv(65536)
        assert 20 <= answers.count(b"invalid password") < 40
    program.client().close()
    with httpx.Client(base_url=f"http://127.0.0.1:{program.http}", trust_env=False, timeout=15) as client:
        answered = []
        while 429 not in answered:
            answered.append(client.get("/stats", auth=("any", f"guess-{len(answered)}")).status_code)
            assert answered[-1] == 429 or len(answered) < 60
        assert answered[0] == 401


def test_a_crowd_at_a_served_queue_fits_its_budget(program: Program) -> None:
    half = b"*8\r\n$4\r\nAUTH\r\n" + b"$4000\r\n%b\r\n" % (b"x" * 4000) * 6
    with program.client() as inside:
        alone = p99(lambda: inside.ask("PING"), 1000)
        peak = Peak(program.process.pid)
        with Crowd(program.resp, 2000, CROWD_HOSTS) as crowd:
            crowd.send(half, 52 * 1024, 100 * MIB, 5.0)
            assert peak.look() < ROOM_MIB
            beside = p99(lambda: inside.ask("PING"), 1000)
        assert peak.look() < ROOM_MIB
        assert beside <= max(2 * alone, 0.01), (alone, beside)


def test_what_is_sent_behind_a_login_under_way_is_not_kept(program: Program) -> None:
    data = command("AUTH", "guess-guess") + command("ECHO", b"x" * 4000) * 300
    with Crowd(program.resp, 100, CROWD_HOSTS) as crowd:
        peak = Peak(program.process.pid)
        for _ in range(8):
            crowd.send(data, MIB, 100 * MIB, 0.2)
            peak.look()
        assert peak.look() < ROOM_MIB


def test_who_says_nothing_has_to_go(program: Program) -> None:
    """300 of 300 were still there after 33 s."""
    with Crowd(program.resp, 300, CROWD_HOSTS) as crowd, program.client() as inside:
        assert crowd.open_count() == 300
        until(lambda: crowd.open_count() == 0, 40)
        assert inside.ask("PING") == b"PONG"


def test_what_is_not_for_others_is_so_at_each_door(program: Program) -> None:
    """MONITOR was refused over RESP and answered OK by /v1/call."""
    with program.client() as inside, httpx.Client(
        base_url=f"http://127.0.0.1:{program.http}", trust_env=False, auth=("any", PASSWORD)
    ) as client:
        for word in ("MONITOR", "SHUTDOWN", "monitor"):
            assert isinstance(inside.ask(word), ErrorReply)
            said = client.post(
                "/v1/call", content=command(word), headers={"Content-Type": "application/vnd.holdfast.resp"}
            )
            assert said.content.startswith(b"-ERR "), said.content
        with contextlib.suppress(EOFError):
            assert inside.ask("PING") == b"PONG"


def test_a_served_queue_is_unharmed_by_what_is_half_said(program: Program) -> None:
    began = time.monotonic()
    with Crowd(program.resp, 20) as crowd:
        crowd.send(b"*2\r\n$4\r\nAUTH\r\n$400", 16, 320, 1)
        with program.client() as inside:
            assert inside.ask("ADDJOB", "q", "x", 0).startswith(b"DI")
    assert time.monotonic() - began < 10
