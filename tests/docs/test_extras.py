"""Extras and dependency groups: each is what pages and errors call it, and brings what is imported where it is for."""
from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from holdfast.cli.doctor import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
OPTIONAL: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
GROUPS: dict[str, list[str | dict[str, str]]] = PROJECT["dependency-groups"]
NAMED = re.compile(r"(?:\bholdfast|\"\.)\[([a-z,]+)\]")
DISTRIBUTIONS = packages_distributions()

# Parts of src, and the extra or group whose packages they may import; the longest that fits counts.
PARTS = {
    "holdfast/": "",
    "holdfast/client/by_http.py": "http",
    "holdfast/client/by_grpc.py": "grpc",
    "holdfast/tasks/tracing.py": "tracing",
    **dict.fromkeys(("holdfast/gateway/", "holdfast/console/", "holdfast/cli/top.py"), "server"),
    **dict.fromkeys(("holdfast/pipeline/", "holdfast/history.py", "pyspark_holdfast/"), "pipeline"),
    **dict.fromkeys(("holdfast/cli/pipeline.py", "holdfast/cli/pipeline_jobs.py"), "pipeline"),
    **dict.fromkeys(("holdfast/gateway/proto/", "holdfast/shell/native.py", "holdfast/shell/native_links.py"), "build"),
    "holdfast/testing/pytest_plugin.py": "check",
}
# What is run with a group and the extra `all`. The other systems that bench measures have an environment of their own.
RUN_WITH = {
    "check": ["tests/unit", "tests/wire", "tests/sim", "tests/conformance", "tests/test_tidy.py",
              "tests/docs/test_written_pages.py"],
    "test": ["tests"],
    "bench": ["bench"],
    "docs": ["tools"],
}
ELSEWHERE = ("bench/peers/", "tools/no_skips.py", "tools/durations.py")  # the last two are loaded by pytest
INSTALLERS = {"pip", "uv"}
"""What tools/prepare.py installs all else with."""


def known() -> Iterator[tuple[str, str]]:
    """Files of the repository, and their text."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        yield name, (ROOT / name).read_text("utf-8", errors="replace")


def wanted(name: str) -> list[str]:
    """What an extra or a group asks for."""
    found: list[str] = []
    for each in GROUPS[name] if name in GROUPS else OPTIONAL.get(name, []):
        found += wanted(each["include-group"]) if isinstance(each, dict) else [each]
    return found


@cache
def brought(*names: str) -> frozenset[str]:
    """All that these and Holdfast itself bring, with what that brings."""
    found: set[tuple[str, str]] = set()
    open_ones = [Requirement(each) for name in ("", *names) for each in wanted(name)]
    open_ones += [Requirement(each) for each in PROJECT["project"]["dependencies"]]
    while open_ones:
        one = open_ones.pop()
        name = canonicalize_name(one.name)
        if name == "holdfast":
            open_ones += [Requirement(each) for extra in one.extras for each in wanted(extra)]
            continue
        for extra in {"", *one.extras}:
            if (name, extra) not in found:
                found.add((name, extra))
                open_ones += below(name, extra)
    return frozenset(name for name, _ in found)


def below(name: str, extra: str) -> list[Requirement]:
    try:
        stated = [Requirement(each) for each in requires(name) or []]
    except PackageNotFoundError:
        return []
    here = {**default_environment(), "extra": extra}
    return [each for each in stated if each.marker is None or each.marker.evaluate(here)]


def imported(text: str) -> Iterator[tuple[int, str]]:
    """Line and package, also of those that a test may do without."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.lineno, str(node.module).partition(".")[0]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "importorskip":
            yield node.lineno, ast.literal_eval(node.args[0])


def not_brought(name: str, text: str, packages: Iterable[str]) -> list[str]:
    return [
        f"{name}:{line}: {module}" for line, module in imported(text)
        if module in DISTRIBUTIONS and module != "holdfast" and module not in sys.stdlib_module_names
        and not {canonicalize_name(each) for each in DISTRIBUTIONS[module]} & {*packages, "holdfast"}
    ]


def test_extras_that_pages_and_errors_name_exist() -> None:
    named = [(name, extra) for name, text in known() for each in NAMED.findall(text) for extra in each.split(",")]
    assert len(named) > 12  # they are seen
    assert [pair for pair in named if pair[1] not in OPTIONAL] == []
    assert {extra for _, extra, _ in EXTRAS} <= OPTIONAL.keys()


def test_the_readme_says_which_extra_is_for_what() -> None:
    rows = re.findall(r"^\| (`holdfast[^|]*) \| \w", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    told = [extra for row in rows for extra in re.findall(r"`holdfast(?:\[(\w+)\])?`", row)]
    assert sorted(told) == sorted(["", *OPTIONAL])


def test_all_is_all() -> None:
    assert brought("all") == brought(*OPTIONAL)


def test_the_group_that_compiles_is_what_pip_has_when_it_builds() -> None:
    assert GROUPS["build"] == PROJECT["build-system"]["requires"]


def test_every_package_a_part_imports_comes_with_its_extra() -> None:
    wrong: list[str] = []
    for name, text in known():
        inside = name.removeprefix("src/")
        if inside != name and name.endswith(".py"):
            part = PARTS[max((each for each in PARTS if inside.startswith(each)), key=len, default="holdfast/")]
            wrong += not_brought(name, text, brought(part))
    assert wrong == []


@pytest.mark.parametrize("group", RUN_WITH)
def test_every_package_a_test_or_a_tool_imports_comes_with_its_group(group: str) -> None:
    wrong: list[str] = []
    for name, text in known():
        if name.endswith(".py") and name.startswith(tuple(RUN_WITH[group])) and not name.startswith(ELSEWHERE):
            wrong += not_brought(name, text, brought("all", "build", group))  # prepare.py begins with `build`
    assert wrong == []


def test_constraints_hold_every_package_to_a_version_and_no_other() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines if "==" in line}
    assert brought("all", *GROUPS) | INSTALLERS == pinned


@pytest.mark.parametrize(("missing", "command", "extra"), [
    ("fastapi", "gateway", "server"), ("fastapi", "up", "server"), ("pyspark", "pipeline run", "pipeline"),
])
def test_a_command_whose_packages_are_not_there_says_which_extra_has_them(
    missing: str, command: str, extra: str, tmp_path: Path
) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from holdfast.cli.main import main; main({command.split()})"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"pip install 'holdfast[{extra}]'" in done.stderr
