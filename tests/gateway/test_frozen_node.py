"""A gateway whose first node is stopped (SIGSTOP): connections are taken, commands are not answered."""
from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.gateway.running import Gateway
from tests.proc.cluster_harness import Cluster, until

A_FEW_S = 12.0
"""It takes four, on a machine with nothing else to do; without notice it would be thirty."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, 3)
    yield cluster
    cluster.stop()


def test_a_node_that_is_stopped_is_noticed_passed_over_and_used_again(cluster: Cluster) -> None:
    """A question is answered by another node, and from then on everything is. When the node is woken the gateway is
    back there by itself."""
    url = "holdfast://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster)
    with Gateway(url, "--grpc", "-1") as gateway, gateway.client() as http:

        def asked() -> str:
            return str(http.get("/v1/info").json()["tcp_port"])

        first = str(cluster[0].port)
        assert asked() == first
        assert http.post("/push", content=b"before").status_code == 201
        cluster[0].freeze()
        began = time.monotonic()
        assert asked() != first
        assert time.monotonic() - began < A_FEW_S
        until(lambda: pushes(http))
        for number in range(20):
            assert http.post("/push", content=b"%d" % number, timeout=A_FEW_S).status_code == 201
        assert http.get("/readyz").status_code == 200
        cluster[0].thaw()
        until(lambda: asked() == first)


def test_a_gateway_is_ready_as_long_as_some_node_answers(cluster: Cluster) -> None:
    """Who asks for it waits two seconds, as an orchestrator does; and if nobody answers, it is not ready."""
    url = "holdfast://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster)
    with Gateway(url, "--grpc", "-1") as gateway, gateway.client() as http:
        assert http.get("/readyz").status_code == 200
        cluster[0].freeze()
        assert http.get("/readyz", timeout=4).status_code == 200  # before it was noticed
        for node in (cluster[1], cluster[2]):
            node.freeze()
        assert http.get("/readyz", timeout=2 * A_FEW_S).status_code == 503
        for node in cluster:
            node.thaw()


def test_a_push_to_a_stopped_node_is_unknown(cluster: Cluster) -> None:
    url = "holdfast://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster)
    with Gateway(url, "--grpc", "-1") as gateway, gateway.client() as http:
        assert http.post("/push", content=b"before").status_code == 201
        cluster[0].freeze()
        assert http.post("/push", content=b"one", timeout=A_FEW_S).status_code == 504
        until(lambda: pushes(http))
        cluster[0].thaw()


def pushes(http: httpx.Client) -> bool:
    """Refused while the others have not missed it: they would copy to it."""
    return http.post("/push", content=b"two", timeout=A_FEW_S).status_code == 201
