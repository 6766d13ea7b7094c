"""One node and one gateway for the tests that do no harm to either; each test uses queues of its own."""
from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from tests.gateway.running import Gateway, address
from tests.proc.harness import Node


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    with Node("--set", "maxmemory=64mb") as node:
        yield node


@pytest.fixture(scope="session")
def gateway(node: Node) -> Iterator[Gateway]:
    with Gateway(address(node)) as gateway:
        yield gateway


@pytest.fixture
def http(gateway: Gateway) -> Iterator[httpx.Client]:
    with gateway.client() as client:
        yield client


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue that is this test's alone."""
    return f"q-{abs(hash(request.node.nodeid)) % 10**12}"
