"""The list of the console and of operations: pages in a real browser, figures that are true, files that deploy."""
from __future__ import annotations

from bench.show.lines import ALL_PASS, Line, tests


def lines() -> list[Line]:
    return [
        Line("pages", "every page and action in a real browser", ALL_PASS, lambda: tests("pages", "tests/console")),
        Line(
            "readme",
            "every command of the README and the tutorial, run by a test",
            ALL_PASS,
            lambda: tests("readme", "tests/docs"),
        ),
    ]
