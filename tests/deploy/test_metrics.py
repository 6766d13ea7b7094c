"""A node's metrics port: figures that are true, health that tells, rules and dashboards that ask for what exists."""
from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.gateway.running import Gateway, address
from tests.proc.harness import Node, until

import holdfast
from holdfast.core import states, views
from holdfast.core.limits import DOMAINS_TOLD_MAX
from holdfast.core.throttle import Domains, Throttle
from holdfast.core.times import BOUNDS, Times
from holdfast.shell import metrics
from holdfast.shell.exposition import ABOUT, Snapshot, text_of
from holdfast.shell.metrics import QUEUES_MAX, TAKE_EVERY_S, Metrics, add_domains, add_queue

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "holdfast.json"
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
NAME = re.compile(r"\bholdfast_[a-z_]+\b")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with OPENER.open(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def node(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("node")
    with Node("--dir", str(folder), "--set", f"metrics-port={port}") as node, Node("--join", f"127.0.0.1:{node.port}"):
        with holdfast.open(address(node)) as queue:
            until(lambda: b"cluster_reachable_nodes:1\r" in bytes(queue.call("CLUSTER", "INFO")))  # type: ignore[arg-type]
        yield node


def values(text: str) -> dict[tuple[str, str], float]:
    """By name and labels."""
    return {
        (sample.name, ",".join(f"{key}={sample.labels[key]}" for key in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text) for sample in family.samples
    }


def test_what_was_done_is_what_is_exported(node: Node, port: int) -> None:
    get(port, "/metrics")  # somebody asks: from now on figures are fresh
    with holdfast.open(address(node)) as queue:
        queue.add_many('odd "name"\\', ["x"] * 5)
        queue.add_many("mail", ["x"] * 10, attempts=1)
        for _ in range(4):
            queue.next("mail", timeout=5).done()
        queue.next("mail", timeout=5).fail("no")

        def seen() -> dict[tuple[str, str], float] | None:
            found = values(get(port, "/metrics")[1])
            is_there = found.get(("holdfast_jobs_nacked_total", "queue=mail")) == 1
            return found if is_there and ("holdfast_queue_jobs", "queue=mail,state=dead") in found else None

        found = until(seen, 30)
        assert until(lambda: [each.dead for each in queue.figures("mail").queues] == [1])  # one of the two counts it
    assert found["holdfast_queue_jobs", "queue=mail,state=queued"] == 5
    assert found["holdfast_jobs_acked_total", "queue=mail"] == 4
    assert found["holdfast_jobs_dead_total", "queue=mail"] == 1
    assert found["holdfast_queue_jobs", 'queue=odd "name"\\,state=queued'] == 5
    assert found["holdfast_jobs_added_total", "queue=mail"] == 10
    for name, count in (("wait", 5), ("run", 4)):  # the one that failed did not run to its end
        assert found[f"holdfast_job_{name}_seconds_count", "queue=mail"] == count
        assert found[f"holdfast_job_{name}_seconds_bucket", "le=+Inf,queue=mail"] == count
        assert found[f"holdfast_job_{name}_seconds_bucket", "le=16.384,queue=mail"] == count
    assert found["holdfast_replication_seconds_count", "copies=default"] >= 15  # all have a copy at the other node
    assert found["holdfast_replication_seconds_count", "copies=asked"] == 0
    for name in ("holdfast_unserved_seconds", "holdfast_slots_undecided", "holdfast_cron_without_owner",
                 "holdfast_keyed_calls_waiting", "holdfast_adds_with_fewer_copies_total"):
        assert found[name, ""] == 0, "it is calm"
    [peer] = [labels for name, labels in found if name == "holdfast_link_up"]
    assert found["holdfast_node_away_seconds", peer] == found["holdfast_jobs_waiting_for_node", peer] == 0
    counted = {labels: value for (name, labels), value in found.items() if name == "holdfast_jobs_counted"}
    assert set(counted) == {f"state={word.decode()}" for word in states.COUNTED}
    assert found["holdfast_journal_sync_seconds_count", ""] == found["holdfast_journal_syncs_total", ""] > 0
    assert found["holdfast_journal_up", ""] == 1
    assert found["holdfast_nodes_known", ""] == 2
    assert found["holdfast_metrics_age_seconds", ""] < 30


def test_a_paused_queue_can_be_seen(node: Node, port: int) -> None:
    """At the node that was not told either: the word goes to all."""
    get(port, "/metrics")
    with holdfast.open(address(node)) as queue:
        queue.add("calm", "x")
        queue.pause("calm", "out")
    out, way_in = (("holdfast_queue_paused", f"queue=calm,way={way}") for way in ("out", "in"))
    found = until(lambda: (seen := values(get(port, "/metrics")[1])).get(out) == 1 and seen, 30)
    assert found[way_in] == 0
    with holdfast.open(address(node)) as queue:
        assert [each.paused for each in queue.figures("calm").queues] == ["out"]
        queue.resume("calm")
    until(lambda: values(get(port, "/metrics")[1]).get(out) == 0, 30)


def hold_up(queue: holdfast.Queue, domain: str) -> None:
    """Two jobs of a domain that lets one pass."""
    queue.limit(domain, "1/h", burst=1)
    queue.add_many("calls", ["x", "x"], domain=domain)
    queue.next("calls", timeout=10).done()
    assert queue.take("calls") == []


def test_a_domain_that_holds_jobs_up_has_figures_of_its_own(node: Node, port: int) -> None:
    get(port, "/metrics")
    with holdfast.open(address(node)) as queue:
        hold_up(queue, "a.example")
    asked = ("holdfast_domain_throttled_total", "domain=a.example,limit=rate")
    found = until(lambda: (seen := values(get(port, "/metrics")[1])).get(asked, 0) > 0 and seen, 30)
    assert found["holdfast_domain_throttled_total", "domain=a.example,limit=concurrency"] == 0
    assert found["holdfast_domain_jobs_waiting", "domain=a.example"] == 1
    assert found["holdfast_throttled_total", "limit=rate"] >= found[asked]
    assert found["holdfast_domains", ""] >= 1


def test_a_million_domains_are_not_a_million_series() -> None:
    domains = Domains()
    for number in range(1000 * DOMAINS_TOLD_MAX):
        name = b"%d.example" % number
        each = domains.table[name] = Throttle(name, None)
        each.no_token += 1
        domains.was_closed(each)
    made = Snapshot()
    add_domains(SimpleNamespace(node=SimpleNamespace(domains=domains)), made)  # type: ignore[arg-type]
    assert made.rows[0] == ("holdfast_domains", (), 1000 * DOMAINS_TOLD_MAX)
    assert len(made.rows) == 1 + 3 * DOMAINS_TOLD_MAX


def test_every_name_that_rules_and_dashboard_ask_for_is_exported(node: Node, port: int) -> None:
    """By a real node and a real gateway; and no panel or rule is empty of ours."""
    with holdfast.open(address(node)) as queue:  # some names come with what they count
        queue.add("small", "fits")
        with pytest.raises(holdfast.Refused):
            queue.add("small", "does not", maxlen=1)
        hold_up(queue, "slow.example")
    until(lambda: all(f"\n{name}" in get(port, "/metrics")[1] for name in ABOUT), 30)
    exported = set(values(get(port, "/metrics")[1]))
    with Gateway(address(node)) as gateway:
        get(gateway.port, "/healthz")
        exported |= set(values(get(gateway.port, "/metrics")[1]))
    names = {name for name, _ in exported}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    rules = re.findall(r"expr: (.+(?:\n {10}.+)*)", ALERTS.read_text())
    assert len(rules) == ALERTS.read_text().count("- alert:")
    for expr in [*asked, *rules]:
        wanted = set(NAME.findall(expr))
        assert wanted or "up{" in expr, expr
        assert wanted <= names, expr


def test_a_node_that_is_well_says_so(node: Node, port: int) -> None:
    assert get(port, "/healthz") == (200, "ok\n")
    assert get(port, "/readyz") == (200, "ready\n")
    assert get(port, "/nonsense")[0] == 404


def test_a_node_that_is_stuck_or_cannot_take_jobs_says_so() -> None:
    metrics = object.__new__(Metrics)  # without a node: what the thread sees of it
    metrics.turned, metrics.not_ready = time.monotonic(), "MISCONF the journal cannot be written"
    assert metrics.answer("/healthz") == (200, "ok\n")
    assert metrics.answer("/readyz") == (503, "MISCONF the journal cannot be written\n")
    metrics.turned -= 60
    assert metrics.answer("/healthz") == (503, "the node has done nothing for 60 s\n")
    assert metrics.answer("/readyz")[0] == 503


def test_a_taken_port_is_said_at_the_start() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        node = Node("--set", f"metrics-port={taken.getsockname()[1]}", wait=False)
        until(lambda: node.process.poll() is not None, 30)
        assert "cannot listen on the metrics-port" in node.log()


def test_a_node_that_is_stopped_with_a_metrics_port_ends_cleanly() -> None:
    with Node("--set", f"metrics-port={free_port()}") as node:
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(20) == 0


def test_a_node_alone_exports_what_its_jobs_are_doing() -> None:
    """Nothing walks over the jobs of a node without peers unless somebody asks; nobody does but Prometheus."""
    port = free_port()
    with Node("--set", f"metrics-port={port}") as node:
        with holdfast.open(address(node)) as queue:
            queue.add("mail", "later", delay=600)
        delayed = ("holdfast_queue_jobs", "queue=mail,state=delayed")
        until(lambda: values(get(port, "/metrics")[1]).get(delayed) == 1, 30)


def test_the_first_scrape_after_a_long_time_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has asked since the node started, a minute ago: the figures of its start are not what is told."""
    ages = [60.0, 0.0]
    monkeypatch.setattr(metrics, "take", lambda server: Snapshot(time.monotonic() - ages.pop(0)))
    node = SimpleNamespace(is_loading=False, refusal=b"")
    server = SimpleNamespace(node=node, note_wake=lambda wake: None, sockets=SimpleNamespace(turn=lambda: 0))
    made = Metrics(server, "127.0.0.1", 0)  # type: ignore[arg-type]
    try:
        made.tick()
        assert ages == [0.0]  # nobody asked
        with ThreadPoolExecutor(1) as thread:
            asked = thread.submit(get, made.port, "/metrics")
            until(lambda: made.asked > 0)
            made.tick()
            assert values(asked.result()[1])["holdfast_metrics_age_seconds", ""] < TAKE_EVERY_S
    finally:
        made.close()


def test_queues_beyond_the_bound_are_one() -> None:
    """A series per queue is what Prometheus bears worst."""
    assert QUEUES_MAX >= 100
    made = Snapshot()
    add_queue(made, "new\nline", [3] * len(views.FIELDS), 3)
    assert 'queue="new\\nline"' in text_of(made, 0.0)


def test_a_histogram_has_in_each_bucket_what_is_in_those_before() -> None:
    one, two = Times(), Times()
    for took in (0, 3, 3, 100, 2**40):
        one.note(took)
    two.note(3)
    made = Snapshot()
    made.add_times("holdfast_job_wait_seconds", 1e-3, [one, two], queue="q")
    text = text_of(made, 0.0)
    assert text.count("# TYPE holdfast_job_wait_seconds histogram\n") == 1
    found = {name: value for (name, _), value in values(text).items()}
    below = [value for (name, _), value in values(text).items() if name.endswith("_bucket")]
    assert below == sorted(below) and len(below) == BOUNDS + 1
    assert values(text)["holdfast_job_wait_seconds_bucket", "le=0.002,queue=q"] == 1
    assert values(text)["holdfast_job_wait_seconds_bucket", "le=0.004,queue=q"] == 4
    assert values(text)["holdfast_job_wait_seconds_bucket", "le=0.128,queue=q"] == 5
    assert found["holdfast_job_wait_seconds_count"] == 6
    assert found["holdfast_job_wait_seconds_sum"] == pytest.approx(2**40 / 1000 + 0.109)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here")
def test_promtool_takes_the_rules_and_what_a_node_exports(port: int, node: Node) -> None:
    for words in (["check", "rules", str(ALERTS)], ["check", "config", str(ALERTS.parent / "prometheus.yaml")]):
        done = subprocess.run(["promtool", *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    text = get(port, "/metrics")[1]
    linted = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert linted.returncode == 0, linted.stderr


def test_each_alert_has_a_place_in_the_runbook() -> None:
    page = (ROOT / "docs" / "how-to" / "answer-an-alert.md").read_text()
    text = ALERTS.read_text()
    for name in re.findall(r"- alert: (\w+)", text):
        assert f"\n## {name}\n" in page
        assert f"answer-an-alert.md#{name.lower()}\n" in text
