"""Commands about queues: how long, what is in them, pausing, bounds, emptying."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import errors, federate, flush, queues, records
from holdfast.core.commands.jobs import check_queue_name, write_job_id, write_named, write_nodes
from holdfast.core.errors import BadRequest
from holdfast.core.limits import COUNT_MAX
from holdfast.core.parse import at_least, integer
from holdfast.core.queue import IMPORT_WINDOW_MS, PAUSE_IN, PAUSE_NAMES, PAUSE_OUT, Queue
from holdfast.core.reply import write_array, write_bulk, write_int, write_null_array, write_simple
from holdfast.core.session import Session

if TYPE_CHECKING:
    from holdfast.core.node import Node


def qlen(node: Node, session: Session, argv: list[bytes]) -> None:
    """How many jobs are queued in a queue at this node, those that stand in line in a group among them."""
    queue = node.queues.get(argv[1])
    write_int(node.out, 0 if queue is None else queue.size + queue.lined)


def qpeek(node: Node, session: Session, argv: list[bytes]) -> None:
    """Look at jobs without taking them: the next `count`, or with a negative count the last ones."""
    count = integer(argv[2], errors.NOT_AN_INTEGER)
    queue = node.queues.get(argv[1])
    out = node.out
    if queue is None or count == 0:
        write_array(out, 0)
        return
    jobs = queue.oldest(min(count, COUNT_MAX)) if count > 0 else queue.latest(min(-count, COUNT_MAX))
    write_array(out, len(jobs))
    for job in jobs:
        write_array(out, 3)
        write_bulk(out, queue.name)
        write_job_id(out, job)
        write_bulk(out, job.body)


def qstat(node: Node, session: Session, argv: list[bytes]) -> None:
    """The figures of a queue at this node as names and values; null if it has no such queue."""
    queue = node.queues.get(argv[1])
    out = node.out
    if queue is None:
        write_null_array(out, session)
        return
    write_array(out, 20)
    write_bulk(out, b"name")
    write_bulk(out, queue.name)
    write_named(out, b"len", queue.size + queue.lined)
    write_named(out, b"age", (node.now - queue.created) // 1000)
    write_named(out, b"idle", (node.now - queue.used) // 1000)
    write_named(out, b"blocked", len(queue.waiting))
    write_bulk(out, b"import-from")
    write_nodes(node, import_mask(node, queue))
    write_named(out, b"import-rate", queue.import_rate(node.now))
    write_named(out, b"jobs-in", queue.jobs_in)
    write_named(out, b"jobs-out", queue.jobs_out)
    write_bulk(out, b"pause")
    write_bulk(out, PAUSE_NAMES[queue.paused])


def import_mask(node: Node, queue: Queue) -> i64:
    """Nodes that gave us jobs of this queue in the last seconds."""
    mask: i64 = 0
    for index, when in queue.imports.items():
        if node.now - when <= IMPORT_WINDOW_MS:
            mask |= node.peers[index].bit
    return mask


def pause(node: Node, session: Session, argv: list[bytes]) -> None:
    """Pause a queue for those who add (in), for those who fetch (out), for all, or for none again.

    The words of one call make the new state; `state` alone changes nothing and says how it is. `bcast` tells
    the other nodes, too.
    """
    paused: i64 = -1
    is_for_all = False
    for i in range(2, len(argv)):
        word = argv[i].lower()
        if word == b"bcast":
            is_for_all = True
        elif word == b"none":
            paused = 0
        elif word == b"in":
            paused = PAUSE_IN if paused < 0 else paused | PAUSE_IN
        elif word == b"out":
            paused = PAUSE_OUT if paused < 0 else paused | PAUSE_OUT
        elif word == b"all":
            paused = PAUSE_IN | PAUSE_OUT
        elif word != b"state":
            raise BadRequest(errors.SYNTAX)
    queue = node.queues.get(argv[1])
    if queue is None and paused > 0:
        check_queue_name(argv[1])
        queue = node.queue(argv[1])
    if paused >= 0 and is_for_all:
        federate.tell_pause(node, argv[1], paused)
    if queue is None:
        write_simple(node.out, b"none")
        return
    if paused >= 0:
        queues.set_paused(node, queue, paused)
        federate.give(node, queue)
    write_simple(node.out, PAUSE_NAMES[queue.paused])


def qflush(node: Node, session: Session, argv: list[bytes]) -> None:
    """Delete every job of a queue that this node holds, queued, delayed or handed out, here and wherever else it is
    held. Answers how many there were."""
    queue = node.queues.get(argv[1])
    write_int(node.out, 0 if queue is None else flush.flush_queue(node, queue))


# Settings of a queue that will come with later parts of Holdfast: known, and refused by name.
LATER: Final = (b"rate", b"concurrency", b"journal", b"fsync", b"attempts", b"totalmaxlen", b"retention")


def queue(node: Node, session: Session, argv: list[bytes]) -> None:
    """Settings of one queue: QUEUE SET q name value [name value ...], QUEUE GET q [name ...].

    maxlen: jobs the queue may hold, whether queued, delayed or handed out; more are refused, none is ever
    dropped. 0 is no bound. paused: none, in, out or all, as PAUSE.
    """
    word = argv[1].upper()
    if word == b"SET" and len(argv) >= 5 and len(argv) % 2 == 1:
        queue_set(node, argv)
        node.out.write(b"+OK\r\n")
    elif word == b"GET" and len(argv) >= 3:
        queue_get(node, session, argv)
    else:
        raise BadRequest(b"ERR use QUEUE SET q name value [name value ...] or QUEUE GET q [name ...]")


def queue_set(node: Node, argv: list[bytes]) -> None:
    """All values are read before the first takes effect."""
    maxlen: i64 = -1
    paused: i64 = -1
    for i in range(3, len(argv), 2):
        name = argv[i].lower()
        value = argv[i + 1]
        if name == b"maxlen":
            maxlen = at_least(value, 0, b"ERR maxlen must be a non negative number")
        elif name == b"paused":
            if value.lower() not in PAUSE_NAMES:
                raise BadRequest(b"ERR paused must be none, in, out or all")
            paused = PAUSE_NAMES.index(value.lower())
        elif name in LATER:
            raise BadRequest(b"ERR the queue setting '%b' is not available in this version" % name)
        else:
            raise BadRequest(b"ERR there is no queue setting '%b'" % errors.printable(name))
    check_queue_name(argv[2])
    found: Queue = node.queue(argv[2])
    if maxlen >= 0:
        found.maxlen = maxlen
        records.queue(node, found)
    if paused >= 0:
        queues.set_paused(node, found, paused)
        federate.give(node, found)


def queue_get(node: Node, session: Session, argv: list[bytes]) -> None:
    names = [name.lower() for name in argv[3:]] or [b"maxlen", b"paused"]
    found = node.queues.get(argv[2])
    for name in names:
        if name in LATER:
            raise BadRequest(b"ERR the queue setting '%b' is not available in this version" % name)
        if name != b"maxlen" and name != b"paused":
            raise BadRequest(b"ERR there is no queue setting '%b'" % errors.printable(name))
    out = node.out
    write_array(out, 2 * len(names))
    for name in names:
        write_bulk(out, name)
        if name == b"maxlen":
            write_int(out, 0 if found is None else found.maxlen)
        else:
            write_bulk(out, PAUSE_NAMES[0 if found is None else found.paused])
