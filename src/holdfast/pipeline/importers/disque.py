"""Disque's append-only file: what a node of it held, read from its disk.

    LOADJOB <serialized job>      a job was accepted here
    DELJOB <id>                   and is gone: acknowledged, deleted or expired

A serialized job, little-endian: length (4), id (40), state and a count (1), flags (1), copies (2), end of its life in
unix seconds (4), created in unix nanoseconds (8), delay (4), retry (4), nacks (2), deliveries (2), queue (4 and text),
body (4 and bytes), nodes (4 and 40 each). Files of several nodes hold the same jobs: each is added once, by its id.
"""
from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from .found import SCHEDULED, WAITING, Found, Unreadable

HEAD: Final = struct.Struct("<40sBBHIQIIHH")
SIZE: Final = struct.Struct("<I")


def commands(file: BinaryIO) -> Iterator[list[bytes]]:
    """Words of each command. One that was not written to its end is left out: a crash cut it off."""
    while line := file.readline():
        if not line.startswith(b"*"):
            raise ValueError(f"this is no append-only file of Disque: {line[:40]!r}")
        words = []
        for _ in range(int(line[1:])):
            head = file.readline()
            size = int(head[1:]) + 2 if head.endswith(b"\r\n") else -1
            word = file.read(size) if size > 0 else b""
            if len(word) != size:
                return
            words.append(word[:-2])
        yield words


def disque(path: Path, now: float | None = None) -> Iterator[Found | Unreadable]:
    """Jobs that were loaded and not deleted, and whose life is not over."""
    now = time.time() if now is None else now
    jobs: dict[bytes, bytes] = {}
    with path.open("rb") as file:
        for words in commands(file):
            name = words[0].upper()
            if name == b"LOADJOB":
                jobs[words[1][4:44]] = words[1]
            elif name == b"DELJOB":
                for job_id in words[1:]:
                    jobs.pop(job_id, None)
    for raw in jobs.values():
        try:
            found = job_of(raw)
        except (struct.error, ValueError, UnicodeDecodeError) as error:
            yield Unreadable(f"{path}: {error} in {raw[:60]!r}")
            continue
        if float(found.headers["ends-at"]) > now:
            yield found


def job_of(raw: bytes) -> Found:
    job_id, _, _, _, ends, created, delay, retry, nacks, deliveries = HEAD.unpack_from(raw, 4)
    at = 4 + HEAD.size
    texts = []
    for _ in range(2):
        (size,) = SIZE.unpack_from(raw, at)
        texts.append(raw[at + 4:at + 4 + size])
        if len(texts[-1]) != size:
            raise ValueError("the job is cut off")
        at += 4 + size
    due = created / 1e9 + delay if delay else 0.0
    return Found(
        "disque", job_id.decode(), texts[0].decode("utf-8", "surrogateescape"), texts[1],
        SCHEDULED if due else WAITING, due, None, nacks + deliveries, "",
        {"ends-at": str(ends), "retry": str(retry), "created-ms": str(created // 1_000_000)},
    )
