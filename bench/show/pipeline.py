"""The list of the data pipeline: sources, sinks and stages on real Spark, under faults, on truth, and the cost."""
from __future__ import annotations

import re

from bench import pipeline
from bench.show.lines import ALL_PASS, PYTHON, Answer, Line, bench_lines, pytest_counts, run, tests

JOBS = 100_000
TRUTH = 1_000_000
TESTS_S = 300.0
COUNTED = re.compile(r"^jobs (\d+)  lost (\d+) .*$", re.MULTILINE)
BAD_INPUT = (
    "test_browse_and_sink.py::test_bad_tables_and_options_are_told_what_to_do",
    "test_browse_and_sink.py::test_what_cannot_be_reached_or_read_is_told",
    "test_events_source.py::test_wrong_options_are_told",
    "test_jobs_source.py::test_queues_by_a_pattern_and_options_that_are_wrong",
    "test_lake.py::test_a_lake_of_a_newer_version_is_refused_with_words",
    "test_lake.py::test_a_place_that_cannot_be_used_is_refused_with_words",
    "test_lake.py::test_a_damaged_log_is_named",
    "test_streams.py::test_history_becomes_gold_and_an_interrupted_run_goes_on",
)
LOST = (
    "test_places.py", "test_ingest.py", "test_streams.py::test_history_becomes_gold_and_an_interrupted_run_goes_on",
    "test_refresh.py::test_files_that_the_driver_does_not_see_are_not_committed",
)
OPEN = (
    "test_lake.py::test_four_writers_at_once_lose_nothing_and_double_nothing",
    "test_lake.py::test_a_lake_of_lists_is_migrated_without_a_copy_and_goes_on_where_it_was", "test_stores.py",
)


def lines() -> list[Line]:
    found = [
        Line(
            "tests",
            "tests/pipeline: protocols without Java, stages, real streams, two workers of a standalone cluster",
            f"{ALL_PASS}, ≤ {TESTS_S:.0f} s",
            in_time,
        ),
        Line(
            "chaos",
            f"{JOBS:,} jobs: drivers, executors and nodes killed at each step, leases over, a copied checkpoint",
            "0 lost, no re-read that differs, one row per job in the sink",
            chaos,
        ),
        Line(
            "truth",
            f"{TRUTH:,} jobs with known fates through three real nodes, beside every figure of gold",
            "counts exactly, percentiles within the sketch's bound",
            lambda: tests("pipeline-truth", "tests/pipeline/test_truth.py", TRUTH_JOBS=str(TRUTH)),
        ),
        Line(
            "lost",
            "batches read again after nodes came, went and forgot; executors on other disks; drivers that die",
            f"the same rows or an error, readers that lost events are found, {ALL_PASS}",
            lambda: tests("pipeline-lost", *[f"tests/pipeline/{each}" for each in LOST]),
        ),
        Line(
            "open",
            "tables in a folder and in a store that speaks S3: four writers at once, DuckDB, Polars, pandas, Spark",
            f"nothing lost or doubled, equal counts, {ALL_PASS}",
            lambda: tests("pipeline-open", *[f"tests/pipeline/{each}" for each in OPEN]),
        ),
        Line(
            "imports",
            "what Sidekiq, RQ, Celery and BullMQ wrote into a real Redis; Resque and Disque by their formats",
            ALL_PASS,
            lambda: tests("pipeline-imports", "tests/pipeline/test_importers.py"),
        ),
        Line(
            "input",
            "bad columns, nulls, sizes, types, options, secrets, urls, checkpoints, lakes: words that say what to do",
            ALL_PASS,
            lambda: tests("pipeline-input", *[f"tests/pipeline/{each}" for each in BAD_INPUT]),
        ),
    ]
    return [*found, *bench_lines("pipeline", pipeline.GOALS)]


def in_time() -> Answer:
    done = run("pipeline-tests", [PYTHON, "-m", "pytest", "-p", "no:cacheprovider", "tests/pipeline"])
    counts = pytest_counts(done.output)
    is_good = done.code == 0 and counts.skipped == 0 and done.seconds <= TESTS_S
    return f"{counts.text()}, {done.seconds:.0f} s", is_good if counts.passed else None


def chaos() -> Answer:
    done = run("pipeline-chaos", [PYTHON, "-m", "chaos", "--jobs", str(JOBS)], PYTHONPATH="tests/pipeline:tests/proc")
    found = COUNTED.search(done.output)
    if found is None:
        return (done.output.strip().splitlines()[-1:] or ["no output"])[0], None
    return found[0], done.code == 0 and int(found[1]) >= JOBS
