"""A pytest plugin for tools/lanes.py: what became of each test and how long it took, for one table over all parts.

It acts where the variable PART_NOTES names a file. The time of a test is that of its fixtures, too, so the first test
that asks for a node of the whole session bears its start.
"""
from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest


class Durations:
    def __init__(self, notes: Path) -> None:
        self.notes = notes
        self.counts: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self.failed: list[str] = []

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.when == "call" or report.outcome != "passed":
            self.count(report)

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome != "passed":
            self.count(report)

    def count(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        self.counts[report.outcome] += 1
        if report.failed:
            self.failed.append(report.nodeid)

    @pytest.hookimpl
    def pytest_sessionfinish(self) -> None:
        self.notes.write_text(json.dumps({"counts": self.counts, "seconds": self.seconds, "failed": self.failed}))


def pytest_configure(config: pytest.Config) -> None:
    if "PART_NOTES" in os.environ:
        config.pluginmanager.register(Durations(Path(os.environ["PART_NOTES"])), "durations")
