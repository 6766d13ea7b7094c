"""What several tests of real processes need."""
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def failing_sync(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library to be loaded before that of C: syncs that fail, and a list of those that did not (failing_sync.c)."""
    library = tmp_path_factory.mktemp("library") / "failing_sync.so"
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(HERE / "failing_sync.c"), "-ldl"], check=True
    )
    return library
