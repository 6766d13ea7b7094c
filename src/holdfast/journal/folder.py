"""A folder of segments and snapshots: which of its files count, and reading them in order.

What counts is the newest snapshot and the segments from its number on. Older ones are what a rewrite left behind
when it was interrupted after its last step but one (`replaced`), and files that end in .new are what it left behind
before (`leftovers`).
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.journal import old
from holdfast.journal.disk import Disk
from holdfast.journal.format import HEADER_BYTES, SNAPSHOT, Damage, Header, Scan, batches_after, read_header

NAME: Final = "journal"  # of the folder, inside that of the node
UNFINISHED: Final = "journal.new"  # one that is only just being made (beginning.py)
SEGMENT_NAME: Final = "*.log"
SNAPSHOT_NAME: Final = "*.snapshot"


class JournalError(Exception):
    """A journal that cannot be used; the message is for the person who started the node."""


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"{number:08d}.log"


def snapshot_path(folder: Path, number: int) -> Path:
    return folder / f"{number:08d}.snapshot"


def unfinished(folder: Path) -> Path:
    """Where the journal of a node lies until it has everything."""
    return folder / UNFINISHED


def remove_folder(path: Path, disk: Disk) -> None:
    """A folder of a journal that is worth nothing; what cannot be removed now is by a later start."""
    with contextlib.suppress(OSError):
        for each in path.iterdir():
            if each.name == old.NAME and each.is_dir() and not each.is_symlink():
                remove_folder(each, disk)
            else:
                disk.remove(each)
        path.rmdir()


@dataclass(slots=True)
class Cut:
    """The end of a segment that a crash had left incomplete."""

    path: Path
    position: int
    size: int  # bytes cut off
    why: str

    def words(self) -> str:
        return (
            f"the last {self.size} bytes of {self.path}, from byte {self.position} on, were not completely written "
            f"when the node stopped ({self.why}): cut off"
        )


@dataclass(slots=True)
class Folder:
    """The files of a journal that count."""

    path: Path
    snapshot: Path | None = None
    segments: list[Path] = field(default_factory=list)
    leftovers: list[Path] = field(default_factory=list)
    replaced: list[Path] = field(default_factory=list)
    cut: Cut | None = None
    last: int = 0  # number of the last segment
    header: Header | None = None  # of the last file read: whose journal it is

    @classmethod
    def look(cls, path: Path) -> Folder:
        found = cls(path)
        try:
            snapshots = sorted(path.glob(SNAPSHOT_NAME))
            segments = sorted(path.glob(SEGMENT_NAME))
            found.leftovers = sorted(path.glob("*.new"))
        except OSError as error:
            raise JournalError(f"cannot read the journal {path}: {error.strerror}") from None
        first = 1
        if snapshots:
            found.snapshot = snapshots[-1]
            found.replaced += snapshots[:-1]
            first = number_of(snapshots[-1])
        found.replaced += [each for each in segments if number_of(each) < first]
        found.segments = [each for each in segments if number_of(each) >= first]
        found.last = number_of(found.segments[-1]) if found.segments else first - 1
        for expected, each in enumerate(found.segments, first):
            if number_of(each) != expected:
                raise JournalError(
                    f"{segment_path(path, expected)} is missing: the journal has a gap before {each}. "
                    f"`holdfast journal repair {path}` goes on without what was in it"
                )
        return found

    def is_empty(self) -> bool:
        return self.snapshot is None and not self.segments

    def size(self) -> int:
        return sum(each.stat().st_size for each in self.files())

    def files(self) -> list[Path]:
        return ([self.snapshot] if self.snapshot is not None else []) + self.segments

    def batches(self) -> Iterator[tuple[bytes, int]]:
        """The records of each batch in order, and how many bytes of the journal were read by then."""
        done = 0
        for path in self.files():
            try:
                yield from self.batches_of(path, done)
                done += path.stat().st_size
            except OSError as error:
                raise JournalError(f"cannot read {path}: {error.strerror}") from None

    def batches_of(self, path: Path, done: int) -> Iterator[tuple[bytes, int]]:
        is_last = bool(self.segments) and path == self.segments[-1]
        with path.open("rb") as file:
            try:
                scan = Scan(file)
            except Damage as damage:
                if is_last and path.stat().st_size <= HEADER_BYTES:
                    self.cut = Cut(path, 0, path.stat().st_size, damage.why)  # it was just being made
                    return
                raise damaged(path, damage) from None
            self.header = scan.header
            is_ended = False
            try:
                for batch in scan:
                    yield batch.records, done + batch.end
                    is_ended = not batch.records
            except Damage as damage:
                is_torn = is_last and all(
                    later.synced <= damage.position
                    for later in batches_after(file, scan.header.number, damage.position)
                )
                if not is_torn:
                    raise damaged(path, damage) from None
                self.cut = Cut(path, damage.position, path.stat().st_size - damage.position, damage.why)
            if scan.header.kind == SNAPSHOT and not is_ended:
                raise damaged(path, Damage(scan.position, "the end of the snapshot is missing"))

    def tidy(self, disk: Disk) -> None:
        """After a load: cut off what was torn, remove what was never finished."""
        if self.cut is not None:
            if self.cut.position < HEADER_BYTES:
                disk.remove(self.cut.path)
                self.segments.remove(self.cut.path)
                self.last -= 1
            else:
                disk.cut(self.cut.path, self.cut.position)
        for path in self.leftovers:
            disk.remove(path)
        self.leftovers = []


def number_of(path: Path) -> int:
    try:
        return int(path.name.partition(".")[0])
    except ValueError:
        raise JournalError(f"{path} is not a file of a journal: move it elsewhere") from None


def damaged(path: Path, damage: Damage) -> JournalError:
    return JournalError(
        f"{path} is damaged: {damage}. The node does not start, since jobs would be lost or done twice without "
        f"a word. `holdfast journal check {path.parent}` says what is left, `holdfast journal repair {path.parent}` "
        "goes on without the damaged part"
    )


def header_of(path: Path) -> Header:
    with path.open("rb") as file:
        return read_header(file.read(HEADER_BYTES))
