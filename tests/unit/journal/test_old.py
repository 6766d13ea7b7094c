"""What rewrites have replaced is kept up to a bound, read by people and by no start, and no crash harms anything."""
from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

from click.testing import CliRunner, Result

from holdfast.cli.main import main
from holdfast.journal import inspect, old
from holdfast.journal.lock import lock, unlock

from .making import START_MS, Crash, CrashDisk, Hasty, Life
from .test_own import own, shared

MUCH = 1 << 30


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["journal", *map(str, words)])


def kept(folder: Path) -> list[str]:
    return [path.name for path in old.files(folder / "journal")]


def kept_bytes(folder: Path) -> int:
    return inspect.size_of(old.files(folder / "journal"))


def test_nothing_is_kept_unless_somebody_says_so(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.add("x")
    assert life.journal.rewrite_now()
    life.close(with_snapshot=True)
    assert not (tmp_path / "journal" / "old").exists()


def test_what_a_rewrite_replaces_is_kept_in_its_order(tmp_path: Path) -> None:
    life = Life(tmp_path, segment_bytes=400, keep_bytes=MUCH)
    for number in range(6):
        life.add(f"job {number}")
    assert life.journal.rewrite_now()
    assert kept(tmp_path) == ["00000001.log", "00000002.log"]
    life.add("more")
    assert life.journal.rewrite_now()
    assert kept(tmp_path) == ["00000001.log", "00000002.log", "00000003.snapshot", "00000003.log"]
    assert life.journal.kept_bytes == kept_bytes(tmp_path)
    life.kill()
    life = Life(tmp_path, keep_bytes=MUCH)
    assert life.journal.kept_bytes == kept_bytes(tmp_path) > 0, "a start finds what is kept"
    assert life.node.jobs == 7
    life.kill()


def test_the_oldest_go_when_there_is_too_much(tmp_path: Path) -> None:
    life = Life(tmp_path, keep_bytes=3000)
    for _ in range(12):
        life.add("x" * 300)
        life.do("ACKJOB", life.get())
        assert life.journal.rewrite_now()
        assert life.journal.kept_bytes == kept_bytes(tmp_path) <= 3000
    names = kept(tmp_path)
    assert names[-1] == "00000012.log" and 4 < len(names) < 20
    life.journal.keep(1000)
    assert life.journal.kept_bytes == kept_bytes(tmp_path) <= 1000
    assert kept(tmp_path) == names[-len(kept(tmp_path)):], "the newest are left"
    life.kill()
    life = Life(tmp_path)
    assert kept(tmp_path) == [], "the next start hears that nothing is to be kept any more"
    life.kill()


def test_no_start_reads_what_is_old(tmp_path: Path) -> None:
    life = Life(tmp_path, keep_bytes=MUCH)
    life.add("x")
    assert life.journal.rewrite_now()
    life.kill()
    for path in old.files(tmp_path / "journal"):
        path.write_bytes(b"nonsense")
    (tmp_path / "journal" / "old" / "notes.txt").write_text("of a person")
    (tmp_path / "journal" / "old" / "copy.log").write_text("of a person")
    life = Life(tmp_path, keep_bytes=MUCH)
    assert life.bodies() == [b"x"]
    assert life.journal.rewrite_now()
    life.kill()
    Life(tmp_path).kill()
    assert sorted(path.name for path in (tmp_path / "journal" / "old").iterdir()) == ["copy.log", "notes.txt"]


def test_what_cannot_be_kept_stops_nobody(tmp_path: Path) -> None:
    """Something is in the way. It is no longer, and then the files that waited are put away with the next."""
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "old").write_text("in the way")
    life = Life(tmp_path, keep_bytes=MUCH)
    life.add("x")
    assert life.journal.rewrite_now()
    assert (tmp_path / "journal" / "00000001.log").exists()
    life.kill()
    life = Life(tmp_path, keep_bytes=MUCH)
    assert life.bodies() == [b"x"]
    (tmp_path / "journal" / "old").unlink()
    assert life.journal.rewrite_now()
    assert kept(tmp_path)[0] == "00000001.log"
    life.kill()


def live(folder: Path, disk: CrashDisk, told: tuple[set[bytes], set[bytes]]) -> None:
    added, ended = told
    life = Life(folder, disk, segment_bytes=400, keep_bytes=1200)
    for _ in range(4):
        for _ in range(3):
            added.add(life.add("x" * 50))
        jid = life.get()
        added.discard(jid)
        if life.do("ACKJOB", jid) == b":1\r\n":
            ended.add(jid)
        assert life.journal.rewrite_now()
    life.close(with_snapshot=True)


def test_a_crash_at_every_step_harms_nothing(tmp_path: Path) -> None:
    """Also between putting away and removing. What was answered is there, and the start after it keeps to the bound
    again, with nothing left where it does not belong."""
    disk = CrashDisk(tmp_path)
    live(tmp_path, disk, (set(), set()))
    assert disk.steps > 80 and 0 < kept_bytes(tmp_path) <= 1200
    for step in range(disk.steps):
        with tempfile.TemporaryDirectory() as name:
            crashed = CrashDisk(Path(name), step)
            told: tuple[set[bytes], set[bytes]] = (set(), set())
            with contextlib.suppress(Crash):
                live(Path(name), crashed, told)
            for are_names_safe in (True, False):
                with tempfile.TemporaryDirectory() as left:
                    crashed.left(Path(left), are_names_safe, 0)
                    life = Life(Path(left), Hasty(), now=START_MS + 1000, keep_bytes=1200)
                    assert all(life.node.find(jid) is not None for jid in told[0]), "a job is gone"
                    assert all(life.node.find(jid) is None for jid in told[1]), "an acknowledged job is back"
                    life.kill()
                    assert life.journal.kept_bytes == kept_bytes(Path(left)) <= 1200
                    snapshots = sorted((Path(left) / "journal").glob("*.snapshot"))
                    assert len(snapshots) <= 1
                    assert not snapshots or min((Path(left) / "journal").glob("*.log")).stem >= snapshots[0].stem


def test_a_queue_with_its_own_journal_keeps_there_and_takes_it_along_when_it_goes(tmp_path: Path) -> None:
    life = Life(tmp_path, keep_bytes=MUCH)
    own(life)
    its = life.journal.own.by_name[b"q"]
    life.add("x")
    assert its.rewrite_now()
    assert [path.name for path in old.files(its.path)][-1] == "00000002.log" and its.kept_bytes > 0
    assert str(its.path / "old") in CliRunner().invoke(main, ["journal", "stats", str(tmp_path)]).output
    life.kill()
    life = Life(tmp_path, keep_bytes=MUCH, now=START_MS + 1000)
    assert life.journal.own.by_name[b"q"].kept_bytes > 0
    shared(life)
    assert not its.path.exists()
    life.kill()


def test_a_journal_that_is_removed_leaves_nothing_old(tmp_path: Path) -> None:
    """`CONFIG SET appendonly no`."""
    life = Life(tmp_path, keep_bytes=MUCH)
    life.add("x")
    assert life.journal.rewrite_now() and kept(tmp_path)
    life.close(with_snapshot=False)
    life.journal.remove()
    assert list((tmp_path / "journal").iterdir()) == []


def test_old_files_are_shown_while_a_node_runs(tmp_path: Path) -> None:
    life = Life(tmp_path, keep_bytes=MUCH)
    jid = life.add("x")
    life.do("ACKJOB", jid)
    assert life.journal.rewrite_now()
    where = tmp_path / "journal" / "old"
    held = lock(tmp_path)
    try:
        dumped = run("dump", where)
        assert dumped.exit_code == 0 and f"ADD {jid.decode()}" in dumped.output and "GONE" in dumped.output
        assert "ADD                    1" in run("stats", where).output
        for command in ("check", "repair"):
            refused = run(command, where)
            assert refused.exit_code == 1 and "no node starts with what is in" in refused.output
    finally:
        unlock(held)
    life.kill()
    assert f"and in {where} 1 files of {kept_bytes(tmp_path)} bytes" in run("stats", tmp_path).output
    shutil.rmtree(where)
    where.mkdir()
    assert "there is no file of a journal in" in run("dump", where).output


def test_one_can_go_back_to_a_moment(tmp_path: Path) -> None:
    """As the how-to says: the newest snapshot before the moment, the segments after it, the last one cut there."""
    life = Life(tmp_path / "now", keep_bytes=MUCH)
    first = life.add("first")
    assert life.journal.rewrite_now()
    second = life.add("second")
    at = life.journal.writer.position
    life.do("QFLUSH", "q")
    assert life.node.jobs == 0
    life.close(with_snapshot=True)
    source, target = tmp_path / "now" / "journal" / "old", tmp_path / "then" / "journal"
    target.mkdir(parents=True)
    for name in ("00000002.snapshot", "00000002.log"):
        shutil.copy(source / name, target)
    with (target / "00000002.log").open("r+b") as file:
        file.truncate(at)
    assert run("check", tmp_path / "then").exit_code == 0
    life = Life(tmp_path / "then", now=START_MS + 1000)
    assert life.bodies() == [b"first", b"second"]
    assert life.node.find(first) is not None and life.node.find(second) is not None
    life.kill()
