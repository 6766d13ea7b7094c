"""PAST: the figures of the last hour and the last day, as this node has them (core/past.py)."""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import errors, past
from holdfast.core.errors import BadRequest
from holdfast.core.limits import PAST_MINUTES, PAST_SECONDS, PAST_SUMMED_MINUTES
from holdfast.core.parse import at_least
from holdfast.core.reply import write_array, write_bulk, write_int
from holdfast.core.session import Session

if TYPE_CHECKING:
    from holdfast.core.node import Node

USAGE = b"ERR use PAST READ queue|* SECONDS|MINUTES count, or PAST SUMS minutes"


def past_command(node: Node, session: Session, argv: list[bytes]) -> None:
    """What happened in the queues of this node in the last hour and the last day, for charts.

    READ gives the rows of one queue, or of all queues together for `*`: the last `count` SECONDS (up to 3600) or
    MINUTES (up to 1440). The reply is names and values: `step`, the seconds of a row; `from`, the Unix time at which
    the first row begins; `since`, the Unix time of the oldest row that this node has; `left-out`, how many queues are
    busy and have no rows of their own, as a node keeps those of 64; then each column as one text with a number for
    each row and `-` where nobody looked. `added`, `handed-out`, `acked`, `nacked`, `dead` and `expired` say how often
    that happened in the row's time, `len`, `out`, `delayed` and `oldest-age` are the highest value in it. Rows are in
    memory: a node that is started again begins anew.

    SUMS gives for each queue with rows its name, the Unix time at which it was last busy, and what was counted in the
    last `minutes` (up to 60), by the same names.
    """
    word = argv[1].upper()
    n = len(argv)
    if word == b"READ" and n == 5:
        step, most = step_of(argv[3])
        read(node, argv[2], step, min(most, at_least(argv[4], 1, errors.COUNT_RANGE)))
    elif word == b"SUMS" and n == 3:
        write_sums(node, min(PAST_SUMMED_MINUTES, at_least(argv[2], 1, errors.COUNT_RANGE)))
    else:
        raise BadRequest(USAGE)


def step_of(text: bytes) -> tuple[i64, i64]:
    """The seconds of a row, and how many rows there are at most."""
    word = text.upper()
    if word == b"SECONDS":
        return past.SECOND, PAST_SECONDS
    if word == b"MINUTES":
        return past.MINUTE, PAST_MINUTES
    raise BadRequest(USAGE)


def read(node: Node, name: bytes, step: i64, count: i64) -> None:
    end: i64 = max(0, node.past.second) // step + 1
    begin = end - count
    columns = past.columns(node, name, step, begin, end)
    out = node.out
    write_array(out, 2 * (4 + len(past.COLUMNS)))
    for label, value in ((b"step", step), (b"from", begin * step), (b"since", past.since(node, step)),
                         (b"left-out", node.past.left_out)):
        write_bulk(out, label)
        write_int(out, value)
    for i in range(len(past.COLUMNS)):
        write_bulk(out, past.COLUMNS[i])
        write_bulk(out, text_of(columns[i]))


def text_of(column: list[int]) -> bytes:
    """Numbers with blanks between them, and a minus for a gap, which is the only number that has one. Written as Python
    writes a list: that is several times faster than number by number, and there are tens of thousands."""
    return str(column)[1:-1].replace(",", "").replace("-1", "-").encode()


def write_sums(node: Node, minutes: i64) -> None:
    out = node.out
    found = past.sums(node, minutes)
    write_array(out, len(found))
    for name, active, total in found:
        write_array(out, 4 + 2 * len(past.COUNTS))
        write_bulk(out, b"name")
        write_bulk(out, name)
        write_bulk(out, b"active")
        write_int(out, active)
        for i in range(len(past.COUNTS)):
            write_bulk(out, past.COUNTS[i])
            write_int(out, total[i])
