"""Each test runs at every door with every face. Nodes are started once; a test has queue names of its own."""
from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from .faces import DOORS, opened

_numbers = itertools.count()


@pytest.fixture(scope="session", params=DOORS)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(DOORS[request.param]())


@pytest.fixture(params=["sync", "async"])
async def q(url: str, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    async with opened(url, request.param) as queue:
        yield queue


@pytest.fixture
def name() -> str:
    """A queue that nobody else uses."""
    return f"queue-{next(_numbers)}"
