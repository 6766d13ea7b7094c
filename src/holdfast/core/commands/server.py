"""Commands about the node as a whole: is it there, its settings, its commands, stopping it."""
from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from holdfast.core import errors, flush, waiting
from holdfast.core.commands.cluster import write_hello
from holdfast.core.commands.info import info
from holdfast.core.config import BY_NAME, SETTINGS, BadSetting
from holdfast.core.effects import (
    APPLY_SETTINGS,
    CRASH,
    RESTART,
    REWRITE,
    SAVE_SETTINGS,
    SHUTDOWN,
    SLEEP,
    Request,
)
from holdfast.core.errors import BadRequest
from holdfast.core.limits import BODY_BYTES_EXTRA, JOB_BYTES, QUEUE_BYTES, SESSION_BYTES
from holdfast.core.reply import (
    write_array,
    write_bulk,
    write_bulks,
    write_error,
    write_int,
    write_map,
    write_null_array,
    write_simple,
)
from holdfast.core.session import FOR_SHELL, Session

if TYPE_CHECKING:
    from holdfast.core.commands.table import Command
    from holdfast.core.node import Node


def ping(node: Node, session: Session, argv: list[bytes]) -> None:
    """Answers PONG, or with what it was sent."""
    if len(argv) > 2:
        raise BadRequest(b"ERR wrong number of arguments for 'ping' command")
    if len(argv) == 2:
        write_bulk(node.out, argv[1])
    else:
        node.out.write(b"+PONG\r\n")


def echo(node: Node, session: Session, argv: list[bytes]) -> None:
    """Answers with what it was sent; redis-cli --pipe asks for it."""
    write_bulk(node.out, argv[1])


def time(node: Node, session: Session, argv: list[bytes]) -> None:
    """The node's clock: unix seconds, and microseconds inside the second."""
    write_bulks(node.out, [b"%d" % (node.wall // 1000), b"%d" % (node.wall % 1000 * 1000)])


def command(node: Node, session: Session, argv: list[bytes]) -> None:
    """The commands this node knows: all, COUNT, INFO of some, DOCS with syntax and summary, LIST of names."""
    out = node.out
    word = argv[1].upper() if len(argv) > 1 else b"INFO"
    rows = [entry.command for entry in node.entries.values()]
    if word == b"COUNT" and len(argv) == 2:
        write_int(out, len(rows))
    elif word == b"LIST" and len(argv) == 2:
        write_bulks(out, [row.name.lower() for row in rows])
    elif word == b"INFO":
        names = [row.name for row in rows] if len(argv) <= 2 else [name.upper() for name in argv[2:]]
        write_array(out, len(names))
        for name in names:
            entry = node.entries.get(name)
            if entry is None:
                write_null_array(out, session)
            else:
                write_command(node, session, entry.command)
    elif word == b"DOCS":
        wanted = [name.upper() for name in argv[2:]]
        shown = [row for row in rows if not wanted or row.name in wanted]
        write_map(out, session, len(shown))
        for row in shown:
            write_bulk(out, row.name.lower())
            write_map(out, session, 3)
            write_bulks_flat(node, [b"summary", row.summary.encode(), b"group", row.group.encode(),
                                    b"syntax", row.syntax.encode()])
    else:
        raise BadRequest(b"ERR Unknown subcommand or wrong number of arguments. Try COUNT, INFO, DOCS, LIST.")


def write_bulks_flat(node: Node, values: list[bytes]) -> None:
    for value in values:
        write_bulk(node.out, value)


FLAG_NAMES: Final = {
    "w": b"write", "r": b"readonly", "a": b"admin", "m": b"denyoom", "l": b"loading", "o": b"no_auth",
}


def write_command(node: Node, session: Session, row: Command) -> None:
    """Six elements as in Disque; a seventh, the categories, where Redis' own protocol 3 has one."""
    out = node.out
    write_array(out, 7 if session.is_resp3 else 6)
    write_bulk(out, row.name.lower())
    write_int(out, row.arity)
    write_array(out, len(row.flags))
    for letter in row.flags:
        write_simple(out, FLAG_NAMES[letter])
    write_int(out, 0)
    write_int(out, 0)
    write_int(out, 0)
    if session.is_resp3:
        write_bulks(out, [b"@" + row.group.encode()])


def config(node: Node, session: Session, argv: list[bytes]) -> None:
    """Settings of the node: GET by pattern, SET while it runs, REWRITE to keep them, RESETSTAT of counters."""
    word = argv[1].upper()
    n = len(argv)
    if word == b"GET" and n >= 3:
        patterns = [text.decode("utf-8", "replace").lower() for text in argv[2:]]
        names = [
            setting.name for setting in SETTINGS
            if any([fnmatchcase(setting.name, pattern) for pattern in patterns])
        ]
        write_map(node.out, session, len(names))
        for name in names:
            write_bulk(node.out, name.encode())
            write_bulk(node.out, node.config.text(name).encode("utf-8", "surrogateescape"))
    elif word == b"SET" and n == 4:
        config_set(node, argv[2], argv[3])
        node.out.write(b"+OK\r\n")
    elif word == b"REWRITE" and n == 2:
        waiting.block(node, session, FOR_SHELL)
        node.requests.append(Request(SAVE_SETTINGS, session))
    elif word == b"RESETSTAT" and n == 2:
        reset_stats(node)
        node.out.write(b"+OK\r\n")
    else:
        raise BadRequest(
            b"ERR use CONFIG GET pattern [pattern ...], CONFIG SET name value, CONFIG REWRITE or CONFIG RESETSTAT"
        )


def config_set(node: Node, name: bytes, value: bytes) -> None:
    key = name.decode("utf-8", "replace").lower()
    setting = BY_NAME.get(key)
    if setting is None or not setting.live:
        raise BadRequest(b"ERR Unsupported CONFIG parameter: %b" % errors.printable(name))
    if key == "appendonly" and not node.config.text("dir"):
        raise BadRequest(b"ERR a journal needs a folder: start the node with --dir")
    if key == "history" and value.lower() == b"yes" and not node.config.text("dir"):
        raise BadRequest(b"ERR history needs a folder: start the node with --dir")
    try:
        node.config.set(key, value.decode("utf-8"))
    except (BadSetting, UnicodeDecodeError):
        raise BadRequest(
            b"ERR Invalid argument '%b' for CONFIG SET '%b'" % (errors.printable(value), key.encode())
        ) from None
    node.config.changed.add(key)
    node.apply_settings()
    node.requests.append(Request(APPLY_SETTINGS, None))


def reset_stats(node: Node) -> None:
    for entry in node.entries.values():
        entry.calls = 0
        entry.usec = 0
    node.expired = 0
    node.meter.reset()
    node.requests.append(Request(APPLY_SETTINGS, None, b"reset"))  # for nodes that share our port


def shutdown(node: Node, session: Session, argv: list[bytes]) -> None:
    """Stop the node. Open connections are closed.

    A node with a journal writes a snapshot of its state before it ends, in which even leases are; NOSAVE leaves it
    with what the journal has. REWRITE-AOF writes the snapshot also where there is no journal (but a dir): with
    aof-enqueue-jobs-once saved before, the next start loads it.
    """
    if len(argv) > 2 or (len(argv) == 2 and argv[1].upper() not in (b"REWRITE-AOF", b"NOSAVE", b"SAVE")):
        raise BadRequest(errors.SYNTAX)
    how = argv[1].upper() if len(argv) == 2 else b""
    if how == b"REWRITE-AOF" and not node.config.text("dir"):
        raise BadRequest(b"ERR the node has no dir to write to")
    node.requests.append(Request(SHUTDOWN, session, how))
    waiting.block(node, session, FOR_SHELL)


def bgrewriteaof(node: Node, session: Session, argv: list[bytes]) -> None:
    """Write the journal anew, as short as it can be, while the node goes on: what it has, and nothing of what is gone.

    A node does so by itself when the journal has grown (auto-aof-rewrite-percentage).
    """
    waiting.block(node, session, FOR_SHELL)
    node.requests.append(Request(REWRITE, session))


def disque(node: Node, session: Session, argv: list[bytes]) -> None:
    """The commands that Disque's module form has under this name: HELLO, INFO, FLUSHALL."""
    word = argv[1].upper()
    if word == b"HELLO" and len(argv) == 2:
        write_hello(node)
    elif word == b"INFO" and len(argv) <= 3:
        info(node, session, argv[1:])
    elif word == b"FLUSHALL" and len(argv) == 2:
        flush.flush_all(node)
        node.out.write(b"+OK\r\n")
    else:
        raise BadRequest(b"ERR use DISQUE HELLO, DISQUE INFO [section] or DISQUE FLUSHALL")


CRASHES: Final = (b"SEGFAULT", b"CRASH-AND-RECOVER", b"OOM", b"ASSERT")


def debug(node: Node, session: Session, argv: list[bytes]) -> None:
    """Things for tests: crash, restart, stand still, answer with an error, forget everything."""
    if not node.config.is_on("enable-debug"):
        raise BadRequest(errors.DEBUG_OFF)
    word = argv[1].upper()
    n = len(argv)
    out = node.out
    if word == b"FLUSHALL" and n == 2:
        flush.flush_all(node)
        out.write(b"+OK\r\n")
    elif word == b"ERROR" and n == 3:
        write_error(out, argv[2].replace(b"\r", b" ").replace(b"\n", b" "))
    elif word == b"STRUCTSIZE" and n == 2:
        write_simple(out, b"job:%d body:%d queue:%d session:%d" % (
            JOB_BYTES, BODY_BYTES_EXTRA, QUEUE_BYTES, SESSION_BYTES))
    elif word == b"SLEEP" and n == 3:
        node.requests.append(Request(SLEEP, session, milliseconds(argv[2])))
        waiting.block(node, session, FOR_SHELL)
    elif word == b"RESTART" and n in (2, 3):
        waiting.block(node, session, FOR_SHELL)
        node.requests.append(Request(RESTART, session))
    elif word in CRASHES and n in (2, 3):
        node.requests.append(Request(CRASH, session, word))
    elif word == b"LOADAOF" and n == 2:
        if not node.is_recording:
            raise BadRequest(b"ERR there is no journal to load")
        # What it is for in tests: has everything that was done been kept? A restart loads the journal.
        waiting.block(node, session, FOR_SHELL)
        node.requests.append(Request(RESTART, session, b"NOSAVE"))
    else:
        raise BadRequest(b"ERR Syntax error, try DEBUG with one of the words that COMMAND DOCS DEBUG names")


def milliseconds(text: bytes) -> bytes:
    try:
        value = float(text)
    except ValueError:
        raise BadRequest(b"ERR value is not a valid float") from None
    if not 0 <= value <= 3600:
        raise BadRequest(b"ERR value must be between 0 and 3600")
    return b"%d" % int(value * 1000)
