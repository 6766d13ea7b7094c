"""History on the disk: cursors over rotation, retention, restarts and power cuts; what fails is told."""
from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from holdfast.history import decode
from holdfast.journal.disk import Disk
from holdfast.journal.history import History, Segment
from holdfast.journal.history_format import HEADER_BYTES, Cursor
from holdfast.journal.history_read import NoPlace, read_piece, seek, seek_time, segment_at, stretch

from .making import START_MS, Crash, CrashDisk, Hasty, Life


class Inline(Executor):
    """A thread that is done before it begins."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except OSError as error:
            future.set_exception(error)
        return future


class Told(Life):
    """A node with a journal and a history."""

    def __init__(self, folder: Path, disk: Disk | None = None, **more: Any) -> None:
        super().__init__(folder, Hasty(), **more)
        self.history = History(self.node, folder, disk, Inline())
        self.history.policy = self.node.config.text("appendfsync")
        self.history.max_bytes = 1 << 20
        self.history.open()

    def do(self, *words: str | bytes) -> bytes:
        reply = super().do(*words)
        self.history.commit(False)
        return reply

    def kill(self) -> None:
        super().kill()
        self.history.disk.close(self.history.descriptor)


class Reader:
    def __init__(self, cursor: str = "first") -> None:
        self.cursor = cursor
        self.jobs: list[str] = []

    def read(self, life: Told, count: int = 1000) -> int:
        """All there is; how many pieces it took."""
        pieces = 0
        while True:
            self.cursor, piece = read_piece(stretch(life.history, self.cursor), count)
            if not piece:
                return pieces
            pieces += 1
            self.jobs += [job for job in decode(piece).column("job").to_pylist() if job]


def add(life: Told, count: int) -> list[str]:
    return [life.add(f"{number}").decode() for number in range(count)]


def test_a_reader_gets_everything_once_over_rotation_and_restarts(tmp_path: Path) -> None:
    expected: list[str] = []
    reader = Reader()
    for number in range(4):
        life = Told(tmp_path, now=START_MS + number * 10_000, policy="everysec")
        expected += add(life, 1500)
        reader.read(life, 100)
        expected += add(life, 10)
        life.close() if number % 2 else life.kill()
        if number % 2:
            life.history.close()
    life = Told(tmp_path, now=START_MS + 60_000)
    assert len(life.history.kept) >= 8, "each life is longer than a segment"
    reader.read(life, 100)
    assert reader.jobs == expected
    again = Reader()
    again.read(life, 7)
    assert again.jobs == expected


def test_count_is_kept_to_by_whole_batches(tmp_path: Path) -> None:
    life = Told(tmp_path)
    add(life, 10)
    first = stretch(life.history, "first")
    cursor, piece = read_piece(first, 3)
    assert decode(piece).num_rows == 3
    assert seek(first, 3) == cursor
    assert decode(read_piece(stretch(life.history, cursor), 1000)[1]).num_rows == 7
    life.do("ADDJOBS", "q", "0", "50", *["x"] * 50)
    assert decode(read_piece(stretch(life.history, str(life.history.last())), 1000)[1] or piece).num_rows == 3
    end = seek(stretch(life.history, cursor), 7)
    assert decode(read_piece(stretch(life.history, end), 1)[1]).num_rows == 50, "a batch is not cut"


def test_a_time_is_found(tmp_path: Path) -> None:
    life = Told(tmp_path)
    for second in range(20):
        life.at(START_MS + second * 1000)
        add(life, 1)
        if second == 10:
            life.history.begin(life.history.current.number + 1)
    for second in (0, 5, 10, 11, 15, 19):
        where = segment_at(life.history, START_MS + second * 1000)
        _, piece = read_piece(stretch(life.history, seek_time(where, START_MS + second * 1000)), 1)
        assert decode(piece).column("time")[0].as_py().timestamp() * 1000 == START_MS + second * 1000
    where = segment_at(life.history, START_MS + 10_500)
    _, piece = read_piece(stretch(life.history, seek_time(where, START_MS + 10_500)), 1)
    assert decode(piece).column("time")[0].as_py().timestamp() * 1000 == START_MS + 11_000
    assert seek_time(segment_at(life.history, START_MS + 99_000), START_MS + 99_000) == str(life.history.last())


def test_bytes_and_days_bound_it_and_the_error_names_what_is_gone(tmp_path: Path) -> None:
    life = Told(tmp_path, policy="everysec")
    cursor = str(life.history.first())
    while not life.history.gone:
        add(life, 100)
        life.history.tick()
    assert life.history.size() <= life.history.max_bytes
    assert len(list(life.history.path.glob("*.log"))) == len(life.history.kept) + 1
    with pytest.raises(NoPlace) as gone:
        stretch(life.history, cursor)
    removed = life.history.gone[0]
    assert str(gone.value) == (
        f"GONE from {cursor} to {life.history.first()}: up to {removed.records} records of {START_MS} to {START_MS} "
        "were removed"
    )
    reader = Reader(str(removed.finish()))
    reader.read(life)
    assert len(reader.jobs) == life.history.records(), "who had read all of it has missed nothing"
    life.at(START_MS + 8 * 86_400_000)
    add(life, 1)
    life.history.tick()
    assert all(each.last > START_MS for each in life.history.kept)
    life.close()
    life.history.close()
    later = Told(tmp_path, now=START_MS + 8 * 86_400_000)
    with pytest.raises(NoPlace, match=r"^GONE .* up to [0-9]+ records"):
        stretch(later.history, cursor)


def test_cursors_that_lead_nowhere(tmp_path: Path) -> None:
    life = Told(tmp_path)
    add(life, 3)
    last = life.history.last()
    for text in ("", "x", f"{last}0", f"{'0' * 40}:{last.segment}:{last.position}", f"{last.node_id}:{last.segment}:0",
                 str(Cursor(last.node_id, last.segment, last.position + 4)),
                 str(Cursor(last.node_id, last.segment + 1, HEADER_BYTES))):
        with pytest.raises(NoPlace, match=r"^BADCURSOR"):
            stretch(life.history, text)
    with pytest.raises(NoPlace, match=r"^BADCURSOR"):
        read_piece(stretch(life.history, str(Cursor(last.node_id, last.segment, HEADER_BYTES + 4))), 10)


def test_a_cursor_beyond_what_a_power_cut_left_goes_on_with_the_next_life(tmp_path: Path) -> None:
    life = Told(tmp_path, policy="no")
    kept = add(life, 3)
    end = life.history.last()
    taken = add(life, 3)
    reader = Reader()
    reader.read(life)
    life.kill()
    path = life.history.path_of(end.segment)
    path.write_bytes(path.read_bytes()[: end.position + 10])
    later = Told(tmp_path, now=START_MS + 1000)
    fresh = add(later, 2)
    reader.read(later)
    assert reader.jobs == [*kept, *taken, *fresh]
    other = Reader()
    other.read(later)
    assert other.jobs == [*kept, *fresh]


def test_numbers_are_not_used_again_where_a_whole_segment_is_lost(tmp_path: Path) -> None:
    life = Told(tmp_path, policy="no")
    add(life, 3)
    life.history.begin(life.history.current.number + 1)
    add(life, 3)
    reader = Reader()
    reader.read(life)
    lost = life.history.current.number
    life.kill()
    life.history.path_of(lost).unlink()
    later = Told(tmp_path, now=START_MS)
    assert later.history.current.number > lost
    fresh = add(later, 2)
    reader.jobs.clear()
    reader.read(later)
    assert reader.jobs == fresh


def test_every_torn_length_is_cut_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    life = Told(tmp_path / "whole")
    add(life, 3)
    life.kill()
    segment = life.history.current
    whole = life.history.path_of(segment.number).read_bytes()
    ends = [HEADER_BYTES]
    for _ in range(3):
        ends.append(Cursor.read(seek(stretch(life.history, str(Cursor(segment.node_id, segment.number, ends[-1]))), 1))
                    .position)  # type: ignore[union-attr]
    for size in range(len(whole)):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "history"
            folder.mkdir()
            (folder / life.history.path_of(segment.number).name).write_bytes(whole[:size])
            caplog.clear()
            history = History(life.node, Path(name), executor=Inline())
            history.open()
            good = max([end for end in ends if end <= size], default=0)
            assert [each.end for each in history.kept] == ([good] if good > HEADER_BYTES else [])
            is_torn = size > HEADER_BYTES and size not in ends
            assert any("cut off" in each.message for each in caplog.records) == is_torn, size
            history.close()


def test_a_crash_at_every_step_shows_no_reader_what_is_not_there(tmp_path: Path) -> None:
    """With `always`, what a reader was shown is there after a power cut at any step, whatever of the rest is left."""

    def live(folder: Path, disk: CrashDisk, reader: Reader) -> None:
        life = Told(folder, disk)
        life.history.max_bytes = 1 << 20
        for _ in range(4):
            add(life, 4)
            reader.read(life)
            life.history.begin(life.history.current.number + 1)
            life.history.tick()
        life.history.close()

    disk = CrashDisk(tmp_path / "first")
    live(tmp_path / "first", disk, Reader())
    steps = disk.steps
    assert steps > 30
    for step in range(steps):
        for torn in (0, 7, 10_000):
            with tempfile.TemporaryDirectory() as name:
                reader = Reader()
                disk = CrashDisk(Path(name) / "before", step, halfway=step % 2 == 0)
                with contextlib.suppress(Crash):
                    live(Path(name) / "before", disk, reader)
                after = Path(name) / "after"
                disk.left(after, True, torn)
                later = Told(after, Hasty(), now=START_MS + 1000)
                found = Reader()
                found.read(later)
                assert found.jobs[: len(reader.jobs)] == reader.jobs, f"step {step}, torn {torn}"


def test_a_full_disk_stops_nobody_and_leaves_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("holdfast.journal.history.PENDING_BYTES_MAX", 2000)
    life = Told(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(life.history.disk, "write", full)
    told = add(life, 100)
    assert all(told), "the node goes on"
    assert [each.message for each in caplog.records if "history" in each.message] == [
        "history cannot be written: No space left on device. The node goes on without it"]
    assert read_piece(stretch(life.history, "first"), 10)[1] == b""
    monkeypatch.delattr(life.history.disk, "write")
    life.history.tick()
    after = add(life, 2)
    _, piece = read_piece(stretch(life.history, "first"), 1000)
    rows = decode(piece).select(["event", "job", "count"]).to_pylist()
    kept = len(rows) - 3
    assert [row["job"] for row in rows] == [*told[:kept], None, *after]
    assert rows[kept]["event"] == "gap" and rows[kept]["count"] == 100 - kept == life.history.lost


def test_a_failed_sync_ends_it_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    life = Told(tmp_path, policy="everysec")
    add(life, 1)

    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    life.history.disk.sync = broken  # type: ignore[method-assign]
    life.history.tick()
    life.history.tick()
    assert not life.node.is_telling
    assert any(each.levelno == logging.CRITICAL for each in caplog.records)
    assert add(life, 1), "the node goes on"


def test_a_damaged_header_is_put_aside(tmp_path: Path) -> None:
    life = Told(tmp_path)
    add(life, 1)
    life.kill()
    path = life.history.path_of(life.history.current.number)
    path.write_bytes(b"X" + path.read_bytes()[1:])
    later = Told(tmp_path, now=START_MS + 1000)
    assert later.history.kept == []
    assert path.with_suffix(".damaged").exists()


def test_an_index_that_is_nonsense_is_made_again(tmp_path: Path) -> None:
    life = Told(tmp_path)
    jobs = add(life, 2)
    life.history.close()
    (tmp_path / "history" / "index").write_text("nonsense\n")
    later = Told(tmp_path, now=START_MS + 1000)
    reader = Reader()
    reader.read(later)
    assert reader.jobs == jobs


def test_a_line_of_the_index() -> None:
    segment = Segment(17, "ab" * 20, 100, 2, 5, 6)
    assert Segment.read(segment.line()) == segment
