"""The list of the data pipeline: sources, sinks and stages on real Spark, under faults, and what they cost."""
from __future__ import annotations

from bench.show.lines import ALL_PASS, Line, green, tests


def lines() -> list[Line]:
    return [
        Line(
            "tests",
            "protocols without Java, stages on hand-made rows, real streams, a standalone cluster, imports, bad input",
            ALL_PASS,
            lambda: tests("pipeline-tests", "tests/pipeline"),
        ),
        Line(
            "chaos",
            "make chaos-pipeline: drivers, executors and nodes killed at each step",
            "nothing lost, no re-read that differs",
            lambda: green("pipeline-chaos", ["make", "chaos-pipeline"]),
        ),
        Line(
            "bench",
            "make bench-pipeline: rows a second of each source and sink, backfill of a million jobs",
            "every goal met",
            lambda: green("pipeline-bench", ["make", "bench-pipeline"]),
        ),
    ]
