"""Every page, in both themes: it shows what is there, logs no error, and axe finds nothing serious."""
from __future__ import annotations

import datetime as dt
import json
import re

import pytest
from playwright.sync_api import expect
from tests.console.conftest import HOSTILE, JOBS, QUEUES, ROOT, SHOTS, Opener
from tests.proc.harness import until

import holdfast

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
# Name of the page, its address, words that must be on it.
PAGES = {
    "dashboard": ("/console/", ["Dashboard", "big", f"{JOBS:,}"]),
    "queues": ("/console/queues?find=queue-00", ["Queues", "queue-000", "queue-009"]),  # ten: axe is slow on tables
    "queue": ("/console/queue?name=big", ["big", f"{JOBS:,}", "body 0", "maxlen"]),
    "queue with tenants": ("/console/queue?name=calls", ["tenant-1", "Tenants"]),
    "jobs": ("/console/jobs?queue=calls", ["Jobs", "call 0", "queued"]),
    "ended": ("/console/ended", ["The nodes keep no history", "history yes", "CPU"]),
    "workers": ("/console/workers", ["worker-1", "nearly half", "no name and no token"]),
    "scheduled": ("/console/scheduled", ["nightly", "Europe/Rome", "in an hour"]),
    "dead": ("/console/dead", ["ValueError: bad number #", "attempts"]),
    "limits": ("/console/limits", ["api.example", "1/s", "tenant-1", "Groups"]),
    "cluster": ("/console/cluster", ["Cluster 2 nodes", "linked", "jobs short of copies"]),
    "history": ("/console/history?queue=big", ["History", "Jobs per minute"]),
    "add": ("/console/add?queue=big", ["Add a job", "Priority"]),
}


def serious(found: dict[str, list[dict[str, object]]]) -> list[str]:
    return [
        f"{each['id']}: {json.dumps(each['nodes'])[:600]}"
        for each in found["violations"] if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_every_page_shows_what_is_there_and_is_accessible(opened: Opener, name: str, theme: str) -> None:
    path, words = PAGES[name]
    page = opened(path, color_scheme=theme, bypass_csp=True)  # axe is put into the page, which its policy forbids
    for each in words:
        expect(page.locator("main")).to_contain_text(each)
    if page.locator("[data-chart]").count():
        expect(page.locator(".u-wrap").first).to_be_visible()
    page.evaluate(AXE.read_text("utf-8"))
    what = "axe.run()" if theme == "light" else "axe.run({runOnly: ['color-contrast']})"  # the rest is the same
    assert serious(page.evaluate(what)) == []
    page.screenshot(path=SHOTS / f"{name.replace(' ', '-')}-{theme}.png", full_page=True)


def test_a_job_is_shown_with_why_it_waits_and_its_attempts(opened: Opener, queue: holdfast.Queue) -> None:
    dead = queue.dead(count=1, queue="broken")[0]
    page = opened(f"/console/job?id={dead.id}", bypass_csp=True)
    main = page.locator("main")
    for words in ("it is dead", "ValueError: bad number", "nacked", "breaks", "Retry"):
        expect(main).to_contain_text(words)
    page.evaluate(AXE.read_text("utf-8"))
    assert serious(page.evaluate("axe.run()")) == []
    page.screenshot(path=SHOTS / "job-light.png", full_page=True)
    page.goto("/console/jobs?queue=calls&state=queued")
    page.locator("#rows a").first.click()
    expect(main).to_contain_text("api.example")


def test_a_job_is_told_in_words_and_its_title_tells_it_from_others(opened: Opener, queue: holdfast.Queue) -> None:
    """Many tabs of jobs of one node: each has its queue and its own digits in its title."""
    ids = [queue.add("titled", "x", retry=0, replicate=1, unique=f"u{number}") for number in range(2)]
    titles = []
    for each in ids:
        page = opened(f"/console/job?id={each}")
        titles.append(page.title())
        assert "titled" in page.title() and page.title().split()[1] in page.locator("h1").inner_text()
        words = page.locator("table.facts").last.inner_text()
        assert "copies asked for" in words and "at most once" in words and "unique key" in words
        assert not re.search(r"ctime|repl\b|nacks|-ms|[a-z]-[a-z]", words), words
    assert titles[0] != titles[1]
    queue.flush("titled")


def test_a_hostile_body_is_shown_as_text(opened: Opener) -> None:
    page = opened("/console/jobs?queue=hostile")
    expect(page.locator("#rows")).to_contain_text("<script>")
    page.locator("#rows a").first.click()
    expect(page.locator("pre.body")).to_have_text(HOSTILE)
    expect(page.locator("main")).to_contain_text("<b>value</b>")
    assert page.locator("main b").count() == 0 and page.locator("main img, main script").count() == 0
    assert page.title().startswith("Job ")


def test_a_body_of_json_is_shown_as_it_is(opened: Opener, queue: holdfast.Queue) -> None:
    text = '\n{"order":12345678901234567890.5,"x":1,"x":2}'
    page = opened(f"/console/job?id={queue.add('as-it-is', text.strip())}")
    assert page.locator("pre.body").text_content() == text.strip()
    page.get_by_text("In lines, as JSON").click()
    expect(page.locator("pre.laid-out")).to_contain_text('"order": 12345678901234567890.5,')
    page.goto(f"/console/job?id={queue.add('as-it-is', text)}")
    assert page.locator("pre.body").text_content() == text
    queue.flush("as-it-is")


def test_nothing_but_our_own_files_may_run(opened: Opener) -> None:
    page = opened("/console/")
    for path, _ in PAGES.values():
        answer = page.request.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
        assert not re.search(r"<script(?! src=)|\sstyle=|\son\w+=|javascript:", answer.text())


def test_a_thousand_steps_through_the_lists(opened: Opener) -> None:
    """Pages of the list of queues, and of jobs, lead on."""
    page = opened("/console/queues?find=queue-")
    expect(page.locator("h1")).to_contain_text(str(QUEUES))
    page.get_by_role("link", name="More", exact=True).click()
    expect(page.locator("main")).to_contain_text("queue-050")
    page.goto("/console/jobs?queue=big")
    first = page.locator("#rows a").first.inner_text()
    page.get_by_role("link", name="More", exact=True).click()
    expect(page.locator("#rows tr").first).not_to_contain_text(first)
    expect(page.locator("#rows tr")).to_have_count(50)


def test_queues_are_sorted_by_their_figures(opened: Opener, queue: holdfast.Queue) -> None:
    """Over all pages, not within one; the list stays so while figures come in."""
    for name, count in (("zz-sorted-1", 40), ("zz-sorted-2", 30), ("aa-sorted-3", 35)):
        queue.add_many(name, ["x"] * count, replicate=1)
    page = opened("/console/queues")
    link = page.get_by_role("columnheader", name="queued").get_by_role("link")
    until(lambda: page.reload() and "aa-sorted-3" in page.locator("main").inner_text())
    link.click()
    page.wait_for_url("**by=len**")
    expect(page.locator("tr[data-queue]").first).to_contain_text("big")
    expect(page.get_by_role("columnheader", name="queued")).to_have_attribute("aria-sort", "descending")
    names = page.locator("tr[data-queue]").evaluate_all("rows => rows.map(each => each.dataset.queue)")
    assert [each for each in names if "-sorted-" in each] == ["zz-sorted-1", "aa-sorted-3", "zz-sorted-2"]
    queue.add("zz-sorted-1", "x", replicate=1)
    expect(page.locator('tr[data-queue="zz-sorted-1"] [data-field="len"]')).to_have_text("41")
    assert page.locator("tr[data-queue]").evaluate_all("rows => rows.map(each => each.dataset.queue)")[:3] == names[:3]
    link.click()
    expect(page.get_by_role("columnheader", name="queued")).to_have_attribute("aria-sort", "ascending")
    expect(page.locator("main")).not_to_contain_text("-sorted-")
    page.get_by_role("link", name="More", exact=True).click()
    expect(page.get_by_role("columnheader", name="queued")).to_have_attribute("aria-sort", "ascending")
    for column in ("longest wait", "dead", "in /s", "out /s", "queue"):
        page.get_by_role("columnheader", name=column, exact=True).get_by_role("link").click()
        expect(page.locator("th[aria-sort]")).to_have_text(column)
    for name in ("zz-sorted-1", "zz-sorted-2", "aa-sorted-3"):
        queue.flush(name)


def test_a_filter_that_fits_few_of_many_jobs_answers_soon(opened: Opener) -> None:
    """It looks for half a second at a time and offers to look on."""
    page = opened("/console/jobs?state=dead")
    for _ in range(100):
        onward = page.get_by_role("link", name=re.compile("More|Look on"))
        if page.locator("#rows .pill.dead").count() or not onward.count():
            break
        onward.click()
    expect(page.locator("#rows .pill.dead").first).to_be_visible()


def test_jobs_of_a_group_are_found(opened: Opener) -> None:
    page = opened("/console/limits")
    page.get_by_label("Group").fill("ada")
    page.get_by_role("button", name="Find its jobs").click()
    expect(page.locator("#rows tr")).to_have_count(4)


def test_long_names_do_not_push_the_rest_out_of_sight(opened: Opener, queue: holdfast.Queue) -> None:
    name = "very-long-" + "n" * 290
    made = queue.add(name, "x", headers={"h" * 200: "v" * 3000})
    page = opened("/console/queues?find=very-long-")
    link = page.get_by_role("link", name=name)
    assert link.get_attribute("title") == name
    for path in ("/console/queues?find=very-long-", f"/console/queue?name={name}", f"/console/job?id={made}",
                 f"/console/jobs?queue={name}", f"/console/history?queue={name}"):
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
            assert page.evaluate("document.documentElement.scrollHeight") < 8000, (path, width)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto("/console/queues?find=very-long-")
    expect(page.locator('[data-field="blocked"]')).to_be_in_viewport()
    page.screenshot(path=SHOTS / "long-names.png", full_page=True)
    queue.flush(name)


FITS = """(place, words) => {
  const words_at = document.createRange(), tile = place.parentElement.getBoundingClientRect();
  place.textContent = words;
  words_at.selectNodeContents(place);
  return words_at.getClientRects().length === 1 && words_at.getBoundingClientRect().right <= tile.right;
}"""


def test_a_long_wait_stays_in_its_tile(opened: Opener) -> None:
    page = opened("/console/")
    for width in (1280, 1024, 800, 390, 320):
        page.set_viewport_size({"width": width, "height": 900})
        for key, words in (("oldest-age", "23 min 16 s"), ("acked", "12,345,678")):
            tile = page.locator(f'[data-total="{key}"]').first
            assert tile.evaluate(FITS, words), (width, words)


def test_what_is_not_found_is_said_in_words(opened: Opener) -> None:
    page = opened("/console/queues?find=zzz")
    expect(page.locator("main")).to_contain_text("No queue matches “zzz”")
    page.goto("/console/scheduled")
    expect(page.locator("#rows")).to_contain_text("in an hour")
    expect(page.get_by_role("link", name="More", exact=True)).to_have_count(0)
    page.locator("#rows a").first.click()
    expect(page.locator("main")).to_contain_text("for another 5")
    expect(page.locator(".pill.delayed")).to_be_visible()
    expect(page.locator("table.facts")).not_to_contain_text("active")


def test_the_cluster_in_words_for_people(opened: Opener) -> None:
    page = opened("/console/cluster")
    expect(page.get_by_role("row", name="nodes that can be reached")).to_contain_text("2 of 2")
    expect(page.locator("details")).not_to_have_attribute("open", "")


def test_history_tells_times_as_the_dashboard_does(opened: Opener) -> None:
    """And not a minute that is not over: it would look like a fall."""
    page = opened("/console/history?queue=big", timezone_id="UTC")
    expect(page.locator(".u-wrap").first).to_be_visible()
    assert page.request.get("/console/history.json?queue=big").json()["time"][-1] == 1767272340
    page.screenshot(path=SHOTS / "history-utc.png")


def test_times_are_those_of_who_looks_and_name_their_zone(opened: Opener, queue: holdfast.Queue) -> None:
    """On a page of a job, of schedules, on charts. Without JavaScript they are UTC, and say so."""
    dead = queue.dead(count=1, queue="broken")[0]
    died = dt.datetime.fromtimestamp(dead.died_ms // 1000, dt.UTC)
    there = died.astimezone(dt.timezone(dt.timedelta(hours=5, minutes=30)))
    page = opened(f"/console/job?id={dead.id}", timezone_id="Asia/Kolkata")
    expect(page.get_by_role("row", name=re.compile("^died"))).to_contain_text(f"{there:%Y-%m-%d %H:%M:%S} GMT+5:30")
    expect(page.locator(".timeline time").first).to_contain_text("GMT+5:30")
    page.goto("/console/scheduled")
    expect(page.get_by_role("row", name="nightly").locator("time")).to_contain_text("GMT+5:30")
    for path in ("/console/", "/console/history?queue=big"):
        page.goto(path)
        expect(page.locator(".u-legend").first).to_contain_text("Time, GMT+5:30")
    page.goto("/console/history?queue=big")
    plain = opened(f"/console/job?id={dead.id}", timezone_id="Asia/Kolkata", java_script_enabled=False)
    expect(plain.locator("main")).to_contain_text(f"{died:%Y-%m-%d %H:%M:%S} UTC")


def test_a_phone_shows_it_without_scrolling_sideways(opened: Opener) -> None:
    page = opened("/console/", viewport={"width": 390, "height": 800})
    for path in ("/console/", "/console/jobs", "/console/cluster", "/console/queue?name=big"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    page.screenshot(path=SHOTS / "phone.png")
    page.goto("/console/add")
    expect(page.locator("nav [aria-current]")).to_be_in_viewport()  # the menu is wider than the screen


def test_keys_and_theme(opened: Opener) -> None:
    page = opened("/console/", color_scheme="light")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url("**/console/jobs")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"  # remembered
    page.keyboard.press("/")
    expect(page.locator("#filter")).to_be_focused()
    page.locator("h1").click()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
