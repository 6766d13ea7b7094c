"""A store in memory for a simulated node (core/store.py), and moving everything to it and back on purpose.

It gives back exactly what was put, and complains about anything that was not put or was dropped already. It may be
told to fail, as disks do.
"""
from __future__ import annotations

import errno

from holdfast.core.flush import runs_of
from holdfast.core.job import ACTIVE, AWAY, QUEUED, Job
from holdfast.core.node import Node


class Shelf:
    def __init__(self) -> None:
        self.pieces: dict[int, bytes] = {}
        self.number = 0
        self.is_full = False
        self.is_broken = False

    def put(self, pieces: list[bytes]) -> list[int]:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        places = []
        for piece in pieces:
            self.number += 1
            self.pieces[self.number] = piece
            places.append(self.number)
        return places

    def get(self, place: int, size: int) -> bytes:
        if self.is_broken:
            raise OSError(errno.EIO, "Input/output error")
        piece = self.pieces[place]
        assert len(piece) == size
        return piece

    def drop(self, place: int, size: int) -> None:
        assert len(self.pieces.pop(place)) == size

    def ahead(self, place: int, size: int) -> None:
        assert len(self.pieces[place]) == size

    def facts(self) -> dict[str, int]:
        return {"overflow_disk_bytes": sum(len(piece) for piece in self.pieces.values())}

    def close(self) -> None:
        self.pieces.clear()


def every_job(node: Node) -> list[Job]:
    """All jobs, wherever they are, as a look at each shows them."""
    found = node.all_jobs()
    for queue in node.queues.values():
        for run in runs_of(queue):
            found += node.overflow.read(run)
    return found


def squeeze(node: Node, near: int = 0) -> None:
    """Everything that can be is on disk after this, but for the first `near` jobs of each priority."""
    overflow = node.overflow
    overflow.least, overflow.near = 1, near
    for queue in node.queues.values():
        while overflow.fold_blocks(queue) or overflow.fold_ends(queue):
            pass
    overflow.put_bodies([job for job in node.all_jobs() if job.state in (ACTIVE, QUEUED)], 1)


def spread(node: Node) -> None:
    """Everything is in memory after this."""
    for queue in node.queues.values():
        for lane in queue.lanes:
            for block in lane.blocks:
                assert lane.open(block)
    for job in node.all_jobs():
        if job.flags & AWAY:
            assert node.overflow.fetch(job)
