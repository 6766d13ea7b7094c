"""From words to a command: which one it is, who may see it, and what becomes of its reply."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import errors, waiting
from holdfast.core.commands.table import Command
from holdfast.core.errors import BadRequest
from holdfast.core.limits import MONITOR_ARG_BYTES_MAX
from holdfast.core.session import NOTHING, REPLY_OFF, REPLY_ON, REPLY_SKIP, REPLY_SKIP_NEXT, Session
from holdfast.core.watch import without_secrets

if TYPE_CHECKING:
    from holdfast.core.node import Node

HTTP_WORDS: Final = (b"POST", b"PUT", b"HOST:")
"""What a request of a browser has in it before its body. No command has such a name, and none will."""


class Entry:
    """A command as this node knows it: its row in the table, and how often it was run."""

    def __init__(self, command: Command) -> None:
        self.command: Command = command
        self.calls: i64 = 0
        self.usec: i64 = 0


def with_use(entry: Entry, text: bytes) -> bytes:
    """An error; one about the form of a command says what that is."""
    if not text.startswith(errors.SYNTAX):
        return text
    return b"%b, use %b %b" % (text, entry.command.name, entry.command.syntax.encode())


def find_entry(node: Node, session: Session, argv: list[bytes]) -> Entry:
    name = argv[0]
    entry = node.entries.get(name)
    if entry is None:
        entry = node.entries.get(name.upper())
        if entry is None and name.upper() in HTTP_WORDS:
            # A web page can make a browser send this here, with commands in the body.
            waiting.close_session(node, session)
            raise BadRequest(b"ERR this is not an HTTP server: possible attack, closing the connection")
        if entry is None:
            raise BadRequest(b"ERR unknown command '%b'" % errors.printable(name))
    arity = entry.command.arity
    if (arity > 0 and len(argv) != arity) or len(argv) < -arity:
        raise BadRequest(b"ERR wrong number of arguments for '%b' command" % entry.command.name.lower())
    return entry


def mute(node: Node, session: Session, start: i64) -> None:
    """CLIENT REPLY OFF or SKIP: drop what the command has written."""
    if session.replies == REPLY_OFF or session.replies == REPLY_SKIP:
        node.out.truncate(start)
        if session.replies == REPLY_SKIP and session.blocked == NOTHING:
            session.replies = REPLY_ON
    elif session.replies == REPLY_SKIP_NEXT:
        node.out.truncate(start)
        session.replies = REPLY_SKIP
    session.settle()


def tell_monitors(node: Node, session: Session, argv: list[bytes]) -> None:
    words = b" ".join([quoted(word) for word in without_secrets(argv)])
    line = b"+%d.%06d [%b] %b\r\n" % (
        node.wall // 1000, (node.wall % 1000) * 1000, session.where, words,
    )
    for monitor in node.monitors:
        if monitor is not session:
            node.wakeups.append((monitor, line))


def quoted(word: bytes) -> bytes:
    """A word as MONITOR shows it."""
    return b'"%b"' % errors.printable(word, MONITOR_ARG_BYTES_MAX).replace(b"\\'", b"'")
