"""CLAIM: batches of jobs for pipelines. What they are is told in core/claims.py."""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import claims, errors, leases, peers
from holdfast.core.claims import Claim
from holdfast.core.commands.jobs import take, write_job_id
from holdfast.core.errors import BadRequest
from holdfast.core.limits import CLAIM_JOBS_MAX, CLAIM_READ_BYTES, DURATION_S_MAX, KEY_BYTES_MAX
from holdfast.core.parse import at_least, integer, no_option, value_of
from holdfast.core.queue import PAUSE_OUT, Queue
from holdfast.core.reply import write_array, write_bulk, write_bulks, write_int, write_null_array
from holdfast.core.session import Session

if TYPE_CHECKING:
    from holdfast.core.node import Node

USAGE = (
    b"ERR use CLAIM OPEN group, CLAIM TAKE group epoch seq COUNT n LEASEMS ms FROM queue [queue ...], "
    b"CLAIM READ group claim from to, CLAIM RENEW group epoch ms, CLAIM COMMIT group epoch claim [claim ...] or "
    b"CLAIM INFO group"
)


def claim(node: Node, session: Session, argv: list[bytes]) -> None:
    """Batches of jobs for pipelines, of the queues of this node: taken under a number, read as often as need be,
    acknowledged as a whole.

    OPEN makes the caller the one who speaks for the group and gives it an epoch; whoever has an older one is answered
    with FENCED. TAKE answers with the id of a claim and the number of its jobs, the same again for the same seq, or
    null if there is nothing. READ gives its jobs from one index up to another, as many as fit into four megabytes:
    queue, id, body, unix milliseconds of creation, attempt, priority, headers and keys. RENEW gives the group's claims
    more time; when it ends the jobs are queued again and the claim is gone. COMMIT acknowledges exactly the jobs of the
    claims named, and answers how many. INFO lists seq, id, jobs and milliseconds left of each claim.
    """
    word = argv[1].upper()
    n = len(argv)
    name = argv[2]
    if not name or len(name) > KEY_BYTES_MAX or b":" in name or b" " in name:
        raise BadRequest(errors.CLAIM_NAME)
    if word == b"OPEN" and n == 3:
        write_int(node.out, claims.open_group(node, name))
    elif word == b"TAKE" and n >= 11:
        take_claim(node, session, argv)
    elif word == b"READ" and n == 6:
        begin = at_least(argv[4], 0, errors.NOT_AN_INTEGER)
        read(node, claims.to_read(node, name, argv[3]), begin, at_least(argv[5], 0, errors.NOT_AN_INTEGER))
    elif word == b"RENEW" and n == 5:
        group = claims.group_of(node, name, integer(argv[3], errors.NOT_AN_INTEGER))
        write_int(node.out, claims.renew(node, group, lease_ms(argv[4])))
    elif word == b"COMMIT" and n >= 5:
        group = claims.group_of(node, name, integer(argv[3], errors.NOT_AN_INTEGER))
        count: i64 = 0
        for i in range(4, n):
            found = claims.live(node, group, argv[i])
            if found is not None:
                count += claims.commit(node, session, group, found)
        write_int(node.out, count)
    elif word == b"INFO" and n == 3:
        info(node, name)
    else:
        raise BadRequest(USAGE)


def lease_ms(text: bytes) -> i64:
    ms = at_least(text, 1, errors.LEASEMS_RANGE)
    if ms > DURATION_S_MAX:
        raise BadRequest(errors.LEASEMS_RANGE)
    return ms


def take_claim(node: Node, session: Session, argv: list[bytes]) -> None:
    group = claims.group_of(node, argv[2], integer(argv[3], errors.NOT_AN_INTEGER))
    seq = at_least(argv[4], 0, errors.NOT_AN_INTEGER)
    count: i64 = 0
    ms: i64 = 0
    i = 5
    while i < len(argv) and argv[i].upper() != b"FROM":
        word = argv[i].upper()
        if word == b"COUNT":
            count = at_least(value_of(argv, i), 1, errors.COUNT_RANGE)
        elif word == b"LEASEMS":
            ms = lease_ms(value_of(argv, i))
        else:
            raise no_option(word)
        i += 2
    names = list(dict.fromkeys(argv[i + 1:]))
    if not names or count == 0 or ms == 0:
        raise BadRequest(USAGE)
    known = group.with_seq(seq)
    if known is not None and claims.live(node, group, known.id) is not None and not node.broken("claim-taken-anew"):
        write_claim(node, known)
        return
    if known is not None:
        claims.drop(node, group, known)
    ready: list[Queue] = []
    if not (node.is_leaving and peers.reachable(node) > 0):  # what is here goes to nodes that stay
        for name in names:
            queue = node.queues.get(name)
            if queue is not None:
                queue.used = node.now
                if queue.size > 0 and queue.paused & PAUSE_OUT == 0:
                    ready.append(queue)
    jobs = take(node, ready, min(count, CLAIM_JOBS_MAX))
    if jobs:
        write_claim(node, claims.take(node, session, group, seq, jobs, ms))
    else:
        write_null_array(node.out, session)


def write_claim(node: Node, claim: Claim) -> None:
    write_array(node.out, 2)
    write_bulk(node.out, claim.id)
    write_int(node.out, len(claim.jobs))


def read(node: Node, claim: Claim, begin: i64, end: i64) -> None:
    """Jobs from an index up to another, or fewer if they are large, but at least one."""
    end = min(end, i64(len(claim.jobs)))
    size: i64 = 0
    last = begin
    while last < end and (size < CLAIM_READ_BYTES or last == begin):
        size += len(claim.bodies[last])
        last += 1
    out = node.out
    write_array(out, max(0, last - begin))
    for i in range(begin, last):
        job = claim.jobs[i]
        more = job.more
        write_array(out, 8)
        write_bulk(out, job.queue.name)
        write_job_id(out, job)
        write_bulk(out, claim.bodies[i])
        write_int(out, job.ctime // 1_000_000)
        write_int(out, 1 + i64(job.nacks) + i64(job.deliveries))
        write_int(out, i64(job.priority))
        write_bulks(out, [] if more is None else more.headers)
        write_bulks(out, [] if more is None else leases.keys(job))


def info(node: Node, name: bytes) -> None:
    claims.rebuild(node)
    group = node.claims.groups.get(name)
    found: list[Claim] = []
    if group is not None:
        found = [each for each in group.claims.values() if each.until > node.now]
    write_array(node.out, len(found))
    for each in found:
        write_array(node.out, 4)
        write_int(node.out, each.seq)
        write_bulk(node.out, each.id)
        write_int(node.out, len(each.jobs))
        write_int(node.out, each.until - node.now)
