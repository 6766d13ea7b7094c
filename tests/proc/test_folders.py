"""Folders a node may not write to: at the start it says so and ends, later it refuses and recovers.

A superuser may write anywhere, so the node gives that up where the tests are run by one (`is_bound`).
"""
from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ErrorReply, Node, be_bound, until

import holdfast


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for each in [tmp_path, *tmp_path.rglob("*")]:
        if each.is_dir():
            each.chmod(0o755)


def test_a_new_folder_that_may_not_be_written_is_named(folder: Path) -> None:
    folder.chmod(0o500)
    with pytest.raises(AssertionError, match=r"did not start") as failed:
        Node("--dir", str(folder), is_bound=True)
    assert "Permission denied" in str(failed.value) and str(folder) in str(failed.value)
    assert "Traceback" not in str(failed.value)


@pytest.mark.parametrize("which", ["journal", "history"])
def test_a_folder_that_may_not_be_written_ends_the_start_with_its_name(folder: Path, which: str) -> None:
    flags = ("--dir", str(folder), "--set", "history=yes")
    with Node(*flags, is_bound=True) as node, node.client() as client:
        jid = client.ask("ADDJOB", "q", "kept", 0)
    (folder / which).chmod(0o500)
    with pytest.raises(AssertionError, match=r"did not start") as failed:
        Node(*flags, is_bound=True)
    assert "Permission denied" in str(failed.value) and str(folder) in str(failed.value)
    assert "Traceback" not in str(failed.value)
    (folder / which).chmod(0o700)
    with Node(*flags, is_bound=True) as node, node.client() as client:
        assert client.ask("GETJOB", "FROM", "q")[0][1] == jid, "nothing was lost by trying"


def test_a_folder_that_becomes_read_only_refuses_and_recovers(folder: Path) -> None:
    """The segment that is open can still be written; the next one cannot be made."""
    flags = ("--dir", str(folder), "--set", "journal-segment-bytes=64kb")
    with Node(*flags, is_bound=True) as node, node.client() as client:
        kept = [client.ask("ADDJOB", "q", "before", 0)]
        (folder / "journal").chmod(0o500)

        def is_refused() -> bytes | None:
            answer = client.ask("ADDJOB", "q", "x" * 5000, 0)
            if isinstance(answer, ErrorReply):
                return answer
            kept.append(answer)
            return None

        assert until(is_refused).startswith(b"MISCONF the journal cannot be written (Permission denied)")
        assert client.ask("QLEN", "q") == len(kept), "reading goes on"
        (folder / "journal").chmod(0o700)
        kept.append(until(lambda: answer if not isinstance(
            answer := client.ask("ADDJOB", "q", "after", 0), ErrorReply) else None))
    with Node("--dir", str(folder), is_bound=True) as node, node.client() as client:
        assert {each[1] for each in client.ask("GETJOB", "COUNT", 1000, "FROM", "q")} == set(kept)


def test_a_copy_that_may_not_be_written_can_be_looked_at(folder: Path) -> None:
    """A journal on a disk for keeping: check, dump and stats read it, repair says why it cannot."""
    with holdfast.open(f"file:{folder}") as q:
        q.add("q", "kept")
    for each in [*folder.rglob("*"), folder]:
        each.chmod(0o500 if each.is_dir() else 0o400)
    for word in ("check", "dump", "stats", "repair"):
        done = subprocess.run([sys.executable, "-m", "holdfast", "journal", word, str(folder)], capture_output=True,
                              text=True, check=False, preexec_fn=be_bound, timeout=60)
        assert done.returncode == (word == "repair"), done.stderr
    assert f"cannot use the folder {folder}: Permission denied" in done.stderr
