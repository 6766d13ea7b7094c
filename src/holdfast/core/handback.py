"""NACK, RELEASE and ENQUEUE without a token: done where the job is.

Of a job's holders one is responsible for it: it has given the lease, or has the job waiting until it may be tried
again. It knows which lease ends, what worker had it, and whether somebody has called the job off. So a word that comes
in at another node is passed on, as one with a token is to the node that gave it (tokens.py), and the client is told
what came of it there. A job that was lent (remote.py) need not even be known where its consumer is.

If that node cannot be heard, the word is obeyed where it came in: the others hear of it as of any job that is queued
again.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import inquire, peers, tokens
from holdfast.core.errors import BadRequest
from holdfast.core.inquire import Question
from holdfast.core.job import ACTIVE, BACKING_OFF, IN_DOUBT, MOVING, QUEUED_BEFORE, WAIT_REPL, Job
from holdfast.core.limits import LEASES_AT_ONCE
from holdfast.core.peers import ME, Peer
from holdfast.core.reply import write_int
from holdfast.core.session import Session
from holdfast.core.tokens import DONE, NOTHING, STRANGE, Deed
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node


class Handback(Question):
    """Deeds of one command that are for other nodes to do."""

    def __init__(self, session: Session, deeds: list[Deed], count: i64) -> None:
        super().__init__(session)
        self.deeds: list[Deed] = deeds
        self.outcomes: list[int] = [STRANGE] * len(deeds)
        self.count: i64 = count  # of those that were done here

    def run(self, node: Node) -> None:
        """A failure must not be counted twice: it will answer, or its link will end. Queued twice is queued once."""
        if self.deeds[0].what == tokens.ENQUEUE:
            inquire.finish(node, self)
        else:
            node.alarms.set(self, node.now + inquire.WAIT_MS)

    def hear(self, node: Node, peer: Peer, reader: Reader) -> None:
        """Each answers for all: of what it is not responsible for, that it is a stranger to it."""
        for place in range(len(self.deeds)):
            outcome = int(reader.u8())
            if outcome == DONE or (outcome == NOTHING and self.outcomes[place] == STRANGE):
                self.outcomes[place] = outcome

    def reply(self, node: Node, out: BytesWriter) -> None:
        for place in range(len(self.deeds)):
            outcome: i64 = self.outcomes[place]
            if outcome == STRANGE:
                outcome = do_here(node, self.deeds[place])
            self.count += 1 if outcome == DONE else 0
        write_int(out, self.count)


def do_all(node: Node, session: Session, deeds: list[Deed]) -> None:
    """A command about jobs without tokens: its reply is how many were queued again, or are to be."""
    count: i64 = 0
    asked: list[Deed] = []
    mask: i64 = 0
    for deed in deeds:
        deed.session = session
        nodes = elsewhere(node, deed.jid)
        if nodes != 0 and len(asked) < LEASES_AT_ONCE and not node.broken("handed-back-anywhere"):
            asked.append(deed)
            mask |= nodes
        elif do_here(node, deed) == DONE:
            count += 1
    if not asked:
        write_int(node.out, count)
        return
    what = BytesWriter()
    bus.write_u32(what, len(asked))
    for deed in asked:
        deed.write(what)
    inquire.ask(node, Handback(session, asked, count), inquire.HANDED_BACK, what.getvalue(), mask)


def elsewhere(node: Node, jid: bytes) -> i64:
    """The nodes to be asked for the one that is responsible for a job; none: it is for us to see to it.

    All holders, since that may have changed, and a word of it may be on its way to us.
    """
    mask: i64 = 0
    borrowed = node.borrowed.get(jid)
    if borrowed is not None:
        mask = node.peers[borrowed.home].bit
    job = node.find(jid)
    if job is not None and job.state == ACTIVE and job.responsible != ME and not job.flags & (MOVING | IN_DOUBT):
        mask |= job.holders | node.peers[job.responsible].bit
    return mask & peers.linked(node)


def do_here(node: Node, deed: Deed) -> i64:
    job = node.find(deed.jid)
    if job is None or not node.may_requeue(job):
        return NOTHING
    if deed.what != tokens.ENQUEUE:
        return tokens.give_back(node, job, deed)
    push(node, job)
    return DONE


def push(node: Node, job: Job) -> None:
    """Somebody wants it queued now."""
    if job.flags & QUEUED_BEFORE and not job.flags & BACKING_OFF:
        job.deliveries += 1
    node.queue_again(job)


def tell(node: Node, peer: Peer, reader: Reader, out: BytesWriter) -> None:
    """A peer asks on behalf of a client that is connected to it."""
    count = reader.u32()
    if count > LEASES_AT_ONCE:
        raise BadFrame("more jobs than are given back at once")
    for _ in range(count):
        try:
            deed = tokens.read_deed(reader)
        except BadRequest:
            raise BadFrame("a token that no node gives") from None
        if deed.token or deed.what not in tokens.WITHOUT_TOKEN:
            raise BadFrame("a deed for which there is a token")
        bus.write_i8(out, STRANGE if is_strange(node, deed.jid) else do_here(node, deed))


def is_strange(node: Node, jid: bytes) -> bool:
    """Whether we know no more of a job than who asks us: it is with a third, or its copies are still being made."""
    job = node.find(jid)
    if job is None:
        return jid not in node.tombs
    return job.state == WAIT_REPL or (job.state == ACTIVE and job.responsible != ME)
