"""`make` alone tells what there is, and each `make …` that is written down anywhere names a target and a part of it."""
from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.show.__main__ import LISTS

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))
VARIABLES = set(re.findall(r"\$\(([A-Z_]+)\)|^ifdef (\w+)", MAKEFILE, re.MULTILINE))
GOALS = re.compile(r"^GOALS\b", re.MULTILINE)
PARTS = {
    "bench": sorted(path.stem for path in (ROOT / "bench").glob("*.py") if GOALS.search(path.read_text("utf-8"))),
    "show": sorted(LISTS),
}
# In backticks, as a line of a page or of what is printed, or as the words of a command.
WRITTEN = re.compile(
    r'(?:(?:`|^|\\n *)make |\["make", "(?=[a-z-]+"))([a-z][a-z-]*)((?: [A-Z_]+=[^\s`"]*)*)', re.MULTILINE
)


def make(*words: str) -> subprocess.CompletedProcess[str]:
    """As in a shell of its own, though make may have started these tests."""
    mine = ("MAKE", "MFLAGS", "HOLDFAST_")
    # Words like PART=… given to the make that runs these tests are in the environment of what it starts.
    given = {name for pair in VARIABLES for name in pair} - {"PYTHON"}
    env = {name: value for name, value in os.environ.items() if not name.startswith(mine) and name not in given}
    return subprocess.run(["make", *words], cwd=ROOT, env=env, capture_output=True, text=True)


def written() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Where, which target, and what it is given."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if name != "CHANGELOG.md" and not name.startswith("bench/results/"):  # told of the past
            text = (ROOT / name).read_text("utf-8", errors="replace")
            for found in WRITTEN.finditer(text):
                where = f"{name}:{text.count(chr(10), 0, found.start()) + 1}"
                yield where, found[1], dict(each.split("=", 1) for each in found[2].split())


def is_wrong(target: str, given: dict[str, str]) -> bool:
    part, keys, paths = given.get("PART", ""), given.get("ONLY", ""), given.get("PATHS", "")
    return (
        target not in TARGETS
        or not given.keys() <= {name for pair in VARIABLES for name in pair}
        or (part not in ("", "…") and part not in PARTS.get(target, ()))
        or (keys != "" and not set(keys.split(",")) <= {line.key for line in LISTS[part]()})
        or (paths != "" and not (ROOT / paths).exists())
    )


def test_every_make_that_is_written_down_names_a_target_and_a_part() -> None:
    found = list(written())
    assert len({target for _, target, _ in found}) > 12  # they are seen
    assert [where for where, target, given in found if is_wrong(target, given)] == []


@pytest.mark.parametrize(("target", "given"), [
    ("bench-core", {}), ("bench", {"PART": "node"}), ("show", {"PART": "core"}),
    ("show", {"PART": "node", "ONLY": "x"}), ("test", {"PATHS": "tests/nowhere"}), ("run", {"UPP": "1"}),
])
def test_one_that_is_wrong_is_noticed(target: str, given: dict[str, str]) -> None:
    assert is_wrong(target, given)


def test_make_alone_lists_its_targets_in_groups() -> None:
    printed = make().stdout
    groups = [line.partition(" (")[0] for line in printed.splitlines() if line and not line.startswith(" ")]
    assert groups == ["Run it", "Work on it", "Long runs", "Figures", "Write and ship", "Now and then"]
    assert set(re.findall(r"^  make ([a-z-]+) ", printed, re.MULTILINE)) == TARGETS


@pytest.mark.parametrize("target", PARTS)
@pytest.mark.parametrize("words", [(), ("PART=nothing",), ("PART=",), ("PART=%",), ("PART=cluster journal",)])
def test_without_a_part_that_exists_you_are_told_which_do(
    monkeypatch: pytest.MonkeyPatch, target: str, words: tuple[str, ...],
) -> None:
    """Also where these tests are a line of `make show PART=setup`, which would run itself for ever."""
    monkeypatch.setenv("PART", PARTS[target][0])
    monkeypatch.setenv("LIST", "1")
    done = make(target, *words)
    told = re.findall(r"^  (\w+) +\S.*\.$", done.stderr, re.MULTILINE)
    assert (done.returncode, done.stdout, told) == (2, "", PARTS[target])


@pytest.mark.parametrize("part", LISTS)
def test_parts_keys_and_a_list_reach_what_is_run(part: str) -> None:
    last = [make("-n", "show", f"PART={part}", *words).stdout.splitlines()[-1].split() for words in (
        (), ("ONLY=a,b",), ("LIST=1",))]
    assert [words[1:] for words in last] == [
        ["-m", "bench.show", part], ["-m", "bench.show", part, "--only", "a,b"], ["-m", "bench.show", part, "--list"]]


def test_figures_of_the_readme_follow_those_of_core_alone() -> None:
    run = {part: make("-n", "bench", f"PART={part}").stdout for part in PARTS["bench"]}
    assert [part for part, commands in run.items() if "tools.figures" in commands] == ["core"]


@pytest.mark.parametrize("target", sorted(TARGETS - {"help", "clean", "servers"}))
def test_a_target_makes_ready_what_it_needs_before_it_starts(target: str) -> None:
    given = [f"PART={PARTS[target][0]}"] if target in PARTS else []
    first = make("-n", target, *given).stdout.splitlines()[0].strip()
    assert re.search(r" -m tools\.prepare [a-z]+( compile)?$", first), first
