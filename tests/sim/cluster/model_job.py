"""What the model keeps of a job, and of a peer."""
from __future__ import annotations


class Job:
    def __init__(self, id, queue, body, repl, retry, expire, ctime, state, may_have=()):
        self.id, self.queue, self.body, self.repl, self.retry = id, queue, body, repl, retry
        self.expire, self.ctime, self.state = expire, ctime, state
        self.may_have, self.confirmed = set(may_have), set()
        self.qtime = self.wake = self.gc_retry = self.nacks = self.deliveries = 0
        self.warned = self.handed_out = False
        self.session = None


class Peer:
    def __init__(self, name):
        self.name, self.is_up = name, True
