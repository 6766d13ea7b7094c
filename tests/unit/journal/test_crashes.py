"""A crash at every step: what was answered is there afterwards, and nothing at most once is there twice."""
from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from .making import Crash, CrashDisk, Hasty, Life


class Answers:
    """What clients were told before the crash."""

    def __init__(self) -> None:
        self.added: set[bytes] = set()
        self.ended: set[bytes] = set()
        self.out_once: set[bytes] = set()
        self.asked: set[bytes] = set()  # ended without an answer: may be or not be


def live(folder: Path, disk: CrashDisk, answers: Answers) -> None:
    """Append, rotate, hand out, acknowledge, rewrite, and all of it again."""
    life = Life(folder, disk, segment_bytes=400)
    node = life.node
    for part in range(3):
        ids = []
        for number in range(3):
            jid = life.add(f"{part}.{number}", *(["RETRY", "0"] if number == 2 else []))
            ids.append(jid)
            answers.added.add(jid)
        for _ in ids:
            jid = life.get()
            job = node.find(jid)
            if job is not None and job.retry == 0:
                answers.out_once.add(jid)
        answers.asked.add(ids[0])
        if life.do("ACKJOB", ids[0]) == b":1\r\n":
            answers.ended.add(ids[0])
        life.do("PAUSE", f"paused{part}", "in")
        if part == 1:
            life.journal.begin_rewrite()
            done = False
            while not done:
                done = life.journal.rewrite_some()
                answers.added.add(life.add("meanwhile"))
            assert life.journal.rewrite is not None
            life.journal.rewrite.sync()
            life.journal.end_rewrite()
    life.journal.close(with_snapshot=True)


def check(folder: Path, answers: Answers) -> None:
    life = Life(folder, Hasty())
    node = life.node
    for jid in answers.added - answers.asked:
        assert node.find(jid) is not None, f"{jid!r} was answered and is gone"
    for jid in answers.ended:
        assert node.find(jid) is None, f"{jid!r} was acknowledged and is back"
    queued = {node.id_text(job) for queue in node.queues.values() for job in queue.oldest(1000)}
    assert not queued & answers.out_once, "an at-most-once job would be handed out twice"
    life.kill()


def steps_of_a_life() -> int:
    with tempfile.TemporaryDirectory() as folder:
        disk = CrashDisk(Path(folder))
        live(Path(folder), disk, Answers())
        return disk.steps


@pytest.mark.parametrize("halfway", [False, True], ids=["before", "halfway"])
def test_a_crash_at_every_step_loses_nothing_that_was_answered(halfway: bool) -> None:
    """At each write, sync, rename and removal in turn. Of what was not synced any part may be left, and a name that
    was not synced may be there or not."""
    total = steps_of_a_life()
    assert total > 60
    seen = 0
    for step in range(total):
        with tempfile.TemporaryDirectory() as folder:
            disk, answers = CrashDisk(Path(folder), step, halfway), Answers()
            try:
                live(Path(folder), disk, answers)
            except Crash:
                seen += 1
            for are_names_safe in (True, False):
                for torn in (0, 1, 30, -1, 1 << 30):
                    with tempfile.TemporaryDirectory() as left:
                        disk.left(Path(left), are_names_safe, torn)
                        check(Path(left), answers)
    assert seen > 30 if halfway else seen == total  # only a write can be half done


def test_every_length_of_a_torn_batch_is_cut(tmp_path: Path) -> None:
    """The last batch in all its lengths: what stands before it is loaded, and the cut is reported."""
    life = Life(tmp_path, policy="no")
    life.add("kept")
    before = life.journal.writer.position
    life.add("torn")
    life.kill()
    path = tmp_path / "journal" / "00000001.log"
    whole = path.read_bytes()
    for size in range(before, len(whole)):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "journal").mkdir()
            (Path(folder) / "journal" / path.name).write_bytes(whole[:size])
            life = Life(Path(folder), Hasty())
            assert life.bodies() == [b"kept"]
            assert bool(life.journal.cut) == (size > before)
            life.kill()
