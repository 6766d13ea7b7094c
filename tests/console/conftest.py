"""The console in a real browser: Debian's chromium, driven by Playwright, before two nodes with something in them.

Behind the pages are 200 queues and 100,000 jobs (10,000 as plain Python), some of each kind. A page that logs an error
to the browser's console fails its test, whatever else it shows. Screenshots are kept in build/console, for people to
look at.
"""
from __future__ import annotations

import datetime as dt
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright
from tests.gateway.running import Gateway, address
from tests.proc.harness import Node, until

import holdfast
from holdfast import form
from holdfast.pipeline.lake import Lake

ROOT = Path(__file__).resolve().parents[2]
SHOTS = ROOT / "build" / "console"
QUEUES = 200
JOBS = 100_000 if form.is_compiled() else 10_000
HOSTILE = '<script>document.title = "taken"</script><img src=x onerror="document.title = 1"><b>bold</b>'
CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="session")
def nodes() -> Iterator[list[Node]]:
    with Node("--set", "maxmemory=512mb") as one, Node(
        "--set", "maxmemory=512mb", "--join", f"127.0.0.1:{one.port}"
    ) as two:
        with holdfast.open(address(one)) as queue:
            until(lambda: b"cluster_reachable_nodes:1\r" in bytes(queue.call("CLUSTER", "INFO")))  # type: ignore[arg-type]
            fill(queue)
        yield [one, two]


def fill(queue: holdfast.Queue) -> None:
    """Jobs in every state, and everything else that a page shows."""
    for number in range(QUEUES):
        queue.add(f"queue-{number:03d}", f"job of {number}", replicate=1)
    for _ in range(JOBS // 5000):
        queue.add_many("big", [f"body {number}" for number in range(5000)], replicate=1)
    queue.add("hostile", HOSTILE, headers={"<i>name</i>": "<b>value</b>"})
    queue.add("later", "in an hour", delay=3600)
    for number in range(3):
        queue.add("broken", f"breaks {number}", attempts=1)
        queue.next("broken", timeout=5).fail(f"ValueError: bad number {number}")
    queue.add("held", '{"what": "is with a worker"}')
    queue.next("held", timeout=5, lease=7200).progress(0.4, "nearly half")  # longer than all tests of this folder
    queue.add("plainly", "with a client that has no name and no token")
    queue.call("GETJOB", "FROM", "plainly")
    queue.limit("api.example", "1/s")
    for number in range(4):
        queue.add("calls", f"call {number}", domain="api.example", tenant=f"tenant-{number % 2}")
        queue.add("letters", f"letter {number}", group="ada")
    queue.weigh("calls", "tenant-1", 3)
    queue.schedule("nightly", "0 3 * * *", "reports", "make the report", zone="Europe/Rome")
    queue.beat("worker-1", seconds=3600, facts={"host": "h", "pid": "7", "queues": "big,held", "running": "1",
                                                "concurrency": "10", "done": "5", "failed": "1", "lost": "0"})


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pipeline would have made of an hour."""
    made = Lake(tmp_path_factory.mktemp("lake")).create()
    table = made.table("gold/queue_minute")
    minutes = [dt.datetime(2026, 1, 1, 12, minute, tzinfo=dt.UTC) for minute in range(60)]
    path = f"{table.new_folder()}/part.parquet"
    table.store.make(path.partition("/")[0])
    pq.write_table(pa.table({
        "queue": ["big"] * 60 + ["", "long-" + "n" * 200],
        "minute": pa.array([*minutes, *minutes[:2]], pa.timestamp("us", "UTC")), "added": list(range(62)),
        "done": list(range(62)), "wait_ms_p95": [50.0] * 62, "backlog": [7] * 62,
    }), table.store.full(path))
    table.change({"2026-01-01": [path]})
    return made.folder


@pytest.fixture(scope="session")
def gateway(nodes: list[Node], lake: Path) -> Iterator[Gateway]:
    with Gateway(",".join([address(nodes[0]), f"127.0.0.1:{nodes[1].port}"]), "--lake", str(lake)) as gateway:
        yield gateway


@pytest.fixture(scope="session")
def queue(nodes: list[Node]) -> Iterator[holdfast.Queue]:
    with holdfast.open(address(nodes[0])) as queue:
        yield queue


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium here")
    SHOTS.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        # As root, in a container, its sandbox does not start; the only pages it sees are ours.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


Opener = Callable[..., Page]


def is_fault(said: ConsoleMessage) -> bool:
    """Not that a page itself is answered with 404 or so: whether it should be is for its test to say."""
    is_own_status = "/static/" not in said.location["url"] and re.match(
        "Failed to load resource: .* a status of (400|403|404|422)", said.text)
    return said.type in ("error", "warning") and not is_own_status


@pytest.fixture
def opened(browser: Browser, gateway: Gateway) -> Iterator[Opener]:
    """A way to open pages, `opened("/console/jobs", color_scheme="dark")`; none may complain in its console."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_page(path: str, base: str = "", **options: object) -> Page:
        given: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}, **options}
        context = browser.new_context(base_url=base or gateway.url, **given)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(f"{said.text} {said.location}") if is_fault(said) else None)
        page.on("dialog", lambda dialog: dialog.accept())
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
