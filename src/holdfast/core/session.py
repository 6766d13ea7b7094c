"""A session: a client as the machine sees it, whatever it is connected by.

The shell makes one for each connection (Node.connect), hands it back with every command, and ends it
(Node.disconnect). A session that waits, for a job, for copies or for something only the shell can do, is
`blocked`: its later commands are not run but left with the shell until the reply has gone out, which keeps
replies in the order of the commands. Its alarm is its patience.
"""
from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import i64, mypyc_attr

from holdfast.core.alarms import Alarm
from holdfast.core.job import Job
from holdfast.core.queue import Queue
from holdfast.core.rights import User

# What a blocked session waits for.
NOTHING: Final = 0
FOR_JOB: Final = 1  # GETJOB on empty queues
FOR_SHELL: Final = 2  # a request that only the shell can carry out
FOR_RESUME: Final = 3  # CLIENT PAUSE: every command waits
FOR_QUOTA: Final = 7  # whether the queue has room for its job, of which another node was asked
FOR_PEERS: Final = 5  # an answer from the whole cluster
FOR_END: Final = 6  # WAITJOB until jobs have ended
FOR_COPIES: Final = 4  # ADDJOB until enough nodes hold a copy; more ADDJOBs may follow

# CLIENT REPLY.
REPLY_ON: Final = 0
REPLY_OFF: Final = 1
REPLY_SKIP_NEXT: Final = 2
REPLY_SKIP: Final = 3


@mypyc_attr(acyclic=True)
class Slot:
    """The place of one command's reply among those of its session that wait for copies."""

    def __init__(self, reply: bytes | None = None) -> None:
        self.reply: bytes | None = reply
        self.jobs: list[Job] = []  # what the command wants to add
        self.says: bytes = b""  # what became of its unique key, where the producer wants to know
        self.says_copies: bool = False  # and how many copies there are


class Session(Alarm):
    def __init__(self, number: i64, address: str, now: i64, is_trusted: bool) -> None:
        super().__init__()
        self.number: i64 = number
        self.address: str = address
        self.where: bytes = address.encode()  # the same, as leases have it
        self.connected: i64 = now
        self.used: i64 = now
        self.handle: object = None  # the shell's own: the connection
        self.is_trusted: bool = is_trusted  # has said who it is, or nobody has to
        self.is_plain: bool = is_trusted  # nothing special about it: direct handlers may serve it
        self.is_resp3: bool = False
        self.is_monitor: bool = False
        self.is_closing: bool = False  # QUIT, or killed: no further command is run
        self.replies: i64 = REPLY_ON
        self.blocked: i64 = NOTHING
        self.waits_on: list[Queue] = []
        self.asks_for: i64 = 1  # jobs it would take
        self.slots: deque[Slot] = deque()
        self.form: i64 = 0  # what it wants to know of the job it waits for (leases.py)
        self.lease_ms: i64 = 0  # and for how long it wants it; 0: as the job says
        self.name: bytes = b""
        self.lib_name: bytes = b""
        self.lib_version: bytes = b""
        self.last_command: bytes = b"NULL"
        self.user: bytes = b""  # as whom it has logged in; empty: as nobody in particular
        self.rights: User | None = None  # what it may do, where that is not everything (users.py)
        self.greeting: list[bytes] = []  # the HELLO that has to wait until it is known who says it

    def settle(self) -> None:
        """Work out again whether direct handlers may serve this session."""
        self.is_plain = (
            self.is_trusted and self.blocked == NOTHING and self.replies == REPLY_ON and not self.is_closing
            and self.rights is None
        )
