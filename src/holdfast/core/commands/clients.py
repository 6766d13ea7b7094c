"""Commands about the connection itself: who am I, which protocol, who else is here."""
from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import errors, users, waiting
from holdfast.core.commands.cluster import write_hello
from holdfast.core.effects import KILL, Request
from holdfast.core.errors import BadRequest
from holdfast.core.limits import CLIENT_NAME_BYTES_MAX, PAUSE_MS_MAX
from holdfast.core.parse import integer, timeout_ms, value_of
from holdfast.core.reply import write_array, write_bulk, write_error, write_int, write_map, write_null
from holdfast.core.session import NOTHING, REPLY_OFF, REPLY_ON, REPLY_SKIP_NEXT, Session
from holdfast.core.version import VERSION

if TYPE_CHECKING:
    from holdfast.core.node import Node


def auth(node: Node, session: Session, argv: list[bytes]) -> None:
    """Say who you are: a user and its secret, or the password of the node alone (its user is `default`)."""
    if len(argv) > 3:
        raise BadRequest(errors.SYNTAX)
    if not users.are_asked_for(node):
        raise BadRequest(errors.NO_PASSWORD)
    name = argv[1] if len(argv) == 3 else users.DEFAULT
    users.ask(node, session, name, argv[-1], argv)


def logged_in(node: Node, session: Session, name: bytes, verdict: i64) -> None:
    """The shell has found out whether the secret that a session gave is the user's."""
    refusal = users.verified(node, session, name, verdict)
    greeting = session.greeting
    session.greeting = []
    reply = BytesWriter()
    if refusal:
        write_error(reply, refusal)
    elif greeting[0].upper() == b"HELLO":
        welcome(reply, session, greeting)
    else:
        reply.write(b"+OK\r\n")
    node.answer(session, reply.getvalue())


def hello(node: Node, session: Session, argv: list[bytes]) -> None:
    """Without arguments Disque's greeting: this node's id and all nodes with address and priority.

    With 2 or 3 Redis' greeting: the protocol to speak from now on, as current Redis clients ask for. Clients that have
    not said who they are can do so with AUTH; without it they are answered NOAUTH.
    """
    if len(argv) == 1:
        if not session.is_trusted:
            raise BadRequest(errors.NO_AUTH)
        write_hello(node)
        return
    version = integer(argv[1], b"ERR Protocol version is not an integer or out of range")
    if version not in (2, 3):
        raise BadRequest(errors.NO_PROTO)
    is_known = session.is_trusted
    i = 2
    user = b""
    secret = b""
    while i < len(argv):
        word = argv[i].upper()
        if word == b"AUTH" and i + 2 < len(argv):
            user = argv[i + 1]
            secret = argv[i + 2]
            i += 3
        elif word == b"SETNAME":
            checked_name(value_of(argv, i))
            i += 2
        else:
            raise BadRequest(b"ERR Syntax error in HELLO option '%b'" % errors.printable(argv[i]))
    if user and users.are_asked_for(node):
        users.ask(node, session, user, secret, argv)
        return
    if not is_known and not user:
        raise BadRequest(
            b"NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO "
            b"<proto> AUTH <user> <pass> option can be used to authenticate the client and select the "
            b"RESP protocol version at the same time"
        )
    welcome(node.out, session, argv)


def welcome(out: BytesWriter, session: Session, argv: list[bytes]) -> None:
    """The answer to a HELLO with a version, whose words have been checked."""
    version = integer(argv[1], errors.NO_PROTO)
    i = 2
    while i < len(argv):
        if argv[i].upper() == b"SETNAME":
            session.name = argv[i + 1]
            i += 2
        else:
            i += 3
    session.is_resp3 = version == 3
    write_map(out, session, 7)
    write_bulk(out, b"server")
    write_bulk(out, b"holdfast")
    write_bulk(out, b"version")
    write_bulk(out, VERSION.encode())
    write_bulk(out, b"proto")
    write_int(out, version)
    write_bulk(out, b"id")
    write_int(out, session.number)
    write_bulk(out, b"mode")
    write_bulk(out, b"standalone")
    write_bulk(out, b"role")
    write_bulk(out, b"master")
    write_bulk(out, b"modules")
    write_array(out, 0)


def checked_name(name: bytes) -> bytes:
    if len(name) > CLIENT_NAME_BYTES_MAX:
        raise BadRequest(b"ERR Client names cannot be longer than %d bytes." % CLIENT_NAME_BYTES_MAX)
    for c in name:
        if not 33 <= c <= 126:
            raise BadRequest(b"ERR Client names cannot contain spaces, newlines or special characters.")
    return name


def quit(node: Node, session: Session, argv: list[bytes]) -> None:
    """Close the connection, after what is owed to it has been sent."""
    node.out.write(b"+OK\r\n")
    waiting.close_session(node, session)


def monitor(node: Node, session: Session, argv: list[bytes]) -> None:
    """See every command as it comes in, until the connection is closed."""
    if not session.is_monitor:
        session.is_monitor = True
        node.monitors.append(session)
        node.settle()
    node.out.write(b"+OK\r\n")


def client(node: Node, session: Session, argv: list[bytes]) -> None:
    """Connections: list them, name your own, close others, hold all commands for a while."""
    word = argv[1].upper()
    n = len(argv)
    out = node.out
    if word == b"LIST" and n == 2:
        lines = [describe(node, node.sessions[number]) for number in sorted(node.sessions)]
        write_bulk(out, b"".join(lines))
    elif word == b"INFO" and n == 2:
        write_bulk(out, describe(node, session))
    elif word == b"ID" and n == 2:
        write_int(out, session.number)
    elif word == b"GETNAME" and n == 2:
        if session.name:
            write_bulk(out, session.name)
        else:
            write_null(out, session)
    elif word == b"SETNAME" and n == 3:
        session.name = checked_name(argv[2])
        out.write(b"+OK\r\n")
    elif word == b"SETINFO" and n == 4:
        set_info(session, argv[2].lower(), argv[3])
        out.write(b"+OK\r\n")
    elif word == b"REPLY" and n == 3:
        set_replies(node, session, argv[2].lower())
    elif word == b"PAUSE" and n in (3, 4):
        ms = timeout_ms(argv[2])
        if ms > PAUSE_MS_MAX:
            raise BadRequest(errors.PAUSE_RANGE)
        pause_clients(node, ms)
        out.write(b"+OK\r\n")
    elif word == b"UNPAUSE" and n == 2:
        out.write(b"+OK\r\n")
        if node.paused_until != 0:
            waiting.resume_clients(node)
    elif word == b"KILL" and n >= 3:
        kill(node, session, argv)
    elif word in (b"NO-EVICT", b"NO-TOUCH") and n == 3:
        out.write(b"+OK\r\n")
    else:
        raise BadRequest(
            b"ERR Syntax error, try CLIENT (LIST | KILL | GETNAME | SETNAME | SETINFO | ID | INFO | PAUSE | UNPAUSE | "
            b"REPLY | NO-EVICT | NO-TOUCH)"
        )


def describe(node: Node, session: Session) -> bytes:
    """A line of CLIENT LIST."""
    flags = ("O" if session.is_monitor else "") + ("b" if session.blocked != NOTHING else "")
    facts = node.meter.connection(session)
    line = (
        f"id={session.number} addr={session.address} fd={facts.get('fd', -1)} "
        f"name={session.name.decode('ascii', 'replace')} age={(node.now - session.connected) // 1000} "
        f"idle={(node.now - session.used) // 1000} flags={flags or 'N'} qbuf={facts.get('qbuf', 0)} "
        f"qbuf-free={facts.get('qbuf-free', 0)} obl={facts.get('obl', 0)} oll={facts.get('oll', 0)} "
        f"omem={facts.get('omem', 0)} events=r cmd={session.last_command.decode('ascii').lower()} "
        f"user={user_shown(session)} resp={3 if session.is_resp3 else 2} "
        f"lib-name={session.lib_name.decode('ascii')} lib-ver={session.lib_version.decode('ascii')}\n"
    )
    return line.encode()


def user_shown(session: Session) -> str:
    """As whom it has logged in; names of users are letters, digits and . _ @ - only."""
    return session.user.decode("ascii", "replace") if session.user else "default"


def set_info(session: Session, name: bytes, value: bytes) -> None:
    if name == b"lib-name":
        session.lib_name = checked_name(value)
    elif name == b"lib-ver":
        session.lib_version = checked_name(value)
    else:
        raise BadRequest(b"ERR Unrecognized option '%b'" % errors.printable(name))


def set_replies(node: Node, session: Session, word: bytes) -> None:
    if word == b"on":
        session.replies = REPLY_ON
        node.out.write(b"+OK\r\n")
    elif word == b"off":
        session.replies = REPLY_OFF
    elif word == b"skip":
        if session.replies != REPLY_OFF:
            session.replies = REPLY_SKIP_NEXT
    else:
        raise BadRequest(errors.SYNTAX)
    session.settle()


def pause_clients(node: Node, ms: i64) -> None:
    """No command of anybody is run for that long, but those of waiting.PASSES_PAUSE."""
    if ms > 0:
        node.paused_until = node.now + ms
        node.alarms.set(node.pause_end, node.paused_until)
        node.settle()


def kill(node: Node, session: Session, argv: list[bytes]) -> None:
    """CLIENT KILL address, or CLIENT KILL [ID n] [TYPE normal] [ADDR a] [SKIPME yes|no]."""
    if len(argv) == 3:
        found = [each for each in node.sessions.values() if each.where == argv[2]]
        if not found:
            raise BadRequest(b"ERR No such client")
        close_all(node, session, found)
        node.out.write(b"+OK\r\n")
        return
    number: i64 = -1
    address = b""
    skip_me = True
    for i in range(2, len(argv), 2):
        word = argv[i].upper()
        value = value_of(argv, i)
        if word == b"ID":
            number = integer(value, b"ERR client-id should be greater than 0")
            if number < 1:
                raise BadRequest(b"ERR client-id should be greater than 0")
        elif word == b"ADDR":
            address = value
        elif word == b"TYPE":
            if value.lower() != b"normal":
                raise BadRequest(b"ERR Unknown client type '%b'" % errors.printable(value))
        elif word == b"SKIPME" and value.lower() in (b"yes", b"no"):
            skip_me = value.lower() == b"yes"
        else:
            raise BadRequest(errors.SYNTAX)
    found = [
        each for each in node.sessions.values()
        if (number < 0 or each.number == number)
        and (not address or each.where == address)
        and not (skip_me and each is session)
    ]
    close_all(node, session, found)
    write_int(node.out, len(found))


def close_all(node: Node, session: Session, found: list[Session]) -> None:
    for each in found:
        if each is session:
            waiting.close_session(node, session)  # it still gets its reply
        else:
            waiting.unblock(node, each)  # no job is handed to it any more
            each.is_closing = True
            each.settle()
            node.requests.append(Request(KILL, each))


