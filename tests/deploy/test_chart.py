"""The Helm chart, rendered (charts.py) and held against the schemas of Kubernetes: as it comes, and with other values.
"""
from __future__ import annotations

import copy
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.deploy.charts import ChartError, Template, parse, rendered
from tests.deploy.test_files import CHART

from holdfast.cli.main import main
from holdfast.core.config import BY_NAME

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
VERSIONS = ("1.29", "1.37")
"""Of Kubernetes: an old one that is still met, and the last whose schemas we have."""


def resources(**changed: Any) -> list[dict[str, Any]]:
    values = copy.deepcopy(VALUES)
    for name, value in changed.items():
        values[name] = {**values[name], **value} if isinstance(value, dict) else value
    return [each for made in rendered(CHART, "jobs", values).values() for each in made]


def one(found: list[dict[str, Any]], kind: str, name: str = "jobs") -> dict[str, Any]:
    return next(each for each in found if each["kind"] == kind and each["metadata"]["name"] == name)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "changed",
    [
        {}, {"nodes": 5}, {"gateway": {"enabled": False}}, {"storage": {"className": "fast"}},
        {"settings": {"requirepass": 'quo"ted', "cores": 2}}, {"resources": {}},
    ],
    ids=str,
)
def test_kubernetes_takes_what_it_makes(version: str, changed: dict[str, Any]) -> None:
    found = resources(**changed)
    assert len(found) >= 4
    for each in found:
        kubernetes_validate.validate(each, version, strict=True)


def test_a_misspelt_field_is_found() -> None:
    broken = one(resources(), "StatefulSet")
    broken["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="livenesProbe"):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


def test_what_selects_pods_selects_ours_and_ports_have_their_names() -> None:
    found = resources()
    pods = [each["spec"]["template"] for each in found if each["kind"] in ("StatefulSet", "Deployment")]
    for each in found:
        spec = each["spec"]
        wanted = spec["selector"].get("matchLabels", spec["selector"]) if "selector" in spec else {}
        chosen = [pod for pod in pods if wanted.items() <= pod["metadata"]["labels"].items()]
        assert len(chosen) == 1, each["metadata"]["name"]
        if each["kind"] == "Service":
            open_ports = {port["containerPort"] for port in chosen[0]["spec"]["containers"][0]["ports"]}
            assert {port["port"] for port in spec["ports"]} <= open_ports
    for pod in pods:
        container = pod["spec"]["containers"][0]
        names = {port["name"] for port in container["ports"]}
        assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} <= names
        assert {mount["name"] for mount in container["volumeMounts"]} <= {"data", "secrets"}
        assert container["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]


def test_a_pod_can_read_the_secrets_it_needs_and_no_others() -> None:
    found = resources()
    for kind, name, wanted in (
        ("StatefulSet", "jobs", {"users.toml", "cluster-secret"}), ("Deployment", "jobs-gateway", {"users.toml"}),
    ):
        pod = one(found, kind, name)["spec"]["template"]["spec"]
        secret = next(each for each in pod["volumes"] if each["name"] == "secrets")["secret"]
        assert {each["key"] for each in secret["items"]} == wanted
        assert secret["defaultMode"] == 0o440 and pod["securityContext"]["fsGroup"] == 7711  # by its group


def test_nodes_meet_each_other_and_are_told_settings_that_exist() -> None:
    found = resources(nodes=5)
    stateful = one(found, "StatefulSet")["spec"]
    container = stateful["template"]["spec"]["containers"][0]
    words = container["args"]
    joined = [words[at + 1] for at, word in enumerate(words) if word == "--join"]
    assert joined == [f"jobs-{number}.jobs-nodes.$(POD_NAMESPACE).svc:7711" for number in range(5)]
    assert stateful["replicas"] == 5 and one(found, "Service", stateful["serviceName"])["spec"]["clusterIP"] == "None"
    assert {words[at + 1].partition("=")[0] for at, word in enumerate(words) if word == "--set"} <= set(BY_NAME)
    leave = container["lifecycle"]["preStop"]["exec"]["command"]
    assert leave[:3] == ["holdfast", "cluster", "leave"]
    grace = stateful["template"]["spec"]["terminationGracePeriodSeconds"]
    assert int(leave[leave.index("--wait") + 1]) < grace
    with pytest.raises(SystemExit) as ended:  # it knows all of these words: --help is all it does
        main([*leave[1:], "--help"])
    assert ended.value.code == 0
    assert one(found, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize(
    "text", ["{{ .Values.missing }}", "{{ $nobody }}", "{{ shout .Values }}", "{{ if .Values }}", "{{ end }}"]
)
def test_what_nobody_knows_is_an_error(text: str) -> None:
    root = {"Values": {"a": 1}}
    with pytest.raises(ChartError):
        Template(root).render(parse(text), root, {"$": root})


def test_space_is_eaten_and_pipelines_pass_their_value_on() -> None:
    root = {"Values": {"list": {"b": 2, "a": 1}, "no": ""}}
    text = (
        'x:\n{{- range $k, $v := .Values.list }}\n  {{ printf "%s=%v" $k $v | quote }}\n{{- end }}\n'
        '{{ .Values.no | default "d" }}'
    )
    assert Template(root).render(parse(text), root, {"$": root}) == 'x:\n  "a=1"\n  "b=2"\nd'
