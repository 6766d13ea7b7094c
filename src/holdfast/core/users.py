"""Who may do what: users, their roles and the queues they may touch.

A node without users trusts whoever can connect, or whoever knows `requirepass`. With users (the setting
users-file) a session says who it is, by AUTH, HELLO or a certificate, and from then on each of its commands is
held against the table below before it runs:

    read      look at queues, jobs and figures
    produce   add jobs
    consume   fetch, acknowledge and give back jobs
    admin     everything, also what is not in the table

A user may be bound to queues by patterns in which * stands for anything. Commands that name a queue are checked
by that name, commands that name a job by the job's queue. An id of a job that this node does not hold says nothing
about its queue; knowing an id is then taken for the right to use it, as 64 bits of it cannot be guessed. Commands
that list everything are not for users who may see only a part.

Secrets never come here: whether one is right the shell finds out, in a thread, since that takes a while on purpose.
"""
from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import errors
from holdfast.core.effects import VERIFY, Request
from holdfast.core.errors import BadRequest
from holdfast.core.rights import ADMIN, ALL_ROLES, CONSUME, PRODUCE, READ, ROLE_NAMES, User
from holdfast.core.session import FOR_SHELL, Session
from holdfast.core.waiting import block, close_session

if TYPE_CHECKING:
    from holdfast.core.node import Node

# Where a command names what it touches.
NOTHING: Final = 0
FIRST: Final = 1  # a queue, its first argument
SECOND: Final = 2  # a queue, its second argument
AFTER_FROM: Final = 3  # queues, behind the word FROM
JOBS: Final = 4  # ids of jobs, all its arguments that look like one
EVERYTHING: Final = 5  # all queues
FILTERED: Final = 6  # all queues, or those behind the option QUEUE
ALONE: Final = (b"0", b"BUSYLOOP")  # of a scan's words, besides a cursor; all others have a value behind them

ALL_QUEUES: Final = b"*"  # as a name, which only the pattern * takes in

NEEDS: Final[dict[bytes, tuple[int, int]]] = {
    b"ADDJOB": (PRODUCE, FIRST),
    b"ADDJOBS": (PRODUCE, FIRST),
    b"GETJOB": (CONSUME, AFTER_FROM),
    b"ACKJOB": (CONSUME, JOBS),
    b"ACKJOBS": (CONSUME, JOBS),
    b"FASTACK": (CONSUME, JOBS),
    b"NACK": (CONSUME, JOBS),
    b"RELEASE": (CONSUME, JOBS),
    b"KEEPALIVE": (CONSUME, JOBS),
    b"PROGRESS": (CONSUME, JOBS),
    b"WORKING": (CONSUME, JOBS),
    b"CLAIM": (CONSUME, EVERYTHING),
    b"STAGE": (PRODUCE, EVERYTHING),
    b"WORKER": (CONSUME, NOTHING),
    b"CANCEL": (PRODUCE, JOBS),
    b"WAITJOB": (READ | PRODUCE | CONSUME, JOBS),
    b"SHOW": (READ, JOBS),
    b"EXPLAIN": (READ, JOBS),
    b"QLEN": (READ | CONSUME, FIRST),
    b"QPEEK": (READ, FIRST),
    b"QSTAT": (READ | CONSUME, FIRST),
    b"QSCAN": (READ, EVERYTHING),
    b"JSCAN": (READ, FILTERED),
    b"SCAN": (READ, EVERYTHING),
    b"HISTORY": (READ, EVERYTHING),
    b"INFO": (READ, NOTHING),
    b"SLOWLOG": (READ, EVERYTHING),
    b"TIME": (ALL_ROLES, NOTHING),
    b"PING": (ALL_ROLES, NOTHING),
    b"ECHO": (ALL_ROLES, NOTHING),
    b"QUIT": (ALL_ROLES, NOTHING),
    b"AUTH": (ALL_ROLES, NOTHING),
    b"HELLO": (ALL_ROLES, NOTHING),
    b"COMMAND": (ALL_ROLES, NOTHING),
}

# Words that follow a command's name and ask for less than the command as a whole.
LESS: Final[dict[bytes, tuple[int, int, tuple[bytes, ...]]]] = {
    b"CLIENT": (ALL_ROLES, NOTHING, (b"SETNAME", b"GETNAME", b"ID", b"INFO", b"SETINFO", b"REPLY")),
    b"CLUSTER": (READ, NOTHING, (b"NODES", b"INFO", b"MYID")),
    b"QUEUE": (READ, SECOND, (b"GET",)),
    b"DISQUE": (READ, NOTHING, (b"HELLO", b"INFO")),
    b"DEAD": (READ, FILTERED, (b"LIST",)),
    b"SCAN": (READ, FILTERED, (b"JOB",)),
    b"DOMAIN": (READ, EVERYTHING, (b"GET", b"LIST")),
    b"TENANT": (READ, SECOND, (b"LIST",)),
    b"CRON": (READ, EVERYTHING, (b"GET", b"LIST", b"NEXT")),
    b"BATCH": (READ | PRODUCE, NOTHING, (b"GET",)),
    b"WORKER": (READ | CONSUME, NOTHING, (b"BEAT", b"LIST")),
}


def apply_settings(node: Node) -> None:
    """Where nobody is asked who he is, everybody is trusted."""
    if not are_asked_for(node):
        for session in node.sessions.values():
            session.is_trusted = True
            session.settle()


def are_asked_for(node: Node) -> bool:
    """Whether a client has to say who it is."""
    return len(node.users) > 0 or node.config.text("requirepass") != ""


def set_users(node: Node, users: dict[bytes, User]) -> None:
    """These are the users from now on. Whoever is logged in as one that is gone has to leave."""
    node.users = users
    for session in list(node.sessions.values()):
        if session.user == b"":
            if users and not node.config.text("requirepass"):
                session.is_trusted = False
                session.settle()
            continue
        user = users.get(session.user)
        if user is None:
            session.is_trusted = False
            close_session(node, session)
        else:
            become(session, user)


def become(session: Session, user: User) -> None:
    session.user = user.name
    session.rights = None if user.may_all() else user
    session.is_trusted = True
    session.settle()


def ask(node: Node, session: Session, name: bytes, secret: bytes, greeting: list[bytes]) -> None:
    """Have the shell find out whether the secret is that user's. `greeting`: the HELLO that asked, if one did."""
    session.greeting = greeting
    block(node, session, FOR_SHELL)
    node.requests.append(Request(VERIFY, session, name + b"\0" + secret))


def verified(node: Node, session: Session, name: bytes, is_right: bool) -> bytes:
    """The shell has found out. What is said to the session if it is refused; empty if it is let in."""
    user = node.users.get(name)
    if not is_right or user is None:
        return errors.WRONG_PASS
    become(session, user)
    return b""


def check(node: Node, session: Session, user: User, name: bytes, argv: list[bytes]) -> None:
    """Raises BadRequest if this user may not run that command."""
    roles, where = needs(name, argv)
    if user.roles & (roles | ADMIN) == 0:
        raise BadRequest(
            b"NOPERM the user '%b' may not run %b: it takes the role %b"
            % (user.name, name, b" or ".join(names_of(roles)))
        )
    if user.patterns:
        for queue in touched(node, argv, where):
            if not may_touch(user, queue):
                raise BadRequest(b"NOPERM the user '%b' may not touch the queue '%b'"
                                 % (user.name, errors.printable(queue)))


def needs(name: bytes, argv: list[bytes]) -> tuple[int, int]:
    """Which roles let one run a command, and what it touches."""
    if name == b"CLUSTER" and len(argv) > 1 and argv[1].upper() == b"QSTAT":
        return READ, SECOND  # as QSTAT, only of all nodes
    less = LESS.get(name)
    if less is not None and len(argv) > 1 and argv[1].upper() in less[2]:
        return less[0], less[1]
    return NEEDS.get(name, (ADMIN, NOTHING))


def names_of(roles: i64) -> list[bytes]:
    return [name for name, bit in ROLE_NAMES.items() if bit & roles] or [b"admin"]


def may_touch(user: User, queue: bytes) -> bool:
    for pattern in user.patterns:
        if fnmatchcase(queue, pattern):
            return True
    return False


def touched(node: Node, argv: list[bytes], where: i64) -> list[bytes]:
    """The queues a command is about, as far as that can be told here."""
    if where != JOBS:
        return named(argv, where)
    found: list[bytes] = []
    for text in argv[1:]:
        job = node.find(text)
        if job is not None:
            found.append(job.queue.name)
    return found


def named(argv: list[bytes], where: i64) -> list[bytes]:
    """The queues a command names."""
    if where == FIRST:
        return argv[1:2]
    if where == SECOND:
        return argv[2:3]
    if where == AFTER_FROM:
        for i in range(1, len(argv)):
            if argv[i].upper() == b"FROM":
                return argv[i + 1:]
    if where == FILTERED:
        return filtered(argv) or [ALL_QUEUES]
    if where == EVERYTHING:
        return [ALL_QUEUES]
    return []


def filtered(argv: list[bytes]) -> list[bytes]:
    """The queues that a scan or DEAD LIST is told by its option QUEUE. Read as these read it: the word may as well be
    another option's value, and whoever looks for it anywhere can be told of a queue that the scan does not keep to."""
    found: list[bytes] = []
    i = 1 if argv[0].upper() == b"JSCAN" else 2
    while i < len(argv) - 1:
        word = argv[i].upper()
        if word == b"QUEUE":
            found.append(argv[i + 1])
        i += 1 if word in ALONE or word.startswith(b"=") else 2
    return found
