"""Commands about queues: how long, what is in them, pausing, emptying. Their settings are in settings.py."""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import absence, census, errors, federate, flush, peek, queues, registers, settings, states
from holdfast.core.commands.jobs import check_queue_name, write_job_id, write_named, write_nodes
from holdfast.core.doubt import own_wall
from holdfast.core.errors import BadRequest
from holdfast.core.limits import COUNT_MAX
from holdfast.core.parse import integer, no_option, seconds, value_of
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
    """Look at jobs without taking them: the next `count` in the order in which they will go out, or with a negative
    count the last ones. Jobs that stand in line in a group come after those that wait for nobody."""
    count = integer(argv[2], errors.NOT_AN_INTEGER)
    queue = node.queues.get(argv[1])
    out = node.out
    if queue is None or count == 0:
        write_array(out, 0)
        return
    if count > 0:
        jobs = peek.first(node, queue, min(count, COUNT_MAX))
    else:
        jobs = peek.last(node, queue, min(-count, COUNT_MAX))
    write_array(out, len(jobs))
    for job in jobs:
        write_array(out, 3)
        write_bulk(out, queue.name)
        write_job_id(out, job)
        write_bulk(out, job.body)


def qstat(node: Node, session: Session, argv: list[bytes]) -> None:
    """The figures of a queue at this node as names and values; null if it has no such queue.

    After Disque's: how many of its jobs were acknowledged, given back, died, expired and were answered for too late,
    counted at the node where it happened. Then how many are with a worker, delayed, and dead and kept, of those that
    this node hands out, by the last walk over all jobs: at most a second old below twenty thousand of them. Then how
    many were added here, and how often one was handed out to a consumer here: a job that comes back, or moves from one
    node to another, counts in `jobs-in` and `jobs-out` each time, but was added once. Last, how many failed and wait
    for their next attempt, counted as `out` and `delayed` are; how many wait for a node that is away, of which the
    first of their holders that can be heard counts each; and how many are in the rarer states of job-states.md. With
    `len` each job of the queue is in one figure of one node.
    """
    queue = node.queues.get(argv[1])
    out = node.out
    if queue is None:
        write_null_array(out, session)
        return
    tally = census.tally(node, queue)
    write_array(out, 54)
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
    write_named(out, b"acked", queue.acked)
    write_named(out, b"nacked", queue.nacked)
    write_named(out, b"dead", queue.died)
    write_named(out, b"expired", queue.expired)
    write_named(out, b"lease-lost", queue.lease_lost)
    write_named(out, b"out", tally.of(states.LEASED))
    write_named(out, b"delayed", tally.of(states.DELAYED))
    write_named(out, b"dead-kept", tally.of(states.DEAD))
    write_named(out, b"added", queue.added)
    write_named(out, b"handed-out", queue.handed_out())
    write_named(out, b"retrying", tally.of(states.RETRYING))
    write_named(out, b"node-away", absence.waiting(node, tally))
    write_named(out, b"accepting", queue.adding)
    for word in (states.MOVING, states.ASKING, states.PUT_OFF, states.IN_DOUBT):
        write_named(out, word, tally.of(word))


def import_mask(node: Node, queue: Queue) -> i64:
    """Nodes that gave us jobs of this queue in the last seconds."""
    mask: i64 = 0
    for index, when in queue.imports.items():
        if node.now - when <= IMPORT_WINDOW_MS:
            mask |= node.peers[index].bit
    return mask


def pause(node: Node, session: Session, argv: list[bytes]) -> None:
    """Pause a queue for those who add (in), for those who fetch (out), for all, or for none again.

    The words of one call make the new state; `state` alone changes nothing and says how it is. `bcast` is a word to
    all nodes, those that are away will hear of it; so is one with FOR, after whose seconds the pause ends by itself.
    """
    paused: i64 = -1
    lasts: i64 = 0
    is_for_all = False
    i = 1
    while i + 1 < len(argv):
        i += 1
        word = argv[i].lower()
        if word == b"bcast":
            is_for_all = True
        elif word == b"for":
            lasts = seconds(value_of(argv, i), 1, b"ERR FOR must be followed by a number of seconds > 0")
            i += 1
        elif word == b"none":
            paused = 0
        elif word == b"in":
            paused = PAUSE_IN if paused < 0 else paused | PAUSE_IN
        elif word == b"out":
            paused = PAUSE_OUT if paused < 0 else paused | PAUSE_OUT
        elif word == b"all":
            paused = PAUSE_IN | PAUSE_OUT
        elif word != b"state":
            raise no_option(word)
    queue = node.queues.get(argv[1])
    if queue is None and paused > 0:
        check_queue_name(argv[1])
        queue = node.queue(argv[1])
    if lasts > 0 and paused <= 0:
        raise BadRequest(b"ERR FOR goes with in, out or all")
    if paused >= 0 and (is_for_all or lasts > 0):
        check_queue_name(argv[1])
        until = b" %d" % (own_wall(node) + lasts * 1000) if lasts > 0 else b""
        registers.put(node, settings.KIND, argv[1], {b"paused": PAUSE_NAMES[paused] + until})
    elif paused >= 0 and queue is not None:
        queue.pause_stamp = registers.new_stamp(node)  # a word to all nodes that was said before comes too late
        queues.set_paused(node, queue, paused, 0)
        federate.give(node, queue)
    write_simple(node.out, PAUSE_NAMES[0 if queue is None else queue.paused])


def qflush(node: Node, session: Session, argv: list[bytes]) -> None:
    """Delete every job of a queue, queued, delayed or handed out, at all nodes. Answers how many there were.

    What a node holds that cannot be reached now, and nobody else does, is not deleted.
    """
    flush.flush_everywhere(node, session, argv[1])
