"""A journal that is damaged: alone a node stops, with words; among others it starts, and asks before it acts.

Damage is done to every byte, every header and every length of a small journal of two segments and a snapshot.
"""
from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.core.job import IN_DOUBT, Job
from holdfast.core.node import Node
from holdfast.journal import identity
from holdfast.journal.folder import JournalError, segment_path
from holdfast.journal.format import BATCH, HEADER_BYTES

from .making import LIFE, Crash, CrashDisk, Hasty, Life


def bodies(node: Node) -> set[bytes]:
    return {job.body for job in node.all_jobs()}


@contextmanager
def copy(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(folder, place, dirs_exist_ok=True)
        yield Path(place)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A snapshot, a segment that is full and one that is not; six jobs, one of them at most once."""
    life = Life(tmp_path)
    life.add("once", "RETRY", "0")
    for number in range(5):
        life.add(f"job {number}")
        if number == 1:
            assert life.journal.rewrite_now()
            life.journal.writer.segment_bytes = 200
    life.kill()
    assert sorted(path.name for path in (tmp_path / "journal").iterdir()) == [
        "00000002.log", "00000002.snapshot", "00000003.log"]
    return tmp_path


ALL = {b"once", *(b"job %d" % number for number in range(5))}


# -- a crash and a power cut need nobody --------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["everysec", "adds", "no"])
@pytest.mark.parametrize("are_names_safe", [True, False])
def test_what_was_loaded_after_a_crash_survives_a_power_cut(tmp_path: Path, policy: str, are_names_safe: bool) -> None:
    """Killed before the sync of its last second, started again, and then the power goes: what the second life had read
    and gone on with is there in the third. In between any part of what was not synced may be left."""
    disk = CrashDisk(tmp_path)
    life = Life(tmp_path, disk, policy=policy)
    ids = [life.add(f"job {number}") for number in range(5)]
    life.kill()
    life = Life(tmp_path, disk, policy=policy)
    assert life.node.jobs == 5
    if policy != "no":
        assert life.do("ACKJOB", ids[0]) == b":1\r\n"
        assert life.journal.writer.flush()
    for torn in (0, 1, 7, 30, -1, 1 << 30):
        with tempfile.TemporaryDirectory() as left:
            disk.left(Path(left), are_names_safe, torn)
            after = Life(Path(left), Hasty())
            assert after.node.jobs == (5 if policy == "no" else 4), f"{torn} bytes more than was synced"
            after.kill()


@pytest.mark.parametrize("head", [bytes(HEADER_BYTES), b"\xa5" * HEADER_BYTES], ids=["zeros", "garbage"])
def test_a_newest_segment_without_its_header_is_read_all_the_same(tmp_path: Path, head: bytes) -> None:
    """Nothing in it says that any of it was on the disk: so says a power cut. The header is written again."""
    life = Life(tmp_path, policy="no")
    life.add("kept")
    life.kill()
    life = Life(tmp_path, policy="no")
    life.add("newer")
    end = life.journal.writer.position
    life.kill()
    path = segment_path(tmp_path / "journal", 2)
    path.write_bytes(head + path.read_bytes()[HEADER_BYTES:end])
    for _ in range(2):
        life = Life(tmp_path)
        assert life.bodies() == [b"kept", b"newer"]
        life.kill()


def test_a_newest_segment_of_nothing_but_zeros_is_left_out(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.add("kept")
    life.kill()
    segment_path(tmp_path / "journal", 2).write_bytes(bytes(5000))
    life = Life(tmp_path)
    assert life.bodies() == [b"kept"] and "00000002.log" in life.journal.cut


# -- damage, and nobody to ask ------------------------------------------------------------------------------


def test_damage_in_the_last_synced_batch_stops_a_node_that_is_alone(tmp_path: Path) -> None:
    """A job of RETRY 0 is handed out with the last batch that was synced. Were that taken for a torn end, the job would
    go out again."""
    life = Life(tmp_path)
    life.add("once", "RETRY", "0")
    begin = life.journal.writer.position
    jid = life.get()
    assert jid
    life.kill()
    path = segment_path(tmp_path / "journal", 1)
    whole = path.read_bytes()
    for at in range(begin, len(whole) - BATCH.size):
        for wrong in (0x01, 0xff):
            data = bytearray(whole)
            data[at] ^= wrong
            path.write_bytes(data)
            with pytest.raises(JournalError, match=r"is damaged: .* `holdfast journal check .* `holdfast journal rep"):
                Life(tmp_path)


def test_a_flipped_bit_is_no_torn_end_though_nothing_says_it_was_synced(tmp_path: Path) -> None:
    """The power went right after the answer, and took along what would have said so."""
    life = Life(tmp_path)
    life.add("once", "RETRY", "0")
    begin = life.journal.writer.position
    assert life.get()
    end = life.journal.writer.position
    life.kill()
    path = segment_path(tmp_path / "journal", 1)
    whole = path.read_bytes()[:end]
    for bit in range(8 * begin, 8 * end):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with pytest.raises(JournalError, match="is damaged"):
            Life(tmp_path)


@pytest.mark.parametrize("wrong", [0x01, 0x80, 0xff])
def test_a_node_that_is_alone_stops_with_words_or_has_everything(folder: Path, wrong: int) -> None:
    """Every byte of every file in turn. The next command is named."""
    stopped = 0
    for path in sorted((folder / "journal").iterdir()):
        whole = path.read_bytes()
        for at in range(len(whole)):
            data = bytearray(whole)
            data[at] ^= wrong
            path.write_bytes(data)
            try:
                life = Life(folder, Hasty(), is_kept=False)
                list(life.journal.load())
                assert bodies(life.node) == ALL, f"byte {at} of {path.name}"
                life.kill()
                segment_path(folder / "journal", life.journal.writer.number).unlink()
            except JournalError as error:
                stopped += 1
                words = str(error)
                assert ("is damaged" in words and "`holdfast journal repair" in words) or "version" in words
        path.write_bytes(whole)
    assert stopped > 500


# -- damage, and others who can be asked --------------------------------------------------------------------


def started(folder: Path, now: int = 1_700_000_001_000) -> Life:
    """Among others: it starts, whatever there is, and a second start finds a journal that is good."""
    life = Life(folder, Hasty(), others=2, now=now)
    life.kill()
    again = Life(folder, Hasty(), others=2, now=now + 1000)
    again.kill()
    assert bodies(again.node) == bodies(life.node)
    assert not again.node.counters.get("journal-damaged") or not life.journal.has_lost
    assert again.node.incarnation == life.node.incarnation
    return life


def asks_or_has_everything(life: Life) -> None:
    """Where something may be missing it is another life of the node, and queues nothing; else all is as it was."""
    node = life.node
    found = bodies(node)
    assert found <= ALL
    if node.salvage.is_on:
        assert node.incarnation > LIFE and identity.lives(life.journal.path.parent) == [node.incarnation]
        assert life.bodies() == [], "queued before anybody was asked"
        assert set(node.salvage.jobs) == set(node.all_jobs())
        once = next((job for job in node.all_jobs() if job.retry == 0), None)
        assert once is None or is_safe(life, once)
    else:
        assert found == ALL and node.incarnation == LIFE


def is_safe(life: Life, once: Job) -> bool:
    """A job that may have been handed out in what is missing is not handed out again."""
    return once.flags & IN_DOUBT != 0 or once in life.node.salvage.held


@pytest.mark.parametrize("wrong", [0x10, 0xff])
def test_every_byte_may_be_wrong(folder: Path, wrong: int) -> None:
    asked = 0
    for name in sorted(path.name for path in (folder / "journal").iterdir()):
        size = (folder / "journal" / name).stat().st_size
        for at in range(0, size, 3):
            with copy(folder) as place:
                path = place / "journal" / name
                data = bytearray(path.read_bytes())
                data[at] ^= wrong
                path.write_bytes(data)
                life = started(place)
                asks_or_has_everything(life)
                asked += life.node.salvage.is_on
                assert wrong != 0x10 or not life.node.salvage.is_on, f"byte {at} of {name} is not mended"
    assert (asked == 0) == (wrong == 0x10)


def test_every_length_is_started_with(folder: Path) -> None:
    for name in sorted(path.name for path in (folder / "journal").iterdir()):
        size = (folder / "journal" / name).stat().st_size
        for length in range(0, size, 5):
            with copy(folder) as place:
                path = place / "journal" / name
                path.write_bytes(path.read_bytes()[:length])
                life = started(place)
                assert bodies(life.node) <= ALL
                if life.journal.has_lost:
                    asks_or_has_everything(life)


def test_every_header_and_every_file_may_be_gone(folder: Path) -> None:
    for name in sorted(path.name for path in (folder / "journal").iterdir()):
        with copy(folder) as place:
            path = place / "journal" / name
            path.write_bytes(bytes(HEADER_BYTES) + path.read_bytes()[HEADER_BYTES:])
            life = started(place)
            assert bodies(life.node) == ALL, "a header is no job"
            asks_or_has_everything(life)
    with copy(folder) as place:
        (place / "journal" / "00000002.log").unlink()
        life = started(place)
        assert life.journal.has_lost and bodies(life.node) < ALL
        asks_or_has_everything(life)


def test_what_is_bad_is_set_aside_and_named(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = folder / "journal" / "00000002.log"
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + BATCH.size + 5] ^= 0xff
    path.write_bytes(data)
    life = Life(folder, others=2)
    assert life.journal.set_aside() == 1
    assert (folder / "journal" / "00000002.log.damaged").read_bytes() == data
    assert "00000002.log: bytes 64 to " in caplog.text and "is set aside as 00000002.log.damaged" in caplog.text
    assert life.node.counters["journal-damaged"] == 1


def test_a_wrong_bit_is_mended_by_a_rewrite_and_costs_nothing(folder: Path) -> None:
    path = folder / "journal" / "00000002.log"
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + BATCH.size + 5] ^= 0x20
    path.write_bytes(data)
    life = Life(folder, others=2)
    assert life.node.incarnation == LIFE and not life.node.salvage.is_on
    work = life.journal.next_work(0, 0)
    assert work is not None, "the file is still as it was"
    work.begin()
    while not work.step():
        pass
    work.sync()
    work.end()
    assert life.journal.next_work(0, 0) is None and life.journal.set_aside() == 1


def test_a_crash_while_the_journal_is_replaced_loses_nothing(folder: Path) -> None:
    """At each step of a start with a damaged journal the power goes. The next start is as good."""
    path = folder / "journal" / "00000003.log"
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + BATCH.size + 5] ^= 0xff
    path.write_bytes(data)
    with copy(folder) as place:
        expected = bodies(started(place).node)
    with copy(folder) as place:
        disk = CrashDisk(place)
        Life(place, disk, others=2).kill()
        steps = disk.steps
    assert steps > 10
    for step in range(steps):
        for torn in (0, 1 << 30):
            with copy(folder) as place, tempfile.TemporaryDirectory() as left:
                disk = CrashDisk(place, step)
                with pytest.raises(Crash):
                    Life(place, disk, others=2)
                disk.left(Path(left), True, torn)
                if (place / identity.INCARNATION).exists():
                    shutil.copy(place / identity.INCARNATION, left)
                after = Life(Path(left), Hasty(), others=2)
                after.kill()
                assert bodies(after.node) == expected and after.node.salvage.is_on, f"step {step}"
                assert identity.lives(Path(left)) == [after.node.incarnation]
