"""One cluster of seven nodes for all stories; whole again at the beginning of each test.

Two of the stories find faults that are known and not yet mended (see the CHANGELOG), so they are told by
`make stories` and not by `make test`.
"""
from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from cluster_harness import Cluster

SIZE = 7
collect_ignore_glob = [] if os.environ.get("STORIES") else ["test_*.py"]


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
