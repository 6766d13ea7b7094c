"""Looking at a journal from outside, and mending one: what `holdfast journal` does.

Mending never makes anything up. What is good before and after a damage is copied to a new file, with a CUT record
where something is missing (core/salvage.py says what a start makes of that), and the damaged file is kept beside it
under another name. A single wrong bit is turned back, and then nothing is missing.
"""
from __future__ import annotations

import contextlib
import struct
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.core import records
from holdfast.core.ids import NODE_ID_LENGTH
from holdfast.journal import identity, old, own
from holdfast.journal.disk import Disk
from holdfast.journal.folder import CUT_RECORD, KEPT, Cut, Folder, JournalError, header_of, number_of, segment_path
from holdfast.journal.folder import NAME as FOLDER
from holdfast.journal.format import (
    HEADER_BYTES,
    SEGMENT,
    SNAPSHOT,
    Batch,
    Damage,
    Header,
    Scan,
    batch_head,
)

NAMES: Final = {
    records.NODE: "NODE", records.JOB: "JOB", records.HOLDERS: "HOLDERS", records.ENDING: "ENDING",
    records.GONE: "GONE", records.TOMB: "TOMB", records.HANDOUT: "HANDOUT", records.GAVE: "GAVE",
    records.BACK: "BACK", records.TOOK: "TOOK", records.REFUSED: "REFUSED", records.COUNTS: "COUNTS",
    records.TAKEN: "TAKEN", records.DOUBT: "DOUBT", records.HAD: "HAD", records.QUEUE: "QUEUE",
    records.FLUSH: "FLUSH", records.CUT: "CUT", records.CLOCK: "CLOCK", records.ADD: "ADD",
    records.OWN: "OWN", records.SHARED: "SHARED", records.EMPTIED: "EMPTIED", records.FATE: "FATE",
    records.LEASE: "LEASE", records.RESULT: "RESULT", records.KEY: "KEY", records.REGISTER: "REGISTER",
    records.THROTTLE: "THROTTLE", records.SLOTS: "SLOTS", records.MERGED: "MERGED", records.BATCH: "BATCH",
    records.BATCH_BIT: "BATCH_BIT", records.RAN: "RAN", records.CLAIM_EPOCH: "CLAIM_EPOCH",
    records.SALVAGE: "SALVAGE",
}
# These say an id as its 48 characters.
WITH_TEXT: Final = {records.ENDING, records.TOMB, records.TOOK, records.RESULT, records.KEY, records.MERGED}
WITHOUT_ID: Final = {
    records.NODE, records.REFUSED, records.HAD, records.QUEUE, records.FLUSH, records.CUT, records.CLOCK, records.OWN,
    records.SHARED, records.EMPTIED, records.REGISTER, records.THROTTLE, records.SLOTS, records.BATCH,
    records.BATCH_BIT, records.RAN, records.CLAIM_EPOCH, records.SALVAGE,
}
NAME: Final = struct.Struct("<xIQ")  # how most others name a job: creator, number
ID: Final = struct.Struct("<xIQQH")  # and those that tell of a new one: then its random part and its TTL field


@dataclass(slots=True)
class Health:
    """What is wrong with a journal, if anything."""

    files: int = 0
    batches: int = 0
    size: int = 0
    cut: Cut | None = None
    error: str = ""


def check(path: Path) -> Health:
    """Read everything, as a start would."""
    health = Health()
    try:
        folder = Folder.look(path)
        health.files, health.size = len(folder.files()), folder.size()
        for found, _ in folder.batches():
            health.batches += 1 if found else 0  # the end of a snapshot, or what a sync has left
        health.cut = folder.cut
        if health.files == 0 and path.name != FOLDER:
            health.error = f"there is nothing in {path}: the jobs of a queue are missing"
    except JournalError as error:
        health.error = str(error)
    return health


@dataclass(frozen=True, slots=True)
class Entry:
    """A record, where it is, and when it was written."""

    path: Path
    position: int  # of its batch
    wall: int
    data: bytes

    def words(self) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self.wall / 1000)) + f".{self.wall % 1000:03d}Z"
        parts = [f"{self.path.name}:{self.position}", when, NAMES.get(self.data[0], str(self.data[0]))]
        return " ".join([*parts, *self.job()])

    def job(self) -> list[str]:
        """Which job it is about; of a new one, queue and size, too."""
        kind, data = self.data[0], self.data
        if kind in WITH_TEXT:
            return [data[1:49].decode("ascii", "replace")]
        if kind in (records.ADD, records.JOB):
            creator, number, random, minutes = ID.unpack_from(data)
            at = records.ADD_FIXED - 4 if kind == records.ADD else 1 + records.JOB_FIXED
            size = int.from_bytes(data[at:at + 4], "little")
            queue = data[at + 4:at + 4 + size].decode("utf-8", "backslashreplace")
            body = len(data) - at - 4 - size - (0 if kind == records.ADD else 4)
            return [f"DI{creator:08x}{number:016x}{random:016x}{minutes:04x}SQ", f"queue={queue}", f"body={body} bytes"]
        if kind in WITHOUT_ID:
            return []
        creator, number = NAME.unpack_from(data)
        return [f"DI{creator:08x}{number:016x}…"]


def files(path: Path) -> list[Path]:
    """Those that count, in order; or, where it is such a folder, all that is kept of those that did."""
    return old.files(path.parent) if path.name == old.NAME else Folder.look(path).files()


def size_of(paths: list[Path]) -> int:
    return sum(path.stat().st_size for path in paths)


def entries(path: Path) -> Iterator[Entry]:
    """All records in order, up to the first damage. Raises JournalError there."""
    wall = 0
    for file_path in files(path):
        with file_path.open("rb") as file:
            try:
                for batch in Scan(file):
                    for data in records.split(batch.records):
                        if data[0] == records.CLOCK:
                            wall = int.from_bytes(data[1:9], "little")
                        yield Entry(file_path, batch.position, wall, data)
            except Damage as damage:
                raise JournalError(f"{file_path}: {damage}") from None


def own_folders(path: Path) -> list[Path]:
    """Those of queues that have a journal of their own, as far as that of the node can be read to say so (own.py)."""
    found: dict[bytes, int] = {}
    with contextlib.suppress(JournalError):
        for entry in entries(path):
            kind, data = entry.data[0], entry.data
            if kind in (records.OWN, records.SHARED):
                end = 5 + int.from_bytes(data[1:5], "little")
                found.pop(data[5:end], None)
                if kind == records.OWN:
                    found[data[5:end]] = int.from_bytes(data[end:end + 8], "little")
    return [path.parent / own.NAME / f"{number:08d}" for number in found.values()]


@dataclass(slots=True)
class Stats:
    size: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)

    def add(self, other: Stats) -> None:
        self.size += other.size
        self.counts.update(other.counts)
        self.sizes.update(other.sizes)


def stats(path: Path) -> Stats:
    """How many records of each kind there are, and how many bytes they take."""
    found = Stats(size=size_of(files(path)))
    for entry in entries(path):
        name = NAMES.get(entry.data[0], str(entry.data[0]))
        found.counts[name] += 1
        found.sizes[name] += len(entry.data) + 4
    return found


# -- mending ----------------------------------------------------------------------------------------------


def repair(path: Path, disk: Disk) -> list[str]:
    """Make a journal one that loads; what was done, in words. Nothing, if it loads already."""
    done = fill_gaps(path, disk)
    folder = Folder.look(path, heals=True)
    if folder.is_empty() and path.parent.name == own.NAME:
        return [replace_lost(path, disk)]
    for each in folder.files():
        done += mend(folder, each, disk)
    return done


def owner(path: Path) -> Header:
    """Whose journal this is: by the header of whichever file has one, or the files beside the folder that say so."""
    for file in reversed(Folder.look(path, heals=True).files()):
        with contextlib.suppress(Damage):
            return header_of(file)
    root = path.parent if path.name == FOLDER else path.parent.parent
    known = identity.lives(root)
    with contextlib.suppress(OSError):
        node_id = (root / identity.NODE_ID).read_bytes().strip()
        if known and len(node_id) == NODE_ID_LENGTH:
            return Header(SEGMENT, 0, known[-1], node_id)
    raise JournalError(
        f"no file in {path} has a header that can be read, and {root / identity.NODE_ID} and "
        f"{root / identity.INCARNATION} do not say whose it is. In a cluster: move {path} elsewhere and start the node "
        "without it; it gets its copies from the others. Alone: restore it from a backup"
    )


def replace_lost(path: Path, disk: Disk) -> str:
    """The journal of a queue of which nothing is left becomes one that says so."""
    whose = owner(path.parent.parent / FOLDER)
    disk.make_folder(path)
    write(segment_path(path, 1), Header(SEGMENT, 1, whose.incarnation, whose.node_id), [CUT_RECORD], disk)
    return f"{path} was missing: there is one now that says so, and the jobs that its queue had are lost"


def fill_gaps(path: Path, disk: Disk) -> list[str]:
    """A segment that is missing becomes one that says so."""
    segments = sorted(path.glob("*.log"))
    numbers = [number_of(each) for each in segments]
    snapshots = sorted(path.glob("*.snapshot"))
    first = number_of(snapshots[-1]) if snapshots else 1
    done = []
    for number in range(first, max(numbers, default=first - 1) + 1):
        if number not in numbers:
            header = owner(path)
            missing = segment_path(path, number)
            write(missing, Header(SEGMENT, number, header.incarnation, header.node_id), [CUT_RECORD], disk)
            done.append(f"{missing} was missing: there is one now that says so")
    return done


def mend(folder: Folder, path: Path, disk: Disk) -> list[str]:
    """A file that is damaged becomes one with what can be read of it. A torn end the next start cuts off by itself."""
    before = len(folder.wounds)
    good = [found for found, _ in folder.batches_of(path) if found]
    wounds = folder.wounds[before:]
    if not wounds:
        return []
    whose = owner(folder.path)
    kind = SNAPSHOT if path.suffix == ".snapshot" else SEGMENT
    if kind == SNAPSHOT:
        good.append(b"")
    kept = path.with_name(path.name + KEPT)
    fresh = path.with_name(path.name + ".new")
    write(fresh, Header(kind, number_of(path), whose.incarnation, whose.node_id), good, disk)
    disk.rename(path, kept)
    disk.rename(fresh, path)
    disk.sync_folder(path.parent)
    return [f"{each.where()} {'had one wrong bit, which is turned back' if each.is_mended else 'are left out'}; "
            f"the damaged file is {kept}" for each in wounds]


def write(path: Path, header: Header, batches: list[bytes], disk: Disk) -> None:
    descriptor = disk.create(path)
    try:
        disk.write(descriptor, [header.pack()], 0)
        at = HEADER_BYTES
        for each in batches:
            disk.write(descriptor, [batch_head(header.number, at, 0, each), each], at)
            at = Batch(at, 0, each).end
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)
    disk.sync_folder(path.parent)


