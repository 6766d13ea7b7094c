"""A gateway may start before its nodes: it is there, says that they are not, and serves as soon as they are."""
from __future__ import annotations

import socket

from tests.gateway.running import Gateway, address
from tests.proc.harness import Node, until


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_gateway_starts_before_its_node_and_waits_for_it() -> None:
    port = free_port()
    with Gateway(f"holdfast://127.0.0.1:{port}", "--size", "1") as gateway, gateway.client() as client:
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 503
        assert f"no node answers at holdfast://127.0.0.1:{port}" in gateway.log()
        with Node("--port", str(port), "--set", f"cluster-bus-port={free_port()}"):
            until(lambda: client.get("/readyz").status_code == 200)
            until(lambda: "a node answers" in gateway.log())
            assert client.post("/push", content=b"first").is_success
            assert client.post("/push", content=b"one too many").status_code == 429
            assert client.head("/").status_code == client.get("/").status_code


def test_a_gateway_that_is_not_let_in_says_so_and_ends() -> None:
    with Node("--set", "requirepass=wanted") as node:
        gateway = Gateway(address(node), wait=False)
        try:
            assert gateway.process.wait(30) == 1
            assert "NOAUTH" in gateway.log() and "Traceback" not in gateway.log()
        finally:
            gateway.stop()


def test_a_gateway_that_waits_for_its_node_can_be_stopped() -> None:
    gateway = Gateway(f"holdfast://127.0.0.1:{free_port()}")
    assert gateway.stop() == 0
