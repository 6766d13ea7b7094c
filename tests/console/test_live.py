"""Pages that are open while things happen: the first job comes, a node is stopped, a node dies."""
from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect
from tests.console.conftest import SHOTS, Opener
from tests.gateway.running import Gateway, address
from tests.proc.harness import Node, until

import holdfast


@pytest.fixture
def pair() -> Iterator[list[Node]]:
    """Two nodes without a job; the second may be stopped or killed."""
    with Node() as one:
        two = Node("--join", f"127.0.0.1:{one.port}")
        with holdfast.open(address(one)) as queue:
            until(lambda: b"cluster_reachable_nodes:1\r" in bytes(queue.call("CLUSTER", "INFO")))  # type: ignore[arg-type]
        yield [one, two]
        two.process.send_signal(signal.SIGCONT)
        two.stop()


@pytest.fixture
def door(pair: list[Node]) -> Iterator[Gateway]:
    with Gateway(address(pair[0])) as gateway:
        yield gateway


def near(node: Node) -> str:
    with holdfast.open(address(node)) as queue:
        return bytes(queue.call("CLUSTER", "MYID")).decode()[:8]  # type: ignore[arg-type]


def test_what_comes_up_while_the_dashboard_is_open_is_shown(pair: list[Node], door: Gateway, opened: Opener) -> None:
    """The first job, then one of the nodes dies; nobody loads the page again."""
    page = opened("/console/", base=door.url)
    expect(page.locator("main")).to_contain_text("No queue yet")
    expect(page.locator(".nodes .up")).to_have_count(2)
    expect(page.locator("#away")).to_be_hidden()
    with holdfast.open(address(pair[0])) as queue:
        for _ in range(3):
            queue.add("first & only", "x")
        queue.add("", "in the queue without a name")
    row = page.locator('tr[data-queue="first & only"]')
    expect(row.locator('[data-field="len"]')).to_have_text("3")
    expect(page.locator("main")).not_to_contain_text("No queue yet")
    expect(page.locator("[data-count]")).to_have_text("2")
    gone = near(pair[1])
    pair[1].process.kill()
    expect(page.locator("#away")).to_have_text(f"without node {gone} (away)")
    expect(page.locator(".nodes .away")).to_contain_text(gone)
    page.screenshot(path=SHOTS / "dashboard-away.png", full_page=True)
    page.reload()
    expect(page.locator("#away")).to_have_text(f"without node {gone} (away)")
    page.get_by_role("link", name="(empty)").click()
    expect(page.locator("h1")).to_have_text("(empty)")
    expect(page.locator("main")).to_contain_text("in the queue without a name")


def test_the_cluster_page_does_not_wait_for_a_node_that_is_stopped(
    pair: list[Node], door: Gateway, opened: Opener
) -> None:
    stopped = near(pair[1])
    page = opened("/console/cluster", base=door.url)
    until(lambda: page.reload() and page.locator(".node.up dl").count() == 2)  # a busy node may be late once
    expect(page.locator(".node.up dl")).to_have_count(2)
    pair[1].process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    page.goto("/console/cluster")
    assert time.monotonic() - began < 5
    expect(page.locator(".node.silent")).to_contain_text(stopped)
    expect(page.locator("#away")).to_contain_text(stopped)
    page.screenshot(path=SHOTS / "cluster-silent.png", full_page=True)
    page.goto("/console/jobs")
    assert time.monotonic() - began < 10


def test_tenants_are_summed_over_all_nodes(pair: list[Node], door: Gateway, opened: Opener) -> None:
    for node in pair:
        with holdfast.open(address(node)) as queue:
            queue.pause("calls", "out")
            for _ in range(2):
                queue.call("ADDJOB", "calls", "x", "0", "REPLICATE", "1", "TENANT", "ada")
    page = opened("/console/limits", base=door.url)
    row = page.get_by_role("row", name="calls ada")
    until(lambda: page.reload() and row.filter(has_text="4").count() == 1)  # a busy node may be late once
    expect(row).to_contain_text("4")


def test_all_matching_says_whose_jobs_were_left_out(pair: list[Node], door: Gateway, opened: Opener) -> None:
    """A node that is stopped has some of them. It is still linked, and nobody has missed it yet; or it is away."""
    silent = near(pair[1])
    with holdfast.open(address(pair[0])) as queue:
        queue.call("ADDJOB", "some", "x", "0", "REPLICATE", "1")
    page = opened("/console/jobs?queue=some", base=door.url)
    until(lambda: page.reload() and page.locator("#rows tr").count() == 1)
    pair[1].process.send_signal(signal.SIGSTOP)
    page.get_by_label("all matching the filter").check()
    page.get_by_role("button", name="Delete").click()
    expect(page.locator("h1")).to_have_text("Delete 1 job?", timeout=15_000)
    expect(page.locator("main")).to_contain_text(f"the jobs of {silent}")
    page.get_by_role("button", name="Yes, delete").click()
    expect(page.locator("body")).to_contain_text("1 job was deleted. Left out", timeout=15_000)
    expect(page.locator("body")).to_contain_text(f"the jobs of {silent}")
