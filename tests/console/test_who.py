"""Who may do what in the console: a login first, and somebody who may only read finds nothing to press."""
from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute
from playwright.sync_api import expect
from tests.console.conftest import SHOTS, Opener
from tests.gateway.running import Gateway, address
from tests.proc.harness import Node
from tests.proc.users_file import SECRETS, users

import holdfast
from holdfast.console import acts

ADDER = "adds-and-does-no-more"
TAKER = "takes-and-does-no-more"
KEEPER = "keeps-the-mail-in-order"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, lake: Path) -> Iterator[Gateway]:
    path = tmp_path_factory.mktemp("users") / "users.toml"
    users(path, "add", "boss", "--role", "admin", "--secret-stdin", secret=SECRETS["boss"])
    users(path, "add", "shop", "--role", "read", "--secret-stdin", secret=SECRETS["shop"])
    users(path, "add", "mailer", "--role", "read", "--queue", "mail*", "--secret-stdin", secret=SECRETS["mailer"])
    users(path, "add", "keeper", "--role", "admin", "--queue", "mail*", "--secret-stdin", secret=KEEPER)
    users(path, "add", "adder", "--role", "produce", "--secret-stdin", secret=ADDER)
    users(path, "add", "taker", "--role", "consume", "--secret-stdin", secret=TAKER)
    with Node("--users-file", str(path)) as node:
        url = address(node).replace("//", f"//boss:{SECRETS['boss']}@")
        with holdfast.open(url) as queue:
            queue.add("mail", "a letter")
            queue.add("payroll", "a secret")
        with Gateway(url, "--users-file", str(path), "--lake", str(lake)) as gateway:
            yield gateway


@contextlib.contextmanager
def log_in(gateway: Gateway, name: str, secret: str = "") -> Iterator[httpx.Client]:
    with gateway.client(follow_redirects=True) as http:
        http.post("/console/login", data={"name": name, "secret": secret or SECRETS[name]})
        yield http


def test_a_login_and_what_may_be_done_after_it(opened: Opener, guarded: Gateway) -> None:
    page = opened("/console/queues?find=mail", guarded.url)
    page.wait_for_url("**/console/login?next=**")
    page.screenshot(path=SHOTS / "login-light.png")
    page.get_by_label("Name").fill("shop")
    page.get_by_label("Secret").fill("not the secret at all")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("do not belong together")
    page.get_by_label("Name").fill("shop")
    page.get_by_label("Secret").fill(SECRETS["shop"])
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/console/queues?find=mail")
    for path in ("queue?name=mail", "jobs", "limits", "scheduled", "dead"):
        page.goto(f"/console/{path}")
        assert page.locator("main form[method=post] button").count() == 0, path
    expect(page.get_by_role("link", name="Add a job")).to_have_count(0)
    cookie = page.context.cookies()[0]
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
    token = page.locator('input[name="form_token"]').first.get_attribute("value") or ""
    for path, form in (("queue/flush", {"name": "mail", "typed": "mail"}), ("add", {"queue": "mail", "body": "x"})):
        assert page.request.post(f"/console/{path}", form={**form, "form_token": token}).status == 403, path
    page.get_by_role("button", name="shop: log out").click()
    page.wait_for_url("**/console/login")
    page.goto("/console/jobs")
    page.wait_for_url("**/console/login?next=%2Fconsole%2Fjobs")


def test_an_admin_finds_the_buttons(opened: Opener, guarded: Gateway) -> None:
    page = opened("/console/login", guarded.url)
    page.get_by_label("Name").fill("boss")
    page.get_by_label("Secret").fill(SECRETS["boss"])
    page.get_by_role("button", name="Log in").click()
    page.goto("/console/queue?name=mail")
    expect(page.get_by_role("button", name="Pause all")).to_be_visible()


def test_a_user_bound_to_queues_sees_nothing_of_others(guarded: Gateway) -> None:
    with log_in(guarded, "boss") as boss, log_in(guarded, "mailer") as http:
        bearer = {"Authorization": f"Bearer boss.{SECRETS['boss']}"}
        ids = {name: boss.get(f"/v1/queues/{name}/peek", headers=bearer).json()["jobs"][0]["id"]
               for name in ("mail", "payroll")}
        for path in ("job", "job/body"):
            assert http.get(f"/console/{path}", params={"id": ids["mail"]}).status_code == 200
            refused = http.get(f"/console/{path}", params={"id": ids["payroll"]})
            assert refused.status_code == 403 and "a secret" not in refused.text
        assert len(boss.get("/console/history.json").json()["time"]) == 60  # of the queue `big`
        for path in ("history.json", "history.json?queue=big"):
            assert http.get(f"/console/{path}").json()["time"] == []
        assert "big" not in http.get("/console/history").text
    with log_in(guarded, "adder", ADDER) as http:
        assert http.get("/console/history.json").status_code == 403


def fields(route: APIRoute) -> list[str]:
    """What a form has in it."""
    return [field.alias for field in route.dependant.body_params]


def test_no_form_of_the_console_reaches_a_queue_of_others(guarded: Gateway) -> None:
    """Each that there is, sent by an admin of the queues mail*: with the other queue, its job or its schedule wherever
    something of that kind goes. The same forms about its own are taken."""
    with log_in(guarded, "keeper", KEEPER) as http, guarded.client(
        headers={"Authorization": f"Bearer boss.{SECRETS['boss']}"}
    ) as boss:
        token = re.search('name="form_token" value="([^"]+)"', http.get("/console/queue?name=mail").text)
        assert token is not None
        for queue, codes in (("payroll", {403}), ("mail-2", {200})):
            job = boss.post(f"/v1/queues/{queue}/jobs", json={"body": "x"}).json()["id"]
            boss.put(f"/v1/cron/{queue}", json={"schedule": "@daily", "queue": queue, "body": "x"}).raise_for_status()
            values = {
                "queue": queue, "name": queue, "to": queue, "typed": queue, "id": job, "how": "none", "tenant": "t",
                "weight": "1", "schedule": "@daily", "set-maxlen": "1000000", "domain": "d", "rate": "1/s",
                "form_token": token[1],
            }
            for route in acts.router.routes:
                assert isinstance(route, APIRoute)
                if queue != "payroll" and route.path.startswith("/console/domain/"):
                    continue  # limits of all queues, whoever sets them
                for what in ("run", "retry", "delete", "cancel", "move") if "what" in fields(route) else ("",):
                    answer = http.post(route.path, data={**values, "what": what})
                    assert {answer.status_code} == codes, (route.path, what, answer.text)
            if queue == "payroll":
                assert boss.get(f"/v1/jobs/{job}").json()["queue"] == "payroll"
            every = {**values, "what": "delete", "all": "1", "filter-queue": queue, "sure": "1"}
            assert {http.post("/console/jobs/act", data=every).status_code} == codes


@pytest.mark.parametrize(("wanted", "place"), [
    ("/console/queue?name=mail&x=1", "/console/queue?name=mail&x=1"), ("//evil.example/console/", "/console/"),
    ("https://evil.example/console/", "/console/"), ("/v1/queues", "/console/"), ("", "/console/"),
])
def test_a_login_leads_on_to_a_page_of_ours_only(guarded: Gateway, wanted: str, place: str) -> None:
    with guarded.client() as http:
        form = {"name": "shop", "secret": SECRETS["shop"], "next": wanted}
        assert http.post("/console/login", data=form).headers["location"] == place


def test_somebody_who_may_only_add_can_do_that_and_leave(opened: Opener, guarded: Gateway) -> None:
    page = opened("/console/", guarded.url)
    page.get_by_label("Name").fill("adder")
    page.get_by_label("Secret").fill(ADDER)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/console/add")
    page.get_by_label("Queue").fill("added-by-hand")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator(".said")).to_contain_text("The job was added.")
    expect(page.locator("h1")).to_have_text("Add a job")  # and not a page that it may not see
    for path in ("dead", "limits", "jobs", "workers", "scheduled", "queues", "history", "cluster"):
        answer = page.goto(f"/console/{path}")
        assert answer is not None and answer.status == 403, path
        expect(page.locator("main")).not_to_contain_text("There are none")
        expect(page.get_by_role("link", name="Add a job")).to_be_visible()
        expect(page.locator("header nav a")).to_have_text(["Add a job"])
    page.get_by_role("button", name="adder: log out").click()
    page.wait_for_url("**/console/login")


def test_somebody_who_may_only_take_jobs_sees_who_else_does(opened: Opener, guarded: Gateway) -> None:
    """The one page for that role; the menu has no other, and those say what they take."""
    page = opened("/console/", guarded.url)
    page.get_by_label("Name").fill("taker")
    page.get_by_label("Secret").fill(TAKER)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/console/workers")
    expect(page.locator("h1")).to_contain_text("Workers")
    expect(page.locator("header nav a")).to_have_text(["Workers"])
    page.keyboard.press("g")
    page.keyboard.press("j")  # no page of this user's
    expect(page.locator("h1")).to_contain_text("Workers")
    for path in ("add", "jobs"):
        answer = page.goto(f"/console/{path}")
        assert answer is not None and answer.status == 403, path
        expect(page.locator("main")).to_contain_text("takes the role")
        expect(page.locator("main")).not_to_contain_text("You may look")


def test_a_reader_of_some_queues_is_shown_the_way_to_them(opened: Opener, guarded: Gateway) -> None:
    page = opened("/console/jobs", guarded.url)
    page.get_by_label("Name").fill("mailer")
    page.get_by_label("Secret").fill(SECRETS["mailer"])
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/console/jobs")
    for path in ("jobs", "workers", "scheduled", "dead", "limits", "history", "cluster", "queues", ""):
        answer = page.goto(f"/console/{path}")
        assert answer is not None and answer.status == 200, path
        expect(page.locator("main")).not_to_contain_text("payroll")
        for words in ("There are none.", "No job fits", "No schedule yet", "No domain has been", "No job is with"):
            expect(page.locator("main")).not_to_contain_text(words)
        if path in ("jobs", "workers", "scheduled", "dead"):
            page.locator("main").get_by_role("link", name="mail", exact=True).click()
            expect(page.locator("h1")).to_be_visible()
            expect(page.get_by_role("alert")).to_have_count(0)
    page.goto("/console/jobs")
    page.get_by_role("textbox", name="Queue").fill("mail")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("#rows")).to_contain_text("a letter")
