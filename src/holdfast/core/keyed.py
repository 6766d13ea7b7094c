"""Adding a job that has a group or a unique key: at the home of its key.

An `Add` is such an ADDJOB from its words to its reply. The id is drawn at the node that was asked; then the home of
the key does the rest: it asks whether the key is free (unique.py), gives the job its place in its group (groups.py),
makes it, and has it replicated like any other.

The reply may have to wait, for copies, for the fate of another job, or for another node; then it has a slot
among the replies of its session, so that a producer may send many without waiting.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i16, i32, i64, mypyc_attr

from holdfast.core import (
    acks,
    bounds,
    errors,
    forward,
    gates,
    groups,
    history,
    home,
    records,
    replicate,
    unique,
    waiting,
)
from holdfast.core.commands import options as words
from holdfast.core.errors import BadRequest, CommandError
from holdfast.core.ids import id_random, id_seq, ttl_minutes, write_id
from holdfast.core.job import ACTIVE, SPECIAL, Job
from holdfast.core.queue import Queue
from holdfast.core.reply import NOT_SAID, added_text, many_text
from holdfast.core.session import FOR_COPIES, Session, Slot

if TYPE_CHECKING:
    from holdfast.core.commands.options import AddOptions
    from holdfast.core.node import Node


NO_TARGET: Final = -1


@mypyc_attr(acyclic=True)
class Add:
    def __init__(
        self, session: Session | None, queue: bytes, bodies: list[bytes], is_many: bool, options: AddOptions, now: i64,
        until: i64,
    ) -> None:
        self.session: Session | None = session
        self.slot: Slot | None = None  # the place of its reply, once that has to wait
        self.queue: bytes = queue
        self.bodies: list[bytes] = bodies
        self.is_many: bool = is_many
        self.options: AddOptions = options
        self.asked: i64 = now  # when the producer asked
        self.until: i64 = until  # how long it waits; 0: for ever
        self.replicate: i64 = options.replicate  # as asked for; what that means depends on who is there
        self.sync: i64 = options.sync
        self.prefix: bytes = b""  # of the ids
        self.seqs: list[int] = []
        self.rnds: list[int] = []
        self.target: i64 = NO_TARGET  # whom it was sent to
        self.number: i64 = 0  # under which number
        self.hops: i64 = 0
        self.is_shared: bool = False  # a job of the cluster's own: others may make it, too, under the same id
        self.is_repeated: bool = False  # asked for before, over a link that broke: it may have been made then, too


def is_keyed(options: AddOptions) -> bool:
    more = options.more
    return more is not None and (more.group != b"" or more.unique != b"")


def begin(
    node: Node, session: Session, queue: bytes, bodies: list[bytes], is_many: bool, options: AddOptions,
    timeout_ms: i64,
) -> None:
    """ADDJOB and ADDJOBS of jobs with keys."""
    more = options.more
    assert more is not None
    if is_many and more.unique:
        raise BadRequest(b"ERR UNIQUE is for one job at a time: use ADDJOB")
    add = Add(session, queue, bodies, is_many, options, node.now, node.now + timeout_ms if timeout_ms > 0 else 0)
    draw(node, add)
    if node.homes.others == 0 or home.is_open(node, slot_of(add)):
        try_here(node, add)
    else:
        forward.send(node, add)


def slot_of(add: Add) -> i64:
    more = add.options.more
    assert more is not None
    if more.group:
        return home.slot_of(home.GROUP, add.queue, more.group)
    return home.slot_of(home.UNIQUE, add.queue, more.unique)


def draw(node: Node, add: Add) -> None:
    """The ids: they stay the same, whoever makes the jobs."""
    add.prefix = node.own.prefix
    for _ in add.bodies:
        node.seq += 1
        add.seqs.append(int(node.seq))
        add.rnds.append(int(node.random.next()))


def perform(node: Node, add: Add) -> None:
    """Do it here, or tell why not: for those whose producer is not there to be told by an exception."""
    if not home.is_open(node, slot_of(add)):
        forward.send(node, add)
        return
    if forward.is_too_late(node, add):
        refuse(node, add, errors.ADD_UNKNOWN % id_text(add, 0))
        return
    try:
        try_here(node, add)
    except bounds.Postponed:
        forward.later(node, add)
    except CommandError as error:
        refuse(node, add, error.text)


def try_here(node: Node, add: Add) -> None:
    options = add.options
    more = options.more
    assert more is not None
    if more.unique and unique.meet(node, add):
        return
    carry_out(node, add)


def add_anywhere(node: Node, add: Add) -> None:
    """A job that the node itself makes, with keys or without: here, or at its home."""
    if is_keyed(add.options):
        perform(node, add)
    else:
        carry_out(node, add)


def with_id(node: Node, queue: bytes, body: bytes, options: AddOptions, jid: bytes) -> Add:
    add = Add(None, queue, [body], False, options, node.now, 0)
    add.prefix = jid[:10]
    add.seqs.append(int(id_seq(jid)))
    add.rnds.append(int(id_random(jid)))
    add.is_shared = True
    return add


def write_new_id(out: BytesWriter, prefix: bytes, seq: i64, rnd: i64, options: AddOptions) -> None:
    """The id of a job with these options, before it is made."""
    retry = options.retry if options.retry >= 0 else words.default_retry(options.ttl)
    write_id(out, prefix, seq, rnd, ttl_minutes(options.ttl, retry))


def carry_out(node: Node, add: Add) -> None:
    """Make it here: nothing is against it."""
    options = add.options
    more = options.more
    assert more is not None
    if add.is_repeated and options.retry == 0 and not node.broken("once-made-again"):
        refuse(node, add, errors.ADD_UNKNOWN % id_text(add, 0))  # another may have made it, and handed it out
        return
    options.replicate, options.sync, options.is_default = add.replicate, add.sync, False
    options.settle_copies(node)
    options.is_external = False  # its copy is at its home
    size: i64 = 0
    for body in add.bodies:
        size += len(body)
    queue = node.admit(add.queue, len(add.bodies), size + more.cost() * len(add.bodies), options.maxlen)
    jobs = [make(node, queue, add, i) for i in range(len(add.bodies))]
    became = unique.take(node, jobs[0]) if more.unique else unique.ADDED
    if options.waits():
        slot = wait(node, add)
        slot.says_copies = options.says_copies
        if options.says:
            slot.says = became
        replicate.begin(
            node, add.session, slot, jobs, add.until, add.is_many, options.sync, False, options.is_default
        )
        return
    for job in jobs:
        job.state = ACTIVE
        queue.added += 1
        records.job(node, job)
        history.added(node, job)
        replicate.begin_life(node, job)
        gates.accepted(node, job)
        if options.replicate > 1:
            replicate.start_async(node, job)
    if add.slot is None and not add.is_many and not options.says and not options.says_copies:
        out = node.out
        out.append(43)  # +
        write_id(out, add.prefix, add.seqs[0], add.rnds[0], minutes_of(add))
        out.write(b"\r\n")
    elif add.is_many:
        answer_many(node, add, 1)
    else:
        answer(node, add, id_text(add, 0), became, 1)


def make(node: Node, queue: Queue, add: Add, i: i64) -> Job:
    """One of the jobs: made here, now, under an id that was drawn before."""
    options = add.options
    ctime = node.now * 1_000_000
    if ctime <= node.last_ctime:
        ctime = node.last_ctime + 1
    node.last_ctime = ctime
    expire = add.asked + options.ttl * 1000
    origin = node.own if add.prefix is node.own.prefix else node.origin(add.prefix)
    job = Job(add.seqs[i], add.rnds[i], origin, queue, add.bodies[i], ctime, expire, minutes_of(add))
    job.retry = i32(options.retry)
    job.delay = i32(options.delay)
    job.priority = i16(options.priority)
    job.replicate = i32(options.replicate)
    more = options.more
    assert more is not None
    job.more = more
    if i + 1 < len(add.bodies):
        options.more = more.next()
    job.flags |= SPECIAL
    if may_have_been_made(node, add):
        acks.distrust(node, job)
    node.keep(job)
    if queue.total_most > 0:
        bounds.count(node, job)
    if more.group:
        more.order = job.seq if node.broken("group-by-creation") else groups.next_order(node)
        if options.delay == 0:
            groups.join(node, job)
    return job


def may_have_been_made(node: Node, add: Add) -> bool:
    """Whether somebody may hold a copy of a job of this id that was not made here, or in an earlier life of this node:
    a home that is killed before it has accepted a job knows nothing of it, nor of the copies it sent."""
    is_shared = add.is_shared and not node.broken("shared-job-known")
    return is_shared or (add.is_repeated and not node.broken("repeated-add-known"))


def minutes_of(add: Add) -> i64:
    return ttl_minutes(add.options.ttl, add.options.retry)


def id_text(add: Add, i: i64) -> bytes:
    text = BytesWriter()
    write_id(text, add.prefix, add.seqs[i], add.rnds[i], minutes_of(add))
    return text.getvalue()


def wait(node: Node, add: Add) -> Slot:
    """The reply comes later: it gets its place now."""
    slot = add.slot
    if slot is None:
        slot = Slot()
        add.slot = slot
        session = add.session
        assert session is not None
        session.slots.append(slot)
        if session.blocked != FOR_COPIES:
            waiting.block(node, session, FOR_COPIES)
    return slot


def answer(node: Node, add: Add, jid: bytes, became: bytes, copies: i64) -> None:
    """`copies`: of the job that was made; 0 if none was."""
    options = add.options
    said = copies if options.says_copies else NOT_SAID
    reply(node, add, added_text(jid, became if options.says else b"", said))


def answer_many(node: Node, add: Add, copies: i64) -> None:
    ids = [id_text(add, i) for i in range(len(add.bodies))]
    reply(node, add, many_text(ids, copies if add.options.says_copies else NOT_SAID))


def refuse(node: Node, add: Add, error: bytes) -> None:
    reply(node, add, b"-%b\r\n" % error)


def reply(node: Node, add: Add, data: bytes) -> None:
    is_refusal = data.startswith(b"-") and not data.startswith(b"-UNKNOWN")
    if is_refusal and add.is_repeated and not node.broken("repeated-add-refused"):
        data = b"-%b\r\n" % (errors.ADD_UNKNOWN % id_text(add, 0))  # what was refused now may have been done before
    if add.slot is None:
        node.out.write(data)
    else:
        if add.session is not None and add.number != 0:
            node.promised.keyed.note(node.now - add.asked)
        node.fill_slot(add.session, add.slot, data)
