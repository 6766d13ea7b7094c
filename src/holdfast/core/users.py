"""Who may do what: users, their roles and the queues they may touch.

A node without users trusts whoever can connect, or whoever knows `requirepass`. With users (the setting
users-file) a session says who it is, by AUTH, HELLO or a certificate, and from then on each of its commands is
held against the table below before it runs:

    read      look at queues, jobs and figures
    produce   add jobs
    consume   fetch, acknowledge and give back jobs
    admin     everything, also what is not in the table

A user may be bound to queues by patterns in which * stands for anything, an admin as well: it then looks after these
queues and no others. Commands that name a queue are checked by that name, commands that name a job or a schedule by its
queue. An id of a job that this node does not hold says nothing about its queue; knowing an id is then taken for the
right to use it, as 64 bits of it cannot be guessed. Commands that list everything, or change what all queues have in
common, such as the node itself, are not for users who have only a part; and a command that is not in the table is taken
for one of these.

Secrets never come here: whether one is right the shell finds out, in a thread, since that takes a while on purpose.
"""
from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import cron, errors, registers
from holdfast.core.effects import VERIFY, Request
from holdfast.core.errors import BadRequest
from holdfast.core.ids import is_id
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
MOVED: Final = 7  # a job, its first argument, and a queue, its second
DEAD_ONES: Final = 8  # ids of jobs, or as FILTERED
SCHEDULE: Final = 9  # a schedule, its second argument, and where it is SET the queue, its fourth
AFTER_THEN: Final = 10  # perhaps a queue, its fifth argument
ALONE: Final = (b"0", b"BUSYLOOP")  # of a scan's words, besides a cursor; all others have a value behind them

DEFAULT: Final = b"default"
"""The user whose secret is requirepass, where that is set."""

ALL_QUEUES: Final = b"*"
"""All queues, as a command is told or as we say of one. A queue may have this name, but nobody can say which is meant:
it is for those who may touch all, and of patterns only * says so, though ? and [*] fit it as well."""

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
    b"ENQUEUE": (ADMIN, JOBS),
    b"DEQUEUE": (ADMIN, JOBS),
    b"DELJOB": (ADMIN, JOBS),
    b"PRIORITY": (ADMIN, JOBS),
    b"MOVE": (ADMIN, MOVED),
    b"DEAD": (ADMIN, DEAD_ONES),
    b"PAUSE": (ADMIN, FIRST),
    b"QFLUSH": (ADMIN, FIRST),
    b"QUEUE": (ADMIN, SECOND),
    b"TENANT": (ADMIN, SECOND),
    b"CRON": (ADMIN, SCHEDULE),
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
    b"PAST": (READ, EVERYTHING),
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

LOOK_AT_QUEUE: Final = (READ, SECOND)
FOR_ALL: Final = (ALL_ROLES, NOTHING)
HARMLESS: Final = (READ, NOTHING)

# Words that follow a command's name and ask for something else than the command as a whole.
LESS: Final[dict[bytes, dict[bytes, tuple[int, int]]]] = {
    b"CLIENT": {
        b"SETNAME": FOR_ALL, b"GETNAME": FOR_ALL, b"ID": FOR_ALL, b"INFO": FOR_ALL, b"SETINFO": FOR_ALL,
        b"REPLY": FOR_ALL,
    },
    b"CLUSTER": {b"NODES": HARMLESS, b"INFO": HARMLESS, b"MYID": HARMLESS, b"QSTAT": LOOK_AT_QUEUE, b"AWAY": HARMLESS},
    b"QUEUE": {b"GET": LOOK_AT_QUEUE},
    b"PAST": {b"READ": LOOK_AT_QUEUE},
    b"DISQUE": {b"HELLO": HARMLESS, b"INFO": HARMLESS},
    b"DEAD": {b"LIST": (READ, FILTERED)},
    b"SCAN": {b"JOB": (READ, FILTERED)},
    b"DOMAIN": {b"GET": (READ, EVERYTHING), b"LIST": (READ, EVERYTHING)},
    b"TENANT": {b"LIST": LOOK_AT_QUEUE},
    b"CRON": {b"GET": (READ, SCHEDULE), b"NEXT": (READ, SCHEDULE), b"LIST": (READ, EVERYTHING)},
    b"BATCH": {b"GET": (READ | PRODUCE, NOTHING), b"CLOSE": (ADMIN, AFTER_THEN)},
    b"WORKER": {b"BEAT": (CONSUME, NOTHING), b"LIST": (READ | CONSUME, NOTHING)},
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


# What the shell has found out about a secret.
WRONG: Final = 0
RIGHT: Final = 1
LATER: Final = 2  # it has not looked: too many have been wrong, or are waiting
FULL: Final = 3  # it is right, but only an admin may have one of the connections that are left


def ask(node: Node, session: Session, name: bytes, secret: bytes, asking: list[bytes]) -> None:
    """Have the shell find out whether the secret is that user's. `asking`: the AUTH or HELLO that wants to know."""
    session.greeting = asking
    block(node, session, FOR_SHELL)
    node.requests.append(Request(VERIFY, session, name + b"\0" + secret))


def verified(node: Node, session: Session, name: bytes, verdict: i64) -> bytes:
    """The shell has found out. What is said to the session if it is refused; empty if it is let in."""
    if verdict == LATER:
        return errors.LOGIN_LATER
    if verdict == FULL:
        return errors.NO_PLACE
    is_default = name == DEFAULT and node.config.text("requirepass") != ""
    user = None if is_default else node.users.get(name)
    if verdict != RIGHT or (user is None and not is_default):
        is_old = session.greeting[0].upper() == b"AUTH" and len(session.greeting) == 2
        return errors.BAD_PASSWORD if is_old else errors.WRONG_PASS
    if user is not None:
        become(session, user)
    else:
        session.is_trusted = True
        session.user = b""
        session.rights = None
        session.settle()
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
                raise BadRequest(b"NOPERM the user '%b' may not touch %b" % (user.name, called(queue)))


def needs(name: bytes, argv: list[bytes]) -> tuple[int, int]:
    """Which roles let one run a command, and what it touches."""
    less = LESS.get(name)
    if less is not None and len(argv) > 1:
        found = less.get(argv[1].upper())
        if found is not None:
            return found
    return NEEDS.get(name, (ADMIN, EVERYTHING))


def names_of(roles: i64) -> list[bytes]:
    return [name for name, bit in ROLE_NAMES.items() if bit & roles] or [b"admin"]


def called(queue: bytes) -> bytes:
    """What a user may not touch."""
    return b"all queues" if queue == ALL_QUEUES else b"the queue '%b'" % errors.printable(queue)


def may_touch(user: User, queue: bytes) -> bool:
    return fits(queue, user.patterns) and (not user.within or fits(queue, user.within))


def fits(queue: bytes, patterns: list[bytes]) -> bool:
    for pattern in patterns:
        if fnmatchcase(queue, pattern) and (queue != ALL_QUEUES or pattern.strip(b"*") == b""):
            return True
    return False


def touched(node: Node, argv: list[bytes], where: i64) -> list[bytes]:
    """The queues a command is about, as far as that can be told here."""
    found = list(named(argv, where))
    for text in jobs_in(argv, where):
        job = node.find(text)
        if job is not None:
            found.append(job.queue.name)
    name = schedule_in(argv, where)
    if name:
        entry = node.cron.get(name)
        if entry is not None:
            found.append(entry.queue)
        elif registers.value(node, cron.KIND, name, cron.FIELD) is not None:
            found.append(ALL_QUEUES)  # one that this node cannot read
    return found


def named(argv: list[bytes], where: i64) -> list[bytes]:
    """The queues a command names."""
    if where == FIRST:
        return argv[1:2]
    if where == SECOND or where == MOVED:
        return argv[2:3]
    if where == AFTER_FROM:
        for i in range(1, len(argv)):
            if argv[i].upper() == b"FROM":
                return argv[i + 1:]
    if where == FILTERED or (where == DEAD_ONES and not jobs_in(argv[:3], where)):
        return filtered(argv) or [ALL_QUEUES]
    if where == SCHEDULE and len(argv) > 1 and argv[1].upper() == b"SET":
        return argv[4:5]
    if where == AFTER_THEN:
        return argv[5:6]
    if where == EVERYTHING:
        return [ALL_QUEUES]
    return []


def jobs_in(argv: list[bytes], where: i64) -> list[bytes]:
    """The jobs a command names."""
    if where == JOBS or where == MOVED or where == DEAD_ONES:
        return [word for word in argv[1:] if is_id(word)]
    return []


def schedule_in(argv: list[bytes], where: i64) -> bytes:
    """The schedule a command names, if it does."""
    return argv[2] if where == SCHEDULE and len(argv) > 2 else b""


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
