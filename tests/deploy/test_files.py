"""What is in deploy/: tools of others find nothing wrong, and it names only what Holdfast has."""
from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from holdfast.cli.main import main
from holdfast.core.config import BY_NAME
from holdfast.shell.settings import NOT_SETTINGS, variable

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CHART = DEPLOY / "helm" / "holdfast"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([hadolint, DEPLOY / "docker" / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_takes_the_unit() -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(DEPLOY / "systemd" / "holdfast.service")], capture_output=True,
        text=True,
    )
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "holdfast" in line]
    assert ours == [] and done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(DEPLOY).as_posix())
def test_it_names_only_commands_and_settings_that_exist(path: Path) -> None:
    """`holdfast <command>`, HOLDFAST_… variables, and name=value after --set."""
    text = path.read_text()
    for name in re.findall(r"\bHOLDFAST_[A-Z_]+", text):
        assert name in NOT_SETTINGS or name in {variable(each) for each in BY_NAME}, name
    for word in re.findall(r"(?:exec|env|ENTRYPOINT|`|^|#) *holdfast ([a-z]+) ", text, re.MULTILINE):
        assert word in main.places, word
    for name in re.findall(r"(?<![\w-])(announce-ip|host-id|[a-z]+-[a-z-]+)=", text):
        assert name in BY_NAME, name


def test_the_compose_file_has_three_nodes_with_a_disk_each_and_no_root() -> None:
    plan = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())
    nodes = {name: each for name, each in plan["services"].items() if name.startswith("node-")}
    assert len(nodes) == 3
    assert len({each["volumes"][0] for each in nodes.values()}) == 3
    for each in plan["services"].values():
        assert each["read_only"] and each["cap_drop"] == ["ALL"]
    asked = " ".join(plan["services"]["gateway"]["healthcheck"]["test"])
    assert "holdfast health --connect http://127.0.0.1:7780" in asked  # the image's own asks a node
    assert "\nUSER 7711" in (DEPLOY / "docker" / "Dockerfile").read_text()


def test_the_chart_asks_only_for_values_that_it_has() -> None:
    """In every branch, also those that test_chart.py does not go through."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    asked: set[str] = set()
    for path in (CHART / "templates").iterdir():
        text = path.read_text()
        asked |= set(re.findall(r"\.Values\.([\w.]+)", text))
        opened = len(re.findall(r"{{-? *(?:if|range|with|define)\b", text))
        assert opened == len(re.findall(r"{{-? *end\b", text)), path.name
    for name in asked:
        found = values
        for word in name.split("."):
            assert word in found, name
            found = found[word]
    for setting in values["settings"]:
        assert setting in BY_NAME
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    from holdfast.core.version import VERSION

    assert chart["appVersion"] == VERSION
