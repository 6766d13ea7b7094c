"""Pages of other sites: a browser brings what they send, and a gateway turns it away."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.gateway.running import Gateway, address
from tests.gateway.test_proxy import nginx, proxy
from tests.proc.harness import Node

from holdfast.gateway.sites import is_nobodys, name_of
from holdfast.gateway.tunnel import MEDIA_TYPE

__all__ = ["nginx"]
EVIL = "http://evil.example"
HERE = "http://127.0.0.1"
COMMAND = b"*2\r\n$4\r\nQLEN\r\n$1\r\nq\r\n"


@pytest.fixture(scope="module")
def known(node: Node) -> Iterator[Gateway]:
    """Goes by a name of its own."""
    with Gateway(address(node), "--grpc", "-1", "--allow-host", "jobs.example.org") as gateway:
        yield gateway


@pytest.mark.parametrize("headers", [
    {"Origin": EVIL}, {"Origin": EVIL, "Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "cross-site"},
    {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"}, {"Origin": "null"}, {"Origin": f"{HERE}:1"},
])
def test_what_another_sites_page_asks_for_is_refused(
    http: httpx.Client, gateway: Gateway, queue: str, headers: dict[str, str]
) -> None:
    http.post(f"/v1/queues/{queue}/jobs", json={"body": "mine"}).raise_for_status()
    before = http.get("/stats").json()
    for method, path, kind in (
        ("POST", f"/v1/queues/{queue}/flush", ""), ("POST", "/push", "text/plain"), ("POST", "/v1/call", MEDIA_TYPE),
        ("PATCH", f"/v1/queues/{queue}", "application/json"), ("DELETE", "/v1/cron/x", ""),
        ("POST", "/console/login", "application/x-www-form-urlencoded"),
    ):
        body = b"{}" if kind == "application/json" else COMMAND
        answer = http.request(method, path, content=body, headers={**headers, "Content-Type": kind})
        assert answer.status_code == 403 and "another site" in answer.text, (path, answer.text)
        is_page = path.startswith("/console")
        assert answer.headers["content-type"].startswith("text/html" if is_page else "application/problem+json")
    assert len(http.get(f"/v1/queues/{queue}/peek").json()["jobs"]) == 1
    assert http.get("/stats").json() == before


def test_an_image_of_another_site_takes_no_job(http: httpx.Client) -> None:
    """GET /get removes what it returns, so it is no mere reading."""
    answer = http.get("/get", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"})
    assert answer.status_code == 403
    assert http.get("/stats", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200, "a link may lead here"


@pytest.mark.parametrize("headers", [
    {}, {"Origin": "https://jobs.example.org", "Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"},
    {"Origin": "https://jobs.example.org"}, {"Origin": "https://jobs.example.org:8443", "Sec-Fetch-Site": "same-site"},
    {"Origin": "http://x.example", "X-Forwarded-Host": "x.example"}, {"Origin": "http://x", "Host": "x"},
    {"Host": "jobs.example.org"}, {"Host": "jobs.example.org:7780", "Origin": "http://jobs.example.org:7780"},
])
def test_its_own_pages_and_programs_are_served(known: Gateway, queue: str, headers: dict[str, str]) -> None:
    with known.client() as http:
        answer = http.post(f"/v1/queues/{queue}/jobs", json={"body": "x"}, headers=headers)
        assert answer.status_code == 201, answer.text


def test_without_users_it_answers_to_its_own_names_only(http: httpx.Client, gateway: Gateway, known: Gateway) -> None:
    """Somebody's name may point here for a moment, and then their page is of the same site as we are."""
    for path in ("/stats", "/v1/queues", "/console/", "/get"):
        for name in ("evil.example", "evil.example:7780", "127.0.0.1.evil.example", "jobs.example.org"):
            answer = http.get(path, headers={"Host": name, "Sec-Fetch-Site": "same-origin"})
            assert answer.status_code == 403 and "--allow-host" in answer.text, (path, name)
    for name in ("localhost", "localhost:99", "127.0.0.1", "[::1]:7780", "10.0.0.7:80", "gateways", ""):
        assert http.get("/stats", headers={"Host": name}).status_code == 200, name
    with known.client() as other:
        assert other.get("/stats", headers={"Host": "jobs.example.org"}).status_code == 200
        assert other.get("/stats", headers={"Host": "evil.example"}).status_code == 403


def test_commands_and_json_say_what_they_are(http: httpx.Client, queue: str) -> None:
    refused = http.post("/v1/call", content=COMMAND, headers={"Content-Type": "text/plain"})
    assert refused.status_code == 415 and MEDIA_TYPE in refused.json()["detail"]
    assert http.post("/v1/call", content=COMMAND, headers={"Content-Type": MEDIA_TYPE}).content == b":0\r\n"
    for headers in ({"Content-Type": "text/plain"}, {}):
        assert http.post(f"/v1/queues/{queue}/jobs", content=b'{"body": "x"}', headers=headers).status_code == 422


@pytest.mark.parametrize(("host", "name", "is_free"), [
    ("127.0.0.1:7780", "127.0.0.1", True), ("[::1]:7780", "::1", True), ("[::1]", "::1", True), ("", "", True),
    ("Jobs.Example.ORG", "jobs.example.org", False), ("a.b:80", "a.b", False), ("gateways", "gateways", True),
])
def test_names(host: str, name: str, is_free: bool) -> None:
    assert name_of(host) == name and is_nobodys(name) == is_free


def test_behind_a_proxy_forms_and_calls_go_on(nginx: str, tmp_path: Path, gateway: Gateway, queue: str) -> None:
    """nginx calls the gateway by a name from its configuration; the browser knows another one."""
    with proxy(nginx, tmp_path, [gateway.port]) as port, httpx.Client(
        base_url=f"{HERE}:{port}", trust_env=False
    ) as http:
        own = {"Origin": "https://jobs.example.org", "Sec-Fetch-Site": "same-origin"}
        assert http.post(f"/v1/queues/{queue}/jobs", json={"body": "x"}, headers=own).status_code == 201
        assert http.post(f"/v1/queues/{queue}/jobs", json={"body": "x"}).status_code == 201
        assert http.post(f"/v1/queues/{queue}/flush", headers={"Origin": EVIL}).status_code == 403
        token = http.get("/console/add").text.split('name="form_token" value="')[1].split('"')[0]
        form = {"queue": queue, "body": "by a form", "form_token": token}
        assert http.post("/console/add", data=form, headers=own).status_code == 303
        assert http.post("/console/add", data=form, headers={"Origin": EVIL}).status_code == 403
