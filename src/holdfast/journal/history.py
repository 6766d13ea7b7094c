"""History on the disk: segments that are appended to, kept for a while, and read from by place.

    history/0001785000123.log    a segment; history_format.py has its bytes
    history/index                what is known of the finished ones, so that a start need not read them

The records of a turn are written right after the journal's, before anything of the turn leaves: what a reader is
shown has happened, and a crash of the process takes nothing of it back. They are synced by a thread once a second, or
with the policy `always` at once. History is not what the node lives from: where it cannot be written the
node goes on. What cannot be written now is kept for later up to a bound; beyond it is counted, and a record says
how much is missing.

Every start begins a new segment, and numbers only go up. So the end that a power cut took from a segment is never
written again with something else, and a cursor that points there can just go on with the next segment.
"""
from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.core import history as told
from holdfast.core.node import Node
from holdfast.journal import identity
from holdfast.journal.disk import Disk
from holdfast.journal.folder import JournalError
from holdfast.journal.history_format import BATCH, HEADER_BYTES, BadHistory, Cursor, batch_head, pack_header
from holdfast.journal.history_read import measure
from holdfast.journal.writer import ALWAYS, NO

log = logging.getLogger("holdfast")

NAME: Final = "history"
INDEX: Final = "index"
SEGMENTS: Final = 16
"""Of so many the history consists when it is as long as it may be: what retention removes at a time is one."""
SEGMENT_BYTES_MIN: Final = 64 * 1024
SEGMENT_BYTES_MAX: Final = 64 << 20
SEGMENT_MS: Final = 3_600_000
"""A segment is finished after an hour, however short, so that days can be kept to."""
DAY_MS: Final = 86_400_000
PENDING_BYTES_MAX: Final = 8 << 20
"""What is kept for later while the disk refuses."""
NUMBERS_LEFT_OUT: Final = 1000
"""At a start: a power cut may have taken whole segments, and their numbers may be known to readers."""
PATTERN: Final = "[0-9]" * 13 + ".log"
GONE_MAX: Final = 1000
"""Removed segments of which it is remembered what was in them."""


@dataclass(slots=True)
class Segment:
    number: int
    node_id: str
    end: int = HEADER_BYTES
    records: int = 0
    first: int = 0  # unix ms of its first batch
    last: int = 0

    def line(self) -> str:
        return f"{self.number} {self.end} {self.records} {self.first} {self.last} {self.node_id}\n"

    @classmethod
    def read(cls, line: str) -> Segment:
        number, end, records, first, last, node_id = line.split()
        return cls(int(number), node_id, int(end), int(records), int(first), int(last))

    def begin(self) -> Cursor:
        return Cursor(self.node_id, self.number, HEADER_BYTES)

    def finish(self) -> Cursor:
        return Cursor(self.node_id, self.number, self.end)


class History:
    """What a node tells, kept. Not for several threads, but for what its own thread does (`in_thread`)."""

    def __init__(self, node: Node, folder: Path, disk: Disk | None = None, executor: Executor | None = None) -> None:
        self.node = node
        self.path = folder / NAME
        self.disk = disk or Disk()
        self.executor = executor or ThreadPoolExecutor(1, "history")
        self.policy = ""
        self.max_bytes = 1 << 30
        self.days = 7
        self.kept: list[Segment] = []  # finished ones, oldest first
        self.gone: list[Segment] = []  # removed ones
        self.current = Segment(0, node.node_id.decode())
        self.descriptor = -1
        self.began = 0  # when the current one was begun, unix ms
        self.synced = 0  # up to where it is on the disk
        self.retired: list[tuple[Segment, int]] = []  # finished, not synced yet; with their descriptors
        self.syncing: Future[None] | None = None
        self.sync_end = 0  # up to where the sync that goes on reaches, in the segment sync_number
        self.sync_number = 0
        self.pending: list[tuple[bytes, int]] = []
        self.pending_bytes = 0
        self.lost = 0  # records, since the start
        self.missing = 0  # of these, not yet said by a record
        self.trouble = ""
        self.on_written: Callable[[], None] = lambda: None  # there is something new to read

    # -- the beginning -------------------------------------------------------------------------------------

    def open(self) -> None:
        """Find what is there, cut off what a crash left incomplete, begin a new segment. Raises JournalError."""
        try:
            self.disk.make_folder(self.path)
            self.look()
            last = max([each.number for each in [*self.gone, *self.kept]], default=0)
            self.begin(max(last + NUMBERS_LEFT_OUT, self.node.wall // 1000))
            self.disk.sync_folder(self.path)
        except OSError as error:
            raise JournalError(f"cannot use the history {self.path}: {error.strerror}") from None
        self.node.is_telling = True
        self.retain()

    def look(self) -> None:
        known = self.read_index()
        self.kept = []
        for path in sorted(self.path.glob(PATTERN)):
            number = int(path.stem)
            found = known.pop(number, None)
            if found is None or found.end != path.stat().st_size:
                found = self.measure(path, number)
            if found.records:
                self.kept.append(found)
            else:
                self.disk.remove(path)
                known[number] = found  # nothing is gone with it, and its number is used
        self.kept.sort(key=lambda each: each.number)
        self.gone = sorted(known.values(), key=lambda each: each.number)[-GONE_MAX:]

    def read_index(self) -> dict[int, Segment]:
        try:
            lines = (self.path / INDEX).read_text("ascii").splitlines()
            return {each.number: each for each in map(Segment.read, lines)}
        except FileNotFoundError:
            return {}
        except ValueError:
            log.warning("%s cannot be read and is made again", self.path / INDEX)
            return {}

    def measure(self, path: Path, number: int) -> Segment:
        """Read a segment that the index does not know: the one that was being written when the node stopped."""
        size = path.stat().st_size
        try:
            node_id, end, records, first, last = measure(path, number)
        except BadHistory as error:
            if size > HEADER_BYTES:
                log.error("%s is put aside as damaged: %s", path, error)
                self.disk.rename(path, path.with_suffix(".damaged"))
            return Segment(number, self.node.node_id.decode())
        if end < size:
            log.warning(
                "the last %d bytes of %s, from byte %d on, were not completely written when the node stopped: cut off",
                size - end, path, end,
            )
            self.disk.cut(path, end)
        return Segment(number, node_id, end, records, first, last)

    def begin(self, number: int) -> None:
        """Go on in a new segment. Raises OSError; then everything is as before."""
        path = self.path_of(number)
        descriptor = self.disk.create(path)
        node_id = self.node.node_id.decode()
        try:
            self.disk.write(descriptor, [pack_header(number, self.node.incarnation, node_id)], 0)
            if self.policy == ALWAYS:
                self.disk.sync_folder(self.path)
        except OSError:
            self.disk.close(descriptor)
            self.disk.remove(path)
            raise
        if self.descriptor >= 0:
            self.retired.append((self.current, self.descriptor))
            self.kept.append(self.current)
        self.current = Segment(number, node_id)
        self.descriptor = descriptor
        self.began = self.node.wall
        self.synced = 0

    def path_of(self, number: int) -> Path:
        return self.path / f"{number:013d}.log"

    # -- while the node runs -------------------------------------------------------------------------------

    def commit(self, is_journal_behind: bool) -> None:
        """The end of a turn, after the journal's: what is not in the journal yet has not happened yet."""
        tale = self.node.tale
        if len(tale.out) > 0:
            for records, count in tale.take():
                self.keep(records, count)
        if self.pending and not is_journal_behind and not self.trouble:
            self.write()

    def keep(self, records: bytes, count: int) -> None:
        if self.pending_bytes > PENDING_BYTES_MAX:
            self.lost += count
            self.missing += count
            return
        if self.missing:
            self.pending.append(self.gap())
        self.pending.append((records, count))
        self.pending_bytes += len(records)

    def gap(self) -> tuple[bytes, int]:
        told.gap(self.node, self.missing)
        self.missing = 0
        return self.node.tale.take()[0]

    def write(self) -> None:
        """All that is pending, in one call; what fails is tried again at the next tick."""
        try:
            if self.current.end >= self.segment_bytes() and self.current.records:
                self.begin(self.current.number + 1)
            segment = self.current
            pieces: list[bytes] = []
            position = segment.end
            records = 0
            for data, count in self.pending:
                head = batch_head(segment.number, position, count, data)
                pieces += (head, data)
                position += BATCH.size + len(data)
                records += count
            self.disk.write(self.descriptor, pieces, segment.end)
        except OSError as error:
            self.fail(error)
            return
        if self.policy == ALWAYS and not self.sync_now(position):
            return
        now = self.node.wall
        if not segment.records:
            segment.first = now
        segment.last = now
        segment.end = position
        segment.records += records
        self.pending.clear()
        self.pending_bytes = 0
        if self.trouble:
            self.trouble = ""
            log.warning("history can be written again; %d records were lost meanwhile", self.missing)
        self.on_written()

    def fail(self, error: OSError) -> None:
        trouble = error.strerror or str(error)
        if trouble != self.trouble:
            self.trouble = trouble
            log.error("history cannot be written: %s. The node goes on without it", trouble)

    def segment_bytes(self) -> int:
        return min(SEGMENT_BYTES_MAX, max(SEGMENT_BYTES_MIN, self.max_bytes // SEGMENTS))

    def tick(self) -> None:
        """Once a second: try again, sync, remove what is too old."""
        if self.pending and self.trouble:
            self.write()
        segment = self.current
        if segment.records and self.node.wall - self.began > SEGMENT_MS and not self.trouble:
            try:
                self.begin(segment.number + 1)
            except OSError as error:
                self.fail(error)
        self.retain()
        self.sync()

    def retain(self) -> None:
        """Remove whole segments, oldest first, until the rest is neither too long nor too old."""
        oldest = self.node.wall - self.days * DAY_MS if self.days else 0
        while self.kept and (self.size() > self.max_bytes or self.kept[0].last < oldest):
            segment = self.kept.pop(0)
            self.gone.append(segment)
            del self.gone[:-GONE_MAX]
            try:
                self.disk.remove(self.path_of(segment.number))
            except OSError as error:
                log.error("%s is too old and cannot be removed: %s", self.path_of(segment.number), error.strerror)

    def size(self) -> int:
        return sum([each.end for each in self.kept]) + self.current.end

    # -- syncing -------------------------------------------------------------------------------------------

    def sync_now(self, position: int) -> bool:
        try:
            self.disk.sync(self.descriptor)
        except OSError as error:
            self.fail_to_sync(error)
            return False
        self.synced = position
        return True

    def sync(self) -> None:
        """Have the thread sync what was written since the last time, and note in the index what is finished."""
        if self.syncing is not None:
            if not self.syncing.done():
                return
            error = self.syncing.exception()
            self.syncing = None
            if error is not None:
                self.fail_to_sync(error)
                return
            if self.sync_number == self.current.number:
                self.synced = max(self.synced, self.sync_end)
        if self.policy == NO and not self.retired:
            return
        if self.retired or self.synced < self.current.end:
            retired, self.retired = self.retired, []
            self.sync_end, self.sync_number = self.current.end, self.current.number
            index = self.index() if retired else ""
            self.syncing = self.executor.submit(self.in_thread, self.descriptor, [each[1] for each in retired], index)

    def in_thread(self, descriptor: int, retired: list[int], index: str) -> None:
        for each in retired:
            self.disk.sync(each)
            self.disk.close(each)
        self.disk.sync(descriptor)
        if index:
            self.disk.sync_folder(self.path)
            identity.write_whole(self.path / INDEX, index)

    def index(self) -> str:
        return "".join([each.line() for each in [*self.gone, *self.kept]])

    def fail_to_sync(self, error: BaseException) -> None:
        """What is on the disk nobody knows: nothing more is told, and the next start looks."""
        self.node.is_telling = False
        self.trouble = str(error)
        log.critical("history could not be synced: %s. It is off until the node is started again", error)

    # -- places --------------------------------------------------------------------------------------------

    def first(self) -> Cursor:
        return (self.kept[0] if self.kept else self.current).begin()

    def last(self) -> Cursor:
        return self.current.finish()

    def all(self) -> list[Segment]:
        return [*self.kept, self.current]

    def records(self) -> int:
        return sum([each.records for each in self.all()])

    def bytes_after(self, cursor: Cursor) -> int:
        """How far a reader is behind."""
        behind = 0
        for each in self.all():
            if each.number == cursor.segment:
                behind += max(0, each.end - cursor.position)
            elif each.number > cursor.segment:
                behind += each.end - HEADER_BYTES
        return behind

    # -- the end -------------------------------------------------------------------------------------------

    def rename(self) -> None:
        """The node has another id from now on: what follows is that node's."""
        try:
            self.begin(self.current.number + 1)
        except OSError as error:
            self.fail(error)

    def close(self) -> None:
        """Everything to the disk."""
        self.commit(False)
        self.node.is_telling = False
        if self.descriptor < 0:
            return
        try:
            if self.syncing is not None:
                self.syncing.result()
            self.kept.append(self.current)
            self.in_thread(self.descriptor, [each[1] for each in self.retired], self.index())
        except (OSError, JournalError) as error:
            log.error("history was not closed properly: %s", error)
        self.disk.close(self.descriptor)
        self.descriptor = -1
        if isinstance(self.executor, ThreadPoolExecutor):
            self.executor.shutdown()
