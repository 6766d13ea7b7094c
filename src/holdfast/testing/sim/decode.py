"""What a frame or a record says about one job, for transcripts: found by the id's 48 characters.

It reads no more than it needs to name a message and the fields that follow the id; core/ and wire/bus.py have
the real readers. Sets of nodes are bit masks in the numbering of the node that wrote them.
"""
from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from struct import unpack_from
from typing import Final

from holdfast.history import EVENTS
from holdfast.wire.bus import REPL

AFTER_ID: Final = ("GOTJOB", "HOLDERS", "REFUSED", "ENQUEUE", "WILLQUEUE", "STATE", "QUEUED", "WORKING", "SETACK",
                   "GOTACK", "DELJOB", "FATE", "GOTFATE", "RESULT", "WATCH", "ENDED")
AFTER_MOVE: Final = ("YOURJOB", "TAKEN", "NOTTAKEN", "MOVED")
ID_BYTES: Final = 48

WORDS: Final = {
    "GOTACK": ("holds", "not-yet", "only-ack", "no-idea"),
    "SETACK": ("done", "aborted", "flushed", "replaced", "merged", "cancelled", "deleted"),
    "DELJOB": ("collected", "fast"),
    "STATE": ("unknown", "queued", "leased", "delayed", "held", "idle", "out"),
}


def numbers(module: str, names: tuple[str, ...]) -> dict[int, str]:
    values = import_module(module)
    return {getattr(values, name): name for name in names if hasattr(values, name)}


def in_frame(data: bytes, job: str) -> str:
    """The messages of a frame that name the job."""
    simple, moves = numbers("holdfast.wire.bus", AFTER_ID), numbers("holdfast.wire.bus", AFTER_MOVE)
    said: list[str] = []
    at = data.find(job.encode())
    while at >= 0:
        name = simple.get(data[at - 1], "") if at else ""
        move = moves.get(data[at - 9], "") if at >= 9 else ""
        if at >= 2 and data[at - 2] == REPL and not name:
            said.append(f"REPL version {data[at - 1]}")
        elif move and not name:
            said.append(f"{move} #{unpack_from('<q', data, at - 8)[0]}")
        else:
            said.append((name or "?") + fields(name, data, at + ID_BYTES))
        at = data.find(job.encode(), at + 1)
    return ", ".join(said)


def fields(name: str, data: bytes, at: int) -> str:
    if name in ("FATE", "GOTFATE"):
        return " " + ("tries", "waits", "dies", "lives", "unknown")[data[at]]
    if name == "HOLDERS":
        return f" version {data[at]} {unpack_from('<q', data, at + 1)[0]:b}"
    if name not in WORDS:
        return ""
    words = WORDS[name]
    word = words[data[at]] if data[at] < len(words) else str(data[at])
    if name == "SETACK":
        return f" {word}{' ack-only' if data[at + 1] else ''} {unpack_from('<q', data, at + 2)[0]:b}"
    if name == "STATE":
        ms, mask = unpack_from("<qq", data, at + 1)
        return f" {word} {ms} ms {mask:b}"
    return f" {word} {unpack_from('<q', data, at + 1)[0]:b}"


def in_record(data: bytes, job: str) -> str:
    names = (
        "ADD", "JOB", "HOLDERS", "ENDING", "GONE", "TOMB", "HANDOUT", "GAVE", "BACK", "TOOK", "COUNTS", "TAKEN",
        "DOUBT", "FATE", "LEASE", "RESULT",
    )
    return numbers("holdfast.core.records", names).get(data[0], f"type {data[0]}")


def in_tale(records: bytes) -> Iterator[tuple[str, str]]:
    """The records of a batch of history: event and job."""
    at = 0
    while at < len(records):
        size, event = unpack_from("<IB", records, at)
        creator, seq, rnd, minutes = unpack_from("<IQQH", records, at + 16)
        yield EVENTS[event], f"DI{creator:08x}{seq:016x}{rnd:016x}{minutes:04x}SQ"
        at += size
