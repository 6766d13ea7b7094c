"""Who may do what in the console: a login first, and somebody who may only read finds nothing to press."""
from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect
from tests.console.conftest import SHOTS, Opener
from tests.gateway.running import Gateway, address
from tests.proc.harness import Node
from tests.proc.users_file import SECRETS, users

import holdfast


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    path = tmp_path_factory.mktemp("users") / "users.toml"
    users(path, "add", "boss", "--role", "admin", "--secret-stdin", secret=SECRETS["boss"])
    users(path, "add", "shop", "--role", "read", "--secret-stdin", secret=SECRETS["shop"])
    with Node("--users-file", str(path)) as node:
        url = address(node).replace("//", f"//boss:{SECRETS['boss']}@")
        with holdfast.open(url) as queue:
            queue.add("mail", "a letter")
        with Gateway(url, "--users-file", str(path)) as gateway:
            yield gateway


def test_a_login_and_what_may_be_done_after_it(opened: Opener, guarded: Gateway) -> None:
    page = opened("/console/queues", guarded.url)
    page.wait_for_url("**/console/login")
    page.screenshot(path=SHOTS / "login-light.png")
    page.get_by_label("Name").fill("shop")
    page.get_by_label("Secret").fill("not the secret at all")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("do not belong together")
    page.get_by_label("Name").fill("shop")
    page.get_by_label("Secret").fill(SECRETS["shop"])
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/console/")
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
    page.wait_for_url("**/console/login")


def test_an_admin_finds_the_buttons(opened: Opener, guarded: Gateway) -> None:
    page = opened("/console/login", guarded.url)
    page.get_by_label("Name").fill("boss")
    page.get_by_label("Secret").fill(SECRETS["boss"])
    page.get_by_role("button", name="Log in").click()
    page.goto("/console/queue?name=mail")
    expect(page.get_by_role("button", name="Pause all")).to_be_visible()
