"""What `make test` says of its parts: a failure is never hidden, whatever way it came about."""
from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTEST_OPTIONS = ["-p", "tools.no_skips", "-c", os.devnull]


def lanes(folder: Path, *parts: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Parts in this folder, of which some may be commands."""
    bare = {name: value for name, value in os.environ.items() if name not in ("CI", "PART_NOTES", "HOLDFAST_PURE")}
    env = {**bare, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables}
    return subprocess.run(
        [sys.executable, "-m", "tools.lanes", *parts, "--", *PYTEST_OPTIONS], cwd=folder, env=env, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
    )


def test_parts_that_pass_are_counted_together_and_the_slow_tests_are_named(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("import time\ndef test_one(): time.sleep(0.2)\ndef test_two(): pass\n")
    (tmp_path / "test_b.py").write_text("import os\ndef test_pure(): assert os.environ['HOLDFAST_PURE'] == '1'\n")
    done = lanes(tmp_path, "test_a.py", "HOLDFAST_PURE=1 test_b.py", "true and no more")
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == "3 passed, 0 failed, 0 skipped"
    slow = done.stdout.partition("the ten slowest tests")[2].splitlines()
    assert re.fullmatch(r" +0\.[2-9]  test_a\.py::test_one", slow[1])
    assert any(line.endswith("test_b.py::test_pure (pure)") for line in slow)
    assert re.search(r"^ +\d+\.\d +\d+\.\d +2  test_a\.py$", done.stdout, re.MULTILINE)


BAD = {
    "fails": ("def test_a(): assert 1 == 2", "assert 1 == 2"),
    "fixture": ("import pytest\n@pytest.fixture\ndef a(): 1 / 0\ndef test_a(a): pass", "ZeroDivisionError"),
    "syntax": ("def test_a(: pass", "SyntaxError"),
    "empty": ("", "FAILED (no test ran)"),
    "killed": (f"import os\ndef test_a(): os.kill(os.getpid(), {signal.SIGKILL})", "FAILED (exit code 137)"),
    "exits": ("import os\ndef test_a(): os._exit(0)", "FAILED (no test ran)"),
}


def test_a_part_that_did_not_pass_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_good.py").write_text("def test_a(): pass\n")
    for name, (text, _) in BAD.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    names = [f"test_{name}.py" for name in BAD]
    done = lanes(tmp_path, *names, "test_good.py")
    assert done.returncode == 1
    for name, (_, told) in BAD.items():
        shown = done.stdout.partition(f"-- test_{name}.py ---")
        assert told in (shown[0].splitlines()[-1] if told.startswith("FAILED") else shown[2]), name
    assert sorted(re.findall(r"^FAILED: (.+)$", done.stdout, re.MULTILINE)[0].split(", ")) == sorted(names)
    assert done.stdout.splitlines()[-1] == f"1 passed, {len(BAD)} failed, 0 skipped"


def test_a_command_that_fails_is_shown_and_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_good.py").write_text("def test_a(): pass\n")
    done = lanes(tmp_path, "test_good.py", "sh -c 'echo the reason; exit 3'")
    assert done.returncode == 1
    assert "the reason" in done.stdout and "FAILED (exit code 3)" in done.stdout


@pytest.mark.parametrize(("variables", "code"), [({}, 0), ({"CI": "true"}, 1)], ids=["at a desk", "on CI"])
def test_a_skipped_test_is_a_failure_on_ci_alone(tmp_path: Path, variables: dict[str, str], code: int) -> None:
    (tmp_path / "test_a.py").write_text("import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip('no time')\n")
    done = lanes(tmp_path, "test_a.py", **variables)
    assert done.returncode == code
    assert done.stdout.splitlines()[-1] == f"1 passed, {code} failed, 1 skipped"


def test_what_a_test_leaves_behind_is_ended_and_its_time_is_counted(tmp_path: Path) -> None:
    """A program that outlives its parent, as a Java does: it burns half a second of processor time."""
    (tmp_path / "burn.py").write_text("import time\nwhile time.process_time() < 0.5: pass\n")
    (tmp_path / "test_a.py").write_text(
        "import subprocess, sys\ndef test_a(): subprocess.Popen([sys.executable, '-S', 'burn.py'])\n")
    (tmp_path / "test_b.py").write_text("def test_b(): pass\n")
    done = lanes(tmp_path, "test_a.py", "test_b.py")
    assert done.returncode == 0, done.stdout
    rows = re.findall(r"^ +[\d.]+ +([\d.]+) +1  (\S+)$", done.stdout, re.MULTILINE)
    cpu = {name: float(seconds) for seconds, name in rows}
    assert cpu["test_a.py"] > cpu["test_b.py"] + 0.3
