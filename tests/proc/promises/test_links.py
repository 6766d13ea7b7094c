"""After a cut links are back as soon as the network is, whatever TCP thinks of it."""
from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from netns.lab import INSIDE, environment, why_not

Figure = Callable[[str, float, float], None]

CUTS_S = ["1.5", "4", "9", "20"]
"""Shorter than TCP gives up, shorter than node-timeout, and longer."""
BACK_S = 2.0
SECONDS_MAX = 240


def test_links_are_back_soon_after_a_cut(tmp_path: Path, figure: Figure) -> None:
    if reason := why_not():
        pytest.skip(f"network namespaces: {reason}")
    words = [*INSIDE, sys.executable, "-m", "netns.links", str(tmp_path), *CUTS_S]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [length for length, _ in lines] == CUTS_S, done.stdout
    for length, took in lines:
        figure(f"links are back after a cut of {length} s, s", float(took), BACK_S)
