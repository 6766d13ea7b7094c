"""Names that are empty, blank, no text or not to be seen: each is shown, leads to its own page, and to no other."""
from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect
from tests.console.conftest import Opener

import holdfast
from holdfast.console import names

ODD = {
    "": "(empty)", " ": "␠", "a  b": "a␠␠b", "\udcff\udcfe": r"\xff\xfe", r"\xff\xfe": r"\xff\xfe",
    "odd\u202egnp": r"odd\u202egnp", "hex:6162": "hex:6162", "\u200b": r"\u200b", "tab\there": r"tab\x09here",
    "\u3164": r"\u3164", "nul\0": r"nul\x00",
    "\U000e0041": r"\U000e0041", "\xa0": r"\u00a0", "<b>&amp;": "<b>&amp;", "שלום": "שלום", "a b": "a b",
}


@pytest.mark.parametrize("name", ODD)
def test_a_name_can_be_seen_and_has_one_coded_form(name: str) -> None:
    assert names.called(name) == ODD[name]
    code = names.coded(name)
    assert names.decoded(code) == name and code
    code.encode()
    assert not re.search(r"[\0-\x1f]", code)


def test_coded_forms_are_all_different() -> None:
    assert len({names.coded(name) for name in ODD}) == len(ODD)
    assert names.coded("plain") == "plain" and names.coded("hex:6162") != "hex:6162"
    assert names.decoded("hex:6") == "hex:6"


def test_the_past_of_a_queue_without_a_name_or_with_a_long_one(opened: Opener) -> None:
    page = opened("/console/history")
    choice = page.get_by_label("Queue")
    assert choice.evaluate("each => each.selectedOptions[0].text") == "all"
    choice.select_option(label="(empty)")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("h1")).to_have_text("History (empty)")
    assert choice.evaluate("each => each.selectedOptions[0].text") == "(empty)"
    past = page.request.get("/console/history.json?queue=hex:").json()
    assert past["added"] == [60, *[0] * 59]  # its one minute, and none after it up to the last of any queue
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.reload()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert choice.evaluate("each => each.getBoundingClientRect().right") <= width


@pytest.mark.parametrize("name", ODD)
def test_every_name_leads_to_its_own_page_and_jobs(opened: Opener, queue: holdfast.Queue, name: str) -> None:
    body = f"of {names.coded(name)}"
    queue.add(name, body, replicate=1)
    page = opened(f"/console/queues?find={quote(ODD[name])}")
    code = names.coded(name).replace("\\", "\\\\")
    row = page.locator(f'tr[data-queue="{code}"]')
    expect(row.locator('[data-field="len"]')).to_have_text("1")
    link = row.get_by_role("link")
    assert link.inner_text() == ODD[name] and link.locator("bdi").count() == 1
    link.click()
    assert page.locator("h1 bdi").inner_text() == ODD[name]
    expect(page.locator("main")).to_contain_text(body)
    expect(page.locator('[data-total="len"]')).to_have_text("1")
    page.get_by_role("link", name="Jobs", exact=True).last.click()
    expect(page.locator("#rows tr")).to_have_count(1)
    page.locator("#rows a").first.click()
    page.locator("main p a").first.click()
    assert page.locator("h1 bdi").inner_text() == ODD[name]
    page.get_by_role("link", name="Add a job").last.click()
    page.get_by_label("Body").fill(body)
    page.get_by_role("button", name="Add").click()
    expect(page.locator(".said")).to_have_text("The job was added.")
    assert queue.length(name) == 2
    page.locator("main p a").first.click()
    page.get_by_label("Type the name to delete all jobs").fill(names.coded(name))
    page.get_by_role("button", name="Delete all jobs").click()
    expect(page.locator(".said")).to_have_text("2 jobs were deleted.")
    assert queue.length(name) == 0


def test_a_chart_of_one_minute_shows_some_minutes_and_not_years(opened: Opener) -> None:
    page = opened("/console/history?queue=big")
    page.wait_for_function(
        "() => window.holdfastCharts && holdfastCharts.length === 3 && holdfastCharts[0].data[0].length"
    )
    page.evaluate("holdfastCharts[0].show([[1767268800], [7], [3]])")
    page.wait_for_function("() => holdfastCharts[0].plot.scales.x.max")
    assert page.evaluate("[holdfastCharts[0].plot.scales.x].map(({min, max}) => max - min)") == [1200]
