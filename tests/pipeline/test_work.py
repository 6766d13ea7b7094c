"""Tasks on executors, without Java: rows in, how each job ended out, and what the nodes are told."""
from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from holdfast.pipeline import work
from holdfast.pipeline.handling import handled
from holdfast.tasks import bodies
from holdfast.tasks.find import NoApp, find_app

SHOP = """
import asyncio, os, time
import holdfast
from holdfast.tasks import Discard, Retry, Snooze, current_job

app = holdfast.App("memory:", queue="tasks")

@app.task(name="add")
def add(a, b):
    return a + b

@app.task(name="nothing")
def nothing(*words):
    assert current_job().keys == {"tenant": "acme"} and current_job().headers == {"h": "1"}

@app.task(name="wrong")
def wrong():
    raise ValueError("no address")

@app.task(name="ends")
def ends(how):
    raise {"retry": Retry("busy", after=7), "throttled": Retry("enough", after=2, throttled=True),
           "discard": Discard("no such user"), "snooze": Snooze(60)}[how]

@app.task(name="aside")
async def aside(value):
    await asyncio.sleep(0)
    return value

@app.task(name="slow", timeout=0.05)
def slow():
    time.sleep(30)

@app.task(name="apart", runs_in="process", timeout=20)
def apart():
    return os.getpid()

@app.task(name="apart_slow", runs_in="process", timeout=0.05)
def apart_slow():
    time.sleep(30)

@app.task(name="raw", queue="raw", raw=True)
def raw(body):
    return body.decode()
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[str]:
    """A module of its own for each test."""
    name = f"shop{time.monotonic_ns()}"
    (tmp_path / f"{name}.py").write_text(SHOP)
    yield f"{name}:app"


def run(shop: str, folder: Path, *calls: tuple[Any, ...]) -> list[Any]:
    """What becomes of calls of tasks; the first word of each is the task, or a body for the queue `raw`."""
    rows = [
        ("raw", each[0]) if isinstance(each[0], bytes) else ("tasks", bodies.write("json", each[0], each[1:], {}))
        for each in calls
    ]
    batch = pa.RecordBatch.from_pylist([
        {"id": f"id-{i}", "queue": queue, "body": body, "attempt": 1, "priority": 5, "headers": [("h", "1")],
         "tenant": "acme", "domain": None, "parent": None, "node": "n1"} for i, (queue, body) in enumerate(rows)
    ], pa.schema([
        ("id", pa.string()), ("queue", pa.string()), ("body", pa.binary()), ("attempt", pa.int32()),
        ("priority", pa.int32()), ("headers", pa.map_(pa.string(), pa.string())), ("tenant", pa.string()),
        ("domain", pa.string()), ("parent", pa.string()), ("node", pa.string()),
    ]))
    (made,) = handled(iter([batch]), shop, str(folder), "holdfast://127.0.0.1:1")
    assert made.column("id").to_pylist() == [f"id-{i}" for i in range(len(calls))]
    return [SimpleNamespace(**row) for row in made.to_pylist()]


def test_each_job_ends_as_its_task_says(shop: str, tmp_path: Path) -> None:
    ends = run(shop, tmp_path, ("add", 2, 3), ("nothing", "x"), ("wrong",), ("ends", "retry"), ("ends", "discard"),
               ("ends", "snooze"), ("aside", "v"), ("unheard",), (b"as it is",), (b"",))
    assert [each.kind for each in ends] == [
        "done", "done", "failed", "failed", "dead", "released", "done", "failed", "done", "done"]
    assert [each.result for each in ends if each.kind == "done"] == [b"j5", None, b'j"v"', b'j"as it is"', b'j""']
    assert "no address" in ends[2].error and "no task 'unheard'" in ends[7].error
    assert (ends[3].after, ends[5].after) == (7, 60)


def test_a_time_limit_ends_a_plain_function_and_one_in_a_process(shop: str, tmp_path: Path) -> None:
    import os

    begun = time.monotonic()
    slow, apart_slow, apart = run(shop, tmp_path, ("slow",), ("apart_slow",), ("apart",))
    assert time.monotonic() - begun < 25
    assert slow.kind == apart_slow.kind == "failed"
    assert "TimeLimit" in slow.error and "TimeLimit" in apart_slow.error
    assert apart.kind == "done" and apart.result != b"j%d" % os.getpid()


def test_nodes_are_told_in_the_words_of_a_worker(shop: str, tmp_path: Path) -> None:
    """And where each job is held, since only that node knows the claim."""
    ends = run(shop, tmp_path, ("add", 2, 3), ("ends", "throttled"), ("ends", "discard"), ("ends", "snooze"))
    assert work.commands(ends) == {"n1": [
        ["ACKJOB", b"id-0", "RESULT", b"j5"],
        ["NACK", b"id-1", "RETRYAFTERMS", 2000, "ERROR", "Retry: enough"],
        ["NACK", b"id-2", "ERROR", "Discard: no such user", "DEAD"],
        ["RELEASE", b"id-3", "DELAY", 60],
    ]}


def test_words_that_lead_to_no_app_are_told_so(shop: str, tmp_path: Path) -> None:
    module = shop.partition(":")[0]
    assert find_app(shop, str(tmp_path)).queues == ["tasks", "raw"]
    for place, words in ((f"{module}:none", "has no 'none'"), ("nowhere:app", "no module"),
                         (f"{module}:add", r"no holdfast\.App but a Task")):
        with pytest.raises(NoApp, match=words):
            find_app(place, str(tmp_path))
