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


def test_the_body_of_a_job_is_what_was_typed(opened: Opener, queue: holdfast.Queue) -> None:
    typed = "\n\none\n  two\n"
    page = opened("/console/add?queue=typed-lines")
    page.get_by_label("Body").fill(typed)
    page.get_by_label("Attempts").fill("abc")
    page.get_by_role("button", name="Add").click()
    page.get_by_role("link", name="Back to the form").click()
    expect(page.get_by_label("Body")).to_have_value(typed)
    page.get_by_label("Attempts").fill("2")
    page.get_by_role("button", name="Add").click()
    said(page, "The job was added.")
    job = queue.next("typed-lines", timeout=5)
    assert job.text == typed
    job.done()


def unchecked(page: Page) -> None:
    """As by a browser that does not look at what is typed: the gateway has to."""
    page.evaluate("document.querySelectorAll('form').forEach((form) => { form.noValidate = true; })")


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


def test_what_does_not_fit_leads_back_with_what_was_typed(opened: Opener, queue: holdfast.Queue) -> None:
    page = opened("/console/limits")
    for burst, at_a_time, words in (("", "-1", "concurrency"), ("-3", "", "burst")):
        unchecked(page)
        page.get_by_label("Domain or *.pattern").fill("typed.example")
        page.get_by_label("Rate").fill("5/s")
        page.get_by_label("Burst").fill(burst)
        page.get_by_label("At a time").fill(at_a_time)
        page.get_by_role("button", name="Set a limit").click()
        expect(page.get_by_role("alert")).to_contain_text(words)
        page.get_by_role("link", name="Back to the form").click()
        expect(page.get_by_label("Rate")).to_have_value("5/s")
        expect(page.get_by_label("Burst")).to_have_value(burst)
        expect(page.get_by_label("At a time")).to_have_value(at_a_time)
    expect(page.locator("main")).not_to_contain_text("typed.example")
    page.goto("/console/add?queue=typed")
    page.get_by_label("Body").fill("<b>\n& more")
    page.get_by_label("Attempts").fill("abc")
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("alert")).to_contain_text("attempts")
    page.get_by_role("link", name="Back to the form").click()
    expect(page.get_by_label("Body")).to_have_value("<b>\n& more")
    assert queue.length("typed") == 0
    page.get_by_label("Attempts").fill("2")
    page.get_by_role("button", name="Add").click()
    said(page, "The job was added.")
    page.goto("/console/queue?name=typed")
    unchecked(page)
    page.get_by_label(re.compile("^maxlen")).fill("77")
    page.get_by_label(re.compile("^rate")).fill("often")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("link", name="Back to the form").click()
    expect(page.get_by_label(re.compile("^maxlen"))).to_have_value("77")
    expect(page.get_by_label(re.compile("^rate"))).to_have_value("often")


def test_what_came_of_a_form_is_said_once_and_by_nobody_else(opened: Opener) -> None:
    page = opened("/console/queues?said=Call+this+number")
    expect(page.locator(".said")).to_have_count(0)
    page.goto("/console/add?queue=once")
    page.get_by_role("button", name="Add").click()
    said(page, "The job was added.")
    page.reload()
    expect(page.locator("h1")).to_contain_text("Job")
    expect(page.locator(".said")).to_have_count(0)


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
    expect(page.locator("h1")).to_have_text("Delete 120 jobs?")
    assert queue.length("heap") == 120
    page.get_by_role("button", name="Yes, delete 120 jobs").click()
    said(page, "120 jobs were deleted.")
    assert queue.length("heap") == 0 and queue.length("other") == 5
    page.goto("/console/jobs")
    page.get_by_label("all matching the filter").check()
    page.get_by_role("button", name="Delete").click()
    said(page, "Nothing was done")
    assert queue.length("other") == 5


def test_harm_is_asked_for_with_the_count(opened: Opener, queue: holdfast.Queue) -> None:
    queue.add_many("harm", ["a", "b", "c"])
    page = opened("/console/jobs?queue=harm")
    asked: list[str] = []
    page.on("dialog", lambda dialog: asked.append(dialog.message))
    for name in ("Cancel", "Delete"):
        page.get_by_role("button", name=name).click()
        said(page, "Nothing was done: no job was chosen.")
    assert asked == []
    page.locator("#rows input").first.check()
    page.get_by_role("button", name="Cancel").click()
    said(page, "1 job was cancelled.")
    assert asked == ["Cancel 1 job?"]
    page.get_by_label("all matching the filter").check()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("main")).to_contain_text("They match queue harm.")
    page.get_by_role("link", name="No, back to the list").click()
    expect(page.locator("#rows tr")).to_have_count(2)
    page.get_by_label("all matching the filter").check()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Yes, cancel 2 jobs").click()
    said(page, "2 jobs were cancelled.")
    assert queue.length("harm") == 0 and len(asked) == 1


def test_ticked_jobs_are_moved(opened: Opener, queue: holdfast.Queue) -> None:
    queue.add_many("from-here", ["a", "b", "c"])
    page = opened("/console/jobs?queue=from-here")
    page.get_by_label("all on this page").check()
    page.locator("#rows input").first.uncheck()
    page.get_by_label("Move to").fill("to-there")
    page.get_by_role("button", name="Move", exact=True).click()
    said(page, "2 jobs were moved.")
    assert queue.length("to-there") == 2 and queue.length("from-here") == 1


def test_what_cannot_be_moved_is_said_and_does_not_hold_up_the_rest(opened: Opener, queue: holdfast.Queue) -> None:
    queue.add_many("mixed", ["a", "b"])
    queue.add("mixed", "c", group="g")
    page = opened("/console/jobs?queue=mixed")
    page.get_by_label("all matching the filter").check()
    page.get_by_label("Move to").fill("mixed-2")
    page.get_by_role("button", name="Move", exact=True).click()
    said(page, "2 jobs were moved. 1 stayed as it was: a job with a group")
    for name, count in (("mixed", 1), ("mixed-2", 2)):
        page.goto(f"/console/jobs?queue={name}")
        expect(page.locator("#rows input")).to_have_count(count)


def test_jobs_are_not_moved_to_where_they_are(opened: Opener, queue: holdfast.Queue) -> None:
    made = queue.add("stays", "x")
    page = opened("/console/queue?name=stays")
    page.get_by_label("Move all waiting jobs to").fill("stays")
    page.get_by_role("button", name="Move", exact=True).click()
    said(page, "Nothing was moved: stays is where they are.")
    for path in (f"job?id={made}", "jobs?queue=stays"):
        page.goto(f"/console/{path}")
        if path.startswith("jobs"):
            page.get_by_label("all matching the filter").check()
        page.get_by_label("Move to").fill("stays")
        page.get_by_role("button", name="Move", exact=True).click()
        said(page, "Nothing was moved")
    assert queue.length("stays") == 1


def test_enter_does_what_the_field_is_for(opened: Opener, queue: holdfast.Queue) -> None:
    """In "Move to" it moves, or says that it does not know where to; and on a tick it does nothing."""
    ids = [queue.add("entered", f"{number}", delay=600) for number in range(2)]
    page = opened(f"/console/job?id={ids[0]}")
    page.get_by_label("Move to").press("Enter")
    said(page, "Nothing was done")
    page.get_by_label("Move to").fill("entered-2")
    page.get_by_label("Move to").press("Enter")
    said(page, "1 job was moved.")
    page.goto("/console/jobs?queue=entered&state=delayed")
    until(lambda: page.reload() and page.locator("#rows input").count() == 1)  # counts are up to a second old
    page.locator("#rows input").first.check()
    page.locator("#rows input").first.press("Enter")
    page.get_by_label("Move to").fill("entered-2")
    page.get_by_label("Move to").press("Enter")
    said(page, "1 job was moved.")
    page.goto("/console/scheduled")
    until(lambda: page.reload() and page.locator("#rows input").count() > 0)
    page.locator("#rows input").first.check()
    page.locator("#rows input").first.press("Enter")
    expect(page.locator("h1")).to_have_text("Scheduled")
    expect(page.locator(".said")).to_have_count(0)
    assert queue.length("entered") == 0 and queue.length("entered-2") == 0  # none was run
    assert queue.cancel(ids[0]) == queue.cancel(ids[1]) == "cancelled"


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


def test_saving_settings_leaves_alone_what_others_have_changed(opened: Opener, queue: holdfast.Queue) -> None:
    """While a page is open the queue is paused, its attempts set, its maxlen set: saving keeps what was not touched on
    the page, and asks about what was. A form that is refused and sent again is no other."""
    queue.add("shared", "x")
    page = opened("/console/queue?name=shared")
    queue.pause("shared", "out")
    queue.configure("shared", attempts=4)
    unchecked(page)
    page.get_by_label(re.compile("^maxlen")).fill("1234")
    page.get_by_label(re.compile("^rate")).fill("often")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("link", name="Back to the form").click()
    expect(page.get_by_label(re.compile("^attempts"))).to_have_value("4")
    queue.configure("shared", attempts=5)
    page.get_by_label(re.compile("^rate")).fill("7/s")
    page.get_by_role("button", name="Save").click()
    said(page, "Changed: maxlen, rate.")
    found = queue.settings("shared")
    assert (found["paused"], found["attempts"], found["maxlen"], found["rate"]) == (b"out", 5, 1234, b"7/s")
    queue.configure("shared", maxlen=50)
    page.get_by_label(re.compile("^maxlen")).fill("99")
    page.get_by_role("button", name="Save").click()
    said(page, "Nothing was saved, as somebody else has changed it: maxlen was 1234 and is 50 now.")
    assert queue.settings("shared")["maxlen"] == 50
    expect(page.get_by_label(re.compile("^maxlen"))).to_have_value("99")
    page.get_by_role("button", name="Save").click()
    said(page, "Changed: maxlen.")
    assert queue.settings("shared")["maxlen"] == 99


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


def test_a_card_of_dead_jobs_acts_on_its_own_jobs(opened: Opener, queue: holdfast.Queue) -> None:
    """Same queue and same cause, but two kinds of error are two cards; and what is no longer dead is left alone."""
    for error in ("KeyError: 'a'", "KeyError: 'b'", "OSError: disk full"):
        queue.add("cards", error, attempts=1)
        queue.next("cards", timeout=5).fail(error)
    page = opened("/console/dead?queue=cards")
    asked: list[str] = []
    page.on("dialog", lambda dialog: asked.append(dialog.message))
    one = next(each.id for each in queue.dead(queue="cards") if each.error == "KeyError: 'a'")
    assert queue.retry_dead(one) == 1
    page.locator(".heap", has_text="KeyError").get_by_role("button", name="Delete all (2 jobs)").click()
    said(page, "1 job was deleted.")
    assert asked == ["Delete 2 jobs for good?"]
    expect(page.locator("h1")).to_contain_text("in cards")
    assert [each.error for each in queue.dead(queue="cards")] == ["OSError: disk full"]
    assert queue.length("cards") == 1


def test_the_page_of_dead_jobs_says_that_it_did_not_look_at_all(opened: Opener, queue: holdfast.Queue) -> None:
    queue.add_many("massacre", ["x"] * 1100)
    for _ in range(2):
        queue.fail(*queue.take("massacre", count=550, timeout=5), dead=True)
    page = opened("/console/dead?queue=massacre")
    expect(page.locator("main")).to_contain_text("1,000 jobs were looked at; there may be more")
    page.get_by_role("button", name="Delete all (1,000 jobs)").click()
    said(page, "1,000 jobs were deleted.")
    expect(page.get_by_role("button", name="Delete all (100 jobs)")).to_be_visible()
    expect(page.locator("main")).not_to_contain_text("were looked at")


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
