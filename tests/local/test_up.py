"""`holdfast up` as somebody would use it: jobs are made and worked, the console answers, nothing is left behind."""
from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.proc.harness import until

from holdfast.cli.up import QUEUES_SHOWN, busiest
from holdfast.local.whole import Plan, Since, StartError, Whole

LINE = re.compile(r"added ([\d,]+)  done ([\d,]+) ")
CONSOLE = re.compile(r"http://127\.0\.0\.1:\d+/")
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Up:
    """The command in a process of its own, at ports that others are unlikely to use."""

    def __init__(self, folder: Path, *flags: str, port: int) -> None:
        self.folder = folder
        self.log = folder.parent / "up.log"
        words = ["up", "--dir", str(folder), "--port", str(port), "--http", str(port + 500), *flags]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "holdfast", *words], stdout=log, stderr=log)

    def text(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def said(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        assert self.process.poll() is None, self.text()
        return pattern.search(self.text())

    def done(self) -> int:
        found = LINE.findall(self.text())
        return int(found[-1][1].replace(",", "")) if found else 0

    def left(self) -> list[str]:
        """Processes that have this folder in their command line, and are not the command itself."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes()
            except OSError:
                continue
            if str(self.folder).encode() in words and int(path.parts[2]) != self.process.pid:
                found.append(words.decode())
        return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "data"


def get(url: str) -> str:
    with OPENER.open(url, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def test_a_cluster_with_sample_and_console_until_ctrl_c(folder: Path) -> None:
    """Three nodes, jobs made and done, pages and figures; a killed node comes back; Ctrl-C leaves nothing behind."""
    up = Up(folder, "--no-pipeline", "--orders", "20", port=21711)
    try:
        console = until(lambda: up.said(CONSOLE), 60)[0]
        until(lambda: up.said(LINE) and up.done() > 50, 60)
        assert "Holdfast" in get(console)
        names = {row["name"] for row in json.loads(get(f"{console}v1/queues"))["queues"]}
        assert {"payments", "mail", "parcels", "tracking"} <= names
        nodes = [words for words in up.left() if "\0node\0" in words]
        assert len(nodes) == 3
        pid = node_pid(folder, 3)
        os.kill(pid, signal.SIGKILL)
        until(lambda: "node 3: ended with -9" in up.text(), 20)
        assert "without node 3 (away)" in up.text()
        assert re.search(r"Processes .*node 1 \d+, ", up.text()) and re.search(r"gRPC +grpc://127", up.text())
        before = up.done()
        until(lambda: up.done() > before + 20, 60)
        until(lambda: len([words for words in up.left() if "\0node\0" in words]) == 3, 20)
        counts = [tuple(int(number.replace(",", "")) for number in found) for found in LINE.findall(up.text())]
        assert all(a <= b for one, two in pairwise(counts) for a, b in zip(one, two, strict=True)), counts
        up.process.send_signal(signal.SIGINT)
        assert up.process.wait(40) == 0, up.text()
    finally:
        up.process.kill()
        up.process.wait()
    assert f"kept in {folder}" in up.text()
    assert up.left() == []
    assert {"node-1", "node-2", "node-3", "log"} <= {path.name for path in folder.iterdir()}
    with pytest.raises(urllib.error.URLError):
        get(console)


def node_pid(folder: Path, number: int) -> int:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0")
        if str(folder / f"node-{number}").encode() in words:
            return int(path.parts[2])
    raise AssertionError("there is no such node")


def test_two_beside_each_other_where_ports_are_given(tmp_path: Path) -> None:
    """The second died: its gateway wanted the port for gRPC that the first one had."""
    flags = ("--nodes", "1", "--no-sample", "--no-pipeline")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = Up(tmp_path / "a" / "data", *flags, port=21911)
    two = Up(tmp_path / "b" / "data", *flags, "--grpc", "22901", port=21951)
    try:
        for each in (one, two):
            until(lambda each=each: each.said(LINE), 90)  # type: ignore[misc]
        assert "grpc://127.0.0.1:22421" in one.text(), "beside its own port for HTTP"
        assert "grpc://127.0.0.1:22901" in two.text()
    finally:
        for each in (one, two):
            each.process.send_signal(signal.SIGINT)
        for each in (one, two):
            assert each.process.wait(60) == 0, each.text()


def test_when_it_is_killed_its_processes_end_with_it(folder: Path) -> None:
    """SIGKILL reaches nobody but the command; the kernel tells the others."""
    up = Up(folder, "--nodes", "1", "--no-sample", "--no-pipeline", port=21751)
    until(lambda: up.said(LINE), 60)
    assert len(up.left()) == 2
    up.process.kill()
    up.process.wait()
    until(lambda: up.left() == [], 20)


def test_what_does_not_start_is_said_with_its_log(folder: Path) -> None:
    """The folder of a node is a file."""
    folder.mkdir()
    (folder / "node-1").write_text("in the way")
    up = Up(folder, "--nodes", "1", "--no-sample", "--no-pipeline", port=21791)
    assert up.process.wait(60) == 1
    assert "the node 1 did not start" in up.text()
    assert "holdfast node: " in up.text()
    assert up.left() == []


def test_a_folder_that_cannot_be_used_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match=r"cannot use the folder .*file: Not a directory"):
        next(Whole(Plan(tmp_path / "file", nodes=1)).start())


def test_what_started_nothing_does_not_say_that_it_stopped(folder: Path) -> None:
    first = Whole(Plan(folder))
    first.take_folder()
    up = Up(folder, port=21831)
    assert up.process.wait(60) == 1
    assert "another holdfast up uses the folder" in up.text() and "stopped" not in up.text()
    list(first.stop())


def test_totals_never_go_back() -> None:
    """A node goes away with what it counted, and begins at nothing when it returns; the others go on counting."""
    since = Since()
    seen = []
    for added, is_whole in [(30, True), (21, False), (22, False), (25, True), (30, True), (20, False), (31, True)]:
        rows: list[dict[str, Any]] = [{"name": "q", "added": added, "queued": 1}]
        since.take(rows, is_whole)
        seen.append(rows[0]["added"])
    assert seen == [30, 30, 31, 31, 36, 36, 37]
    nothing: list[dict[str, Any]] = []
    since.take(nothing, True)
    assert [(row["name"], row["added"]) for row in nothing] == [("q", 37)]


def test_the_busiest_queues_are_shown() -> None:
    queues: list[dict[str, Any]] = [{"name": f"q{number:02}"} for number in range(40)]
    queues[39]["in_per_second"] = 5
    queues[38]["queued"] = 7
    assert [row["name"] for row in busiest(queues)][-2:] == ["q38", "q39"]
    assert len(busiest(queues)) == QUEUES_SHOWN


def test_a_folder_is_used_by_one_at_a_time(tmp_path: Path) -> None:
    first, second = Whole(Plan(tmp_path)), Whole(Plan(tmp_path))
    first.take_folder()
    with pytest.raises(StartError, match="another holdfast up uses the folder"):
        second.take_folder()
    assert not list(first.stop())
    second.take_folder()


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        whole = Whole(Plan(tmp_path, nodes=1, http=port))
        assert next(whole.start()) == "starting a node"
    assert any(note.startswith(f"port {port} is taken: the console is at") for note in whole.notes)
