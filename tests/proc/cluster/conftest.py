"""One cluster of seven nodes for all stories; whole again at the beginning of each test."""
from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_harness import Cluster

SIZE = 7


@pytest.fixture(scope="package")
def seven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), SIZE)
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(seven: Cluster) -> Iterator[Cluster]:
    seven.mend()
    yield seven
    assert {node: node.faults() for node in seven if node.faults()} == {}


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue of the test's own."""
    return str(request.node.name)
