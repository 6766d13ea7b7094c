"""The list of the doors: one interface over memory, file, RESP, HTTP and gRPC, workers in trouble, who may come in."""
from __future__ import annotations

from bench.show.lines import ALL_PASS, Line, tests


def lines() -> list[Line]:
    return [
        Line("conformance", "one suite over all doors", ALL_PASS, lambda: tests("doors", "tests/doors")),
        Line("workers", "workers in trouble, real processes", ALL_PASS, lambda: tests("workers", "tests/worker")),
        Line("gateway", "HTTP and gRPC, proxies, fuzzing", ALL_PASS, lambda: tests("gateway", "tests/gateway")),
    ]
