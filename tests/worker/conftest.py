"""A node for all tests of the worker, and a shop for each: queues are emptied in between."""
from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.proc.harness import Node

from .running import Shop

os.environ.setdefault("SHOP_LOG", os.devnull)


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node("--set", "enable-debug=yes") as running:
        yield running


@pytest.fixture
def shop(node: Node, tmp_path: Path) -> Iterator[Shop]:
    with Shop(tmp_path, f"holdfast://127.0.0.1:{node.port}") as made:
        made.queue.call("DEBUG", "FLUSHALL")
        yield made
