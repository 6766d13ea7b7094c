"""What a gateway spends on those who have not logged in: HTTP and gRPC, memory, descriptors and time."""
from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from harness import Node, until
from tests.gateway.running import Gateway, address
from users_file import SECRETS, users

from holdfast.gateway.doorkeeper import JSON_DEPTH_MAX
from holdfast.gateway.proto import messages as pb
from holdfast.shell.strangers import WRONG_AT_ONCE, WRONG_PER_S
from security.crowd import MIB, Crowd, Peak, p99, seconds_of

CROWD_HOSTS = tuple(f"127.0.0.{number}" for number in range(10, 20))
ROOM_MIB = 64
BOSS = {"Authorization": f"Bearer boss.{SECRETS['boss']}"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / "users.toml"
    for name, role in (("boss", "admin"), ("shop", "produce"), ("mailer", "consume")):
        assert users(path, "add", name, "--role", role, "--secret-stdin", secret=SECRETS[name]).returncode == 0
    return path


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node() as node:
        yield node


@pytest.fixture
def gateway(node: Node, path: Path) -> Iterator[Gateway]:
    with Gateway(address(node), "--users-file", str(path)) as gateway:
        with gateway.client(headers=BOSS) as client:
            assert client.post("/push", content=b"x").status_code == 201  # all is loaded that ever will be
        yield gateway


def connect(gateway: Gateway) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.port), 15)


def answer_of(sock: socket.socket) -> bytes:
    """The first line of what it says, however it ends the connection."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while b"\r\n" not in data and (more := sock.recv(65536)):
            data += more
    return data.partition(b"\r\n")[0]


def pour(sock: socket.socket, piece: bytes, total: int) -> int:
    """Send until somebody stops it, or nobody takes it for a second."""
    sent = 0
    sock.settimeout(1.0)
    with contextlib.suppress(OSError):
        while sent < total:
            sent += sock.send(piece)
    sock.settimeout(15)
    return sent


# -- memory -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/v1/queues/q/jobs", "/v1/take", "/v1/nowhere", "/push", "/v1/call"])
def test_a_body_is_not_read_before_it_is_known_who_sends_it(gateway: Gateway, target: str) -> None:
    """200 MiB were taken in without an answer."""
    with connect(gateway) as sock:
        peak = Peak(gateway.process.pid)
        sock.sendall(f"POST {target} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                     "Content-Length: 1200000000\r\n\r\n".encode())
        sent = pour(sock, b"x" * 65536, 200 * MIB)
        assert answer_of(sock) == b"HTTP/1.1 401 Unauthorized"
        assert sent < 8 * MIB and peak.look() < ROOM_MIB


def test_rubbish_in_json_of_a_stranger_costs_others_nothing(gateway: Gateway) -> None:
    """30 MiB of lists in a list: 857 MiB, and 6.5 s in which nobody else was answered."""
    text = b'{"body":[' + b"[]," * (10 * MIB) + b"[]]}"
    with gateway.client() as client:
        peak = Peak(gateway.process.pid)
        worst: list[float] = []
        is_over = threading.Event()

        def ask() -> None:
            with gateway.client() as other:
                while not is_over.is_set():
                    worst.append(seconds_of(lambda: other.get("/healthz"), 1)[0])

        other = threading.Thread(target=ask)
        other.start()
        try:
            until(lambda: worst)
            with contextlib.suppress(httpx.TransportError):
                assert client.post("/v1/queues/q/jobs", content=text).status_code == 401
        finally:
            is_over.set()
            other.join()
        assert peak.look() < ROOM_MIB and max(worst) < 1.0


def test_a_body_is_bounded_for_those_who_have_logged_in_too(gateway: Gateway) -> None:
    with gateway.client(headers=BOSS) as client:
        assert client.post("/v1/take", content=b" " * (MIB + 1)).status_code == 413

        def chunks() -> Iterator[bytes]:
            yield from [b" " * 65536] * 20

        with contextlib.suppress(httpx.TransportError):
            assert client.post("/v1/take", content=chunks()).status_code == 413
        deep = b"[" * (JSON_DEPTH_MAX + 1) + b"]" * (JSON_DEPTH_MAX + 1)
        refused = client.post("/v1/queues/q/jobs", content=b'{"json":' + deep + b"}")
        assert refused.status_code == 400 and "levels deep" in refused.json()["detail"]
        fine = client.post("/v1/queues/q/jobs", json={"json": [{"a": "[[[["}] * 1000})
        assert fine.status_code == 201


@pytest.mark.parametrize("begin", [b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: ", b"GET /"])
def test_a_head_is_bounded(gateway: Gateway, begin: bytes) -> None:
    """One header of 50 MiB took 3.2 s of the only thread, a URL of 50 MiB 4.5 s."""
    with connect(gateway) as sock:
        sock.sendall(begin)
        assert pour(sock, b"a" * 65536, 50 * MIB) < 8 * MIB
        assert answer_of(sock).startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))


def test_a_line_without_an_end_is_put_together_once(gateway: Gateway) -> None:
    """40 MiB without a newline: each piece was copied with all before it."""
    with gateway.client(headers=BOSS) as client, gateway.client() as other:
        took: list[float] = []
        is_over = threading.Event()

        def ask() -> None:
            while not is_over.is_set():
                took.append(seconds_of(lambda: other.get("/healthz"), 1)[0])

        thread = threading.Thread(target=ask)
        thread.start()
        began = time.monotonic()

        def pieces() -> Iterator[bytes]:
            yield b'{"body":"'
            for _ in range(40 * 16):
                yield b"x" * 65536
            yield b'"}'

        said = client.post("/v1/queues/q/stream", content=pieces())
        is_over.set()
        thread.join()
        assert said.status_code == 200 and "error" in said.text
        assert time.monotonic() - began < 10 and sorted(took)[len(took) // 2] < 0.1


# -- gRPC -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_message_is_not_taken_in_before_it_is_known_who_sends_it(gateway: Gateway, compression: Any) -> None:
    """4 calls of 60 MiB without credentials: 786 MiB; the same from 61 KB of gzip."""
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{gateway.grpc_port}", options) as channel:
        add = channel.unary_unary(
            "/holdfast.v1.Queue/Add", request_serializer=pb.AddRequest.SerializeToString,
            response_deserializer=pb.AddReply.FromString,
        )
        peak = Peak(gateway.process.pid)
        message = pb.AddRequest(queue="q", body=bytes(60 * MIB))
        calls = [add.future(message, timeout=30, compression=compression) for _ in range(4)]
        while not all(call.done() for call in calls):
            peak.look()
            time.sleep(0.005)
        codes = {call.code() for call in calls}
        assert codes <= {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED}, codes
        assert peak.look() < ROOM_MIB
        said = add(pb.AddRequest(queue="q", body=b"x"), metadata=[("authorization", BOSS["Authorization"])])
        assert said.id.startswith("DI")


# -- descriptors and time ---------------------------------------------------------------------------------------


def test_who_says_nothing_is_closed_and_others_come_in(node: Node, path: Path) -> None:
    """A gateway with 200 descriptors, 400 silent strangers: nobody came in until they left."""
    with Gateway(address(node), "--users-file", str(path), files=200) as gateway:
        with Crowd(gateway.port, 400, CROWD_HOSTS) as crowd, gateway.client(headers=BOSS) as client:
            assert client.get("/healthz").status_code == 200
            assert client.post("/push", content=b"x").status_code == 201
            until(lambda: crowd.open_count() == 0, 20)
        assert "Traceback" not in gateway.log()


def test_half_a_head_is_not_waited_for(gateway: Gateway) -> None:
    with connect(gateway) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        began = time.monotonic()
        for _ in range(4):
            time.sleep(1)
            sock.sendall(b"X: y\r\n")
        assert answer_of(sock) == b"HTTP/1.1 408 Request Timeout"
        assert 9 < time.monotonic() - began < 14


def test_a_crowd_at_the_http_port_fits_its_budget(gateway: Gateway) -> None:
    """2,000 connections and 100 MiB of bodies without credentials; others hardly notice."""
    head = b"POST /v1/queues/q/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n"
    with gateway.client(headers=BOSS) as client:
        alone = p99(lambda: client.get("/healthz"))
        peak = Peak(gateway.process.pid)
        with Crowd(gateway.port, 2000, CROWD_HOSTS) as crowd:
            crowd.send(head + b"x" * 65536, 52 * 1024, 100 * MIB, 5.0)
            peak.look()
            beside = p99(lambda: client.get("/healthz"))
            assert peak.look() < ROOM_MIB
        assert beside <= max(2 * alone, 0.02), (alone, beside)


def test_a_crowd_at_the_grpc_port_fits_its_budget(gateway: Gateway) -> None:
    """2,000 connections of which half speak HTTP/2 and half send rubbish."""
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    with gateway.client(headers=BOSS) as client:
        peak = Peak(gateway.process.pid)
        with Crowd(gateway.grpc_port, 2000, CROWD_HOSTS) as crowd:
            crowd.send(hello + b"x" * 65536, 52 * 1024, 100 * MIB, 5.0)
            assert peak.look() < ROOM_MIB
            assert client.get("/healthz").status_code == 200
        assert peak.look() < ROOM_MIB


def test_no_more_follow_the_figures_than_the_gateway_says(gateway: Gateway) -> None:
    """1,200 streams of one user were open at one time."""
    with contextlib.ExitStack() as held:
        answers = []
        for _ in range(205):
            sock = held.enter_context(connect(gateway))
            head = "".join(f"{name}: {value}\r\n" for name, value in BOSS.items())
            sock.sendall(f"GET /v1/events HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode())
            answers.append(answer_of(sock))
        assert answers.count(b"HTTP/1.1 200 OK") == 200
        assert answers[-1] == b"HTTP/1.1 429 Too Many Requests"


# -- logins -----------------------------------------------------------------------------------------------------


def test_logins_are_few_and_logged_at_http_grpc_and_the_console(gateway: Gateway) -> None:
    with gateway.client() as client:
        assert client.post("/console/login", data={"name": "shop", "secret": "guess"}).status_code == 303
        assert "'shop' from 127.0.0.1:" in gateway.log()
        began = time.monotonic()
        for number in range(500):
            said = client.get("/v1/queues", headers={"Authorization": f"Bearer mailer.guess-{number}",
                                                    "X-Forwarded-For": f"10.0.0.{number}"})
            if said.status_code == 429:
                break
            assert said.status_code == 401
        assert number <= WRONG_AT_ONCE + WRONG_PER_S * (time.monotonic() - began) + 1
        assert said.status_code == 429 and said.json()["code"] == "TRYAGAIN" and said.headers["Retry-After"]
        assert "'mailer' from 127.0.0.1:" in gateway.log() and "10.0.0." not in gateway.log()
        assert client.get("/v1/queues", headers=BOSS).status_code == 200, "others log in as before"
        assert "'boss': logged in" in gateway.log()


# -- pages of others --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [
    {"Accept": "image/avif,image/webp,*/*", "User-Agent": "Mozilla/5.0", "Referer": "http://evil.example/"},
    {"Accept": "*/*", "User-Agent": "Mozilla/5.0 (X11; Linux)"},
    {"Accept": "text/html,application/xhtml+xml", "User-Agent": "Another/1.0"},
    {"Accept": "image/png", "Sec-Fetch-Site": "cross-site", "User-Agent": "Mozilla/5.0"},
])
def test_an_image_on_a_page_takes_no_job(node: Node, said: dict[str, str]) -> None:
    """<img src=http://queue:7780/get> acknowledged a job of a gateway without TLS."""
    with Gateway(address(node)) as gateway, gateway.client() as client:
        assert client.post("/push", content=b"precious").status_code == 201
        assert client.get("/get", headers=said).status_code == 403
        assert client.get("/get?lease=600", headers=said).status_code == 403
        assert client.post("/get", headers={**said, "Origin": "http://evil.example"}).status_code == 403
        assert client.get("/stats").json()["leased"] == 0
        while (found := client.post("/get")).status_code == 200 and found.content != b"precious":
            pass
        assert found.content == b"precious"
