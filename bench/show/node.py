"""The list of a single node: it runs, it is as fast and small as promised, and others' clients work with it."""
from __future__ import annotations

from bench import core
from bench.show.by_hand import started_by_hand
from bench.show.lines import ALL_PASS, Line, bench_lines, green, tests

MODEL_RUNS = 1_000


def lines() -> list[Line]:
    found = [
        Line("test", "make test, compiled", "all green", lambda: green("test", ["make", "test"])),
        Line("pure", "make test-pure, uncompiled", "all green", lambda: green("pure", ["make", "test-pure"])),
        Line(
            "run",
            "make run: a running node, instructions on screen",
            "answers PING; Ctrl-C ends it with code 0",
            lambda: started_by_hand(["make", "run"]),
        ),
    ]
    found += bench_lines("core", core.GOALS, prefix="core")
    found += [
        Line(
            "clients",
            "redis-cli, redis-py and pydisque work",
            ALL_PASS,
            lambda: tests("clients", "tests/proc/test_clients.py"),
        ),
        Line(
            "model",
            f"{MODEL_RUNS:,} seeded runs against the model",
            ALL_PASS,
            lambda: tests("model", "-s", "tests/sim/test_model.py", show=True, MODEL_RUNS=str(MODEL_RUNS)),
        ),
    ]
    return found
