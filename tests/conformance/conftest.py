"""Every transcript is a test, twice: once through Node.execute, once through the direct handlers."""
from __future__ import annotations

import pytest

from .transcript import files


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "transcript" in metafunc.fixturenames:
        metafunc.parametrize("transcript", files(), ids=lambda path: path.stem)
