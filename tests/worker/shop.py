"""Tasks for the tests of the worker. What they do is a line in the file SHOP_LOG, which the tests read."""
from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

import holdfast

app = holdfast.App(os.environ.get("SHOP_URL", "memory:"), retries=2, backoff=0)


def note(*words: object) -> None:
    """One line, whole: several processes write at once."""
    with Path(os.environ["SHOP_LOG"]).open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


@app.task(queue="async")
async def add(a: int, b: int) -> int:
    note("add", a, b)
    return a + b


@app.task(queue="sync")
def concat(a: str, b: str = "!") -> str:
    note("concat", a, b, holdfast.current_job().attempt)
    return a + b


@app.task(queue="process", runs_in="process")
def where(word: str) -> list[object]:
    note("where", word)
    return [word, os.getpid()]


@app.task(queue="naps")
async def nap(name: str, seconds: float) -> None:
    note("begin", name)
    await asyncio.sleep(seconds)
    note("end", name)


@app.task(queue="naps")
def thread_nap(name: str, seconds: float) -> None:
    note("begin", name)
    time.sleep(seconds)
    note("end", name)


@app.task(queue="naps")
async def blocking_nap(name: str, seconds: float) -> None:
    """Holds up the event loop, as an async handler must not."""
    note("begin", name)
    time.sleep(seconds)
    note("end", name)


@app.task(queue="limits", timeout=0.2, retries=0)
async def too_long_async() -> None:
    await asyncio.sleep(60)


@app.task(queue="limits", timeout=0.2, retries=0)
def too_long_thread() -> None:
    while True:
        time.sleep(0.01)


@app.task(queue="limits", timeout=0.2, retries=0, runs_in="process")
def too_long_process() -> None:
    threading.Event().wait(60)


@app.task(queue="limits", retries=0, runs_in="process")
def dies() -> None:
    os._exit(9)


@app.task(queue="calls")
async def forever(name: str) -> None:
    note("begin", name)
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        note("cancelled", name)
        raise


@app.task(queue="calls")
def thread_forever(name: str) -> None:
    note("begin", name)
    try:
        while True:
            time.sleep(0.01)
    except holdfast.Cancelled:
        note("cancelled", name)
        raise


@app.task(queue="calls", runs_in="process")
def process_forever(name: str) -> None:
    note("begin", name)
    threading.Event().wait(3600)


@app.task(queue="calls")
async def reports() -> None:
    job = holdfast.current_job()
    job.progress(0.4, "four of ten")
    note("begin", "reports")
    await asyncio.sleep(3600)


@app.task(queue="ends")
def ends(how: str) -> None:
    note("ends", how, holdfast.current_job().attempt)
    if how == "retry":
        raise holdfast.Retry("busy", after=3600)
    if how == "discard":
        raise holdfast.Discard("no use")
    if how == "snooze":
        raise holdfast.Snooze(3600)
    if how == "raise":
        raise ValueError("oh no")


@app.task(queue="raw", raw=True)
def raw(body: bytes) -> None:
    note("raw", body.hex())
