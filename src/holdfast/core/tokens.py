"""What a consumer does under the token of its lease, at whichever node it says so.

The node that gave the lease knows whether it still runs: a token that is not that of the job's present lease is
stale, and its word is refused (LEASELOST) and counted, since somebody else may have the job by now. A node that has
no lease for the job asks the one in the token. If that cannot be reached, it takes an acknowledgement, because work
done is done, but nothing that would keep the job with a consumer or give it back (UNREACHED, or UNKNOWN if it was asked
and its answer does not come). Neither does a node that was started anew since and has no memory of the lease.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import acks, errors, failure, history, inquire, leases, requeue, results
from holdfast.core.errors import BadRequest
from holdfast.core.inquire import Question
from holdfast.core.job import ACK_ONLY, ACKED, DEAD, WAIT_REPL, Job
from holdfast.core.limits import (
    DURATION_S_MAX,
    ERROR_BYTES_MAX,
    LEASES_AT_ONCE,
    PROGRESS_BYTES_MAX,
    RESULT_BYTES_MAX,
    TRACE_BYTES_MAX,
)
from holdfast.core.more import NACKED, RELEASED
from holdfast.core.peers import ME, Peer
from holdfast.core.reply import write_array, write_bulk, write_error, write_int, write_simple
from holdfast.core.session import Session
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

# What is to be done.
ACK: Final = 0
NACK: Final = 1
RELEASE: Final = 2
KEEP: Final = 3
PROGRESS: Final = 4
ENQUEUE: Final = 5

WITHOUT_TOKEN: Final = (NACK, RELEASE, ENQUEUE)
"""What may be done without one; ENQUEUE only so (handback.py)."""

# What came of it.
NOTHING: Final = 0  # the job has ended, or there is nothing to be done
DONE: Final = 1
LOST: Final = 2
CANCELLED: Final = 3  # done; but somebody has called the job off
STRANGE: Final = 4  # another node must say, or one that cannot
UNREACHED: Final = 5  # that node could not be asked: nothing was done
UNANSWERED: Final = 6  # it was asked, and its answer is not here: it may have done it

KEEP_WORDS: Final = [b"lost", b"ok", b"lost", b"cancelled", b"unknown", b"unknown", b"unknown"]

TOKEN_BYTES_MAX: Final = 42  # three numbers in hex, of 32 and twice 64 bits, and two dots
HEX_DIGITS: Final = b"0123456789abcdef"


class Deed:
    """Something to be done with one job under one token."""

    def __init__(self, what: i64, jid: bytes, token: bytes) -> None:
        self.what: i64 = what
        self.jid: bytes = jid
        self.token: bytes = token
        self.ms: i64 = failure.BY_RULE  # until it is queued again; for KEEP until the lease ends
        self.text: bytes = b""  # what the worker says: an error, a result, how far it is
        self.has_text: bool = False
        self.number: i64 = 0  # RETRYAFTERMS; thousandths for PROGRESS
        self.is_final: bool = False
        self.session: Session | None = None  # who says so; None: somebody at another node

    def write(self, out: BytesWriter) -> None:
        bus.write_i8(out, self.what)
        out.write(self.jid)
        bus.write_name(out, self.token)
        bus.write_i64(out, self.ms)
        bus.write_i64(out, self.number)
        bus.write_i8(out, (1 if self.is_final else 0) | (2 if self.has_text else 0))
        bus.write_name(out, self.text)


def read_deed(reader: Reader) -> Deed:
    what = reader.u8()
    jid = reader.job_id()
    deed = Deed(what, jid, reader.name())
    deed.ms = reader.long()
    deed.number = reader.long()
    bits = reader.u8()
    deed.is_final = bits & 1 != 0
    deed.has_text = bits & 2 != 0
    deed.text = reader.name()
    longest = RESULT_BYTES_MAX if what == ACK else max(ERROR_BYTES_MAX + 1 + TRACE_BYTES_MAX, PROGRESS_BYTES_MAX)
    if (
        what > ENQUEUE or len(deed.text) > longest or deed.ms < failure.BY_RULE or deed.ms > DURATION_S_MAX * 1000
        or deed.number < 0 or deed.number > DURATION_S_MAX
    ):
        raise BadFrame("a deed that no worker can do")
    if deed.token or what not in WITHOUT_TOKEN:
        check_token(deed.token)
    return deed


def check_token(token: bytes) -> None:
    """Three numbers in hex, of which the first is the beginning of a node's id. Raises BadRequest."""
    if (
        len(token) > TOKEN_BYTES_MAX or token.find(b".") != 8 or b".." in token or token.endswith(b".")
        or token.translate(None, HEX_DIGITS) != b".."
    ):
        raise BadRequest(errors.BAD_TOKEN)


# -- here -------------------------------------------------------------------------------------------------


def judge(node: Node, job: Job | None, token: bytes) -> i64:
    """Whether the token is that of the job's lease here (DONE), was (LOST), or is not ours to judge (STRANGE)."""
    if job is None:
        return NOTHING if is_ours(node, token) else STRANGE
    if job.state == ACKED:
        return STRANGE if job.flags & ACK_ONLY and not is_ours(node, token) else NOTHING
    if job.state == WAIT_REPL:
        return STRANGE  # a copy was handed out elsewhere, before it had all of them
    lease = job.lease
    if lease is not None and lease.number > 0 and leases.token(node, lease) == token:
        return DONE
    if node.broken("stale-token-accepted"):
        return DONE
    if node.broken("token-not-asked"):
        return DONE
    return LOST if is_ours(node, token) or requeue.is_leased(node, job) else STRANGE


def is_ours(node: Node, token: bytes) -> bool:
    """Given by this node since it started."""
    return token.startswith(b"%b.%x." % (node.node_id[:8], int(node.start)))


def do_here(node: Node, deed: Deed) -> i64:
    """Do it if the token allows; STRANGE if another node must be asked."""
    job = node.find(deed.jid)
    verdict = judge(node, job, deed.token)
    if verdict == LOST:
        node.count("lease-lost")
        if job is not None:
            job.queue.lease_lost += 1
    if verdict != DONE:
        return verdict
    assert job is not None
    if deed.what == ACK:
        return take_ack(node, deed)
    lease = job.lease
    is_cancelled = lease is not None and lease.is_cancelled
    if job.state == DEAD or lease is None:
        return LOST
    if deed.what == KEEP:
        history.extended(node, job, deed.session, deed.ms)
        leases.extend(node, job, deed.ms)
    elif deed.what == PROGRESS:
        lease.fraction = deed.number
        lease.progress = deed.text
    else:
        return give_back(node, job, deed)
    return CANCELLED if is_cancelled else DONE


def give_back(node: Node, job: Job, deed: Deed) -> i64:
    """NACK or RELEASE, with or without a token."""
    if not node.may_requeue(job) and not (deed.is_final and job.retry > 0 and job.state != DEAD):
        return NOTHING
    if deed.number > 0:
        failure.slow_down(node, job, deed.number)
    how = NACKED if deed.what == NACK else RELEASED
    if how == NACKED:
        history.nacked(node, job, deed.session, deed.text, max(deed.number, deed.ms))
    else:
        history.released(node, job, deed.session, max(0, deed.ms))
    failure.fail(node, job, how, deed.text, deed.ms, deed.number, deed.is_final)
    return DONE


def take_ack(node: Node, deed: Deed) -> i64:
    """The work is done. The result is kept before the ending is told, so that it travels with it."""
    job = node.find(deed.jid)
    if job is not None and job.state == ACKED:
        return NOTHING
    if job is None and not (len(node.peers) > 1 or node.is_joining):
        return NOTHING
    if job is None and not acks.is_taken(node, deed.jid):
        return NOTHING
    if deed.has_text:
        results.keep(node, deed.jid, deed.text, node.results.most)
    if job is None:
        if not acks.ack_unknown(node, deed.jid):
            return NOTHING
        if deed.session is not None:
            history.acked_unknown(node, deed.jid, deed.session)
    else:
        history.acked(node, job, deed.session)
        node.end(job)
    return DONE


# -- elsewhere --------------------------------------------------------------------------------------------


class Elsewhere(Question):
    """Deeds of one command, some of which the nodes in their tokens must judge."""

    def __init__(self, session: Session, deeds: list[Deed], outcomes: list[int], is_many: bool) -> None:
        super().__init__(session)
        self.deeds: list[Deed] = deeds
        self.outcomes: list[int] = outcomes
        self.asked: list[int] = []  # which of them, by place
        self.is_many: bool = is_many

    def run(self, node: Node) -> None:
        """An ack is taken where the giver cannot be asked; that it is slow to answer does not mean that."""
        if self.deeds[0].what == ACK and not node.broken("answers-not-awaited"):
            node.alarms.set(self, node.now + inquire.WAIT_MS)  # it will answer, or its link will end
        else:
            inquire.finish(node, self)

    def hear(self, node: Node, peer: Peer, reader: Reader) -> None:
        """Each answers for all; only what it says of its own tokens counts."""
        for place in self.asked:
            outcome = int(reader.u8())
            if self.deeds[place].token[:8] == peer.node_id()[:8]:
                self.outcomes[place] = outcome

    def reply(self, node: Node, out: BytesWriter) -> None:
        for place in self.asked:
            deed = self.deeds[place]
            giver = inquire.find_peer(node, deed.token[:8])
            is_answered = giver is None or giver.bit & self.answered != 0
            if self.outcomes[place] == STRANGE and deed.what != ACK and not is_answered:
                self.outcomes[place] = UNANSWERED
        write_outcomes(node, out, self.deeds, self.outcomes, self.is_many)


def without_giver(node: Node, deed: Deed) -> i64:
    """Nobody can say whether the lease still runs."""
    if deed.what == ACK:
        return take_ack(node, deed)
    job = node.find(deed.jid)
    if job is not None and node.broken("nack-by-stranger") and node.may_requeue(job):
        return give_back(node, job, deed)
    return LOST if deed.token.startswith(node.node_id[:8]) else UNREACHED


def do(node: Node, session: Session, deed: Deed) -> None:
    """A command about one job under a token."""
    do_all(node, session, [deed], False)


def do_all(node: Node, session: Session, deeds: list[Deed], is_many: bool = True) -> None:
    """A command about jobs under tokens, all of the same kind. All tokens are looked at before anything is done."""
    for deed in deeds:
        check_token(deed.token)
        deed.session = session
    outcomes = [int(do_here(node, deed)) for deed in deeds]
    if STRANGE in outcomes:
        question = Elsewhere(session, deeds, outcomes, is_many)
        mask: i64 = 0
        for place in range(len(deeds)):
            if outcomes[place] == STRANGE:
                giver = inquire.find_peer(node, deeds[place].token[:8])
                if giver is not None and giver.index != ME and giver.is_linked:
                    mask |= giver.bit
                    question.asked.append(place)
        if mask != 0:
            what = BytesWriter()
            bus.write_u32(what, len(question.asked))
            for place in question.asked:
                deeds[place].write(what)
            inquire.ask(node, question, inquire.LEASED, what.getvalue(), mask)
            return
    write_outcomes(node, node.out, deeds, outcomes, is_many)


def write_outcomes(node: Node, out: BytesWriter, deeds: list[Deed], outcomes: list[int], is_many: bool) -> None:
    """What came of each, those that nobody could judge among them."""
    if is_many:
        write_array(out, len(deeds))
    for i in range(len(deeds)):
        outcome: i64 = outcomes[i]
        if outcome == STRANGE:
            outcome = without_giver(node, deeds[i])
        write_outcome(out, deeds[i], outcome)


def write_outcome(out: BytesWriter, deed: Deed, outcome: i64) -> None:
    if deed.what == KEEP:
        write_bulk(out, KEEP_WORDS[outcome])
    elif outcome == LOST or (outcome == NOTHING and deed.what == PROGRESS):
        write_error(out, errors.LEASE_LOST)
    elif outcome == UNREACHED:
        write_error(out, errors.UNREACHED)
    elif outcome == UNANSWERED:
        write_error(out, errors.NO_ANSWER)
    elif deed.what == PROGRESS:
        write_simple(out, b"cancelled" if outcome == CANCELLED else b"ok")
    else:
        write_int(out, 1 if outcome == DONE else 0)


def tell(node: Node, peer: Peer, reader: Reader, out: BytesWriter) -> None:
    """A peer asks on behalf of a consumer that is connected to it."""
    count = reader.u32()
    if count > LEASES_AT_ONCE:
        raise BadFrame("more leases than can be kept at once")
    mine = node.node_id[:8]
    for _ in range(count):
        try:
            deed = read_deed(reader)
        except BadRequest:
            raise BadFrame("a token that no node gives") from None
        bus.write_i8(out, do_here(node, deed) if deed.token.startswith(mine) else STRANGE)
