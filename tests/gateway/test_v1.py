"""/v1: everything a queue can do, over HTTP, and errors that say what to do."""
from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from tests.gateway.running import Gateway

from holdfast.client.adding import ADD_OPTIONS
from holdfast.client.figures import FIGURES, QueueFigures
from holdfast.client.resp import to_text
from holdfast.client.values import WorkerView
from holdfast.core.commands import show
from holdfast.gateway import answers
from holdfast.gateway.answers import queue_figures
from holdfast.gateway.models import Options
from holdfast.gateway.queues import name_of, row_of

NOBODY = "DI" + "0" * 44 + "SQ"


def add(http: httpx.Client, queue: str, **job: Any) -> str:
    answer = http.post(f"/v1/queues/{queue}/jobs", json=job)
    assert answer.status_code == 201, answer.text
    assert answer.json()["copies"] in (0, 1)  # one node, and none where the key is taken
    return str(answer.json()["id"])


def take(http: httpx.Client, queue: str, **wanted: Any) -> list[dict[str, Any]]:
    answer = http.post("/v1/take", json={"queues": [queue], **wanted})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["jobs"])


def test_options_over_http_are_those_of_python() -> None:
    assert set(Options.model_fields) <= set(ADD_OPTIONS)
    assert set(ADD_OPTIONS) - set(Options.model_fields) == {"is_async", "say_copies"}  # which HTTP always says


def test_a_job_goes_through_its_life(http: httpx.Client, queue: str) -> None:
    job = add(http, queue, body="hello", headers={"trace": "1"}, priority=7, tenant="t")
    assert http.get(f"/v1/jobs/{job}").json()["state"] == "queued"
    [taken] = take(http, queue, lease=30)
    assert taken["id"] == job and taken["body"] == "hello" and taken["headers"] == {"trace": "1"}
    assert taken["priority"] == 7 and taken["keys"] == {"tenant": "t"} and taken["attempt"] == 1
    token = taken["token"]
    assert http.post(f"/v1/jobs/{job}/extend", json={"token": token, "seconds": 60}).json() == {"seconds": 60.0}
    assert http.post(f"/v1/jobs/{job}/progress", json={"token": token, "fraction": 0.5}).json() == {"go_on": True}
    kept = http.post("/v1/keepalive", json={"seconds": 30, "jobs": [{"id": job, "token": token}]})
    assert kept.json()["outcomes"] == ["ok"]
    done = http.post(f"/v1/jobs/{job}/done", json={"token": token, "result": "42"})
    assert done.json() == {"count": 1}
    [waited] = http.post("/v1/wait", json={"ids": [job], "timeout": 5}).json()["jobs"]
    assert waited["state"] == "done" and waited["result"] == "42"


@pytest.mark.parametrize("name", ["a/b", "/", "a%2Fb", "a%252Fb", "100%", "a/b/jobs", "ü/%/?#", "a b", "%2f", "//"])
def test_any_name_can_be_in_a_path(http: httpx.Client, queue: str, name: str) -> None:
    name = queue + name
    path = f"/v1/queues/{quote(name, safe='')}"
    add(http, quote(name, safe=""), body="x")
    [job] = http.get(f"{path}/peek").json()["jobs"]
    assert [each["id"] for each in take(http, name)] == [job["id"]]
    assert http.get(path).json()["queue"] == name
    assert http.post(f"{path}/jobs/many", json={"jobs": [{"body": "y"}]}).status_code == 201
    line = http.post(f"{path}/stream", content=b'{"body": "z"}\n').json()
    assert http.get(f"/v1/jobs/{line['id']}").json()["queue"] == name
    assert http.post(f"{path}/flush").json()["count"] >= 2
    for kind, said in (("cron", {"schedule": "0 0 * * *", "queue": name, "body": "x"}), ("domains", {"rate": "1/s"})):
        assert http.put(f"/v1/{kind}/{quote(name, safe='')}", json=said).status_code == 204
        *_, rows = http.get(f"/v1/{kind}").json().values()
        assert name in {value for row in rows for value in row.values() if isinstance(value, str)}
        assert http.delete(f"/v1/{kind}/{quote(name, safe='')}").status_code == 204


def test_a_slash_that_is_none_of_a_name_finds_nothing(http: httpx.Client, queue: str) -> None:
    assert http.get("/v1%2Fqueues").status_code == 404
    assert http.post(f"/v1/queues/{queue}/x/jobs", json={"body": "x"}).status_code == 404
    moved = http.get(f"/v1/queues/{queue}%2F%25/", follow_redirects=True)
    assert moved.status_code == 200 and moved.json()["queue"] == f"{queue}/%"


@pytest.mark.parametrize(("said", "kept"), [
    ({"body": "text"}, b"text"), ({"body64": base64.b64encode(b"\xff\x00").decode()}, b"\xff\x00"),
    ({"json": {"a": [1, None, "ü"]}}, '{"a":[1,null,"ü"]}'.encode()), ({"json": None}, b"null"), ({"body": ""}, b""),
])
def test_a_body_is_text_bytes_or_json(http: httpx.Client, queue: str, said: dict[str, Any], kept: bytes) -> None:
    add(http, queue, **said)
    [job] = take(http, queue)
    got = job["body"].encode() if job["body"] is not None else base64.b64decode(job["body64"])
    assert got == kept


@pytest.mark.parametrize("said", [
    {}, {"body": "a", "json": 1}, {"body64": "!"}, {"body": 5}, {"body": "a", "priority": 10}, {"body": "a", "x": 1},
    {"body": "a", "retry": -1}, {"body": "a", "ttl": 1, "delay": 5}, {"body": "a", "retry": 0, "replicate": 3},
    {"body": "a", "on_duplicate": "existing"}, {"body": "a", "headers": {"": "x"}},
])
def test_bad_jobs_get_words_and_nothing_is_kept(http: httpx.Client, queue: str, said: dict[str, Any]) -> None:
    answer = http.post(f"/v1/queues/{queue}/jobs", json=said)
    assert answer.status_code in (400, 422) and answer.headers["content-type"] == "application/problem+json"
    assert len(answer.json()["detail"]) > 5
    assert take(http, queue) == []


def test_many_jobs_are_added_and_taken_at_once(http: httpx.Client, queue: str) -> None:
    answer = http.post(f"/v1/queues/{queue}/jobs/many", json={"jobs": [{"body": str(i)} for i in range(200)]})
    assert len(set(answer.json()["ids"])) == 200 and answer.json()["copies"] == 1
    assert [job["body"] for job in take(http, queue, count=500)] == [str(i) for i in range(200)]


def test_failures_use_up_attempts_and_a_dead_job_can_be_sent_back(http: httpx.Client, queue: str) -> None:
    job = add(http, queue, body="x", attempts=2)
    for _ in range(2):
        [taken] = take(http, queue, timeout=5)
        http.post(f"/v1/jobs/{job}/fail", json={"token": taken["token"], "error": "boom"}).raise_for_status()
    assert take(http, queue) == []
    [dead] = http.get("/v1/dead", params={"queue": queue}).json()["jobs"]
    assert dead["id"] == job and dead["error"] == "boom" and dead["attempts"] == 2
    assert http.post("/v1/dead/retry", json={"queue": queue}).json() == {"count": 1}
    assert [each["id"] for each in take(http, queue, timeout=5)] == [job]


def test_release_gives_back_without_using_up_an_attempt(http: httpx.Client, queue: str) -> None:
    job = add(http, queue, body="x", attempts=1)
    for _ in range(3):
        [taken] = take(http, queue, timeout=5)
        assert http.post(f"/v1/jobs/{job}/release", json={"token": taken["token"]}).json() == {"count": 1}
    assert http.get("/v1/dead", params={"queue": queue}).json()["jobs"] == []


def test_explain_says_why_a_job_waits(http: httpx.Client, queue: str) -> None:
    job = add(http, queue, body="x", delay=3600)
    found = http.get(f"/v1/jobs/{job}/explain").json()
    assert any(reason["code"] == "delayed" and reason["ms_until"] > 3_000_000 for reason in found["reasons"])
    assert http.patch(f"/v1/jobs/{job}", json={"run_now": True}).json() == {"run_now": True}
    assert [each["id"] for each in take(http, queue)] == [job]


def test_a_unique_key_is_taken_once(http: httpx.Client, queue: str) -> None:
    job = add(http, queue, body="x", unique="k")
    assert add(http, queue, body="y", unique="k") == job
    answer = http.post(f"/v1/queues/{queue}/jobs", json={"body": "z", "unique": "k", "on_duplicate": "reject"})
    assert answer.status_code == 409 and answer.json()["existing"] == job


def test_jobs_queues_and_settings_are_listed(http: httpx.Client, queue: str) -> None:
    ids = {add(http, queue, body=str(i)) for i in range(5)}
    seen: set[str] = set()
    cursor = "0"
    while True:
        page = http.get("/v1/jobs", params={"queue": queue, "cursor": cursor, "count": 2}).json()
        seen |= {job["id"] for job in page["jobs"]}
        cursor = page["cursor"]
        if cursor == "0":
            break
    assert seen == ids
    assert queue in {row["name"] for row in http.get("/v1/queues").json()["queues"]}
    assert http.patch(f"/v1/queues/{queue}", json={"maxlen": 5}).json()["settings"]["maxlen"] == 5
    assert http.post(f"/v1/queues/{queue}/jobs", json={"body": "x"}).status_code == 429
    assert http.post(f"/v1/queues/{queue}/pause", json={"how": "out"}).json() == {"paused": "out"}
    assert take(http, queue) == []
    assert http.post(f"/v1/queues/{queue}/pause", json={"how": "none"}).json() == {"paused": "none"}
    assert len(http.get(f"/v1/queues/{queue}/peek").json()["jobs"]) == 5
    assert http.post(f"/v1/queues/{queue}/flush").json() == {"count": 5}


def test_a_job_has_the_same_fields_wherever_it_is_shown(http: httpx.Client, queue: str) -> None:
    """A list called copies `repl` and deliveries `additional-deliveries`, and one job `replicate` and with a line."""
    job = add(http, queue, body="x", unique="k", attempts=3, backoff=5, headers={"a": "b"}, tenant="t", retry=60)
    taken = take(http, queue)[0]
    http.post(f"/v1/jobs/{job}/progress", json={"token": taken["token"], "fraction": 0.5}).raise_for_status()
    one = http.get(f"/v1/jobs/{job}").json()
    [listed] = http.get("/v1/jobs", params={"queue": queue, "state": "leased"}).json()["jobs"]
    running = {"next_requeue_ms", "next_awake_ms", "leased_ms", "ttl"}
    assert {name for name in one if one[name] != listed[name]} <= running and set(one) == set(listed)
    assert (one["status"], one["state"], one["retry"], one["attempts"]) == ("leased", "active", 60, 3)
    assert (one["headers"], one["tenant"], one["backoff_ms"]) == ({"a": "b"}, "t", 5000)
    assert (one["progress"], one["token"], one["cancelled"]) == (0.5, taken["token"], False)
    http.post(f"/v1/jobs/{job}/fail", json={"token": taken["token"], "error": "boom"}).raise_for_status()
    again = http.get(f"/v1/jobs/{job}").json()
    assert again["status"] == "retrying" and again["tries"][0]["error"] == "boom"
    assert http.get(f"/v1/jobs/{job}/explain").json()["status"] == "retrying"


def test_whatever_show_says_of_a_job_http_says_too() -> None:
    """By the source: a field that somebody adds there and forgets here would be left out without a word."""
    source = (Path(show.__file__).parent / "show.py").read_text("utf-8")
    said = set(re.findall(r'extra\.(?:number|text|name)\(b"([a-z-]+)"', source))
    assert len(said) > 20
    as_status = {"leased", "in-line"}  # what these said `status` says
    assert {name.replace("-", "_") for name in said - as_status} <= set(answers.Job.model_fields)


def test_figures_have_the_same_names_in_every_answer(http: httpx.Client, queue: str) -> None:
    add(http, queue, body="x")
    http.post(f"/v1/queues/{queue}/pause", json={"how": "out"}).raise_for_status()
    [row] = [row for row in http.get("/v1/queues").json()["queues"] if row["name"] == queue]
    assert row["paused"] == "out" and row["queued"] == 1 and {each.name for each in FIGURES} <= set(row)
    assert set(http.get(f"/v1/queues/{queue}").json()["figures"]) == set(row)


def test_what_workers_count_is_a_number() -> None:
    facts = {"node": "a" * 40, "address": "10.0.0.1:5", "since-ms": "1200", "heard-ms": "3", "host": "h", "pid": "7",
             "queues": "a,b", "running": "2", "in-hand": "5", "colour": "red", "load": "0.5", "done": "many"}
    found = answers.worker(WorkerView("w", facts))
    assert (found.since_ms, found.heard_ms, found.pid, found.running, found.in_hand) == (1200, 3, 7, 2, 5)
    assert (found.queues, found.more) == (["a", "b"], {"colour": "red", "load": 0.5, "done": "many"})


def test_every_answer_is_described_by_an_object_with_types(http: httpx.Client) -> None:
    """Fourteen were objects of anything."""
    made = http.get("/openapi.json").json()
    checked: list[str] = []

    def check(schema: dict[str, Any], where: str) -> None:
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            if name not in checked:
                checked.append(name)
                check(made["components"]["schemas"][name], name)
            return
        choices = [each for kind in ("anyOf", "oneOf", "allOf") for each in schema.get(kind, ())]
        assert choices or {"type", "const", "enum"} & set(schema), f"{where} may be anything: {schema}"
        if schema.get("type") == "object":
            more = schema.get("additionalProperties", False)
            assert "properties" in schema or isinstance(more, dict), f"{where} is an object of anything"
            choices += [*schema.get("properties", {}).values(), *([more] if isinstance(more, dict) else [])]
        if schema.get("type") == "array":
            choices.append(schema["items"])
        for each in choices:
            check(each, where)

    count = 0
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            for status, answer in operation["responses"].items():
                found = answer.get("content", {}).get("application/json")
                if found and status.startswith("2"):
                    check(found["schema"], f"{method} {path}")
                    count += 1
    assert count > 25 and "Job" in checked


def test_a_name_that_is_no_text_is_told_as_bytes_too() -> None:
    found = [QueueFigures(to_text(name), queued=1) for name in (b"\xff\xfe", rb"\xff\xfe")]
    rows = [row_of(each) for each in found]
    assert (rows[0]["name"], rows[0]["len"], rows[0]["name-hex"]) == (r"\xff\xfe", 1, "fffe")
    assert "name-hex" not in rows[1]
    told = [queue_figures(each) for each in found]
    assert [(each.name, each.name_hex) for each in told] == [(r"\xff\xfe", "fffe"), (r"\xff\xfe", None)]
    assert [name_of(row) for row in rows] == [b"\xff\xfe", rb"\xff\xfe"]


def test_a_stream_of_lines_is_added_and_answered_in_order(http: httpx.Client, queue: str) -> None:
    lines = [json.dumps({"body": str(i)}) for i in range(300)]
    lines[100] = "{nonsense"
    answer = http.post(f"/v1/queues/{queue}/stream", content="\n".join(lines).encode())
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert [row["line"] for row in rows] == list(range(1, 301))
    assert [row["line"] for row in rows if "error" in row] == [101]
    assert len(take(http, queue, count=500)) == 299


def test_a_line_is_answered_by_its_number_in_the_file_and_a_fault_by_its_place(http: httpx.Client, queue: str) -> None:
    lines = ['{"body": "a"}', "", '{"body": "b", "prio": 1}', "  ", '{"body": "c"}']
    answer = http.post(f"/v1/queues/{queue}/stream", content="\n".join(lines).encode())
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert [row["line"] for row in rows] == [1, 3, 5]
    assert rows[1]["error"].startswith("prio: ")


def test_one_who_forgets_to_say_that_it_is_json_is_reminded(http: httpx.Client, queue: str) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = http.post(f"/v1/queues/{queue}/jobs", content=b'{"body": "a"}', headers=form)
    assert answer.status_code == 422
    assert "send Content-Type: application/json" in answer.json()["detail"]


def test_a_stream_is_slowed_down_by_a_full_queue_and_nothing_is_lost(http: httpx.Client, queue: str) -> None:
    """Three fit. The stream waits; each job that is taken lets one more in."""
    http.patch(f"/v1/queues/{queue}", json={"maxlen": 3}).raise_for_status()
    lines = b"\n".join(b'{"body":"%d"}' % i for i in range(9))
    with http.stream("POST", f"/v1/queues/{queue}/stream", content=lines) as answer:
        got: list[str] = []
        while len(got) < 9:
            for job in take(http, queue, timeout=5):
                http.post(f"/v1/jobs/{job['id']}/done", json={"token": job["token"]}).raise_for_status()
                got.append(job["body"])
        rows = [json.loads(line) for line in answer.iter_lines()]
    assert sorted(got) == [str(i) for i in range(9)] and all("id" in row for row in rows)


def test_live_figures_come_once_a_second(http: httpx.Client, queue: str) -> None:
    add(http, queue, body="x")
    with http.stream("GET", "/v1/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("data: "):
                figures = json.loads(line[6:])
                assert any(row["name"] == queue and row["queued"] == 1 for row in figures["queues"])
                break


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", f"/v1/jobs/{NOBODY}", 404), ("GET", "/v1/jobs/nonsense", 422), ("DELETE", f"/v1/jobs/{NOBODY}", 404),
    ("GET", "/nowhere", 404), ("PUT", "/push", 405),
])
def test_errors_are_problems(http: httpx.Client, method: str, path: str, status: int) -> None:
    answer = http.request(method, path)
    assert answer.status_code == status and answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status


def test_health_figures_and_description(http: httpx.Client, gateway: Gateway) -> None:
    assert http.get("/healthz").text == "ok\n" and http.get("/readyz").text == "ready\n"
    assert "holdfast_gateway_requests_total" in http.get("/metrics").text
    paths = http.get("/openapi.json").json()["paths"]
    assert {"/push", "/get", "/stats", "/v1/take", "/v1/queues/{queue}/jobs"} <= set(paths)
