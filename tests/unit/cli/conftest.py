"""A real node in a process of its own, shared by the tests of a module."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    command = [sys.executable, "-m", "holdfast", "node", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "ready on" in line:
            yield int(line.split("ready on ")[1].split(",")[0].rpartition(":")[2])
            break
    else:
        pytest.fail("the node did not start")
    process.terminate()
    process.wait(10)
    process.stderr.close()
