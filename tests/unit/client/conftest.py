"""Fixtures: a stub node behind a TCP port, and one behind a Unix socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from .stub_node import Stub


@pytest.fixture
def stub() -> Iterator[Stub]:
    listener = socket.create_server(("127.0.0.1", 0))
    node = Stub(listener)
    yield node
    node.stop()


@pytest.fixture
def unix_stub(tmp_path: Path) -> Iterator[tuple[Stub, str]]:
    path = str(tmp_path / "node.sock")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    node = Stub(listener)
    yield node, path
    node.stop()
