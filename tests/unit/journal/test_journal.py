"""A node comes back as it was: jobs, leases, settings, order. And what happens when the disk will not have it."""
from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.core.job import ACTIVE, QUEUED
from holdfast.journal.disk import Disk
from holdfast.journal.folder import JournalError, segment_path

from .making import START_MS, Life

HOUR_MS = 3_600_000


class Failing(Disk):
    """Fails to write or to sync as long as it is told to."""

    def __init__(self) -> None:
        self.is_full = False
        self.is_broken = False
        self.syncs = 0

    def write(self, descriptor: int, pieces: Sequence[bytes], position: int) -> None:
        if self.is_full:
            super().write(descriptor, [pieces[0][:5]], position)  # a part of it gets there, as on real disks
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(descriptor, pieces, position)

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        if self.is_broken:
            raise OSError(errno.EIO, "Input/output error")
        super().sync(descriptor)


def test_jobs_come_back_in_their_order_and_with_all_they_have(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.add("second")
    life.add("third", "DELAY", "10")
    life.add("first", "PRIORITY", "9")
    life.kill()
    life = Life(tmp_path, now=START_MS + 3000)
    assert life.bodies() == [b"first", b"second"]
    life.at(START_MS + 10_000)
    assert life.bodies() == [b"first", b"second", b"third"]


def test_a_thousand_jobs_of_one_millisecond_keep_their_order(tmp_path: Path) -> None:
    life = Life(tmp_path, policy="no")
    for number in range(1000):
        life.add(str(number))
    life.kill()
    life = Life(tmp_path, now=START_MS + 7)
    assert life.bodies() == [b"%d" % number for number in range(1000)]
    life.add("a newer one")
    assert life.bodies()[-1] == b"a newer one"


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
def test_what_is_out_stays_out_until_its_time(tmp_path: Path, is_clean: bool) -> None:
    """A worker has a job for a minute. The node is restarted, and does not give it to another one before that."""
    life = Life(tmp_path)
    jid = life.add("out", "RETRY", "60")
    assert life.get() == jid
    life.close(with_snapshot=True) if is_clean else life.kill()
    life = Life(tmp_path, now=START_MS + 30_000)
    assert life.get() == b""
    life.at(START_MS + 59_000)
    assert life.get() == b""
    life.at(START_MS + 60_500)
    assert life.get() == jid


def test_a_lease_that_was_prolonged_is_that_long_after_a_restart(tmp_path: Path) -> None:
    life = Life(tmp_path)
    jid = life.add("out", "RETRY", "60")
    life.get()
    life.at(START_MS + 50_000)
    assert life.do("WORKING", jid) == b":60\r\n"
    life.kill()
    life = Life(tmp_path, now=START_MS + 100_000)
    assert life.get() == b""
    life.at(START_MS + 111_000)
    assert life.get() == jid


def test_a_job_that_was_given_back_is_queued_after_a_restart(tmp_path: Path) -> None:
    life = Life(tmp_path)
    jid = life.add("given back", "RETRY", "600")
    life.get()
    assert life.do("NACK", jid) == b":1\r\n"
    life.kill()
    life = Life(tmp_path, now=START_MS + 1000)
    assert life.bodies() == [b"given back"]
    job = life.node.find(jid)
    assert job is not None and job.nacks == 1


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
def test_an_at_most_once_job_is_never_handed_out_again(tmp_path: Path, is_clean: bool) -> None:
    disk = Failing()
    life = Life(tmp_path, disk, policy="no")
    life.add("once", "RETRY", "0")
    before = disk.syncs
    jid = life.get()
    assert disk.syncs == before + 1, "synced before the answer, whatever the policy"
    life.close(with_snapshot=True) if is_clean else life.kill()
    life = Life(tmp_path, now=START_MS + 5000)
    job = life.node.find(jid)
    assert job is not None and job.state == ACTIVE
    assert life.get() == b""
    assert life.do("ENQUEUE", jid) == b":0\r\n"


def test_pauses_bounds_and_flushes_are_kept(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.add("gone with the flush")
    life.do("DEBUG", "FLUSHALL")
    life.do("PAUSE", "q", "out")
    life.do("QUEUE", "SET", "bounded", "maxlen", "1")
    life.add("kept")
    life.do("ADDJOB", "other", "flushed", "0")
    life.do("QFLUSH", "other")
    for is_clean in (False, True):
        life.close(with_snapshot=is_clean)
        life = Life(tmp_path)
        assert life.node.jobs == 1
        assert life.do("PAUSE", "q", "state") == b"+out\r\n"
        assert b"maxlen\r\n:1\r\n" in life.do("QUEUE", "GET", "bounded", "maxlen")


def test_requeue_on_load_no_leaves_jobs_to_their_retry(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.add("later", "RETRY", "10")
    life.kill()
    life = Life(tmp_path, settings={"requeue-on-load": "no"})
    assert life.bodies() == []
    life.at(START_MS + 10_500)
    assert life.bodies() == [b"later"]


def test_adds_are_synced_and_the_rest_is_not_waited_for(tmp_path: Path) -> None:
    disk = Failing()
    life = Life(tmp_path, disk, policy="adds")
    before = disk.syncs
    jid = life.add("synced")
    assert disk.syncs == before + 1
    life.get()
    life.do("ACKJOB", jid)
    assert disk.syncs == before + 1
    life.kill()


def test_what_gathers_in_the_buffer_is_written_within_a_second_or_before_a_sync(tmp_path: Path) -> None:
    life = Life(tmp_path, policy="everysec")
    writer = life.journal.writer
    writer.buffer_bytes = 10_000
    at = writer.position
    life.add("gathers")
    assert writer.position == at
    life.journal.tick()
    assert writer.position > at
    at = writer.position
    life.add("once", "RETRY", "0")
    assert writer.position == at
    life.get()
    life.get()
    assert writer.position > at and writer.synced == writer.position
    life.kill()


def test_a_full_disk_refuses_and_recovers_when_there_is_room(tmp_path: Path) -> None:
    """The disk fills up. What was answered stays; what comes then is refused; when there is room all is as before."""
    disk = Failing()
    life = Life(tmp_path, disk, policy="everysec")
    life.add("before")
    disk.is_full = True
    assert life.add("in the turn that failed").startswith(b"DI")
    refusal = life.do("ADDJOB", "q", "refused", "0")
    assert refusal.startswith(b"-MISCONF the journal cannot be written (No space left on device)")
    assert life.do("QLEN", "q") == b":2\r\n"
    life.journal.tick()
    assert life.do("GETJOB", "NOHANG", "FROM", "q").startswith(b"-MISCONF")
    disk.is_full = False
    life.journal.tick()
    assert life.add("after").startswith(b"DI")
    life.kill()
    assert Life(tmp_path).bodies() == [b"before", b"in the turn that failed", b"after"]


def test_with_always_a_failed_write_answers_nobody(tmp_path: Path) -> None:
    disk = Failing()
    life = Life(tmp_path, disk)
    disk.is_full = True
    assert life.add("not answered") == b""
    disk.is_full = False
    life.journal.tick()
    assert life.add("answered").startswith(b"DI")
    life.kill()
    assert life.bodies() == [b"not answered", b"answered"]


def test_a_failed_sync_is_never_tried_again(tmp_path: Path) -> None:
    """What the disk has nobody knows: no sync would say. The node refuses until it is started anew."""
    disk = Failing()
    life = Life(tmp_path, disk)
    life.add("synced")
    disk.is_broken = True
    assert life.add("not answered") == b""
    tried = disk.syncs
    disk.is_broken = False
    for _ in range(3):
        life.journal.tick()
        assert life.do("ADDJOB", "q", "refused", "0").startswith(b"-MISCONF the disk failed")
    life.close(with_snapshot=True)
    assert disk.syncs == tried
    life = Life(tmp_path)
    assert life.bodies()[0] == b"synced"
    assert life.add("again").startswith(b"DI")


def test_damage_in_the_middle_stops_the_start_with_the_position(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.add("first")
    at = life.journal.writer.position
    life.add("damaged")
    life.add("last")
    life.add("knows that the one before is synced")
    life.kill()
    path = segment_path(tmp_path / "journal", 1)
    data = bytearray(path.read_bytes())
    data[at + 30] ^= 1
    path.write_bytes(data)
    with pytest.raises(JournalError, match=f"a batch has a wrong checksum at byte {at}"):
        Life(tmp_path)
    assert path.read_bytes() == data, "nothing is changed by a start that fails"


def test_what_was_never_synced_may_have_holes_after_a_power_cut(tmp_path: Path) -> None:
    """Pages reach the disk in any order. The second batch is missing and the third is there; neither was synced."""
    life = Life(tmp_path, policy="no")
    life.add("first")
    at = life.journal.writer.position
    life.add("second")
    end = life.journal.writer.position
    life.add("third")
    life.kill()
    path = segment_path(tmp_path / "journal", 1)
    data = path.read_bytes()
    path.write_bytes(data[:at] + bytes(end - at) + data[end:])
    life = Life(tmp_path)
    assert life.bodies() == [b"first"]
    assert f"from byte {at} on" in life.journal.cut


def test_the_journal_of_another_life_is_not_loaded(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.add("old")
    life.node.incarnation = 8
    life.journal.writer.incarnation = 8
    life.journal.rewrite_now()
    life.kill()
    with pytest.raises(JournalError, match="an earlier life"):
        Life(tmp_path)


def test_a_rewrite_goes_on_beside_changes(tmp_path: Path) -> None:
    """Jobs end, are handed out and are added between the slices, on both sides of where the walk has come to."""
    life = Life(tmp_path, policy="no")
    ids = [life.add("x" * 1000 + str(number), "RETRY", "100") for number in range(1000)]
    life.journal.begin_rewrite()
    step = 0
    done = False
    while not done:
        done = life.journal.rewrite_some()
        life.do("ACKJOB", ids[step * 7], ids[999 - step * 7])
        life.get()
        life.add(f"new {step}")
        step += 1
    assert step > 5
    assert life.journal.rewrite is not None
    life.journal.rewrite.sync()
    life.journal.end_rewrite()
    expected = {life.node.id_text(job): job.state for job in life.node.all_jobs()}
    life.kill()
    assert [path.name for path in sorted((tmp_path / "journal").iterdir())] == ["00000002.log", "00000002.snapshot"]
    life = Life(tmp_path)
    assert {life.node.id_text(job): job.state for job in life.node.all_jobs()} == expected
    assert QUEUED in expected.values() and ACTIVE in expected.values()


def test_a_rewrite_makes_the_journal_short(tmp_path: Path) -> None:
    life = Life(tmp_path, policy="no")
    for _ in range(200):
        life.do("ACKJOB", life.add("x" * 100))
    life.add("left")
    assert life.journal.is_long(100, 10_000)
    assert life.journal.rewrite_now()
    assert life.journal.size() < 500
    assert not life.journal.is_long(100, 10_000)
    life.kill()
    assert Life(tmp_path).bodies() == [b"left"]


@pytest.mark.parametrize("is_own", [False, True])
def test_a_clock_that_is_set_takes_no_time_from_jobs(tmp_path: Path, is_own: bool) -> None:
    """It was an hour behind, is set right, and the process is killed: nobody asked for a rewrite, but there is one."""
    life = Life(tmp_path, policy="no", now=START_MS - HOUR_MS)
    if is_own:
        life.do("QUEUE", "SET", "q", "journal", "own")
        do_works(life)
    life.add("half an hour", "TTL", "1800")
    assert life.journal.next_work(0, 0) is None
    life.node.set_time(START_MS - HOUR_MS + 1000, START_MS + 1000)
    do_works(life)
    life.kill()
    life = Life(tmp_path, now=START_MS + 2000)
    assert life.bodies() == [b"half an hour"]
    life.at(START_MS + 1_799_000)
    assert life.bodies() == [b"half an hour"]
    life.at(START_MS + 1_801_500)
    assert life.bodies() == []


def do_works(life: Life) -> None:
    while (work := life.journal.next_work(0, 0)) is not None:
        work.begin()
        while not work.step():
            pass
        work.sync()
        work.end()


def test_a_rewrite_that_fails_changes_nothing(tmp_path: Path) -> None:
    disk = Failing()
    life = Life(tmp_path, disk, policy="no")
    life.add("kept")
    life.journal.begin_rewrite()
    disk.is_full = True
    with pytest.raises(OSError, match="No space"):
        life.journal.rewrite_some()
    disk.is_full = False
    assert life.journal.rewrite_error == "No space left on device"
    life.add("after")
    life.kill()
    assert Life(tmp_path).bodies() == [b"kept", b"after"]
    assert not list((tmp_path / "journal").glob("*.new"))


def test_clients_are_told_how_far_loading_has_come(tmp_path: Path) -> None:
    life = Life(tmp_path, policy="no")
    for number in range(40):
        life.add("x" * 50_000 + str(number))
    life.kill()
    life = Life(tmp_path)
    assert len(life.percents) > 5
    assert life.percents == sorted(life.percents) and life.percents[-1] > 80
    assert life.add("x").startswith(b"DI")


def test_what_a_full_disk_did_not_take_is_not_told_to_others(tmp_path: Path) -> None:
    """Also in later turns that have nothing to write: until it is on the disk."""
    disk = Failing()
    life = Life(tmp_path, disk, others=1)
    life.add("before")
    disk.is_full = True
    assert life.do("ADDJOB", "q", "not written", "0") == b""
    assert life.do("QLEN", "q") == b":2\r\n", "who asks this node may know"
    life.node.frames.append((life.node.peers[1], b"I hold it"))
    assert not life.journal.commit()
    disk.is_full = False
    assert not life.journal.commit()
    life.journal.tick()
    assert life.journal.commit() and life.journal.writer.synced == life.journal.writer.position
    life.kill()


def test_after_a_failed_sync_nothing_is_told_to_others_any_more(tmp_path: Path) -> None:
    disk = Failing()
    life = Life(tmp_path, disk, others=1)
    disk.is_broken = True
    assert life.do("ADDJOB", "q", "lost", "0") == b""
    disk.is_broken = False
    life.journal.tick()
    life.node.frames.append((life.node.peers[1], b"I hold it"))
    assert not life.journal.commit()
    life.kill()
