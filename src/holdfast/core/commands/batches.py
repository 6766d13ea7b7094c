"""BATCH: saying how many jobs a batch has, what is to be done when all are over, and how far it is."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core import batches, errors, forward
from holdfast.core.batches import CAUSE_NAMES, Batch
from holdfast.core.commands.jobs import check_body, check_queue_name, write_named
from holdfast.core.commands.options import key
from holdfast.core.errors import BadRequest, Refused
from holdfast.core.ids import is_id
from holdfast.core.limits import BATCH_MAX, COUNT_MAX
from holdfast.core.parse import at_least
from holdfast.core.reply import write_array, write_bulk, write_null, write_simple
from holdfast.core.session import Session

if TYPE_CHECKING:
    from holdfast.core.node import Node


BATCH_USE: Final = (
    b"ERR use BATCH CLOSE name count [THEN queue body [options of ADDJOB]], BATCH GET name or BATCH LIST"
)


def batch(node: Node, session: Session, argv: list[bytes]) -> None:
    """Jobs that belong together: ADDJOB … BATCH name INDEX i, with an index from 0 for each.

    CLOSE says how many there are. When each of them has been acknowledged, has died, expired or was deleted, the job
    after THEN is added, once, with the headers `batch` and `batch-failed`: the name, and how many were not done. It may
    belong to another batch, and cannot be UNIQUE.
    It answers with the id that this job will have, or OK without one. CLOSE again changes nothing if it says the same,
    and is refused otherwise, with BATCHENDED when the batch is complete: its name can be used again an hour after that.
    GET tells how far a batch is: its state (open, closed, complete), how many there are, have ended, and how, which are
    missing, the first ten, and as `put-off` why the last job could not be added yet, as its queue is full or paused:
    that is tried again each second. LIST tells the names of the batches this node counts for, which is one to three
    nodes for each. A batch that nobody closes is given up when nothing was heard of it for a week.
    """
    word = argv[1].upper()
    if word == b"LIST" and len(argv) == 2:
        names = list(node.batches.by_name)[:COUNT_MAX]
        write_array(node.out, len(names))
        for name in names:
            write_bulk(node.out, name)
        return
    if len(argv) < 3 or word not in (b"CLOSE", b"GET"):
        raise BadRequest(BATCH_USE)
    key(b"BATCH", argv[2])
    if word == b"CLOSE":
        check_close(node, session, argv)
    elif len(argv) != 3:
        raise BadRequest(BATCH_USE)
    if not batches.want(node, argv[2]):
        if session.number == 0:
            raise Refused(errors.NOT_HOME)
        if word == b"CLOSE" and len(argv) > 4:
            argv = [*argv[:4], batches.draw(node, argv[5:]), *argv[5:]]  # where THEN was
        forward.run_at_home(node, session, batches.slot_of(argv[2]), argv)
    elif word == b"CLOSE":
        close(node, argv)
    else:
        get(node, session, argv[2])


def check_close(node: Node, session: Session, argv: list[bytes]) -> None:
    """Before anything is done, and before it is sent anywhere. Another node says the id of the last job for THEN."""
    if len(argv) < 4:
        raise BadRequest(BATCH_USE)
    if at_least(argv[3], 0, errors.BATCH_COUNT) > BATCH_MAX:
        raise BadRequest(errors.BATCH_COUNT)
    if len(argv) == 4:
        return
    is_drawn = session.number == 0 and is_id(argv[4])
    if (argv[4].upper() != b"THEN" and not is_drawn) or len(argv) < 7:
        raise BadRequest(BATCH_USE)
    check_queue_name(argv[5])
    check_body(node, argv[6])
    options = batches.read_options(argv[5:])
    options.settle_later(node)
    more = options.more
    if more is not None and more.unique:
        raise BadRequest(errors.THEN_UNIQUE)
    if more is not None and more.batch == argv[2]:
        raise BadRequest(errors.THEN_ITSELF)
    if len(argv) > batches.WORDS_MAX:
        raise BadRequest(errors.SYNTAX)


def close(node: Node, argv: list[bytes]) -> None:
    count = at_least(argv[3], 0, errors.BATCH_COUNT)
    final = argv[5:]
    known = node.batches.by_name.get(argv[2])
    drawn = argv[4] if final and is_id(argv[4]) else b""
    if known is not None and known.is_complete and (not drawn or drawn != known.final):
        raise batches.name_is_taken(node, known)
    if known is not None and known.count >= 0:
        if known.count != count or known.words != final:
            raise BadRequest(errors.BATCH_CLOSED)
    elif known is not None and known.last() >= count:
        raise BadRequest(errors.BATCH_SEEN % int(known.last()))
    else:
        known = batches.close(node, argv[2], count, final, drawn)
        if known is None:
            raise Refused(errors.BATCHES_FULL)
    write_simple(node.out, known.final if final else b"OK")


def get(node: Node, session: Session, name: bytes) -> None:
    found = node.batches.by_name.get(name)
    out = node.out
    if found is None:
        write_null(out, session)
        return
    batches.look(node, found)  # the job after it may have been accepted a moment ago, which is looked at now and then
    write_array(out, 16 + 2 * len(CAUSE_NAMES))
    write_bulk(out, b"name")
    write_bulk(out, name)
    write_bulk(out, b"state")
    write_bulk(out, b"complete" if found.is_complete else b"closed" if found.count >= 0 else b"open")
    write_bulk(out, b"count")
    if found.count < 0:
        write_null(out, session)
    else:
        out.write(b":%d\r\n" % found.count)
    write_named(out, b"ended", found.set)
    for cause in range(len(CAUSE_NAMES)):
        ended = found.set - len(found.causes) if cause == 0 else sum([1 for c in found.causes.values() if c == cause])
        write_named(out, CAUSE_NAMES[cause], ended)
    write_named(out, b"idle", (node.now - found.heard) // 1000)
    write_bulk(out, b"missing")
    write_missing(node, found)
    write_bulk(out, b"final")
    if found.final:
        write_bulk(out, found.final)
    else:
        write_null(out, session)
    write_bulk(out, b"put-off")
    if found.refusal:
        write_bulk(out, found.refusal)
    else:
        write_null(out, session)


def write_missing(node: Node, found: Batch) -> None:
    """The first indexes whose jobs have not ended, if it is known how many there are."""
    missing: list[int] = []
    for index in range(max(0, int(found.count))):
        if len(missing) == 10:
            break
        if not found.has(index):
            missing.append(index)
    write_array(node.out, len(missing))
    for index in missing:
        node.out.write(b":%d\r\n" % index)
