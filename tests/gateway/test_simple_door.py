"""/push, /get, /stats: one bounded queue that never drops a message, for any HTTP client."""
from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from tests.gateway.running import Gateway, address
from tests.proc.harness import Node, until

SIZE = 5


@pytest.fixture
def bounded() -> Iterator[tuple[Node, Gateway]]:
    with Node() as node, Gateway(address(node), "--size", str(SIZE), "--queue", "work") as gateway:
        yield node, gateway


def test_what_is_pushed_is_got_in_order_and_then_there_is_nothing(bounded: tuple[Node, Gateway]) -> None:
    node, gateway = bounded
    with gateway.client() as http:
        bodies = [b"one", b"", bytes(range(256))]
        for body in bodies:
            assert http.post("/push", content=body).status_code == 201
        assert http.get("/stats").json()["queueSize"] == 3
        for body in bodies:
            answer = http.get("/get")
            assert (answer.status_code, answer.content) == (200, body)
        assert http.get("/get").status_code == 204
        with node.client() as client:  # what was got is gone for good, not leased
            until(lambda: int(node.info(client, "jobs")["registered_jobs"]) == 0)


def test_a_full_queue_refuses_and_keeps_what_it_has(bounded: tuple[Node, Gateway]) -> None:
    _, gateway = bounded
    with gateway.client() as http:
        for i in range(SIZE):
            assert http.post("/push", content=f"{i}").status_code == 201
        refused = http.post("/push", content="one too many")
        assert refused.status_code == 429 and refused.headers["retry-after"]
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["code"] == "MAXLEN"
        stats = http.get("/stats").json()
        assert stats["queueSize"] == SIZE and stats["maxSize"] == SIZE
        assert [http.get("/get").text for _ in range(SIZE)] == [str(i) for i in range(SIZE)]
        assert http.post("/push", content="room again").status_code == 201


def test_out_of_memory_is_503() -> None:
    with Node("--set", "maxmemory=1mb") as node, Gateway(address(node)) as gateway, gateway.client() as http:
        codes = [http.post("/push", content=b"x" * 200_000).status_code for _ in range(8)]
        assert 201 in codes and codes[-1] == 503
        assert http.get("/get").status_code == 200
        assert http.post("/push", content=b"small").status_code == 201


def test_a_lease_leaves_the_job_to_be_answered_for(bounded: tuple[Node, Gateway]) -> None:
    _, gateway = bounded
    with gateway.client() as http:
        http.post("/push", content="work")
        got = http.get("/get", params={"lease": 30})
        job, token = got.headers["holdfast-id"], got.headers["holdfast-token"]
        assert http.get("/get").status_code == 204
        assert http.post(f"/v1/jobs/{job}/done", json={"token": token.rpartition(".")[0] + ".fffff"}).status_code == 409
        assert http.post(f"/v1/jobs/{job}/done", json={"token": token}).json() == {"count": 1}


def test_a_get_that_waits_is_answered_when_a_job_comes(bounded: tuple[Node, Gateway]) -> None:
    node, gateway = bounded
    there = ("127.0.0.1", gateway.port)
    with gateway.client() as http, socket.create_connection(there) as waiting, node.client() as client:
        waiting.sendall(b"GET /get?timeout=20 HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: node.info(client, "clients")["blocked_clients"] == "1")
        http.post("/push", content="at last")
        data = b""
        while b"at last" not in data:
            data += waiting.recv(4096)
        assert data.startswith(b"HTTP/1.1 200")


def test_a_client_that_hangs_up_while_it_waits_takes_nothing_with_it(bounded: tuple[Node, Gateway]) -> None:
    node, gateway = bounded
    with gateway.client() as http, node.client() as client:
        with socket.create_connection(("127.0.0.1", gateway.port)) as waiting:
            waiting.sendall(b"GET /get?timeout=20 HTTP/1.1\r\nHost: x\r\n\r\n")
            until(lambda: node.info(client, "clients")["blocked_clients"] == "1")
        until(lambda: node.info(client, "clients")["blocked_clients"] == "0")
        http.post("/push", content="for somebody else")
        assert until(lambda: http.get("/get").content) == b"for somebody else"
