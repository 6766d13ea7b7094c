"""Jobs that are over, as the nodes' history tells of them: listed and searched, the newest first; and the life of one.

    search(wanted)      a page of ended jobs, and where to go on
    life(job_id)        what happened to one job, from when it was added

Both are generators that do no I/O: they yield `(node, command)` and are sent the reply (`drive`, `adrive`), so the
command line, the gateway and the console use the same. Nothing is kept between two pages.

History is a log by time and has no index. So a request looks back from a moment, in windows whose width follows how
dense the log is, at all nodes together, and stops after LOOK_S or LOOKED_MAX records, with a cursor to look on from.
"""
from __future__ import annotations

import json
import re
import struct
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from holdfast.client.errors import BadRequest, Error, NotAvailable
from holdfast.client.queue import AsyncQueue, Queue
from holdfast.client.resp import Argv, Reply, to_text
from holdfast.client.values import fields, text, whole
from holdfast.core import tale as told
from holdfast.core.ids import ID_LENGTH
from holdfast.history import EVENTS, TEXTS
from holdfast.journal.history_format import BATCH, MARK, PIECE, BadHistory, read_piece

HOWS: Final = {told.DONE: "done", told.DEAD: "dead", told.EXPIRED: "expired", told.DELETED: "deleted",
               told.CANCELLED: "cancelled", told.EVICTED: "evicted"}
"""Events after which nobody works a job any more, and what a list calls them."""
LOOK_S: Final = 1.5
LOOKED_MAX: Final = 400_000
"""Records in one request, over all nodes: a second's work for whoever asks, milliseconds for each node."""
PIECE_RECORDS: Final = 10_000
WINDOW_RECORDS: Final = 20_000
"""A window is made so wide that it has about so many."""
WINDOW_MS_MIN: Final = 1000
PAGE: Final = 50
LIFE_MAX: Final = 500
"""Events of one job that are shown."""
CURSOR: Final = re.compile(r"([0-9]{1,15}):([0-9]{1,6})", re.ASCII)
IS_ID: Final = re.compile(rf"DI[0-9a-f]{{{ID_LENGTH - 4}}}SQ", re.ASCII)
FIXED: Final = struct.Struct("<IBBHqIqqHHIqI")
"""The part of a record that is the same for all: docs/reference/history.md."""
JOB_AT: Final = 16
JOB: Final = struct.Struct("<IqqH")

OFF: Final = ("the nodes keep no history: `history yes` turns it on (CONFIG SET history yes, CONFIG REWRITE; the node "
              "needs a --dir). It takes a third more CPU for each job and up to history-max-bytes (1 GB) of disk")
NO_BODIES: Final = ("to be found by task or argument, ended jobs need the beginning of their body in the history: "
                    "CONFIG SET history-body-bytes 512, at each node; it takes so many bytes more for each job")

Question: TypeAlias = "tuple[str, Argv]"
"""Which node, and the command."""


class HistoryOff(NotAvailable):
    """No node that can be reached keeps history."""

    code = "NOHISTORY"


@dataclass(frozen=True, slots=True)
class Event:
    """One record about a job."""

    node: str
    at_ms: int
    event: str
    job: str
    queue: str | None
    attempt: int
    value: int
    body_bytes: int
    texts: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """The beginning of it, where the node tells that."""

    @property
    def how(self) -> str:
        return next((how for number, how in HOWS.items() if EVENTS[number] == self.event), "")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which ended jobs: those that fit everything that is said."""

    id: str = ""
    """Or its beginning or end."""
    queue: str = ""
    how: str = ""
    task: str = ""
    find: str = ""
    """Part of the body (as far as the history has it) or of the error."""
    worker: str = ""
    since_ms: int = 0
    until_ms: int = 0
    """0: until now."""


@dataclass(frozen=True, slots=True)
class Page:
    """What was found, and where to look on."""

    jobs: list[Event]
    cursor: str
    """Empty: everything was looked at."""
    until_ms: int
    """So far back it was looked at."""
    looked_at: int
    silent: list[str]
    """Nodes that keep no history, or did not answer."""
    has_bodies: bool
    """Whether any record had one."""


# -- asking ----------------------------------------------------------------------------------------------------

Steps: TypeAlias = "Generator[list[Question], list[Reply | None], Page]"


def drive(queue: Queue, steps: Steps) -> Page:
    """Ask a cluster through a client."""
    try:
        asked = next(steps)
        while True:
            asked = steps.send([reply_of(lambda q=q: queue.channel.call(q[1], near=q[0])) for q in asked])
    except StopIteration as found:
        page: Page = found.value
        return page


def reply_of(call: Any) -> Reply | None:
    try:
        reply: Reply = call()
        return reply
    except Error:
        return None


async def adrive(queue: AsyncQueue, steps: Steps, answer_s: float = 2.0) -> Page:
    """The same for asyncio; the nodes are asked at the same time."""
    import asyncio

    async def ask(near: str, argv: Argv) -> Reply | None:
        try:
            async with asyncio.timeout(answer_s):
                return await queue.channel.call(argv, near=near)
        except (Error, TimeoutError):
            return None

    try:
        asked = next(steps)
        while True:
            asked = steps.send(list(await asyncio.gather(*(ask(*each) for each in asked))))
    except StopIteration as found:
        page: Page = found.value
        return page


# -- looking back ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Log:
    """The history of one node, as far as one request has to know it."""

    near: str
    first_ms: int
    last_ms: int
    records: int

    def per_ms(self) -> float:
        return self.records / max(1, self.last_ms - self.first_ms)


Sees: TypeAlias = "Callable[[str], bool]"
"""Whether somebody may see a queue."""


def search(
    near: Sequence[str], wanted: Wanted, count: int = PAGE, cursor: str = "", sees: Sees | None = None
) -> Steps:
    """A page of ended jobs. `sees`: of those queues only. Raises HistoryOff, and BadRequest for a cursor that is
    none."""
    pattern = Filter(wanted, sees)
    return look_back(near, pattern.events, count, cursor, wanted.since_ms, wanted.until_ms, stops_at_added=False)


def life(
    near: Sequence[str], job_id: str, cursor: str = "", until_ms: int = 0, sees: Sees | None = None
) -> Steps:
    """What happened to a job, the newest first, until it was added. Raises as `search`, and for an id that is none."""
    if not IS_ID.fullmatch(job_id):
        raise BadRequest("that is no id of a job")
    needle = packed(job_id)
    return look_back(
        near, lambda piece: seen_by(of_job(piece, needle), sees), LIFE_MAX, cursor, 0, until_ms, stops_at_added=True)


def seen_by(events: list[Event], sees: Sees | None) -> list[Event]:
    return [each for each in events if sees is None or (each.queue is not None and sees(each.queue))]


def look_back(
    near: Sequence[str], pick: Any, count: int, cursor: str, since_ms: int, until_ms: int, stops_at_added: bool
) -> Steps:
    began = time.monotonic()
    before, skip = place(cursor, until_ms)
    latest, told_before = before, skip
    replies = yield [(each, ["HISTORY", "INFO"]) for each in near]
    logs = [log_of(each, reply) for each, reply in zip(near, replies, strict=True) if is_log(reply)]
    silent = [each for each, reply in zip(near, replies, strict=True) if not is_log(reply)]
    if not logs:
        raise HistoryOff(OFF)
    oldest = max(since_ms, min((each.first_ms for each in logs if each.first_ms), default=before))
    density = sum(each.per_ms() for each in logs)
    width = max(WINDOW_MS_MIN, int(WINDOW_RECORDS / density) if density else before)
    before = min(before, max(each.last_ms for each in logs))
    found: list[Event] = []
    looked = 0
    has_bodies = False
    while before >= oldest:
        begin = max(oldest, before - width + 1)
        page, records, is_whole = yield from window(logs, begin, before, pick, width > WINDOW_MS_MIN)
        looked += records
        if not is_whole:
            width = max(WINDOW_MS_MIN, width // 8)
            continue
        page.reverse()
        page.sort(key=lambda each: (-each.at_ms, each.node))  # those of one moment as a node told them, the last first
        has_bodies = has_bodies or any(each.body is not None for each in page)
        fresh = page if stops_at_added else once(page)
        if skip:
            fresh = skipped(fresh, before, skip)
            skip = 0
        found += fresh
        if len(found) > count:
            last = found[count - 1].at_ms
            same = sum(1 for each in found[:count] if each.at_ms == last)
            same += told_before if last == latest else 0
            return Page(found[:count], f"{last}:{same}", last, looked, silent, has_bodies)
        before = begin - 1
        if stops_at_added and any(each.event == "added" for each in fresh):
            return Page(found, "", before, looked, silent, has_bodies)
        is_long = looked >= LOOKED_MAX or time.monotonic() - began > LOOK_S
        if is_long and before >= oldest:
            return Page(found, f"{before}:0", before, looked, silent, has_bodies)
        if records < WINDOW_RECORDS // 4:
            width *= 4
    return Page(found, "", oldest, looked, silent, has_bodies)


def place(cursor: str, until_ms: int) -> tuple[int, int]:
    """The latest time that is wanted, and how many of that very time were told already."""
    now = until_ms or int(time.time() * 1000) + 60_000
    if not cursor:
        return now, 0
    found = CURSOR.fullmatch(cursor)
    if found is None:
        raise BadRequest("that is no cursor: a page of ended jobs gives them")
    return int(found[1]), int(found[2])


def skipped(page: list[Event], at_ms: int, count: int) -> list[Event]:
    same = [each for each in page if each.at_ms == at_ms]
    return [*same[count:], *(each for each in page if each.at_ms != at_ms)]


def window(
    logs: list[Log], begin: int, end: int, pick: Any, may_give_up: bool
) -> Generator[list[Question], list[Reply | None], tuple[list[Event], int, bool]]:
    """Everything of a time at all nodes: what was picked, how many records were passed, and whether that is all; a
    window that has far more than it should is given up, for a narrower one."""
    found: list[Event] = []
    looked = 0
    places = [each for each in logs if each.first_ms and each.first_ms <= end and each.last_ms >= begin]
    replies = yield [(each.near, ["HISTORY", "AT", begin]) for each in places]
    going = [(each, text(reply)) for each, reply in zip(places, replies, strict=True) if isinstance(reply, bytes | str)]
    while going:
        replies = yield [(each.near, ["HISTORY", "READ", at, "COUNT", PIECE_RECORDS]) for each, at in going]
        onward = []
        for (each, _), reply in zip(going, replies, strict=True):
            if not isinstance(reply, list) or len(reply) != 2 or not isinstance(reply[1], bytes) or not reply[1]:
                continue  # its end, or it is gone meanwhile
            piece = reply[1]
            records, last_ms = count_of(piece)
            looked += records
            found += [one for one in pick(piece) if begin <= one.at_ms <= end]
            if last_ms <= end:
                onward.append((each, text(reply[0])))
        going = onward
        if may_give_up and going and looked > WINDOW_RECORDS * 8:
            return [], looked, False
    return found, looked, True


def is_log(reply: Reply | None) -> bool:
    return isinstance(reply, list | dict) and text(fields(reply).get("history", b"no")) == "yes"


def log_of(near: str, reply: Reply | None) -> Log:
    found = fields(reply)
    return Log(near, *(int(to_text(bytes(each)) if isinstance(each, bytes) else whole(each)) for each in (
        found["first-ms"], found["last-ms"], found["records"])))


def once(page: list[Event]) -> list[Event]:
    """Each job once, by what was told of it last; where several nodes tell of an end, by who knows its queue."""
    best: dict[str, Event] = {}
    for each in page:
        other = best.get(each.job)
        if other is None or (other.queue is None and each.queue is not None and other.event == each.event):
            best[each.job] = each
    return sorted(best.values(), key=lambda each: -each.at_ms)


# -- reading ---------------------------------------------------------------------------------------------------


def batches(piece: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Of each batch: where its records begin and end, how many there are, and the time of the first. Checksums are the
    business of those who keep what they read."""
    at = PIECE.size
    while at + BATCH.size <= len(piece):
        mark, length, _, count, first_ms = BATCH.unpack_from(piece, at)
        begin = at + BATCH.size
        if mark != MARK or begin + length > len(piece):
            raise BadHistory(f"there is no batch at byte {at}")
        yield begin, begin + length, count, first_ms
        at = begin + length


def count_of(piece: bytes) -> tuple[int, int]:
    """Records in a piece, and the time of its last batch."""
    heads = list(batches(piece))
    return sum(each[2] for each in heads), max((each[3] for each in heads), default=0)


def packed(job_id: str) -> bytes:
    """A job's id as a record has it."""
    seq, random = (signed(int(job_id[at:at + 16], 16)) for at in (10, 26))
    return JOB.pack(int(job_id[2:10], 16), seq, random, int(job_id[42:46], 16))


def signed(number: int) -> int:
    return number - (number >> 63 << 64)


def of_job(piece: bytes, needle: bytes) -> list[Event]:
    """The records of one job. Most pieces have none, and looking for its bytes is faster than reading records."""
    if needle not in piece:
        return []
    node = read_piece(piece).node_id
    return [event_at(piece, at, node) for at in records(piece) if piece[at + JOB_AT:at + JOB_AT + JOB.size] == needle]


def records(piece: bytes) -> Iterator[int]:
    words = memoryview(piece)[:len(piece) & ~3].cast("I")
    for begin, end, _, _ in batches(piece):
        at = begin
        while at < end:
            yield at
            at += max(FIXED.size, words[at >> 2])


def event_at(piece: bytes, at: int, node: str) -> Event:
    size, event, _, attempt, at_ms, creator, seq, random, minutes, _, body_bytes, value, named = FIXED.unpack_from(
        piece, at)
    begin = at + FIXED.size
    queue = to_text(piece[begin:begin + named]) if body_bytes or named or event != told.DONE else None
    texts: dict[str, str] = {}
    body = None
    place = begin + (named + 3 & ~3)
    while place + 4 <= at + size:
        word = int.from_bytes(piece[place:place + 4], "little")
        tag, length = word >> 24, word & 0xFFFFFF
        data = piece[place + 4:place + 4 + length]
        if tag == told.BODY:
            body = data
        elif tag in NAMES:
            texts[NAMES[tag]] = data.decode("utf-8", "backslashreplace")
        place += 4 + (length + 3 & ~3)
    job = f"DI{creator:08x}{seq & 0xFFFFFFFFFFFFFFFF:016x}{random & 0xFFFFFFFFFFFFFFFF:016x}{minutes:04x}SQ"
    return Event(node, at_ms, EVENTS.get(event, f"event-{event}"), job, queue, attempt, value, body_bytes, texts, body)


NAMES: Final = {tag: name for name, tag in TEXTS.items()}


class Filter:
    """Which records are wanted: what can be seen without reading a whole record is looked at first."""

    def __init__(self, wanted: Wanted, sees: Sees | None) -> None:
        self.wanted = wanted
        self.sees = sees
        self.events = self.pick
        self.numbers = frozenset(number for number, how in HOWS.items() if wanted.how in ("", how))
        self.needle = packed(wanted.id) if IS_ID.fullmatch(wanted.id) else b""

    def pick(self, piece: bytes) -> list[Event]:
        if self.needle and self.needle not in piece:
            return []
        node = read_piece(piece).node_id
        numbers = self.numbers
        found = []
        for at in records(piece):
            if piece[at + 4] in numbers:
                event = event_at(piece, at, node)
                if self.fits(event):
                    found.append(event)
        return seen_by(found, self.sees)

    def fits(self, event: Event) -> bool:
        wanted = self.wanted
        if wanted.id and wanted.id not in event.job:
            return False
        if wanted.queue and event.queue != wanted.queue:
            return False
        if wanted.worker and wanted.worker not in event.texts.get("worker", ""):
            return False
        if wanted.task and task_of(event.body) != wanted.task:
            return False
        if not wanted.find:
            return True
        words = (event.body or b"").decode("utf-8", "replace") + "\n" + event.texts.get("error", "")
        return wanted.find.lower() in words.lower()


TASK: Final = re.compile(rb'\{\s*"task"\s*:\s*("(?:[^"\\]|\\.)*")')


def task_of(body: bytes | None) -> str:
    """The task that a body calls, also where only its beginning is there; nothing where it calls none."""
    found = TASK.match(body or b"")
    if found is None:
        return packed_task(body or b"")
    try:
        name = json.loads(found[1])
    except ValueError:
        return ""
    return str(name)


def packed_task(body: bytes) -> str:
    """The same of a body in msgpack: a map whose first key is `task`."""
    if len(body) < 7 or body[0] & 0xF0 != 0x80 or body[1:6] != b"\xa4task":
        return ""
    kind = body[6]
    if kind & 0xE0 == 0xA0:
        return body[7:7 + (kind & 0x1F)].decode("utf-8", "replace")
    return body[8:8 + body[7]].decode("utf-8", "replace") if kind == 0xD9 and len(body) > 7 else ""
