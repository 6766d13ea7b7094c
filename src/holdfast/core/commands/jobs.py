"""Commands about jobs: adding, fetching, acknowledging, refusing, looking at one."""
from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import (
    acks,
    batches,
    errors,
    federate,
    gates,
    handback,
    history,
    keyed,
    leases,
    longer,
    queues,
    records,
    remote,
    replicate,
    results,
    settings,
    times,
    tokens,
    waiting,
)
from holdfast.core.commands.leases import ACK_WORDS, ack_one, has_options
from holdfast.core.commands.options import AddOptions
from holdfast.core.errors import BadRequest, Refused
from holdfast.core.ids import write_id
from holdfast.core.job import ACKED, ACTIVE, HANDED_OUT, QUEUED, SPECIAL, Job
from holdfast.core.limits import (
    ADD_MANY_MAX,
    COUNT_MAX,
    DURATION_S_MAX,
    QUEUE_NAME_BYTES_MAX,
)
from holdfast.core.parse import at_least, check_ids, integer, no_option, timeout_ms, value_of
from holdfast.core.peers import ME, MY_BIT
from holdfast.core.queue import PAUSE_OUT, Queue
from holdfast.core.reply import (
    added_text,
    many_text,
    write_array,
    write_bulk,
    write_bulks,
    write_int,
    write_null_array,
)
from holdfast.core.session import Session
from holdfast.core.tokens import Deed

if TYPE_CHECKING:
    from holdfast.core.node import Node


def addjob(node: Node, session: Session, argv: list[bytes]) -> None:
    """Add a job to a queue and answer with its id, once as many nodes as asked for hold a copy.

    The job lives for TTL seconds unless it is acknowledged before: as QUEUE SET q ttl says, or a day from the end of
    its delay; TTL none, without end where the queue says nothing. ONEXPIRE says what becomes of it then: drop, or dead,
    to the dead letters. A consumer that takes it has RETRY seconds (a tenth of the TTL, at most 300) to acknowledge it;
    then it is queued again. RETRY 0 hands it out at most once. DELAY keeps it back that long. MAXLEN refuses it if so
    many jobs are queued at this node already. PRIORITY 9 is handed out before 0; 5 is normal. REPLICATE is how many
    nodes must hold it, `all` for every one; without it as many as can be had, up to three. ms-timeout is how long to
    wait for them, 0 for ever; SYNC answers when so many have it, ASYNC at once, and the rest follow. With SAYCOPIES the
    reply is the id and how many nodes hold the job now.
    """
    options = AddOptions()
    options.read(argv, 4)
    timeout = timeout_ms(argv[3])
    is_keyed = settle(node, argv[1], options, 1)
    check_body(node, argv[2])
    check_queue_name(argv[1])
    if is_keyed:
        keyed.begin(node, session, argv[1], [argv[2]], False, options, timeout)
        return
    job = create(node, node.admit(argv[1], 1, len(argv[2]), options.maxlen), argv[2], options)
    if options.waits():
        replicate.start(
            node, session, [job], timeout, False, options.sync, options.is_external, options.is_default,
            options.says_copies,
        )
        return
    if options.replicate > 1:
        replicate.start_async(node, job)
    if options.says_copies:
        node.out.write(added_text(node.id_text(job), b"", 1))
    else:
        write_added(node.out, job)


def addjobs(node: Node, session: Session, argv: list[bytes]) -> None:
    """Add many jobs to a queue in one call: all of them, or on refusal none.

    ADDJOBS queue ms-timeout count body [body ...] [options of ADDJOB]. The reply is an array of the ids in
    the order of the bodies. MAXLEN holds if all of them fit. With BATCH the first has the INDEX that is said, and each
    other the next one. With SAYCOPIES the reply is that array and how many nodes hold each of them at least.
    """
    count = integer(argv[3], errors.COUNT_RANGE)
    if count < 1 or count > ADD_MANY_MAX:
        raise BadRequest(b"ERR COUNT must be between 1 and %d" % ADD_MANY_MAX)
    if len(argv) < 4 + count:
        raise BadRequest(b"ERR fewer bodies than COUNT says")
    options = AddOptions()
    options.read(argv, 4 + count)
    timeout = timeout_ms(argv[2])
    is_keyed = settle(node, argv[1], options, count)
    body_bytes: i64 = 0
    for i in range(4, 4 + count):
        check_body(node, argv[i])
        body_bytes += len(argv[i])
    check_queue_name(argv[1])
    if is_keyed:
        keyed.begin(node, session, argv[1], argv[4:4 + count], True, options, timeout)
        return
    queue = node.admit(argv[1], count, body_bytes, options.maxlen)
    jobs: list[Job] = []
    for i in range(4, 4 + count):
        jobs.append(create(node, queue, argv[i], options))
        if options.more is not None:
            options.more = options.more.next()
    if options.waits():
        replicate.start(
            node, session, jobs, timeout, True, options.sync, options.is_external, options.is_default,
            options.says_copies,
        )
        return
    if options.replicate > 1:
        for job in jobs:
            replicate.start_async(node, job)
    if options.says_copies:
        node.out.write(many_text([node.id_text(job) for job in jobs], 1))
        return
    write_array(node.out, count)
    for job in jobs:
        write_added(node.out, job)


def settle(node: Node, queue: bytes, options: AddOptions, count: i64) -> bool:
    """Check options together, and fill in what was not said; whether the home of a key does the rest (keyed.py)."""
    options.settle_life(node, settings.default_ttl(node, queue))
    options.settle_words(node)
    more = options.more
    if more is not None and more.batch:
        batches.joins(node, more.batch, more.index - 2 + count)
    if keyed.is_keyed(options):
        return True
    options.settle_copies(node)
    return False


def create(node: Node, queue: Queue, body: bytes, options: AddOptions) -> Job:
    return node.add(
        queue, body, options.ttl, options.retry, options.delay, options.priority, options.replicate, options.waits(),
        options.more,
    )


def check_body(node: Node, body: bytes) -> None:
    if len(body) > node.body_bytes_max:
        raise BadRequest(
            b"ERR the body has %d bytes, the setting max-body-bytes allows %d" % (len(body), node.body_bytes_max)
        )


def check_queue_name(name: bytes) -> None:
    if len(name) > QUEUE_NAME_BYTES_MAX:
        raise BadRequest(b"ERR the queue name has %d bytes, at most %d are allowed" % (len(name), QUEUE_NAME_BYTES_MAX))


def write_added(out: BytesWriter, job: Job) -> None:
    """The reply to ADDJOB: the id as a simple string."""
    out.append(43)
    write_id(out, job.origin.prefix, job.seq, job.rnd, i64(job.minutes))
    out.write(b"\r\n")


def write_job_id(out: BytesWriter, job: Job) -> None:
    """The id as a bulk string, as everywhere but in ADDJOB and JSCAN."""
    out.write(b"$48\r\n")
    write_id(out, job.origin.prefix, job.seq, job.rnd, i64(job.minutes))
    out.write(b"\r\n")


def getjob(node: Node, session: Session, argv: list[bytes]) -> None:
    """Fetch jobs from queues: the next of each queue in turn, until COUNT or until all are empty.

    With nothing there the call waits: TIMEOUT milliseconds, for ever by default, not at all with NOHANG,
    and answers with null when time is up. A call that had to wait gets one job. WITHCOUNTERS adds how often
    the job was refused and delivered again; WITHMETA its token, attempt, priority, headers and keys, always in this
    order. The job's lease begins now: its RETRY time, or LEASEMS milliseconds. A node that is leaving hands out what it
    holds; where it would have to wait it answers LEAVING.
    """
    count: i64 = 1
    timeout: i64 = 0
    nohang = False
    form: i64 = 0
    lease_ms: i64 = 0
    n = len(argv)
    i = 1
    while True:
        if i >= n:
            raise BadRequest(errors.SYNTAX)
        option = argv[i].upper()
        if option == b"FROM":
            break
        if option == b"NOHANG":
            nohang = True
        elif option == b"WITHCOUNTERS":
            form |= leases.COUNTERS
        elif option == b"WITHMETA":
            form |= leases.META
        elif option == b"LEASEMS":
            lease_ms = at_least(value_of(argv, i), 1, errors.LEASEMS_RANGE)
            if lease_ms > DURATION_S_MAX:
                raise BadRequest(errors.LEASEMS_RANGE)
            i += 1
        elif option == b"COUNT":
            count = at_least(value_of(argv, i), 1, errors.COUNT_RANGE)
            i += 1
        elif option == b"TIMEOUT":
            timeout = timeout_ms(value_of(argv, i))
            i += 1
        else:
            raise no_option(option)
        i += 1
    names = list(dict.fromkeys(argv[i + 1:]))  # a queue named twice is one queue
    if not names:
        raise BadRequest(errors.SYNTAX)
    ready: list[Queue] = []
    for name in names:
        queue = node.queues.get(name)
        if queue is not None:
            queue.used = node.now
            if queue.size > 0 and queue.paused & PAUSE_OUT == 0:
                ready.append(queue)
    jobs = take(node, ready, min(count, COUNT_MAX))
    if jobs:
        write_array(node.out, len(jobs))
        for job in jobs:
            node.hand_out(node.out, job, session, form, lease_ms)
    elif nohang:
        write_null_array(node.out, session)
    elif node.is_leaving:
        raise Refused(errors.LEAVING)
    else:
        for name in names:
            check_queue_name(name)
        wanted = queues.queues_to_wait_on(node, names)
        waiting.wait_for_job(node, session, wanted, timeout, form, lease_ms, min(count, COUNT_MAX))
        for queue in wanted:
            federate.announce(node, queue)  # with no peer yet, too: one that is met while they wait is told then


def take(node: Node, ready: list[Queue], count: i64) -> list[Job]:
    """Up to `count` jobs off their queues, one from each in turn."""
    jobs: list[Job] = []
    found = True
    while found:
        found = False
        for queue in ready:
            if len(jobs) == count:
                return jobs
            job = node.pop(queue)
            if job is not None:
                jobs.append(job)
                found = True
    return jobs


def ackjob(node: Node, session: Session, argv: list[bytes]) -> None:
    """Acknowledge jobs: their work is done, they are not handed out again. Answers how many were known.

    An ack for a job this node has never seen is kept and passed on to those who may have it. With options it is about
    one job: TOKEN is the one that GETJOB WITHMETA gave, and a stale one is refused with LEASELOST; RESULT is kept for
    those who wait for the job (WAITJOB), for the setting result-ttl.
    """
    if has_options(argv, ACK_WORDS):
        ack_one(node, session, argv)
        return
    check_ids(argv)
    count: i64 = 0
    for i in range(1, len(argv)):
        jid = node.merged.get(argv[i], argv[i]) if node.merged else argv[i]
        job = node.find(jid)
        if job is None:
            if (len(node.peers) > 1 or node.is_joining) and acks.ack_unknown(node, jid):
                history.acked_unknown(node, jid, session)
        elif job.state != ACKED:
            history.acked(node, job, session)
            node.end(job)
            count += 1
    write_int(node.out, count)


def fastack(node: Node, session: Session, argv: list[bytes]) -> None:
    """Acknowledge jobs with fewer messages between nodes and fewer promises. Answers how many were deleted."""
    check_ids(argv)
    count: i64 = 0
    for i in range(1, len(argv)):
        job = node.find(argv[i])
        if job is not None:
            if job.state != ACKED:
                times.acked(node, job)
                history.acked(node, job, session)
            acks.fast(node, job)
            count += 1
        else:
            for peer in node.peers:
                if peer.is_linked:
                    acks.fast_to(node, peer, argv[i], 0)
    write_int(node.out, count)


def deljob(node: Node, session: Session, argv: list[bytes]) -> None:
    """Delete jobs from this node only, in whatever state. Answers how many were known."""
    check_ids(argv)
    count: i64 = 0
    for i in range(1, len(argv)):
        job = node.find(argv[i])
        if job is not None:
            if not replicate.abandon(node, job):
                history.deleted(node, job, b"deleted")
                results.tell_end(node, job, results.DELETED)
                batches.tell_once(node, job, acks.DELETED)
                acks.forget(node, job)
            count += 1
    write_int(node.out, count)


def enqueue(node: Node, session: Session, argv: list[bytes]) -> None:
    """Queue jobs that are known here and not queued, delayed ones too. Answers how many.

    A job that another node sees to is queued there: it may be queued by now, which counts as none, or be with a
    consumer, whose lease ends then.
    """
    check_ids(argv)
    handback.do_all(node, session, [Deed(tokens.ENQUEUE, jid, b"") for jid in argv[1:]])


def dequeue(node: Node, session: Session, argv: list[bytes]) -> None:
    """Take jobs out of their queue; they stay known and come back after their RETRY time. Answers how many."""
    check_ids(argv)
    count: i64 = 0
    for i in range(1, len(argv)):
        job = node.find(argv[i])
        if job is not None and job.state == QUEUED:
            history.dequeued(node, job, session)
            node.dequeue(job)
            if job.retry == 0 and job.flags & SPECIAL:
                gates.taken_out(node, job)
            count += 1
    write_int(node.out, count)


def working(node: Node, session: Session, argv: list[bytes]) -> None:
    """Say that a job is still being worked on: its next delivery is put off by its RETRY time.

    Answers with that time in seconds. Refused once half of the job's life is over, so that a consumer which
    works for ever cannot hide a job for ever.
    """
    check_ids(argv)
    job = node.find(argv[1])
    if node.borrowed and remote.pass_on(node, argv[1], argv):
        write_int(node.out, node.borrowed[argv[1]].retry)
        return
    if job is None:
        raise BadRequest(errors.NO_JOB)
    retry = i64(job.retry)
    created = job.ctime // 1_000_000
    if node.now - created > (job.expire - created) // 2:
        raise BadRequest(errors.TOO_LATE)
    if retry > 0:
        if job.state == QUEUED:
            node.dequeue(job)
        elif job.state == ACTIVE:
            node.lease(job, max(retry * 1000, job.qtime - node.now))  # a longer delay stays as it is
            if job.flags & HANDED_OUT:
                records.handout(node, job, job.qtime - node.now)
                history.extended(node, job, session, job.qtime - node.now)
        if job.state == ACTIVE and job.holders != MY_BIT:
            job.responsible = ME
            longer.tell(node, job, job.qtime - node.now)
    write_int(node.out, retry)


def write_nodes(node: Node, mask: i64) -> None:
    """A set of nodes by their ids."""
    ids = [peer.node_id() for peer in node.peers if peer.bit & mask]
    write_bulks(node.out, ids)


def write_named(out: BytesWriter, name: bytes, value: i64) -> None:
    write_bulk(out, name)
    write_int(out, value)
