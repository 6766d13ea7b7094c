"""/v1 about the past and about what is wrong: typed answers, and no more than the queues a user may see."""
from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest
from tests.gateway.running import Gateway, address
from tests.proc.harness import Node, until
from tests.proc.users_file import SECRETS, users

import holdfast

PATHS = ["/v1/past", "/v1/problems", "/v1/ended", "/v1/jobs/{}/life"]


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, dict[str, str]]]:
    """A node with history and users; a job in each of two queues was done, one died, and both queues are paused."""
    folder = tmp_path_factory.mktemp("past")
    path = folder / "users.toml"
    users(path, "add", "boss", "--role", "admin", "--secret-stdin", secret=SECRETS["boss"])
    users(path, "add", "shop", "--role", "produce", "--queue", "orders.*", "--secret-stdin", secret=SECRETS["shop"])
    users(path, "add", "mailer", "--role", "read", "--queue", "mail.*", "--secret-stdin", secret=SECRETS["mailer"])
    more = ("--set", "history=yes", "--set", "history-body-bytes=64", "--set", "maxmemory=64mb")
    with Node("--users-file", str(path), "--dir", str(folder / "node"), *more) as node:
        url = address(node).replace("//", f"//boss:{SECRETS['boss']}@")
        done = {}
        with holdfast.open(url) as queue:
            for name in ("mail.out", "pay"):
                done[name] = queue.add(name, f'{{"task": "t", "args": ["secret of {name}"]}}')
                queue.next(name, timeout=5).done()
                queue.add(name, "dies", attempts=1)
                queue.next(name, timeout=5).fail(f"ValueError: of {name}")
                queue.pause(name, "in")
        with Gateway(address(node).replace("//", "//boss@"), "--users-file", str(path),
                     env={"HOLDFAST_SECRET": SECRETS["boss"]}) as gateway:
            yield gateway, done


def asking(door: tuple[Gateway, dict[str, str]], name: str) -> httpx.Client:
    return door[0].client(headers={"Authorization": f"Bearer {name}.{SECRETS[name]}"})


@pytest.mark.parametrize("path", PATHS)
def test_who_may_not_read_may_not_look_back(door: tuple[Gateway, dict[str, str]], path: str) -> None:
    with asking(door, "shop") as http:
        assert http.get(path.format(door[1]["pay"])).status_code == 403
    with door[0].client() as http:
        assert http.get(path.format(door[1]["pay"])).status_code == 401


def test_all_is_seen_by_who_may_see_all(door: tuple[Gateway, dict[str, str]]) -> None:
    with asking(door, "boss") as http:
        found = http.get("/v1/ended").raise_for_status().json()
        assert [(each["queue"], each["how"]) for each in found["jobs"]] == [
            ("pay", "dead"), ("pay", "done"), ("mail.out", "dead"), ("mail.out", "done")]
        assert found["cursor"] == "" and found["has_bodies"] and found["jobs"][1]["task"] == "t"
        wrong = http.get("/v1/problems").raise_for_status().json()["problems"]
        assert {each["queue"] for each in wrong if each["kind"] == "queue-paused"} == {"pay", "mail.out"}
        until(lambda: {each["queue"] for each in http.get("/v1/problems").json()["problems"]
                       if each["kind"] == "jobs-die"} == {"pay", "mail.out"})


def test_who_is_bound_to_queues_sees_the_past_of_these_only(door: tuple[Gateway, dict[str, str]]) -> None:
    _, done = door
    with asking(door, "mailer") as http:
        answers = {path: http.get(path.format(done["pay"])) for path in PATHS}
        assert [each.status_code for each in answers.values()] == [200] * 4
        assert not any("pay" in each.text for each in answers.values())
        assert {each["queue"] for each in answers["/v1/ended"].json()["jobs"]} == {"mail.out"}
        assert answers["/v1/jobs/{}/life"].json()["events"] == []
        life = http.get(f"/v1/jobs/{done['mail.out']}/life").raise_for_status().json()["events"]
        assert [each["event"] for each in life] == ["added", "handed-out", "acked"]
        assert http.get("/v1/past?queue=pay").status_code == 403
        until(lambda: sum(each or 0 for each in http.get("/v1/past").json()["added"]) == 2)
    with asking(door, "boss") as http:
        assert sum(each or 0 for each in http.get("/v1/past").json()["added"]) == 4


def test_rows_of_the_past_have_a_time_and_a_value_or_null(door: tuple[Gateway, dict[str, str]]) -> None:
    with asking(door, "boss") as http:
        found = http.get("/v1/past?queue=pay&count=120").raise_for_status().json()
        assert len(found["time"]) == len(found["longest_wait"]) == 120
        assert found["time"] == list(range(found["time"][0], found["time"][0] + 120))
        assert found["time"][-1] > time.time() - 10 and min(found["since"].values()) > time.time() - 600
        assert found["added"][0] is None, "nobody looked then"
        assert http.get("/v1/past?step=hour").status_code == 422
        assert http.get("/v1/past?queue=pay&step=minute").raise_for_status().json()["step"] == "minute"


def test_where_there_is_no_history_it_is_said_what_turns_it_on() -> None:
    with Node() as node, Gateway(address(node)) as gateway, gateway.client() as http:
        answer = http.get("/v1/ended")
        assert answer.status_code == 501 and "history yes" in answer.json()["detail"]
