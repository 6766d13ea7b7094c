"""Every snippet in README.md, CONTRIBUTING.md and docs/ does what the page says. How: see snippets.py.

A page runs in a process of its own, in an empty folder, with a node beside it if it talks to one.
Blocks marked `sh` are for the reader's own shell. Of those, lines that start a node are run until the node
is ready (after the lines that make a file, and with 127.0.0.1 where they say 10.0.0.…); test_make.py knows the
targets. Other blocks must say that they are `text`, `toml` or the like: nothing that looks like a program stays
untested by accident.
"""
from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import snippets

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOT_PROGRAMS = {"text", "toml", "sh"}
PAGE_SECONDS_MAX = 60
START_SECONDS_MAX = 20
READY = re.compile(r"ready on \S+?:(\d+)")
# Programs of this environment first: holdfast, python.
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[snippets.Block]:
    return list(snippets.blocks(page.read_text("utf-8")))


def sh_lines(page: Path) -> Iterator[str]:
    for block in blocks(page):
        if block.kind == "sh":
            for line in block.text.replace("\\\n", " ").splitlines():
                if line.strip() and not line.startswith("#"):
                    yield line


@contextlib.contextmanager
def node(command: str, folder: Path) -> Iterator[str]:
    """A node started by a line of bash; its port."""
    log = folder / "node.log"
    with log.open("w") as sink:
        process = subprocess.Popen(
            ["bash", "-c", f"exec env {command}"], cwd=folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
            stdout=sink, stderr=sink,
        )
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while (found := READY.search(log.read_text())) is None:
            assert process.poll() is None and time.monotonic() < deadline, f"{command}: {log.read_text()}"
            time.sleep(0.02)
        yield found.group(1)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert process.returncode == 0, log.read_text()


RUNNABLE = [page for page in PAGES if any(block.kind in snippets.RUNNABLE for block in blocks(page))]


@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_the_snippets_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        text = "".join(block.text for block in blocks(page) if block.kind in snippets.RUNNABLE)
        port = snippets.free_port()
        if snippets.needs_node(text):
            port = stack.enter_context(node("holdfast node --port 0", tmp_path))
        run = subprocess.Popen(
            [sys.executable, snippets.__file__, str(page), port], cwd=tmp_path, env=ENVIRONMENT,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )
        try:
            output, _ = run.communicate(timeout=PAGE_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            output, _ = run.communicate()
            pytest.fail(f"{name_of(page)} took longer than {PAGE_SECONDS_MAX} s:\n{output}")
        finally:
            with contextlib.suppress(ProcessLookupError):  # nodes that the page has started and not stopped
                os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == 0, output


NODES = [(page, line) for page in PAGES for line in sh_lines(page) if re.search(r"\bholdfast node\b", line)]


@pytest.mark.parametrize(("page", "line"), NODES, ids=[f"{name_of(page)}: {line}" for page, line in NODES])
def test_a_line_that_starts_a_node_starts_one(page: Path, line: str, tmp_path: Path) -> None:
    for block in blocks(page):  # A file the page shows is a file the line may name.
        if block.kind == "toml":
            (tmp_path / "holdfast.toml").write_text(block.text)
    for each in sh_lines(page):
        if re.search(r"^[^#]* > \w+$|^holdfast secret new \w+$", each):
            subprocess.run(["bash", "-c", each], cwd=tmp_path, env=ENVIRONMENT, check=True)
    where = re.sub(r"--port \d+", "", line) + " --port 0"
    where = re.sub(r"\b10\.0\.0\.\d+", "127.0.0.1", where)
    with node(where.removeprefix("$ "), tmp_path):
        pass


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_program_stays_untested(page: Path) -> None:
    kinds = {block.kind for block in blocks(page)}
    assert kinds <= NOT_PROGRAMS | set(snippets.RUNNABLE), "say what a block is: python, console, sh, text"
    assert page.read_text("utf-8").count("\n```") % 2 == 0
    for block in blocks(page):
        if block.kind == "console":
            assert block.text.startswith("$ "), f"line {block.line}: a console block begins with a command"
