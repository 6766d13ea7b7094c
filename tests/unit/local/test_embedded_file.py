"""holdfast.open("file:…"): a queue in a folder, for one process at a time, that a server can take over."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.client.errors import BadRequest, Empty, Unreachable
from holdfast.embedded import Local, SyncLoopback


def test_jobs_are_there_when_it_is_opened_again(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'jobs'}"
    with holdfast.open(url) as q:
        q.add("emails", "first")
        q.add("emails", "second")
        with q.next("emails", timeout=5) as job:
            assert job.text == "first"
    with holdfast.open(url) as q, q.next("emails", timeout=5) as job:
        assert job.text == "second"
    with holdfast.open(url) as q, pytest.raises(Empty):
        q.next("emails", timeout=0)


def test_what_was_not_closed_is_kept_too(tmp_path: Path) -> None:
    """A process adds and is gone without a word."""
    script = (
        "import holdfast, os, sys\n"
        "q = holdfast.open(sys.argv[1])\n"
        "q.add('emails', 'kept')\n"
        "os._exit(1)\n"
    )
    url = f"file:{tmp_path}"
    subprocess.run([sys.executable, "-c", script, url], check=False, timeout=60)
    with holdfast.open(url) as q, q.next("emails", timeout=5) as job:
        assert job.text == "kept"


async def test_for_asyncio_as_well(tmp_path: Path) -> None:
    for _ in range(2):
        q = await holdfast.aopen(f"file:{tmp_path}")
        await q.add("emails", "hello")
        await q.close()
    q = await holdfast.aopen(f"file:{tmp_path}")
    assert [(await q.next("emails", timeout=1)).text for _ in range(2)] == ["hello", "hello"]
    await q.close()


def test_a_second_user_of_the_folder_is_refused_with_words(tmp_path: Path) -> None:
    with holdfast.open(f"file:{tmp_path}"), pytest.raises(Unreachable, match="used by another node"):
        holdfast.open(f"file:{tmp_path}")
    holdfast.open(f"file:{tmp_path}").close()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("a file, not a folder")
    with pytest.raises(Unreachable, match="cannot use the folder"):
        holdfast.open(f"file:{tmp_path / 'jobs'}")


def test_settings_come_after_a_question_mark(tmp_path: Path) -> None:
    with holdfast.open(f"file://{tmp_path}?appendfsync=always&maxmemory=64mb") as q:
        q.add("q", "x")
    with holdfast.open(f"file://{tmp_path}?journal-keep-bytes=1mb") as q:
        q.add("q", "y")
    assert list((tmp_path / "journal" / "old").glob("*.log"))
    with pytest.raises(BadRequest, match="port has no effect"):
        holdfast.open(f"file:{tmp_path}?port=1")
    with pytest.raises(BadRequest, match="needs a folder"):
        holdfast.open("file:")


def test_the_journal_is_rewritten_while_calls_go_on(tmp_path: Path) -> None:
    """Time is moved by hand: each call is a second after the last."""
    now = [1_700_000_000_000]
    settings = {"auto-aof-rewrite-min-size": "100kb"}
    local = Local(settings, clock_ms=lambda: now[0], folder=tmp_path)
    channel = SyncLoopback(local)
    for _ in range(300):
        now[0] += 1000
        reply = channel.call(["ADDJOB", "q", b"x" * 1000, 0])
        channel.call(["ACKJOB", reply])
    assert list((tmp_path / "journal").glob("*.snapshot"))
    assert sum(path.stat().st_size for path in (tmp_path / "journal").iterdir()) < 250_000
    channel.close()


def test_settings_changed_meanwhile_hold_from_then_on(tmp_path: Path) -> None:
    local = Local({}, folder=tmp_path)
    q = holdfast.Queue(SyncLoopback(local))
    assert local._kept is not None
    writer = local._kept.journal.writer
    q.add("q", "x")
    assert writer.synced < writer.position
    assert q.call("CONFIG", "SET", "appendfsync", "always") == b"OK"
    q.add("q", "y")
    assert writer.synced == writer.position
    q.close()
