"""CRON: jobs on a schedule."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import cron as entries
from holdfast.core import home, registers, zones
from holdfast.core.commands.jobs import check_body, check_queue_name
from holdfast.core.cron import Entry
from holdfast.core.doubt import own_wall
from holdfast.core.errors import BadRequest
from holdfast.core.limits import CRON_ENTRIES_MAX, CRON_NEXT_MAX, NEVER
from holdfast.core.parse import at_least, value_of
from holdfast.core.reply import write_array, write_bulk, write_bulks, write_int, write_null, write_null_array
from holdfast.core.session import Session

if TYPE_CHECKING:
    from holdfast.core.node import Node

USE: Final = (
    b"ERR use CRON SET name schedule queue body [TZ zone] [MISSED skip|one|all] [options of ADDJOB], CRON GET name, "
    b"CRON LIST, CRON DEL name or CRON NEXT name [count]"
)


def cron(node: Node, session: Session, argv: list[bytes]) -> None:
    """Add jobs on a schedule: CRON SET name schedule queue body [TZ zone] [MISSED skip|one|all] [options of ADDJOB].

    The schedule has five fields (minute, hour, day of the month, month, day of the week) or six with seconds first:
    numbers, names, ranges, lists, steps, L for the last day of a month; or it is @hourly, @daily, @weekly, @monthly,
    @yearly, or @every 90s. It is read in the time zone TZ, UTC by default. Each time is one job, by whichever node
    owns the entry then; its id is made of the entry and the time. MISSED says what becomes of times that are more
    than a minute ago, as no node was there or the queue was full: skip (the default), one job for all of them, or all,
    up to a hundred. What is a minute late or less is not missed: its job is added, whatever MISSED says. RETRY 0 is
    refused.
    GET and LIST describe entries as names and values, DEL answers how many were deleted, NEXT tells the next
    times, each as unix seconds and as the clock on the wall shows them.
    """
    word = argv[1].upper()
    if word == b"SET" and len(argv) >= 6:
        cron_set(node, argv)
        node.out.write(b"+OK\r\n")
    elif word == b"GET" and len(argv) == 3:
        entry = node.cron.get(argv[2])
        if entry is None:
            write_null_array(node.out, session)
        else:
            write_entry(node, session, entry)
    elif word == b"LIST" and len(argv) == 2:
        found = [node.cron[name] for name in sorted(node.cron)]
        write_array(node.out, len(found))
        for each in found:
            write_entry(node, session, each)
    elif word == b"DEL" and len(argv) == 3:
        was = registers.value(node, entries.KIND, argv[2], entries.FIELD) is not None
        registers.put(node, entries.KIND, argv[2], {entries.FIELD: None})
        write_int(node.out, 1 if was else 0)
    elif word == b"NEXT" and 3 <= len(argv) <= 4:
        cron_next(node, session, argv)
    else:
        raise BadRequest(USE)


def cron_set(node: Node, argv: list[bytes]) -> None:
    zone = b"UTC"
    missed = b"skip"
    options: list[bytes] = []
    i = 6
    while i < len(argv):
        word = argv[i].upper()
        if word == b"TZ":
            zone = value_of(argv, i)
            i += 2
        elif word == b"MISSED":
            missed = value_of(argv, i).lower()
            i += 2
        else:
            options.append(argv[i])
            i += 1
    check_queue_name(argv[4])
    check_body(node, argv[5])
    words = entries.check(argv[2], argv[3], argv[4], argv[5], zone, missed, options)
    if argv[2] not in node.cron and len(node.cron) >= CRON_ENTRIES_MAX:
        raise BadRequest(b"ERR there are %d cron entries already, which is the most there may be" % len(node.cron))
    registers.put(node, entries.KIND, argv[2], {entries.FIELD: entries.to_bytes(words)})


def write_entry(node: Node, session: Session, entry: Entry) -> None:
    """Names and values, always the same names. Times are unix seconds."""
    out = node.out
    write_array(out, 22)
    for name, value in (
        (b"name", entry.name), (b"schedule", entry.text), (b"tz", entry.zone), (b"missed", entry.missed),
        (b"queue", entry.queue), (b"body", entry.body),
    ):
        write_bulk(out, name)
        write_bulk(out, value)
    write_bulk(out, b"options")
    write_bulks(out, entry.options)
    write_bulk(out, b"set")
    write_int(out, (entry.version >> registers.STEPS) // 1000)
    write_bulk(out, b"seen-to")
    write_int(out, entry.ran // 1000)
    write_bulk(out, b"next")
    coming = entry.next_ms()
    if coming >= NEVER:
        write_null(out, session)
    else:
        write_int(out, coming // 1000)
    write_bulk(out, b"owner")
    write_bulk(out, node.peers[home.of(node, home.CRON, b"", entry.name)].node_id())


def cron_next(node: Node, session: Session, argv: list[bytes]) -> None:
    entry = node.cron.get(argv[2])
    error = b"ERR the count must be a number from 1 to %d" % CRON_NEXT_MAX
    count: i64 = at_least(argv[3], 1, error) if len(argv) == 4 else 5
    if count > CRON_NEXT_MAX:
        raise BadRequest(error)
    if entry is None:
        write_null_array(node.out, session)
        return
    times: list[int] = []
    instant = entry.schedule.next(int(own_wall(node) // 1000))
    while instant >= 0 and len(times) < count:
        times.append(instant)
        instant = entry.schedule.next(instant)
    write_array(node.out, len(times))
    for each in times:
        write_array(node.out, 2)
        write_int(node.out, each)
        write_bulk(node.out, zones.shown(entry.schedule.zone, each).encode())
