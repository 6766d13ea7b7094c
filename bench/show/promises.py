"""The list of promises with times: what a job or a call waits for at most, whatever happens to the nodes.

Each line is a test on real processes, which prints its figure and asserts its bound; the faults by number are the tests
that were red when the fault was found.
"""
from __future__ import annotations

import functools

from bench.show.lines import Answer, Line, simulated, tests

FOLDER = "tests/proc/promises"
SWARM_MINUTES = 30
FIGURE = r"(?m)^figure: (.*)$"

PROMISES: list[tuple[str, str, str, str]] = [
    # key, what is promised, its bound, the tests below FOLDER
]

FAULTS: list[tuple[str, str, tuple[str, ...]]] = [
    # number, what was seen from outside, the tests that were red
]


def measured(key: str, test: str) -> Answer:
    return tests(key, "-s", f"{FOLDER}/{test}", figure=FIGURE)


def mended(key: str, names: tuple[str, ...]) -> Answer:
    return tests(key, *names)


def lines() -> list[Line]:
    found = [
        Line(key, title, bound, functools.partial(measured, key, test)) for key, title, bound, test in PROMISES
    ]
    found += [
        Line(f"fault-{number}", title, "all pass, none skipped", functools.partial(mended, f"fault-{number}", names))
        for number, title, names in FAULTS
    ]
    found.append(Line(
        "swarm", f"make swarm MINUTES={SWARM_MINUTES}", "no violation",
        lambda: simulated("swarm", ["make", "swarm", f"MINUTES={SWARM_MINUTES}"]),
    ))
    return found
