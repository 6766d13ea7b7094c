"""Appending to the journal: one write for all that a turn changed, and a sync when the policy says so.

    always     on the disk before anything of the turn leaves
    adds       the same, for turns with adds in them; the rest as everysec
    everysec   written before anything leaves, on the disk within about a second: a thread syncs
    no         written before anything leaves, on the disk when the system likes

Whatever the policy, what the node itself says must be on the disk (`must_sync`: hand-outs of at-most-once jobs,
among others) is, before anything leaves.

What a node knows and could not write it must not speak of to others either: they would count on it. So while something
is owed that had to be on the disk, whatever would leave for them ends the links instead.

Two things can go wrong, and they are not alike. A write that fails (the disk is full) has lost nothing: what
should have been written is kept, the node refuses to change anything more (MISCONF), and the write is tried again
once a second. A sync that fails may have lost anything that was written before, and the next sync would not say
so: it is never tried again. The node refuses until it is started anew, and then loads what really is on the disk.
"""
from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast.core.times import Times
from holdfast.journal.disk import Disk
from holdfast.journal.folder import segment_path
from holdfast.journal.format import BATCH, HEADER_BYTES, SEGMENT, Header, batch_head

ALWAYS: Final = "always"
ADDS: Final = "adds"
EVERYSEC: Final = "everysec"
NO: Final = "no"
PERIOD_S: Final = 1.0


class Writer:
    """The segment that is being written. Not for several threads, but for the sync of its own thread."""

    def __init__(self, folder: Path, node_id: bytes, incarnation: int, last: int, disk: Disk) -> None:
        self.folder = folder
        self.node_id = node_id
        self.incarnation = incarnation
        self.disk = disk
        self.policy = EVERYSEC
        self.buffer_bytes = 0
        self.segment_bytes = 64 << 20
        self.number = last
        self.descriptor = -1
        self.position = 0
        self.synced = 0
        self.told = 0  # how much of that the file itself says
        self.pending: list[bytes] = []  # what is not written yet: gathering, or the disk would not have it
        self.pending_bytes = 0
        self.trouble = ""  # why writing fails
        self.owes = False  # somebody had to wait for what is not where it must be
        self.is_lost = False  # a sync has failed
        self.on_change: Callable[[], None] = lambda: None  # trouble came or went
        self.written = 0  # bytes, since the start
        self.syncs = 0
        self.sync_times = Times()  # microseconds
        self.thread: Syncer | None = None
        self.lock = threading.Lock()  # held by the thread while it uses a descriptor, and here to change it

    def open(self) -> None:
        """Begin a new segment. Raises OSError."""
        number = self.number + 1
        path = segment_path(self.folder, number)
        descriptor = self.disk.create(path)
        try:
            self.disk.write(descriptor, [Header(SEGMENT, number, self.incarnation, self.node_id).pack()], 0)
            self.disk.sync(descriptor)
            self.disk.sync_folder(self.folder)
        except OSError:
            self.disk.close(descriptor)
            self.disk.remove(path)
            raise
        with self.lock:
            self.number = number
            self.descriptor = descriptor
            self.position = self.synced = self.told = HEADER_BYTES

    def path(self) -> Path:
        """The file that is being written."""
        return segment_path(self.folder, self.number)

    def append(self, records: bytes, must_sync: bool) -> bool:
        """The records of a turn. False: they are not where they must be, so nothing of the turn may leave."""
        waits = must_sync or self.owes or self.policy == ALWAYS
        if self.is_lost:
            self.owes = waits
            return not waits
        self.pending.append(records)
        self.pending_bytes += len(records)
        if not waits and self.pending_bytes < self.buffer_bytes:
            return True
        return self.write(waits)

    def write(self, waits: bool) -> bool:
        """Write what is pending; sync if somebody waits for it, or had to and could not."""
        waits = waits or self.owes
        self.owes = waits
        if self.is_lost:
            return not waits
        thread = self.thread
        if thread is not None and thread.error is not None:
            self.lose(thread.error)
            return not waits
        if self.pending:
            try:
                self.write_batch()
            except OSError as error:
                self.fail(error)
                return not waits
            self.recover()
        if waits:
            self.owes = self.synced < self.position and not self.sync()
            return not self.owes
        if self.policy != NO and (self.thread is None or not self.thread.is_asked):
            self.sync_soon()
        return True

    def write_batch(self) -> None:
        if self.position >= self.segment_bytes:
            self.rotate()
        records = self.pending[0] if len(self.pending) == 1 else b"".join(self.pending)
        synced = self.synced
        head = batch_head(self.number, self.position, synced, records)
        self.disk.write(self.descriptor, [head, records], self.position)
        self.told = synced
        size = BATCH.size + len(records)
        self.position += size
        self.written += size
        self.pending.clear()
        self.pending_bytes = 0

    def mark(self) -> None:
        """Have the file say how much of it is on the disk, where the next batch will be written over it.

        Damage in the last batch of a process that was killed is so told from the torn end of one that lost its power.
        """
        synced = self.synced
        if synced > self.told:
            with contextlib.suppress(OSError):  # it is a help, and no promise hangs on it
                self.disk.write(self.descriptor, [batch_head(self.number, self.position, synced, b"")], self.position)
                self.told = synced

    def rotate(self) -> None:
        """Go on in a new segment. The old one is on the disk first, and the mark at its end, too: only the last of all
        may have a torn end."""
        if (self.synced < self.position and not self.sync()) or not self.sync():
            raise OSError(0, self.trouble)
        old = self.descriptor
        self.open()
        self.disk.close(old)  # the thread knows the new one by now

    def sync(self) -> bool:
        """Now, and wait for it."""
        began = time.perf_counter_ns()
        try:
            self.disk.sync(self.descriptor)
        except OSError as error:
            self.lose(error)
            return False
        self.sync_times.note((time.perf_counter_ns() - began) // 1000)
        self.syncs += 1
        self.synced = self.position
        self.mark()
        return True

    def sync_soon(self) -> None:
        if self.thread is None:
            self.thread = Syncer(self)
        self.thread.ask()

    def flush(self) -> bool:
        """Everything to the disk, whatever the policy."""
        return self.write(True)

    def tick(self) -> None:
        """Once a second: what was left to gather, and what could not be written."""
        if self.pending or (self.thread is not None and self.thread.error is not None):
            self.write(False)
        elif not self.is_lost:
            self.mark()

    def fail(self, error: OSError) -> None:
        trouble = error.strerror or str(error)
        if trouble != self.trouble and not self.is_lost:
            self.trouble = trouble
            self.on_change()

    def recover(self) -> None:
        if self.trouble:
            self.trouble = ""
            self.on_change()

    def lose(self, error: OSError) -> None:
        """A sync has failed: what is on the disk nobody knows, and asking again would not tell."""
        if not self.is_lost:
            self.is_lost = True
            with contextlib.suppress(OSError):  # the next start is to read what the disk has, and nothing else
                self.disk.forget(self.descriptor)
            self.trouble = error.strerror or str(error)
            self.pending.clear()
            self.pending_bytes = 0
            self.on_change()

    def close(self) -> None:
        if self.thread is not None:
            self.thread.stop()
            self.thread = None
        if self.descriptor >= 0:
            self.disk.close(self.descriptor)
            self.descriptor = -1


class Syncer:
    """A thread that syncs, about a second after it was first asked, so that a second's turns share a sync."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.error: OSError | None = None
        self.is_asked = False
        self.asked = threading.Event()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, name="journal-sync", daemon=True)
        self.pid = os.getpid()
        self.thread.start()

    def ask(self) -> None:
        if not self.is_asked:
            self.is_asked = True
            self.asked.set()

    def run(self) -> None:
        while self.error is None:
            self.asked.wait()
            if self.ended.wait(PERIOD_S):
                return
            self.asked.clear()
            self.is_asked = False
            self.sync()

    def sync(self) -> None:
        writer = self.writer
        with writer.lock:
            position = writer.position
            began = time.perf_counter_ns()
            try:
                writer.disk.sync(writer.descriptor)
            except OSError as error:
                self.error = error
                return
            writer.synced = max(writer.synced, position)
            writer.sync_times.note((time.perf_counter_ns() - began) // 1000)
            writer.syncs += 1

    def stop(self) -> None:
        self.ended.set()
        self.asked.set()
        self.thread.join()
