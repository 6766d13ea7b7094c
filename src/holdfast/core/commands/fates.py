"""Commands about what becomes of jobs: dead ones, results, other priorities and queues, why one does not run, and who
works."""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import change, dead, errors, explain, results, workers
from holdfast.core.commands.jobs import check_queue_name
from holdfast.core.dead import Filter
from holdfast.core.errors import BadRequest
from holdfast.core.ids import is_id
from holdfast.core.limits import (
    ERROR_BYTES_MAX,
    KEY_BYTES_MAX,
    PRIORITY_MAX,
    SCAN_COUNT_MAX,
    WAIT_IDS_MAX,
    WORKER_BYTES_MAX,
    WORKER_FIELDS_MAX,
    WORKER_TTL_S_MAX,
)
from holdfast.core.parse import at_least, check_ids, no_option, seconds, timeout_ms, value_of
from holdfast.core.session import Session

if TYPE_CHECKING:
    from holdfast.core.node import Node


def dead_jobs(node: Node, session: Session, argv: list[bytes]) -> None:
    """Jobs that failed too often or were given up: they are kept, and queued again only on your word.

    DEAD LIST answers with a cursor for the next call (0: that was all) and rows of id, queue, cause, time of death in
    unix milliseconds, failures, and the last error. Causes are attempts, poison (its workers were not heard of again,
    setting poison-after), rejected (NACK … DEAD), and in doubt (at most once, and nobody knows whether it was handed
    out). DEAD RETRY queues jobs again, with all their attempts and a life as long as their first; DEAD DELETE ends
    them. Both take ids or the filters of LIST, and answer how many. CAUSE and ERROR take patterns with * and ?, OLDER
    seconds since the death. Dead jobs do not end with their TTL; they are kept for the queue's retention, or the
    setting dead-retention.
    """
    word = argv[1].upper()
    if word == b"LIST":
        wanted = read_filter(argv, dead.LIST)
        dead.list_all(node, session, wanted)
    elif word == b"RETRY" or word == b"DELETE":
        if len(argv) < 3:
            raise BadRequest(b"ERR DEAD %b takes ids, or a filter such as QUEUE q" % word)
        dead.do_all(node, session, read_filter(argv, dead.RETRY if word == b"RETRY" else dead.DELETE))
    else:
        raise BadRequest(b"ERR use DEAD LIST, DEAD RETRY or DEAD DELETE")


def read_filter(argv: list[bytes], what: i64) -> Filter:
    wanted = Filter(what)
    if what != dead.LIST and is_id(argv[2]):
        check_ids(argv, 2)
        wanted.ids = argv[2:]
        return wanted
    for i in range(2, len(argv), 2):
        word = argv[i].upper()
        value = value_of(argv, i)
        if word == b"QUEUE":
            check_queue_name(value)
            wanted.queue = value
        elif word == b"CAUSE" and len(value) <= ERROR_BYTES_MAX:
            wanted.cause = value
        elif word == b"ERROR" and len(value) <= ERROR_BYTES_MAX:
            wanted.error = value
        elif word == b"OLDER":
            wanted.older = seconds(value, 0, errors.NOT_AN_INTEGER) * 1000
        elif word == b"COUNT" and what == dead.LIST:
            wanted.count = min(at_least(value, 1, errors.COUNT_RANGE), SCAN_COUNT_MAX)
        elif word == b"CURSOR" and what == dead.LIST:
            if value != b"0" and not (value.startswith(b"=") and is_id(value[1:])):
                raise BadRequest(errors.BAD_CURSOR)
            wanted.after = b"" if value == b"0" else value[1:]
        else:
            raise no_option(word)
    return wanted


def priority(node: Node, session: Session, argv: list[bytes]) -> None:
    """Give a job that waits another priority, 0 to 9, wherever in the cluster it is. Answers 1, or 0 if no node that
    can be heard knows it or a worker has it."""
    check_ids(argv[:2])
    value = at_least(argv[2], 0, errors.PRIORITY_RANGE)
    if value > PRIORITY_MAX:
        raise BadRequest(errors.PRIORITY_RANGE)
    change.change(node, session, argv[1], value, b"")


def move(node: Node, session: Session, argv: list[bytes]) -> None:
    """Put a job that waits, or is dead, into another queue. Answers 1, or 0 if no node that can be heard knows it or a
    worker has it. A job with a group or a unique key stays where it is."""
    check_ids(argv[:2])
    check_queue_name(argv[2])
    if not argv[2]:
        raise BadRequest(errors.SYNTAX)
    change.change(node, session, argv[1], change.SAME, argv[2])


def waitjob(node: Node, session: Session, argv: list[bytes]) -> None:
    """Wait until jobs have ended, at any node: ALL of them (the default) or ANY. Answers with a row for each: its id, a
    word, and its result or null.

    done: it was acknowledged; its result is what ACKJOB … RESULT said, kept for the setting result-ttl, null if there
    was none. dead: its last error is in place of a result. expired, deleted. waiting: not yet, when the time was up.
    unknown: no node knows it, or one that may cannot be asked. Jobs that ended before the call are remembered if
    they had a result, even an empty one; others are unknown soon after. TIMEOUT is in milliseconds, 0 or none for
    ever; NOHANG asks how it is now.
    """
    ids: list[bytes] = []
    i = 1
    while i < len(argv) and is_id(argv[i]):
        ids.append(argv[i])
        i += 1
    if i == 1:
        raise BadRequest(errors.BAD_ID)
    if len(ids) > WAIT_IDS_MAX:
        raise BadRequest(errors.WAIT_RANGE)
    timeout: i64 = 0
    is_any = False
    waits = True
    while i < len(argv):
        word = argv[i].upper()
        if word == b"TIMEOUT":
            timeout = timeout_ms(value_of(argv, i))
            i += 1
        elif word == b"ANY" or word == b"ALL":
            is_any = word == b"ANY"
        elif word == b"NOHANG":
            waits = False
        else:
            raise BadRequest(errors.BAD_ID) if len(argv[i]) > 7 else no_option(word)
        i += 1
    results.begin(node, session, ids, is_any, timeout, waits)


def explain_job(node: Node, session: Session, argv: list[bytes]) -> None:
    """Why a job is not handed out now, and how its earlier hand-outs ended; asked at any node.

    Answers with its id, its state, a summary, every reason as a code, words and milliseconds until it ends by itself
    (null: it does not), and lines of history.
    """
    check_ids(argv)
    explain.explain(node, session, argv[1])


def worker(node: Node, session: Session, argv: list[bytes]) -> None:
    """WORKER BEAT says that a worker is there, for so many seconds, with fields of its own choice; the connection gets
    its name if it has none. WORKER LIST answers with a row for each worker that is, at all nodes that can be heard: its
    name, then names and values: node, address, since-ms, heard-ms, and its own fields."""
    word = argv[1].upper()
    if word == b"LIST" and len(argv) == 2:
        workers.list_all(node, session)
        return
    if word != b"BEAT" or len(argv) < 4:
        raise BadRequest(b"ERR use WORKER BEAT name seconds [field value ...] or WORKER LIST")
    ttl = at_least(argv[3], 1, errors.WORKER_RANGE)
    fields = argv[4:]
    if (
        not argv[2] or len(argv[2]) > KEY_BYTES_MAX or ttl > WORKER_TTL_S_MAX or len(fields) % 2 == 1
        or len(fields) > 2 * WORKER_FIELDS_MAX or sum([len(text) for text in fields]) > WORKER_BYTES_MAX
    ):
        raise BadRequest(errors.WORKER_RANGE)
    workers.beat(node, session, argv[2], ttl, fields)
    node.out.write(b"+OK\r\n")
