"""HISTORY: what happened to jobs, read from where a reader left off. The shell has the files (shell/telling.py)."""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import errors, waiting
from holdfast.core.effects import HISTORY, Request
from holdfast.core.errors import BadRequest
from holdfast.core.limits import HISTORY_COUNT_DEFAULT, HISTORY_COUNT_MAX
from holdfast.core.parse import at_least, integer, no_option, timeout_ms, value_of
from holdfast.core.session import FOR_SHELL, Session

if TYPE_CHECKING:
    from holdfast.core.node import Node

USAGE = (
    b"ERR use HISTORY READ cursor|first|last [COUNT n] [BLOCK ms] [UNTIL cursor], HISTORY SEEK cursor|first n, "
    b"HISTORY AT unix-ms or HISTORY INFO"
)


def history(node: Node, session: Session, argv: list[bytes]) -> None:
    """What happened to the jobs of this node, in order; it takes the setting history.

    READ gives the records after a cursor (at first: `first` or `last`) as bytes, whose format is in the
    reference of history, and the cursor to go on with. COUNT bounds how many, BLOCK waits for some, 0 for ever. UNTIL
    reads no further than a cursor that was given before. SEEK says where READ would come to, AT where a time
    begins, INFO what there is, and how far readers are behind. A cursor whose records are no longer kept is
    answered with GONE and what is gone.
    """
    word = argv[1].upper()
    n = len(argv)
    if word == b"READ" and n >= 3:
        words = read_words(argv)
    elif word == b"SEEK" and n == 4:
        words = [word, cursor(argv[2]), b"%d" % count(argv[3])]
    elif word == b"AT" and n == 3:
        words = [word, b"%d" % at_least(argv[2], 0, errors.NOT_AN_INTEGER)]
    elif word == b"INFO" and n == 2:
        words = [word]
    else:
        raise BadRequest(USAGE)
    waiting.block(node, session, FOR_SHELL)
    node.requests.append(Request(HISTORY, session, b" ".join(words)))


def read_words(argv: list[bytes]) -> list[bytes]:
    """READ, cursor, count, patience in ms (-1: none), until (- : no end)."""
    how_many: i64 = HISTORY_COUNT_DEFAULT
    block: i64 = -1
    until = b"-"
    for i in range(3, len(argv), 2):
        option = argv[i].upper()
        value = value_of(argv, i)
        if option == b"COUNT":
            how_many = count(value)
        elif option == b"BLOCK":
            block = timeout_ms(value)
        elif option == b"UNTIL":
            until = cursor(value)
        else:
            raise no_option(option)
    return [b"READ", cursor(argv[2]), b"%d" % how_many, b"%d" % block, until]


def cursor(text: bytes) -> bytes:
    """Whether it is one the shell knows; here it is only kept from being several words."""
    if not text or b" " in text or b"\n" in text or len(text) > 128:
        raise BadRequest(errors.HISTORY_CURSOR)
    return text


def count(text: bytes) -> i64:
    value = integer(text, errors.COUNT_RANGE)
    if value < 1:
        raise BadRequest(errors.COUNT_RANGE)
    return min(value, HISTORY_COUNT_MAX)
