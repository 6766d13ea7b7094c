"""A call of the command line takes less than a blink: it loads what it needs, and no more."""
from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import pytest
from tests.proc.harness import Node
from tests.proc.promises.conftest import Figure

CALL_MS = 150.0
CALLS = 15
PYTHON_MS = 10.0
"""What `python -c pass` takes where nothing else runs; where it takes longer now, so does everything."""
HEAVY = {"asyncio", "ssl", "rich", "logging", "concurrent.futures", "urllib.parse", "difflib", "httpx", "grpc",
         "fastapi", "holdfast.core.node", "holdfast.embedded", "holdfast.tasks", "holdfast.worker"}
"""Each costs as much as a whole call may, or is of no use to one that asks a node."""
OURS_MOST = 45
"""Modules of this package that a table of queues takes."""


def spent() -> float:
    """Processor time of children that have ended, in ms. Other work on this machine is not counted."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


def cost(words: list[str], environment: dict[str, str]) -> float:
    """Of one call, the cheapest of several: what the call itself takes."""
    found = []
    for _ in range(CALLS):
        before = spent()
        subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL)
        found.append(spent() - before)
    return min(found)


def test_a_call_takes_less_than_150_ms(figure: Figure) -> None:
    with Node() as node:
        environment = {**os.environ, "HOLDFAST_URL": f"127.0.0.1:{node.port}"}
        queues = cost([sys.executable, "-c", "from holdfast.cli.main import main; main()", "queues"], environment)
        nothing = cost([sys.executable, "-c", "pass"], environment)
    print(f"\nfigure: now {queues:.3g} ms, where python -c pass takes {nothing:.3g} ms")
    figure("holdfast queues from start to end, ms", queues * min(1.0, PYTHON_MS / nothing), CALL_MS)


@pytest.mark.parametrize("words", [
    ["queues"], ["jobs"], ["workers"], ["health"], ["cluster", "nodes"], ["dead", "list"], ["cron", "list"],
    ["pause", "q", "--new"], ["settings", "q"], ["add", "q", "x"], ["take", "q"],
])
def test_a_call_loads_nothing_that_it_does_not_need(words: list[str]) -> None:
    code = (
        "import json, sys\nfrom holdfast.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    code = end.code\n"
        "print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)"
    )
    with Node() as node:
        asked = [sys.executable, "-c", code, *words, "--connect", f"127.0.0.1:{node.port}"]
        answer = subprocess.run(asked, capture_output=True, text=True)
    ended, loaded = json.loads(answer.stderr.splitlines()[-1])
    assert ended in (0, None, 3), answer.stderr
    assert not HEAVY & set(loaded)
    assert sum(name.startswith("holdfast") for name in loaded) <= OURS_MOST
