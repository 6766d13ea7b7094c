"""A folder of segments and snapshots: which of its files count, and reading them in order.

What counts is the newest snapshot and the segments from its number on. Older ones are what a rewrite left behind
when it was interrupted after its last step but one (`replaced`), and files that end in .new are what it left behind
before (`leftovers`).

A part that was on the disk and is not any more as it was written is a wound. For a node that has nobody to ask it is
the end of the start. One that has (`heals`) is given the rest, with a CUT record where something is missing
(core/salvage.py says what it does with that). Where a single bit is wrong nothing is missing.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.core.ids import NODE_ID_LENGTH
from holdfast.core.records import CUT
from holdfast.journal import old
from holdfast.journal.disk import Disk
from holdfast.journal.flips import BYTES_MAX, mend_batch, mend_header
from holdfast.journal.format import (
    BATCH,
    HEADER_BYTES,
    SEGMENT,
    SNAPSHOT,
    Damage,
    Foreign,
    Header,
    Scan,
    batches_after,
    mapped,
    read_header,
)

NAME: Final = "journal"  # of the folder, inside that of the node
UNFINISHED: Final = "journal.new"  # one that is only just being made (beginning.py)
SEGMENT_NAME: Final = "*.log"
SNAPSHOT_NAME: Final = "*.snapshot"
KEPT: Final = ".damaged"
"""What is added to the name of a file, or of the folder of a queue, that is set aside. Nobody reads or removes it."""
CUT_RECORD: Final = b"\x01\0\0\0" + bytes([CUT])
"""Here records are missing."""


NOBODY: Final = b"0" * NODE_ID_LENGTH
"""Stands for the owner that a header would have named."""


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
class Wound:
    """A part of a file that was on the disk and is not any more as it was written."""

    path: Path
    position: int
    end: int  # less than 0: to the end of the file
    why: str
    is_mended: bool = False  # one bit was wrong, and which one is known

    def where(self) -> str:
        return f"{self.path}: bytes {self.position} to {self.end if self.end >= 0 else 'the end'}"

    def words(self) -> str:
        return f"{self.where()}, {self.why}{', but for one bit, and nothing is missing' if self.is_mended else ''}"


@dataclass(slots=True)
class Folder:
    """The files of a journal that count."""

    path: Path
    heals: bool = False
    snapshot: Path | None = None
    segments: list[Path] = field(default_factory=list)
    leftovers: list[Path] = field(default_factory=list)
    replaced: list[Path] = field(default_factory=list)
    missing: dict[Path, Path] = field(default_factory=dict)  # by the file that comes after it
    wounds: list[Wound] = field(default_factory=list)
    cut: Cut | None = None
    bare: Path | None = None  # the last segment, if a crash left it without its header
    last: int = 0  # number of the last segment
    header: Header | None = None  # of the file that is read: whose journal it is, as far as that can say so

    @classmethod
    def look(cls, path: Path, heals: bool = False) -> Folder:
        found = cls(path, heals)
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
        expected = first
        for each in found.segments:
            if number_of(each) != expected:
                found.missing[each] = segment_path(path, expected)
                if not heals:
                    raise JournalError(
                        f"{segment_path(path, expected)} is missing: the journal has a gap before {each}. "
                        f"`holdfast journal repair {path}` goes on without what was in it"
                    )
            expected = number_of(each) + 1
        return found

    def is_empty(self) -> bool:
        return self.snapshot is None and not self.segments

    def has_lost(self) -> bool:
        """Whether something is missing, or cannot be trusted."""
        return any(not wound.is_mended for wound in self.wounds)

    def size(self) -> int:
        return sum(each.stat().st_size for each in self.files())

    def files(self) -> list[Path]:
        return ([self.snapshot] if self.snapshot is not None else []) + self.segments

    def batches(self) -> Iterator[tuple[bytes, int]]:
        """The records of each batch in order, and how many bytes of the journal were read by then."""
        done = 0
        for path in self.files():
            if path in self.missing:
                self.wounds.append(Wound(self.missing[path], 0, -1, "the file is missing"))
                yield CUT_RECORD, done
            try:
                for records, position in self.batches_of(path):
                    yield records, done + position
                done += path.stat().st_size
            except OSError as error:
                if not self.heals:
                    raise JournalError(f"cannot read {path}: {error.strerror}") from None
                self.wounds.append(Wound(path, 0, -1, f"it cannot be read ({error.strerror})"))
                yield CUT_RECORD, done

    def batches_of(self, path: Path) -> Iterator[tuple[bytes, int]]:
        """Of one file: its batches, and up to where it is read with each."""
        is_last = bool(self.segments) and path == self.segments[-1]
        is_ended = False
        with path.open("rb") as file:
            scan = self.begin(file, path, is_last)
            while scan is not None:
                try:
                    for batch in scan:
                        yield batch.records, batch.end
                        is_ended = not batch.records
                    break
                except Damage as damage:
                    number, position = scan.header.number, damage.position
                    later = list(batches_after(file, number, position))
                    was_synced = not is_last or any(each.synced > position for each in later)
                    mended = mend_batch(mapped(file)[position:position + BATCH.size + BYTES_MAX], number, position)
                    if not was_synced and mended is None:
                        self.cut = Cut(path, position, path.stat().st_size - position, damage.why)
                        return
                    if not self.heals:
                        raise damaged(path, damage) from None
                    end = mended.end if mended is not None else min([each.position for each in later], default=-1)
                    self.wounds.append(Wound(path, position, end, damage.why, mended is not None))
                    yield CUT_RECORD if mended is None else mended.records, max(end, position)
                    is_ended = mended is not None and not mended.records
                    if end < 0:
                        break
                    scan.go_on(end)
            if scan is not None and scan.header.kind == SNAPSHOT and not is_ended:
                missing = Damage(scan.position, "the end of the snapshot is missing")
                if not self.heals:
                    raise damaged(path, missing)
                self.wounds.append(Wound(path, missing.position, -1, missing.why))
                yield CUT_RECORD, missing.position

    def begin(self, file: BinaryIO, path: Path, is_last: bool) -> Scan | None:
        """Read the header; None if the file was just being made, and there is nothing in it."""
        head = file.read(HEADER_BYTES)
        try:
            self.header = read_header(head)
            return Scan(file, self.header)
        except Foreign as foreign:
            raise damaged(path, foreign) from None
        except Damage as damage:
            number = number_of(path)
            whole = list(batches_after(file, number, 0)) if len(head) == HEADER_BYTES else []
            assumed = Header(SNAPSHOT if path.suffix == ".snapshot" else SEGMENT, number, 0, NOBODY)
            if is_last and not any(batch.synced > HEADER_BYTES for batch in whole):
                # As far as anybody has said, nothing of it was on the disk yet. What is there all the same counts.
                if not whole or whole[0].position > HEADER_BYTES:
                    self.cut = Cut(path, 0, path.stat().st_size, damage.why)
                    return None
                self.bare = path
            else:
                mended = mend_header(head)
                if not self.heals:
                    raise damaged(path, damage) from None
                self.wounds.append(Wound(path, 0, HEADER_BYTES, damage.why, mended is not None))
                assumed = mended or assumed
            self.header = None if assumed.node_id == NOBODY else assumed
            return Scan(file, assumed)

    def tidy(self, disk: Disk, whose: Header) -> None:
        """After a load: cut off what was torn, remove what was never finished. What was read is on the disk then.

        The process that wrote it may have been killed before its sync. That the node has read it says nothing of the
        disk, and from now on it counts on it.
        """
        if self.cut is not None:
            if self.cut.position < HEADER_BYTES:
                disk.remove(self.cut.path)
                self.segments.remove(self.cut.path)
                self.last -= 1
            else:
                disk.cut(self.cut.path, self.cut.position)
        if self.bare is not None:
            number = number_of(self.bare)
            disk.overwrite(self.bare, Header(SEGMENT, number, whose.incarnation, whose.node_id).pack(), 0)
        for path in self.files():
            disk.sync_file(path)
        disk.sync_folder(self.path)
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
