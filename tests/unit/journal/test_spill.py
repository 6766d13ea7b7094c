"""Jobs beyond memory on a real disk: files that come and go, a restart with more than memory holds, snapshots."""
from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.limits import MIB
from holdfast.journal import spill
from holdfast.journal.disk import Disk
from holdfast.journal.spill import Spill

from .making import START_MS, Crash, CrashDisk, Hasty, Life

SMALL = {"maxmemory": "1mb"}


def body(number: int, size: int = 900) -> str:
    return f"{number:06d}".ljust(size, ".")


def fill(life: Life, count: int, first: int = 0, size: int = 900) -> None:
    for number in range(first, first + count):
        assert life.add(body(number, size)).startswith(b"DI")


def numbers(life: Life) -> list[int]:
    return [int(each[:6]) for each in life.bodies()]


def test_pieces_come_back_and_files_go_when_nothing_in_them_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spill, "FILE_BYTES", 1000)
    store = Spill(tmp_path, Disk())
    store.begin()
    pieces = [bytes([number]) * (number + 1) for number in range(200)]
    places = [store.put([piece])[0] for piece in pieces]
    assert store.facts()["overflow_files"] > 10
    assert [store.get(place, len(piece)) for place, piece in zip(places, pieces)] == pieces
    for place, piece in zip(places, pieces):
        store.drop(place, len(piece))
    assert store.facts() == {
        "overflow_files": 1, "overflow_disk_bytes": store.files[store.number].size, "overflow_needed_bytes": 0,
    }
    assert len(list(store.folder.iterdir())) == 1
    store.close()
    assert not list(store.folder.iterdir())


def test_more_pieces_than_one_write_takes(tmp_path: Path) -> None:
    store = Spill(tmp_path, Disk())
    store.begin()
    pieces = [b"%d" % number for number in range(1500)]
    assert [store.get(place, len(piece)) for place, piece in zip(store.put(pieces), pieces)] == pieces


def test_other_bytes_than_those_put_are_an_error(tmp_path: Path) -> None:
    store = Spill(tmp_path, Disk())
    store.begin()
    place = store.put([b"hello"])[0]
    path = next(store.folder.iterdir())
    path.write_bytes(path.read_bytes().replace(b"hello", b"hullo"))
    with pytest.raises(OSError, match="has changed at byte 0"):
        store.get(place, 5)
    path.write_bytes(b"")
    with pytest.raises(OSError, match="has changed at byte 0"):
        store.get(place, 5)


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
def test_a_node_comes_back_with_more_than_memory_holds(tmp_path: Path, is_clean: bool) -> None:
    """Ten megabytes on a node of one, some taken and some acknowledged. Loading never takes much more than one."""
    life = Life(tmp_path, settings=SMALL, policy="no")
    fill(life, 9000)
    out = [life.get() for _ in range(300)]
    assert life.do("ACKJOB", *out[:200]) == b":200\r\n"
    assert life.node.overflow.folded > 7000
    life.close(with_snapshot=True) if is_clean else life.kill()
    life = Life(tmp_path, settings=SMALL, policy="no", now=START_MS + 1000)
    assert life.node.used < 0.7 * MIB and life.node.jobs == 8800
    assert numbers(life) == list(range(300, 9000))
    for number in range(300, 1200):
        reply = life.do("GETJOB", "NOHANG", "FROM", "q")
        assert body(number).encode() in reply
    life.at(START_MS + 1000 + 301_000)
    assert numbers(life)[:101] == [*range(200, 301)]
    life.kill()


def test_after_a_start_jobs_are_on_disk_whole_as_before_and_not_only_their_bodies(tmp_path: Path) -> None:
    life = Life(tmp_path, settings=SMALL, policy="no")
    fill(life, 10_000)
    before = life.node.overflow.folded
    life.kill()
    life = Life(tmp_path, Hasty(), settings=SMALL, policy="no", now=START_MS + 1000)
    assert before > 8000 and life.node.overflow.folded > 0.9 * before
    assert numbers(life) == list(range(10_000))
    life.kill()


def test_what_happens_after_a_job_was_queued_early_is_not_forgotten(tmp_path: Path) -> None:
    """All kinds of records name jobs that a start had to move to disk before it came to them."""
    life = Life(tmp_path, settings=SMALL, policy="no")
    ids = [life.add(body(number), *(["RETRY", "0"] if number % 50 == 49 else [])) for number in range(6000)]
    assert life.do("DELJOB", *ids[1000:1100]) == b":100\r\n"
    assert life.do("DEQUEUE", *ids[2000:2010]) == b":10\r\n"
    assert life.do("NACK", *ids[2000:2005]) == b":5\r\n"
    for _ in range(60):
        life.get()
    life.kill()
    life = Life(tmp_path, settings=SMALL, policy="no", now=START_MS + 1000)
    expected = [number for number in range(60, 6000) if not 1000 <= number < 1100]
    assert numbers(life) == expected
    assert life.node.queues[b"q"].jobs_in == len(expected)
    assert b"nacks\r\n:1" in life.do("SHOW", ids[2003])
    life.kill()


def test_a_rewrite_has_what_is_on_disk_and_needs_no_memory_for_it(tmp_path: Path) -> None:
    """Jobs are added, taken and moved while it goes on."""
    life = Life(tmp_path, settings=SMALL, policy="no")
    fill(life, 6000)
    life.journal.begin_rewrite()
    slices = 0
    number = 6000
    while not life.journal.rewrite_some():
        slices += 1
        assert life.node.used < 0.7 * MIB
        fill(life, 10, number)
        number += 10
        for _ in range(5):
            assert life.do("ACKJOB", life.get()) == b":1\r\n"
    assert slices > 20 and life.journal.rewrite is not None
    life.journal.rewrite.sync()
    life.journal.end_rewrite()
    expected = numbers(life)
    assert expected == list(range(5 * slices, number))
    life.kill()
    life = Life(tmp_path, settings=SMALL, policy="no", now=START_MS + 1000)
    assert numbers(life) == expected
    life.kill()


def test_a_rewrite_that_cannot_read_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    class Unreadable(Disk):
        is_broken = False

        def read(self, descriptor: int, size: int, position: int) -> bytes:
            if self.is_broken:
                raise OSError(5, "Input/output error")
            return super().read(descriptor, size, position)

    disk = Unreadable()
    life = Life(tmp_path, disk, settings=SMALL, policy="no")
    fill(life, 6000)
    disk.is_broken = True
    assert not life.journal.rewrite_now() and "cannot be read" in life.journal.rewrite_error
    life.kill()
    life = Life(tmp_path, settings=SMALL, policy="no", now=START_MS + 1000)
    assert numbers(life) == list(range(6000))
    life.kill()


def test_what_an_earlier_process_moved_to_disk_is_removed(tmp_path: Path) -> None:
    life = Life(tmp_path, settings=SMALL, policy="no")
    fill(life, 3000)
    assert list((tmp_path / "overflow").iterdir())
    life.kill()
    life = Life(tmp_path, settings={}, policy="no", now=START_MS + 1000)
    assert not list((tmp_path / "overflow").iterdir())
    assert numbers(life) == list(range(3000))
    life.kill()


@pytest.mark.parametrize("dies_at", range(0, 330, 11))
def test_the_power_fails_while_jobs_are_moved_to_disk(tmp_path: Path, dies_at: int) -> None:
    """At any step, in the middle of a write or before it: what was answered is there, in order, and once."""
    folder = tmp_path / "before"
    folder.mkdir()
    disk = CrashDisk(folder, dies_at, halfway=dies_at % 2 == 1)
    answered = 0
    taken = 0
    try:
        life = Life(folder, disk, settings=SMALL, segment_bytes=300_000)
        for number in range(200):
            ids = life.do("ADDJOBS", "q", "0", "8", *[body(each, 3000) for each in range(number * 8, number * 8 + 8)])
            answered = number * 8 + 8 if ids.startswith(b"*8") else answered
            if number % 4 == 3 and life.do("ACKJOB", life.get()) == b":1\r\n":
                taken += 1
        assert disk.halfway, "it was to die"  # what was to be done halfway was no write
    except Crash:
        pass
    after = tmp_path / "after"
    disk.left(after, are_names_safe=False, torn=0)
    life = Life(after, settings=SMALL, now=START_MS + 400_000)
    found = numbers(life)
    first = found[0] if found else taken
    assert found == list(range(first, first + len(found))) and first + len(found) >= answered
    assert taken <= first <= taken + 1
    life.kill()
