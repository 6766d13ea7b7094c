"""Alert rules as Prometheus evaluates them (promtool test rules): each fires when it should, none when all is well.

And the queries of the dashboard are ones that Prometheus can parse: promtool takes them as recording rules.
"""
from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.deploy.test_chart import resources
from tests.deploy.test_metrics import ALERTS, DASHBOARD

RULES: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
MINUTES = 60
NODE = 'instance="a:9711"'


def steady(value: float) -> str:
    return f"{value}+0x{MINUTES}"


def rising(each_minute: float) -> str:
    return f"0+{each_minute}x{MINUTES}"


def histogram(name: str, labels: str, each_minute: dict[str, float]) -> dict[str, str]:
    """Cumulative buckets that so many observations fall into each minute."""
    return {f'{name}_bucket{{{labels},le="{bound}"}}': rising(count) for bound, count in each_minute.items()}


# All is well.
WELL: dict[str, str] = {
    f'up{{job="holdfast",{NODE}}}': steady(1),
    'up{job="holdfast-gateway",instance="a:7780"}': steady(1),
    f'holdfast_info{{job="holdfast",{NODE},node="a"}}': steady(1),
    'up{job="holdfast",instance="b:9711"}': steady(1),
    'holdfast_info{job="holdfast",instance="b:9711",node="b"}': steady(1),
    'up{job="other",instance="c:1"}': steady(0),  # none of ours
    f'holdfast_queue_paused{{{NODE},queue="q",way="in"}}': steady(0),
    f'holdfast_queue_paused{{{NODE},queue="q",way="out"}}': steady(0),
    f"holdfast_jobs_short_of_copies{{{NODE}}}": steady(0),
    f'holdfast_link_up{{{NODE},peer="b"}}': steady(1),
    f'holdfast_jobs_waiting_for_node{{{NODE},peer="b"}}': steady(0),
    f"holdfast_unserved_seconds{{{NODE}}}": steady(0),
    f"holdfast_slots_undecided_seconds{{{NODE}}}": steady(0),
    f"holdfast_journal_up{{{NODE}}}": steady(1),
    f"holdfast_memory_used_bytes{{{NODE}}}": steady(40),
    f"holdfast_memory_max_bytes{{{NODE}}}": steady(100),
    f'holdfast_queue_oldest_age_seconds{{{NODE},queue="q"}}': steady(20),
    f'holdfast_queue_jobs{{{NODE},queue="q",state="queued"}}': steady(20),
    f'holdfast_jobs_delivered_total{{{NODE},queue="q"}}': rising(600),
    f'holdfast_jobs_dead_total{{{NODE},queue="q"}}': steady(3),
    f'holdfast_leases_lost_total{{{NODE},queue="q"}}': rising(1),
    f'holdfast_gateway_requests_total{{{NODE},status="200"}}': rising(600),
    f'holdfast_gateway_requests_total{{{NODE},status="500"}}': rising(1),
    f"holdfast_faults_total{{{NODE}}}": steady(0),
    f'holdfast_refused_total{{{NODE},code="MAXLEN"}}': rising(1),
    **histogram("holdfast_job_wait_seconds", f'{NODE},queue="q"', {"1.024": 500, "262.144": 600, "+Inf": 600}),
    **histogram("holdfast_journal_sync_seconds", NODE, {"0.016384": 60, "0.524288": 60, "+Inf": 60}),
    **histogram("holdfast_replication_seconds", NODE, {"0.002": 590, "0.256": 600, "+Inf": 600}),
}
# What makes each of them fire.
ILL: dict[str, dict[str, str]] = {
    "HoldfastNodeDown": {f'up{{job="holdfast",{NODE}}}': steady(0)},
    "HoldfastJobsWaitForNode": {f'holdfast_jobs_waiting_for_node{{{NODE},peer="b"}}': steady(7)},
    "HoldfastStandstill": {f"holdfast_slots_undecided_seconds{{{NODE}}}": rising(60)},
    "HoldfastJobsShortOfCopies": {f"holdfast_jobs_short_of_copies{{{NODE}}}": steady(1)},
    "HoldfastLinkDown": {f'holdfast_link_up{{{NODE},peer="b"}}': steady(0)},
    "HoldfastJournalFails": {f"holdfast_journal_up{{{NODE}}}": steady(0)},
    "HoldfastJournalDamaged": {f"holdfast_journal_damages_total{{{NODE}}}": steady(1)},
    "HoldfastMemoryShort": {f"holdfast_memory_used_bytes{{{NODE}}}": steady(93)},
    "HoldfastQueueWaits": {f'holdfast_queue_oldest_age_seconds{{{NODE},queue="q"}}': steady(1000)},
    "HoldfastQueuePaused": {f'holdfast_queue_paused{{{NODE},queue="q",way="out"}}': f"1+0x{2 * MINUTES}"},
    "HoldfastNobodyWorks": {f'holdfast_jobs_delivered_total{{{NODE},queue="q"}}': steady(600)},
    "HoldfastJobsDie": {f'holdfast_jobs_dead_total{{{NODE},queue="q"}}': rising(1)},
    "HoldfastJobsExpire": {f'holdfast_jobs_expired_total{{{NODE},queue="q"}}': rising(1)},
    "HoldfastLeasesLost": {f'holdfast_leases_lost_total{{{NODE},queue="q"}}': rising(30)},
    "HoldfastGatewayDown": {'up{job="holdfast-gateway",instance="a:7780"}': steady(0)},
    "HoldfastGatewayErrors": {f'holdfast_gateway_requests_total{{{NODE},status="500"}}': rising(100)},
    "HoldfastCredentials": {f"holdfast_credentials_reload_failed{{{NODE}}}": steady(1)},
    "HoldfastFramesRefused": {f'holdfast_bus_refused_total{{{NODE},what="frame"}}': rising(1)},
    "HoldfastFault": {f"holdfast_faults_total{{{NODE}}}": rising(1)},
    "HoldfastRefuses": {f'holdfast_refused_total{{{NODE},code="OOM"}}': rising(60)},
    "HoldfastJobsWait": histogram(
        "holdfast_job_wait_seconds", f'{NODE},queue="q"', {"1.024": 500, "262.144": 550, "524.288": 600, "+Inf": 600}
    ),
    "HoldfastDiskSlow": histogram(
        "holdfast_journal_sync_seconds", NODE, {"0.016384": 40, "0.524288": 50, "1.048576": 60, "+Inf": 60}
    ),
    "HoldfastCopiesSlow": histogram(
        "holdfast_replication_seconds", NODE, {"0.002": 300, "0.256": 500, "0.512": 600, "+Inf": 600}
    ),
}


def fired(folder: Path, series: dict[str, str], expected: list[str]) -> subprocess.CompletedProcess[str]:
    """Whether, at the end, exactly these fire."""
    tests = [{
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items() if values],
        "promql_expr_test": [{
            "expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": f"{MINUTES}m",
            "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in expected],
        }],
    }]
    path = folder / "test.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    return subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True)


def test_none_fires_when_all_is_well(tmp_path: Path) -> None:
    done = fired(tmp_path, WELL, [])
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_that_fires_unasked_is_noticed(tmp_path: Path) -> None:
    assert fired(tmp_path, {**WELL, **ILL["HoldfastFault"]}, []).returncode != 0


def test_each_rule_has_a_case() -> None:
    assert {rule["alert"] for rule in RULES} == set(ILL)


@pytest.mark.parametrize("name", ILL)
def test_a_rule_fires_when_it_should_and_alone(tmp_path: Path, name: str) -> None:
    done = fired(tmp_path, {**WELL, **ILL[name]}, [name])
    assert done.returncode == 0, done.stdout + done.stderr


IN_KUBERNETES = 'job="kubernetes-pods",namespace="jobs"'
"""What a Prometheus that goes by the annotations of pods says of a target."""


def as_pods(series: dict[str, str]) -> dict[str, str]:
    return {name.replace('job="holdfast"', IN_KUBERNETES).replace('job="holdfast-gateway"', IN_KUBERNETES): values
            for name, values in series.items()}


GATEWAY = {f'holdfast_gateway_requests_total{{{IN_KUBERNETES},instance="a:7780",status="200"}}': rising(60)}


@pytest.mark.parametrize("gone", [
    {f'up{{{IN_KUBERNETES},{NODE}}}': f"1x10 0x{MINUTES}", f'holdfast_info{{{IN_KUBERNETES},{NODE},node="a"}}': "1x10"},
    {f'up{{{IN_KUBERNETES},instance="b:9711"}}': "", f'holdfast_info{{{IN_KUBERNETES},instance="b:9711",node="b"}}': "",
     f'holdfast_link_up{{{NODE},peer="b"}}': f"1x10 0x{MINUTES}"},
], ids=["a pod that does not answer", "a pod that is gone"])
def test_a_node_that_is_down_is_missed_whatever_its_job_is_called(tmp_path: Path, gone: dict[str, str]) -> None:
    """The chart's annotations give another job than the example of a configuration here."""
    well = {**as_pods(WELL), **GATEWAY}
    assert not any('job="holdfast' in name for name in well)
    assert fired(tmp_path, well, []).returncode == 0
    done = fired(tmp_path, {**well, **gone}, ["HoldfastNodeDown"])
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_gateway_that_is_down_is_missed_whatever_its_job_is_called(tmp_path: Path) -> None:
    ill = {**as_pods(WELL), **GATEWAY, f'up{{{IN_KUBERNETES},instance="a:7780"}}': f"1x10 0x{MINUTES}"}
    done = fired(tmp_path, ill, ["HoldfastGatewayDown"])
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pods_of_the_chart_are_scraped_at_the_ports_of_their_figures() -> None:
    found = {each["kind"]: each["spec"]["template"]["metadata"]["annotations"] for each in resources()
             if each["kind"] in ("StatefulSet", "Deployment")}
    assert found["StatefulSet"] == {"prometheus.io/scrape": "true", "prometheus.io/port": "9711"}
    assert found["Deployment"] == {"prometheus.io/scrape": "true", "prometheus.io/port": "7780"}


def test_prometheus_can_parse_every_query_of_the_dashboard(tmp_path: Path) -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(asked) > 20
    rules = [
        {"record": f"panel:{number}", "expr": re.sub(r"\$__rate_interval", "5m", each).replace("$queue", ".*")}
        for number, each in enumerate(asked)
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(asked)} rules found" in done.stdout
