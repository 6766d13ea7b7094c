"""An incident at night, on real processes, and what somebody sees of it who comes when it is over half an hour old.

Three nodes and a gateway. A node is killed, a queue is paused, the worker of another goes away, letters die. The
dashboard says each of it first, with what helps; charts open full, the same after a restart of the gateway.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.console.conftest import SHOTS, Opener
from tests.gateway.running import Gateway, address
from tests.proc.harness import Node, until

import holdfast

SHOWN_MS = 45_000
"""Until jobs have waited for as long as makes them wait for nobody, and a page has asked again."""
SETTINGS = ("--set", "maxmemory=64mb", "--set", "history=yes", "--set", "history-body-bytes=256")


class Night:
    """The cluster, and a shop that goes on."""

    def __init__(self, folder: Path) -> None:
        self.nodes = [Node("--dir", str(folder / "1"), *SETTINGS)]
        join = f"127.0.0.1:{self.nodes[0].port}"
        self.nodes += [Node("--dir", str(folder / name), "--join", join, *SETTINGS) for name in "23"]
        self.urls = ",".join([address(self.nodes[0]), *(f"127.0.0.1:{each.port}" for each in self.nodes[1:])])
        self.queue = holdfast.open(self.urls)
        until(lambda: b"cluster_reachable_nodes:2\r" in bytes(self.queue.call("CLUSTER", "INFO")))  # type: ignore[arg-type]
        self.victim = self.near(self.nodes[2])
        self.is_over = threading.Event()
        self.shop = threading.Thread(target=self.sell, daemon=True)

    def near(self, node: Node) -> str:
        with holdfast.open(address(node)) as queue:
            return bytes(queue.call("CLUSTER", "MYID")).decode()[:8]  # type: ignore[arg-type]

    def sell(self) -> None:
        """Orders come and are worked, all the time; a letter dies every other time."""
        with holdfast.open(self.urls) as queue:
            number = 0
            while not self.is_over.wait(0.1):
                number += 1
                try:
                    for _ in range(3):
                        queue.add("orders", f'{{"task": "shop.order", "args": [{number}]}}')
                    for job in queue.take("orders", count=3, timeout=0):
                        job.done()
                    if number % 2:
                        queue.add("letters", f'{{"task": "shop.letter", "args": ["ada{number}@x.org"]}}', attempts=1)
                        for job in queue.take("letters", timeout=0):
                            job.fail(f"SMTPRecipientsRefused: 550 no such user 'ada{number}'")
                except holdfast.Error:
                    pass  # a node died just then

    def begin(self) -> None:
        self.shop.start()

    def end(self) -> None:
        self.is_over.set()
        self.shop.join()
        self.queue.close()
        for each in self.nodes:
            if each.process.poll() is None:
                each.stop()


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    night = Night(tmp_path_factory.mktemp("night"))
    night.begin()
    try:
        yield night
    finally:
        night.end()


@pytest.fixture(scope="module")
def door(night: Night) -> Iterator[Gateway]:
    with Gateway(night.urls) as gateway:
        yield gateway


def problem(page: Page, kind: str) -> str:
    place = page.locator(f'[data-kind="{kind}"]')
    expect(place).to_have_count(1, timeout=SHOWN_MS)
    return place.inner_text()


def points(page: Page, name: str, column: int = 1) -> list[float | None]:
    """What a chart shows, as the script has it."""
    found: list[float | None] = page.evaluate(
        "([name, column]) => window.holdfastCharts.find(each => each.place.dataset.chart === name).data[column]",
        [name, column])
    return found


def ready(page: Page, seconds: int = 3600) -> None:
    expect(page.locator(f'[data-past][data-ready="{seconds}"]')).to_have_count(1)


def test_a_cluster_that_is_well_says_so(night: Night, door: Gateway, opened: Opener) -> None:
    page = opened("/console/", base=door.url)
    expect(page.locator("#wrong")).not_to_contain_text("away")
    assert page.locator("h1 + #wrong").count() == 1, "what is wrong is the first thing on the dashboard"


def test_charts_open_full_and_the_same_after_the_gateway_was_started_again(
    night: Night, door: Gateway, opened: Opener
) -> None:
    began = time.time()
    page = opened("/console/", base=door.url)
    ready(page)
    until(lambda: page.reload() and ready(page) is None and sum(each or 0 for each in points(page, "rates")) > 40)
    times = [each for each in points(page, "rates", 0) if each]
    assert min(times) < began - 3000, "an hour, gaps and all, not from now on"
    with door.client() as http, Gateway(night.urls) as other, other.client() as after:
        first, second = (each.get("/v1/past?queue=orders").raise_for_status().json() for each in (http, after))
    seen = {at: value for at, value in zip(first["time"], first["added"], strict=True) if value}
    again = dict(zip(second["time"], second["added"], strict=True))
    assert sum(seen.values()) > 40 and seen == {at: again[at] for at in seen}
    assert len(first["since"]) == 3 == len(second["since"]) and first["silent"] == []
    page = opened("/console/queue?name=orders", base=door.url)
    ready(page)
    assert sum(each or 0 for each in points(page, "rates")) > 40
    page.get_by_role("button", name="1 day").click()
    ready(page, 86400)


def test_the_dashboard_says_first_what_is_wrong_and_what_helps(night: Night, door: Gateway, opened: Opener) -> None:
    page = opened("/console/", base=door.url)
    night.nodes[2].process.kill()
    night.queue.pause("invoices", "out")
    for number in range(4):
        night.queue.add("invoices", f"invoice {number}")
        night.queue.add("thumbnails", f"picture {number}")
    assert night.victim in problem(page, "node-away")
    assert "holdfast resume invoices" in problem(page, "queue-paused")
    assert "letters failed for good" in problem(page, "jobs-die")
    assert "nobody works the queue thumbnails: 4 jobs wait" in problem(page, "nobody-works")
    for theme, width, name in (("light", 1280, "light"), ("dark", 1280, "dark"), ("light", 390, "narrow")):
        shot = opened("/console/", base=door.url, color_scheme=theme, viewport={"width": width, "height": 900})
        ready(shot)
        shot.screenshot(path=SHOTS / f"incident-{name}.png", full_page=True)
        assert shot.evaluate("document.documentElement.scrollWidth") <= width
    page.locator('[data-kind="queue-paused"]').get_by_role("button", name="Resume").click()
    expect(page.locator(".said")).to_contain_text("The queue runs.")
    page.goto("/console/")
    expect(page.locator('[data-kind="queue-paused"]')).to_have_count(0)
    page.locator('[data-kind="jobs-die"]').get_by_role("link", name="Read the errors, retry").click()
    expect(page.locator(".heap").first).to_contain_text("550 no such user")


def test_ended_jobs_are_listed_searched_and_tell_their_life(night: Night, door: Gateway, opened: Opener) -> None:
    page = opened("/console/ended", base=door.url)
    rows = page.locator("#rows tr")
    expect(rows).to_have_count(50)
    expect(page.locator(".said")).to_have_count(0)
    page.screenshot(path=SHOTS / "ended.png", full_page=True)
    first = rows.first.locator("code").first.inner_text()
    page.get_by_role("link", name="More").click()
    expect(rows.first.locator("code").first).not_to_have_text(first)
    page.get_by_label("Task").fill("shop.letter")
    page.get_by_label("Argument or error").fill("ada1@x.org")
    page.get_by_role("button", name="Search").click()
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("550 no such user")
    expect(rows.first.locator(".pill")).to_have_text("dead")
    page.goto("/console/ended?how=done&queue=orders")
    rows.first.locator("a").first.click()
    expect(page.locator(".pill").first).to_have_text("done")
    expect(page.locator(".timeline li b")).to_have_text(["added", "handed-out", "acked"])
    expect(page.locator("pre.body")).to_contain_text("shop.order")
    page.screenshot(path=SHOTS / "life.png", full_page=True)
    with door.client() as http:
        found = http.get("/v1/ended?queue=orders&how=done&count=3").raise_for_status().json()
        assert [each["task"] for each in found["jobs"]] == ["shop.order"] * 3 and found["cursor"]
        life = http.get(f"/v1/jobs/{found['jobs'][0]['id']}/life").raise_for_status().json()
        assert [each["event"] for each in life["events"]] == ["added", "handed-out", "acked"]
        assert http.get("/v1/ended?cursor=x").status_code == 400
