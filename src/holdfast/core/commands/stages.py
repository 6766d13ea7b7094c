"""STAGE: jobs of pipelines, put aside and published once. What they are is told in core/stages.py."""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import errors, settings, stages
from holdfast.core.commands.jobs import check_body, check_queue_name
from holdfast.core.commands.options import AddOptions
from holdfast.core.errors import BadRequest
from holdfast.core.limits import ADD_MANY_MAX, KEY_BYTES_MAX
from holdfast.core.parse import at_least, integer
from holdfast.core.reply import write_int
from holdfast.core.session import Session

if TYPE_CHECKING:
    from holdfast.core.node import Node

USAGE = (
    b"ERR use STAGE ADD stage queue count body [body ...] [options of ADDJOB], "
    b"STAGE PUBLISH sink run batch [stage ...], STAGE FILLED sink or STAGE DROP stage"
)


def stage(node: Node, session: Session, argv: list[bytes]) -> None:
    """Jobs that a pipeline writes: put aside first, published once per batch when all of it is there.

    ADD puts jobs aside under a name, and answers how many are there; after an hour without a word they are dropped.
    PUBLISH queues the jobs of all stages named and notes the number of the batch; the answer is how many, or -1 if
    this batch, or a later one, was published for the sink before: then the stages are dropped. A sink belongs to one
    run, and another one is refused with STAGERUN. A stage that is not there is refused with STAGEGONE, and nothing is
    published. FILLED says how many of the jobs last published for a sink are still short of copies. Options that need
    the home of a key (UNIQUE, GROUP, BATCH) cannot be staged.
    """
    word = argv[1].upper()
    n = len(argv)
    for name in argv[2:min(n, 4)]:
        if not name or len(name) > KEY_BYTES_MAX or b" " in name:
            raise BadRequest(errors.STAGE_NAME)
    if word == b"ADD" and n >= 6:
        add(node, argv)
    elif word == b"PUBLISH" and n >= 5:
        batch = at_least(argv[4], 0, errors.NOT_AN_INTEGER)
        write_int(node.out, stages.publish(node, argv[2], argv[3], batch, argv[5:]))
    elif word == b"FILLED" and n == 3:
        write_int(node.out, stages.unfilled(node, argv[2]))
    elif word == b"DROP" and n == 3:
        found = node.stages.open.get(argv[2])
        if found is not None:
            stages.drop(node, found)
        write_int(node.out, 0 if found is None else 1)
    else:
        raise BadRequest(USAGE)


def add(node: Node, argv: list[bytes]) -> None:
    count = integer(argv[4], errors.COUNT_RANGE)
    if count < 1 or count > ADD_MANY_MAX:
        raise BadRequest(b"ERR COUNT must be between 1 and %d" % ADD_MANY_MAX)
    if len(argv) < 5 + count:
        raise BadRequest(b"ERR fewer bodies than COUNT says")
    options = AddOptions()
    options.read(argv, 5 + count)
    options.settle_life(node, settings.default_ttl(node, argv[3]))
    options.settle_words(node)
    more = options.more
    if more is not None and (more.unique or more.group or more.batch):
        raise BadRequest(errors.STAGE_KEYS)
    options.settle_copies(node)
    if options.is_external:
        raise BadRequest(errors.STAGE_ELSEWHERE)
    size: i64 = 0
    bodies = argv[5:5 + count]
    for body in bodies:
        check_body(node, body)
        size += len(body)
    check_queue_name(argv[3])
    node.admit(argv[3], count, size, options.maxlen)
    write_int(node.out, stages.put(node, argv[2], argv[3], bodies, options))
