"""Short ways for the commonest commands, in the forms in which they come a million times.

The shell finds such a handler by command name and number of arguments and calls it with the session and the
arguments as they are: no list, no table, no options. A direct handler never raises and knows only the plain
case: a session and a node about which nothing is special, a command without options. Whatever is unusual it
leaves to Node.execute, whose answer it passes on (False: not run, keep the command).
"""
from __future__ import annotations

from mypy_extensions import i64

from holdfast.core import history
from holdfast.core.commands.jobs import write_added
from holdfast.core.ids import is_id
from holdfast.core.limits import (
    BODY_BYTES_EXTRA,
    JOB_BYTES,
    PRIORITY_DEFAULT,
    QUEUE_NAME_BYTES_MAX,
    RETRY_S_DEFAULT_MAX,
    TTL_S_DEFAULT,
)
from holdfast.core.node import Node
from holdfast.core.session import Session
from holdfast.core.store import Unreadable


class Direct:
    def __init__(self, node: Node) -> None:
        self.node: Node = node

    def handlers(self) -> dict[bytes, list[object]]:
        """By command, a list indexed by the number of words."""
        return {
            b"ADDJOB": [None, None, None, None, self.add],
            b"GETJOB": [None, None, None, self.get_or_wait, self.get],
            b"ACKJOB": [None, None, self.ack, None, None],
        }

    def otherwise(self, session: Session, argv: list[bytes]) -> bool:
        """The long way. The shell counts what it gives to a direct handler, so it must not count again here."""
        ran = self.node.execute(session, argv)
        if ran:
            self.node.running.calls -= 1
        return ran

    def add(self, session: Session, queue_name: bytes, body: bytes, timeout: bytes) -> bool:
        """ADDJOB queue body 0"""
        node = self.node
        size: i64 = len(body)
        if not (
            session.is_plain and node.is_plain and timeout == b"0"
            and node.is_alone
            and size <= node.body_bytes_max
            and node.used + size + JOB_BYTES + BODY_BYTES_EXTRA < node.full
            and len(queue_name) <= QUEUE_NAME_BYTES_MAX
        ):
            return self.otherwise(session, [b"ADDJOB", queue_name, body, timeout])
        queue = node.last_queue
        if queue.name is not queue_name:
            found = node.queues.get(queue_name)
            if found is None:
                return self.otherwise(session, [b"ADDJOB", queue_name, body, timeout])
            queue = found
            node.last_queue = queue
        if queue.paused != 0 or queue.maxlen != 0 or queue.total_most != 0 or queue.ttl != 0:
            return self.otherwise(session, [b"ADDJOB", queue_name, body, timeout])
        session.used = node.now
        session.last_command = b"ADDJOB"
        job = node.add(queue, body, TTL_S_DEFAULT, RETRY_S_DEFAULT_MAX, 0, PRIORITY_DEFAULT, 1, False, None)
        write_added(node.out, job)
        return True

    def get_or_wait(self, session: Session, word: bytes, queue_name: bytes) -> bool:
        """GETJOB FROM queue"""
        if word == b"FROM" and self.take(session, queue_name):
            return True
        return self.otherwise(session, [b"GETJOB", word, queue_name])

    def get(self, session: Session, word: bytes, word2: bytes, queue_name: bytes) -> bool:
        """GETJOB NOHANG FROM queue"""
        if word == b"NOHANG" and word2 == b"FROM" and self.take(session, queue_name):
            return True
        return self.otherwise(session, [b"GETJOB", word, word2, queue_name])

    def take(self, session: Session, queue_name: bytes) -> bool:
        """Hand out one job, if there is one and nothing is special."""
        node = self.node
        if not (session.is_plain and node.is_plain):
            return False
        queue = node.last_queue
        if queue.name is not queue_name:
            found = node.queues.get(queue_name)
            if found is None:
                return False
            queue = found
            node.last_queue = queue
        if queue.paused != 0:
            return False
        job = node.pop(queue)
        if job is None:
            return False
        session.used = node.now
        session.last_command = b"GETJOB"
        queue.used = node.now
        out = node.out
        out.write(b"*1\r\n")
        node.hand_out(out, job, session, 0, 0)
        return True

    def ack(self, session: Session, jid: bytes) -> bool:
        """ACKJOB id"""
        node = self.node
        if not (session.is_plain and node.is_plain):
            return self.otherwise(session, [b"ACKJOB", jid])
        try:
            job = node.find(jid)
        except Unreadable:
            return self.otherwise(session, [b"ACKJOB", jid])
        if job is None or job.holders != 1:
            if len(node.peers) > 1 or node.is_joining or not is_id(jid):
                return self.otherwise(session, [b"ACKJOB", jid])
            node.out.write(b":0\r\n")
        else:
            if node.is_telling:
                history.acked(node, job, session)
            node.end(job)
            node.out.write(b":1\r\n")
        session.used = node.now
        session.last_command = b"ACKJOB"
        return True
