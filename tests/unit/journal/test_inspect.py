"""holdfast journal: what it says of a good journal and of a bad one, and that a repaired one loads."""
from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.main import main
from holdfast.core import records
from holdfast.core.job import IN_DOUBT
from holdfast.journal import identity, inspect
from holdfast.journal.folder import JournalError, segment_path

from .making import NODE_ID, Life
from .test_own import own

ROOT = Path(__file__).resolve().parents[3]


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["journal", *map(str, words)])


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two segments: jobs before, in and after a part that is easily damaged; one of them at most once."""
    life = Life(tmp_path, segment_bytes=400)
    life.add("once", "RETRY", "0")
    for number in range(10):
        life.add(f"job {number}")
    life.kill()
    assert segment_path(tmp_path / "journal", 2).exists()
    return tmp_path


def test_a_good_journal_is_called_good(folder: Path) -> None:
    result = run("check", folder)
    assert result.exit_code == 0 and "11 batches are good" in result.output
    assert run("repair", folder).output == "nothing had to be repaired\n"


def test_a_repaired_journal_has_the_node_ask_before_it_queues_anything(folder: Path) -> None:
    """Damage in the snapshot of a node that has others: what was cut out may be how a job ended."""
    life = Life(folder)
    assert life.journal.rewrite_now()
    life.kill()
    [path] = (folder / "journal").glob("*.snapshot")
    damage(path, 300)
    done = run("repair", folder).output
    assert "are left out" in done and "Next:\n1. Start the node" in done
    life = Life(folder, others=2, now=1_700_000_010_000)
    assert life.node.salvage.is_on and life.bodies() == []
    assert life.node.incarnation > 7, "others would count on what it had"
    life.kill()


def test_a_journal_without_any_header_is_repaired_by_what_lies_beside_it(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.add("kept")
    life.kill()
    path = segment_path(tmp_path / "journal", 1)
    path.write_bytes(bytes(64) + path.read_bytes()[64:])
    assert run("check", tmp_path).exit_code == 1
    refused = run("repair", tmp_path)
    assert refused.exit_code == 1 and "start the node without it" in refused.output
    identity.save_incarnation(tmp_path, 7)
    (tmp_path / "node-id").write_bytes(NODE_ID + b"\n")
    assert "are left out" in run("repair", tmp_path).output
    life = Life(tmp_path)
    assert life.bodies() == [b"kept"]


def test_dump_and_stats_tell_what_is_in_it(folder: Path) -> None:
    lines = run("dump", folder).output.splitlines()
    assert len(lines) == 12
    assert lines[1].startswith("00000001.log:64 2023-11-14T22:13:20.000Z ADD DI01234567")
    assert lines[1].endswith("queue=q body=4 bytes")
    assert "ADD                   11" in run("stats", folder).output


def test_every_kind_of_record_has_a_name_and_a_line_in_the_reference() -> None:
    """Those that loading knows (core/recover.py), by number."""
    source = ast.parse((ROOT / "src/holdfast/core/recover.py").read_text("utf-8"))
    imported = {
        name.name for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom) and node.module == "holdfast.core.records" for name in node.names
    }
    kinds = {name: getattr(records, name) for name in imported - {
        "ADD_FIXED", "FORGOTTEN", "ID_BYTES", "JOB_FIXED", "MEMBER"}}
    assert len(kinds) > 30 and len(set(kinds.values())) == len(kinds)
    assert {name: number for number, name in inspect.NAMES.items()} == kinds
    page = (ROOT / "docs/reference/journal-format.md").read_text("utf-8")
    assert {name: int(number) for number, name in re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", page, re.M)} == kinds


def test_records_that_are_not_about_a_job_are_shown(tmp_path: Path) -> None:
    life = Life(tmp_path)
    assert life.do("QUEUE", "SET", "q", "maxlen", "7") == b"+OK\r\n"
    assert life.do("CRON", "SET", "c", "* * * * *", "q", "tick") == b"+OK\r\n"
    jid = life.add("x", "UNIQUE", "k", "GROUP", "g")
    assert life.get() == jid
    life.journal.rewrite_now()
    life.kill()
    result = run("dump", tmp_path)
    assert result.exit_code == 0 and "REGISTER" in result.output and jid[:26].decode() in result.output


def test_a_torn_end_is_no_damage(folder: Path) -> None:
    path = sorted((folder / "journal").glob("*.log"))[-1]
    path.write_bytes(path.read_bytes()[:-3])
    result = run("check", folder)
    assert result.exit_code == 0 and "the next start cuts them off" in result.output


@pytest.mark.parametrize(("at", "jobs", "doubts"), [(10, 11, 0), (100, 10, 0), (180, 10, 1)])
def test_a_repaired_journal_loads_without_the_damaged_part(folder: Path, at: int, jobs: int, doubts: int) -> None:
    """The header, the first or the second batch is damaged. What is left out after the at-most-once job was added may
    have been its hand-out: it is in doubt then, and not queued."""
    path = segment_path(folder / "journal", 1)
    damage(path, at)
    checked = run("check", folder)
    assert checked.exit_code == 1 and "is damaged" in checked.output
    repaired = run("repair", folder)
    assert repaired.exit_code == 0 and ".damaged" in repaired.output
    assert run("check", folder).exit_code == 0
    life = Life(folder)
    assert life.node.jobs == jobs
    assert sum(job.flags & IN_DOUBT != 0 for job in life.node.all_jobs()) == doubts
    assert len(life.bodies()) == jobs - doubts
    life.kill()


def test_a_missing_segment_is_replaced_by_one_that_says_so(folder: Path) -> None:
    segment_path(folder / "journal", 1).unlink()
    assert "is missing" in run("check", folder).output
    assert "was missing" in run("repair", folder).output
    assert run("check", folder).exit_code == 0


def test_a_journal_of_a_queue_that_is_gone_is_replaced_by_one_that_says_so(folder: Path) -> None:
    """The jobs of the queue are lost. Of those of others one at most once may have been handed out there."""
    life = Life(folder)
    life.do("ADDJOB", "other", "kept", "0")
    own(life)
    life.kill()
    [path] = (folder / "queues").iterdir()
    shutil.rmtree(path)
    with pytest.raises(JournalError, match=f"holdfast journal repair {folder}"):
        Life(folder)
    result = run("check", folder)
    assert result.exit_code == 1 and f"there is nothing in {path}" in result.output
    assert "the jobs that its queue had are lost" in run("repair", folder).output
    assert run("check", folder).exit_code == 0
    life = Life(folder)
    assert life.bodies() == [] and life.node.jobs == 1
    life.add("after")
    life.kill()
    life = Life(folder)
    assert life.bodies() == [b"after"]
    life.kill()


def test_a_damaged_snapshot_is_repaired_too(folder: Path) -> None:
    life = Life(folder)
    assert life.journal.rewrite_now()
    life.kill()
    (path,) = (folder / "journal").glob("*.snapshot")
    damage(path, path.stat().st_size - 5)
    assert run("check", folder).exit_code == 1
    assert run("repair", folder).exit_code == 0
    life = Life(folder)
    assert life.node.jobs == 11
    life.kill()


def test_a_folder_in_use_is_left_alone(folder: Path) -> None:
    from holdfast.journal.lock import lock, unlock

    held = lock(folder)
    try:
        result = run("repair", folder)
        assert result.exit_code == 1 and f"{folder} is in use: stop the node" in result.output
    finally:
        unlock(held)


def test_a_folder_without_a_journal_is_named(tmp_path: Path) -> None:
    result = run("check", tmp_path)
    assert result.exit_code == 1 and "there is no journal in" in result.output
    (tmp_path / "journal").mkdir()
    result = run("check", tmp_path)
    assert result.exit_code == 0 and "a node would start without jobs" in result.output


def test_nothing_is_wrong_when_the_reader_of_a_dump_has_seen_enough(tmp_path: Path) -> None:
    life = Life(tmp_path, policy="no")
    for _ in range(2000):  # more than a pipe holds
        life.add("x")
    life.kill()
    dump = subprocess.Popen([sys.executable, "-m", "holdfast", "journal", "dump", str(tmp_path)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert dump.stdout is not None and dump.stderr is not None
    assert b"00000001.log" in dump.stdout.readline()
    dump.stdout.close()
    assert dump.stderr.read() == b""
    dump.stderr.close()
    dump.wait(60)


def test_journals_of_queues_are_looked_at_and_mended_too(folder: Path) -> None:
    life = Life(folder)
    life.add("kept, and in the journal of the node")
    own(life)
    for number in range(5):
        life.add(f"own {number}")
    at = life.journal.own.by_name[b"q"].writer.position
    life.add("damaged")
    life.add("last")
    life.add("knows that it is synced")
    life.kill()
    result = run("check", folder)
    assert result.exit_code == 0 and "own" not in result.output
    dumped = run("dump", folder).output
    assert dumped.count(" ADD ") == 11 + 1 + 8
    [path] = (folder / "queues").iterdir()
    damage(sorted(path.glob("*.log"))[-1], at + 30)
    for where in (folder, path):
        result = run("check", where)
        assert result.exit_code == 1 and f"{path}" in result.output and f"at byte {at}" in result.output
    with pytest.raises(JournalError, match=f"holdfast journal repair {path}"):
        Life(folder)
    assert "are left out" in run("repair", folder).output
    assert run("repair", path).output == "nothing had to be repaired\n"
    life = Life(folder)
    assert life.node.jobs == 11 + 1 + 7 and len(life.bodies()) == 18, "whether the one at most once is out nobody knows"
    life.kill()
