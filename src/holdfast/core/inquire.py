"""Questions to other nodes on behalf of a client that waits for the answer.

A command that this node cannot answer alone (which lease a job is under, where it is, how the whole cluster does)
becomes a Question: it is sent to some peers (ASK), each answers at once with a piece of bytes (TELL), and when all
that can be heard have answered, or a moment has passed, the question makes the reply. What may be asked is in
one table, KINDS: a function that reads the bytes of the question and writes those of the answer. A link that ends is
no answer, and no answer is not a no: who makes the reply sees which nodes have answered.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import waiting
from holdfast.core.alarms import Chore
from holdfast.core.limits import NEVER
from holdfast.core.peers import ME, MY_BIT, Peer
from holdfast.core.session import FOR_PEERS, Session
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

WAIT_MS: Final = 1000

# What may be asked.
FIGURES: Final = 1  # of queues (views.py)
LEASED: Final = 2  # do something with a job under a lease (tokens.py)
CANCELLED: Final = 3  # call a job off (cancel.py)
WORKERS: Final = 4  # who works (workers.py)
EXPLAINED: Final = 5  # why a job is not handed out (explain.py)
DEAD: Final = 6  # list, send back or delete dead jobs (dead.py)
CHANGED: Final = 7  # another priority or queue for a job (change.py)
HANDED_BACK: Final = 8  # queue a job again (handback.py)
BUCKET: Final = 9  # how much there is of the rate of a domain (domains.py)
FLUSHED: Final = 30  # delete all jobs of a queue (flush.py)
COUNTED: Final = 31  # how many of them a node is to count
AWAY: Final = 32  # which nodes are not heard, and how many jobs wait for them (away.py)

Teller = Callable[["Node", Peer, Reader, BytesWriter], None]
"""Answers a question of a peer: reads what it asks, writes the answer."""

KINDS: Final[dict[int, Teller]] = {}
"""By what is asked; talk.py fills it."""


class Question(Chore):
    """One question, and what has come in so far. Its alarm is the end of our patience."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session: Session = session
        self.number: i64 = 0
        self.waiting: i64 = 0  # nodes that were asked and have not answered
        self.answered: i64 = MY_BIT

    def run(self, node: Node) -> None:
        finish(node, self)

    def hear(self, node: Node, peer: Peer, reader: Reader) -> None:
        """A peer's answer."""
        raise NotImplementedError

    def goes_on(self, node: Node) -> bool:
        """Whether there was more to ask, and somebody to ask: the client waits on. One that is gone stops nothing."""
        return False

    def reply(self, node: Node, out: BytesWriter) -> None:
        """What the client is told."""
        raise NotImplementedError


def ask(node: Node, question: Question, kind: i64, what: bytes, mask: i64) -> None:
    """Ask the nodes of a set that can be heard; the session waits for the reply."""
    if send(node, question, kind, what, mask):
        waiting.block(node, question.session, FOR_PEERS)
    else:
        question.reply(node, node.out)  # nobody can be asked


def send(node: Node, question: Question, kind: i64, what: bytes, mask: i64) -> bool:
    """False: there is nobody to answer it."""
    node.question_count += 1
    node.count("questions")
    question.number = node.question_count
    for peer in node.peers:
        if peer.bit & mask and peer.is_linked:
            peer.out.append(bus.ASK)
            bus.write_i64(peer.out, question.number)
            bus.write_i8(peer.out, kind)
            bus.write_name(peer.out, what)
            question.waiting |= peer.bit
    if question.waiting == 0:
        return False
    node.questions[int(question.number)] = question
    node.alarms.set(question, node.now + WAIT_MS)
    return True


def on_ask(node: Node, peer: Peer, reader: Reader) -> None:
    number = reader.long()
    teller = KINDS.get(int(reader.u8()))
    what = Reader(reader.name())
    if teller is None:
        raise BadFrame("a question there is none of")
    answer = BytesWriter()
    teller(node, peer, what, answer)
    peer.out.append(bus.TELL)
    bus.write_i64(peer.out, number)
    bus.write_name(peer.out, answer.getvalue())


def on_tell(node: Node, peer: Peer, reader: Reader) -> None:
    question = node.questions.get(int(reader.long()))
    answer = Reader(reader.name())
    if question is None or not question.waiting & peer.bit:
        return
    question.hear(node, peer, answer)
    question.answered |= peer.bit
    question.waiting &= ~peer.bit
    if question.waiting == 0:
        finish(node, question)


def link_down(node: Node, peer: Peer) -> None:
    for question in list(node.questions.values()):
        if question.waiting & peer.bit:
            question.waiting &= ~peer.bit
            if question.waiting == 0:
                finish(node, question)


def finish(node: Node, question: Question) -> None:
    """All have answered, or the time is over."""
    if node.questions.pop(int(question.number), None) is None:
        return
    question.wake = NEVER
    question.waiting = 0
    if question.goes_on(node):
        return
    session = question.session
    if session.blocked == FOR_PEERS and not session.is_closing:
        out = BytesWriter()
        question.reply(node, out)
        node.answer(session, out.getvalue())


def missing(node: Node, question: Question) -> list[Peer]:
    """Members that have not answered."""
    return [
        peer for peer in node.peers
        if peer.index != ME and peer.is_member and not peer.bit & question.answered
    ]


def find_peer(node: Node, prefix: bytes) -> Peer | None:
    """The node whose id begins like that, as ids of jobs and tokens do; this one too."""
    for peer in node.peers:
        if peer.node_id()[:8] == prefix:
            return peer
    return None
