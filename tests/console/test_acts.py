"""What buttons do: each is pressed in the browser, and what came of it is asked of the nodes."""
from __future__ import annotations

import re

from playwright.sync_api import Page, expect
from tests.console.conftest import Opener
from tests.gateway.running import Gateway
from tests.proc.harness import until

import holdfast

TALLY_MS = 20_000
"""A node counts what its jobs are doing twenty thousand a second (census.py), and there are a hundred thousand."""


def said(page: Page, words: str) -> None:
    expect(page.locator(".said")).to_contain_text(words)


def test_a_job_is_added_run_moved_and_deleted(opened: Opener, queue: holdfast.Queue) -> None:
    page = opened("/console/add?queue=by-hand")
    page.get_by_label("Body").fill("made by hand")
    page.get_by_label("Delay, seconds").fill("600")
    page.get_by_role("button", name="Add").click()
    said(page, "The job was added.")
    expect(page.locator("main")).to_contain_text("its delay has not ended")
    page.get_by_role("button", name="Run now").click()
    said(page, "1 job was queued now.")
    expect(page.locator(".pill").first).to_have_text("queued")
    page.get_by_label("Move to").fill("elsewhere")
    page.get_by_role("button", name="Move", exact=True).click()
    said(page, "1 job was moved.")
    assert queue.length("elsewhere") == 1
    page.get_by_role("button", name="Delete").click()
    expect(page.locator("h1")).to_have_text("Nobody knows this job")
    assert queue.length("elsewhere") == 0


def test_what_does_not_fit_is_said_on_a_page(opened: Opener, gateway: Gateway) -> None:
    page = opened("/console/add")
    page.get_by_label("Queue").fill("q")
    page.get_by_label("Priority, 0 to 9").fill("12")
    with page.expect_response("**/console/add") as answer:
        page.request.post("/console/add", form={"queue": "q"})  # keeps the cookie, and has no token
        page.get_by_role("button", name="Add").click()
    assert answer.value.status == 422
    expect(page.locator("h1")).to_have_text("This does not fit")
    expect(page.locator("main")).to_contain_text("priority")


def test_a_form_of_another_site_is_refused(opened: Opener, queue: holdfast.Queue) -> None:
    page = opened("/console/")
    forged = page.request.post("/console/add", form={"queue": "forged", "body": "x"})
    assert forged.status == 403
    token = page.request.get("/console/add").text().split('name="form_token" value="')[1].split('"')[0]
    form = {"queue": "forged", "body": "x", "form_token": token}
    assert page.request.post("/console/add", form=form, headers={"Origin": "http://evil.example"}).status == 403
    assert queue.length("forged") == 0


def test_all_matching_is_what_the_filter_shows_now(opened: Opener, queue: holdfast.Queue) -> None:
    """The filter is changed without loading the page: the buttons act upon what is seen, not on what was."""
    queue.add_many("heap", [f"h{number}" for number in range(120)])
    queue.add_many("other", [f"o{number}" for number in range(5)])
    page = opened("/console/jobs")
    page.get_by_role("textbox", name="Queue").fill("heap")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**queue=heap**")
    expect(page.locator("#rows tr")).to_have_count(50)
    page.get_by_label("all matching the filter").check()
    page.get_by_role("button", name="Delete").click()
    said(page, "120 jobs were deleted.")
    assert queue.length("heap") == 0 and queue.length("other") == 5
    page.goto("/console/jobs")
    page.get_by_label("all matching the filter").check()
    page.get_by_role("button", name="Delete").click()
    said(page, "Nothing was done")
    assert queue.length("other") == 5


def test_ticked_jobs_are_moved(opened: Opener, queue: holdfast.Queue) -> None:
    queue.add_many("from-here", ["a", "b", "c"])
    page = opened("/console/jobs?queue=from-here")
    page.get_by_label("all on this page").check()
    page.locator("#rows input").first.uncheck()
    page.get_by_label("Move to").fill("to-there")
    page.get_by_role("button", name="Move", exact=True).click()
    said(page, "2 jobs were moved.")
    assert queue.length("to-there") == 2 and queue.length("from-here") == 1


def test_a_queue_is_set_paused_moved_and_emptied(opened: Opener, queue: holdfast.Queue) -> None:
    queue.add_many("levers", ["a", "b", "c"])
    page = opened("/console/queue?name=levers")
    page.get_by_label(re.compile("^maxlen")).fill("1234")
    page.get_by_role("button", name="Save").click()
    said(page, "Changed: maxlen.")
    assert queue.settings("levers")["maxlen"] == 1234
    page.get_by_role("button", name="Pause handing out").click()
    said(page, "The queue is paused: out.")
    assert queue.try_next("levers") is None
    page.get_by_role("button", name="Resume").click()
    said(page, "The queue runs.")
    page.get_by_label("Move all waiting jobs to").fill("levers-2")
    page.get_by_role("button", name="Move", exact=True).click()
    said(page, "3 jobs were moved. They came from levers.")
    page.get_by_label("Type the name to delete all jobs").fill("levers")
    page.get_by_role("button", name="Delete all jobs").click()
    said(page, "Nothing was deleted")
    assert queue.length("levers-2") == 3
    page.get_by_label("Type the name to delete all jobs").fill("levers-2")
    page.get_by_role("button", name="Delete all jobs").click()
    said(page, "3 jobs were deleted.")
    assert queue.length("levers-2") == 0


def test_dead_jobs_are_brought_back(opened: Opener, queue: holdfast.Queue) -> None:
    for number in range(3):
        queue.add("lazarus", f"{number}", attempts=1)
        queue.next("lazarus", timeout=5).fail("KeyError: 'gone'")
    page = opened("/console/dead?queue=lazarus")
    page.locator("summary").click()
    page.locator(".ids input").first.uncheck()
    page.get_by_role("button", name="Retry those chosen").click()
    said(page, "2 jobs were queued again.")
    page.goto("/console/dead?queue=lazarus")
    page.get_by_role("button", name="Retry all").click()
    said(page, "1 job was queued again.")
    assert queue.length("lazarus") == 3


def test_limits_weights_and_schedules_are_set(opened: Opener, queue: holdfast.Queue) -> None:
    page = opened("/console/limits")
    page.get_by_label("Domain or *.pattern").fill("slow.example")
    page.get_by_label("Rate").fill("7/m")
    page.get_by_role("button", name="Set a limit").click()
    said(page, "slow.example is limited to 7/m.")
    expect(page.locator("main")).to_contain_text("7/m")
    page.locator("tr", has_text="slow.example").get_by_role("button", name="Lift").click()
    said(page, "slow.example is not limited any more.")
    page.goto("/console/scheduled")
    page.get_by_label("Name").fill("hourly")
    page.get_by_label("Schedule").fill("0 * * * *")
    page.get_by_label("Queue").fill("reports")
    page.get_by_role("button", name="Set a schedule").click()
    said(page, "The schedule hourly is set.")
    assert "hourly" in [each.name for each in queue.schedules()]
    page.locator("tr", has_text="hourly").get_by_role("button", name="Delete").click()
    said(page, "The schedule hourly is gone.")
    assert "hourly" not in [each.name for each in queue.schedules()]


def test_figures_are_those_of_the_nodes_after_ten_thousand_jobs(opened: Opener, queue: holdfast.Queue) -> None:
    """Of 10,000 jobs 6,000 are done, 200 fail for good, 1,800 are with a worker; the page follows without a reload."""
    page = opened("/console/queue?name=counted")
    for _ in range(2):
        queue.add_many("counted", [f"{number}" for number in range(5000)], attempts=1)
    taken: list[holdfast.Job] = []
    while len(taken) < 8000:
        taken += queue.take("counted", count=min(1000, 8000 - len(taken)), timeout=5)
    for start in range(0, 6000, 1000):
        assert queue.done(*[each.id for each in taken[start:start + 1000]]) == 1000
    for each in taken[6000:6200]:
        each.fail("no")
    expected = {"len": "2,000", "out": "1,800", "acked": "6,000", "nacked": "200", "dead-kept": "200"}
    for name, words in expected.items():
        expect(page.locator(f'[data-total="{name}"]')).to_have_text(words, timeout=TALLY_MS)
    page.goto("/console/")
    rows = {row["name"]: row for row in figures(queue)}
    assert rows["counted"]["len"] == 2000 and rows["counted"]["acked"] == 6000
    for name in ("len", "out", "acked", "nacked", "dead-kept", "delayed"):
        total = sum(int(row[name]) for row in rows.values())
        expect(page.locator(f'[data-total="{name}"]')).to_have_text(f"{total:,}", timeout=TALLY_MS)
    until(lambda: page.locator('tr[data-queue="counted"] [data-field="out"]').inner_text() == "1,800")


def figures(queue: holdfast.Queue) -> list[dict[str, object]]:
    reply = queue.call("CLUSTER", "QSTAT", "*")
    return [
        {name.decode(): value.decode() if isinstance(value, bytes) else value
         for name, value in zip(row[::2], row[1::2], strict=True)} for row in reply[0]  # type: ignore[index, union-attr]
    ]
