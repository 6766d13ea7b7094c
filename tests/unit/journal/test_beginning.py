"""A journal that is begun while the node runs: in slices, with a crash at any of them, and on disks that will not."""
from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pytest

from holdfast.journal.beginning import Beginning
from holdfast.journal.disk import Disk
from holdfast.journal.folder import unfinished

from .making import START_MS, Crash, CrashDisk, Hasty, Life
from .test_journal import Failing


class Begun:
    """A node with jobs and no journal, that begins one."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self.told: list[str] = []
        self.life = Life(folder, disk, policy="everysec", is_kept=False, segment_bytes=2000)
        self.ended = {self.life.add(f"ended {number}") for number in range(20)}
        self.ids = [self.life.add("x" * 2000 + str(number), "RETRY", "100") for number in range(300)]
        self.once = self.life.add("once", "RETRY", "0", "PRIORITY", "9")
        assert self.life.get() == self.once
        self.work = Beginning(
            self.life.journal, lambda: self.told.append("confirmed"),
            lambda error: self.told.append(str(error.strerror)),
        )

    def go(self) -> None:
        """Between the slices jobs come and go, on both sides of where the walk is."""
        for jid in sorted(self.ended)[:10]:
            assert self.life.do("ACKJOB", jid) == b":1\r\n"
        self.work.begin()
        slices = 0
        while not self.work.step():
            slices += 1
            self.ids.append(self.life.add(f"meanwhile {slices}"))
        assert slices > 5
        for jid in sorted(self.ended)[10:]:
            assert self.life.do("ACKJOB", jid) == b":1\r\n"
        self.work.sync()
        self.work.end()


def check(folder: Path, begun: Begun) -> None:
    """It has everything, or there is none."""
    is_there = (folder / "journal").exists()
    life = Life(folder, Hasty(), now=START_MS + 1000)
    if is_there:
        assert begun.told == ["confirmed"]
        assert all(life.node.find(jid) is not None for jid in begun.ids), "a job is gone"
        assert all(life.node.find(jid) is None for jid in begun.ended), "an acknowledged job is back"
        assert begun.once not in {life.node.id_text(job) for job in life.node.queues[b"q"].oldest(1000)}
    else:
        assert life.node.jobs == 0
    assert not unfinished(folder).exists()
    life.kill()


def test_everything_is_in_it_when_it_counts(tmp_path: Path) -> None:
    begun = Begun(tmp_path, Disk())
    assert not (tmp_path / "journal").exists()
    begun.go()
    assert not unfinished(tmp_path).exists()
    begun.ids.append(begun.life.add("after"))
    begun.life.kill()
    check(tmp_path, begun)


def test_a_crash_at_any_step_leaves_all_or_nothing() -> None:
    with tempfile.TemporaryDirectory() as name:
        disk = CrashDisk(Path(name))
        Begun(Path(name), disk).go()
        steps = disk.steps
    found = set()
    for dies_at in range(steps):
        for are_names_safe, torn in ((True, 0), (True, 1 << 30), (False, 0), (False, 1 << 30)):
            with tempfile.TemporaryDirectory() as name:
                before, after = Path(name) / "before", Path(name) / "after"
                before.mkdir()
                disk = CrashDisk(before, dies_at)
                begun = Begun(before, disk)
                with contextlib.suppress(Crash):
                    begun.go()
                disk.left(after, are_names_safe, torn)
                found.add((after / "journal").exists())
                check(after, begun)
    assert found == {True, False}


@pytest.mark.parametrize("what", ["full", "broken"])
def test_a_disk_that_will_not_have_it_leaves_the_node_as_it_was(tmp_path: Path, what: str) -> None:
    disk = Failing()
    begun = Begun(tmp_path, disk)
    life, work = begun.life, begun.work
    work.begin()
    for _ in range(3):
        assert not work.step()
    disk.is_full, disk.is_broken = what == "full", what == "broken"
    assert life.add("meanwhile").startswith(b"DI"), "nobody waits for it"
    with pytest.raises(OSError, match=r"No space|Input/output") as failed:
        while not work.step():
            assert life.add("y" * 3000).startswith(b"DI")
    work.abandon(failed.value)
    assert begun.told == [failed.value.strerror]
    disk.is_full = disk.is_broken = False
    assert life.add("after").startswith(b"DI")
    assert life.do("QLEN", "q").startswith(b":") and not life.node.is_recording
    assert not (tmp_path / "journal").exists() and not unfinished(tmp_path).exists()


def test_what_is_left_of_it_can_be_done_at_once(tmp_path: Path) -> None:
    """The end of the node comes in the middle of it, or before it has begun at all."""
    for slices in (0, 3):
        folder = tmp_path / str(slices)
        folder.mkdir()
        begun = Begun(folder, Disk())
        if slices:
            begun.work.begin()
        for _ in range(slices):
            assert not begun.work.step()
        begun.work.finish()
        begun.life.close(with_snapshot=False)
        begun.ended = set()
        check(folder, begun)
