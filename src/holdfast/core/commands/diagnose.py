"""Commands about slowness: SLOWLOG and LATENCY. What they show is collected in watch.py."""
from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core import errors
from holdfast.core.errors import BadRequest
from holdfast.core.parse import at_least
from holdfast.core.reply import write_array, write_bulk, write_bulks, write_int
from holdfast.core.session import Session
from holdfast.core.watch import Series

if TYPE_CHECKING:
    from holdfast.core.node import Node

SLOWLOG_GET_DEFAULT = 10
GRAPH_ROWS = 4


def slowlog(node: Node, session: Session, argv: list[bytes]) -> None:
    """Commands that took longer than the setting slowlog-log-slower-than, the newest first."""
    word = argv[1].upper()
    out = node.out
    slow = node.watch.slow
    if word == b"GET" and len(argv) <= 3:
        count = SLOWLOG_GET_DEFAULT
        if len(argv) == 3:
            count = at_least(argv[2], -1, errors.NOT_AN_INTEGER)
        shown = list(slow) if count == -1 else list(slow)[:count]
        write_array(out, len(shown))
        for entry in shown:
            write_array(out, 4)
            write_int(out, entry.number)
            write_int(out, entry.when_s)
            write_int(out, entry.usec)
            write_bulks(out, entry.words)
    elif word == b"LEN" and len(argv) == 2:
        write_int(out, len(slow))
    elif word == b"RESET" and len(argv) == 2:
        slow.clear()
        out.write(b"+OK\r\n")
    else:
        raise BadRequest(b"ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN.")


def latency(node: Node, session: Session, argv: list[bytes]) -> None:
    """Events that took longer than the setting latency-monitor-threshold: `command`, and `loop` for a turn."""
    word = argv[1].upper()
    out = node.out
    events = node.watch.events
    n = len(argv)
    if word == b"LATEST" and n == 2:
        write_array(out, len(events))
        for name in sorted(events):
            last = events[name].samples[-1]
            write_array(out, 4)
            write_bulk(out, name)
            write_int(out, last[0])
            write_int(out, last[1])
            write_int(out, events[name].worst)
    elif word == b"HISTORY" and n == 3:
        series = events.get(argv[2])
        samples = [] if series is None else list(series.samples)
        write_array(out, len(samples))
        for when_s, ms in samples:
            write_array(out, 2)
            write_int(out, when_s)
            write_int(out, ms)
    elif word == b"GRAPH" and n == 3:
        series = events.get(argv[2])
        if series is None:
            raise BadRequest(b"ERR No samples available for event '%b'" % errors.printable(argv[2]))
        write_bulk(out, graph(argv[2], series).encode())
    elif word == b"DOCTOR" and n == 2:
        write_bulk(out, doctor(node).encode())
    elif word == b"RESET":
        gone = [name for name in (argv[2:] or list(events)) if events.pop(name, None) is not None]
        write_int(out, len(gone))
    else:
        raise BadRequest(b"ERR syntax error")


def graph(name: bytes, series: Series) -> str:
    """A small picture of an event's samples, one column each."""
    values = [ms for _, ms in series.samples]
    high, low = max(values), min(values)
    rows = [f"{name.decode('ascii', 'replace')} - high {high} ms, low {low} ms (all time high {series.worst} ms)"]
    for row in range(GRAPH_ROWS, 0, -1):
        line = ""
        for ms in values:
            filled = GRAPH_ROWS * (ms - low) // max(1, high - low)
            line += "#" if filled >= row else ("_" if row == 1 else " ")
        rows.append(line)
    return "\n".join(rows) + "\n"


def doctor(node: Node) -> str:
    """What a person would read out of LATEST."""
    watch = node.watch
    if watch.latency_ms == 0:
        return (
            "Nothing is watched: the setting latency-monitor-threshold is 0. "
            "Try CONFIG SET latency-monitor-threshold 20 (milliseconds) and ask again later.\n"
        )
    if not watch.events:
        return f"No event took {watch.latency_ms} ms or longer since the watch began.\n"
    lines = []
    for name in sorted(watch.events):
        series = watch.events[name]
        values = [ms for _, ms in series.samples]
        lines.append(
            f"{name.decode('ascii')}: {len(values)} spikes, {sum(values) // len(values)} ms on average, "
            f"worst {series.worst} ms."
        )
    if b"command" in watch.events:
        lines.append("Slow commands are named by SLOWLOG GET: large COUNTs and BUSYLOOP scans are the usual ones.")
    if b"loop" in watch.events:
        lines.append("A slow turn of the loop without slow commands: the machine is busy, or very many clients "
                     "were ready at once.")
    return "\n".join(lines) + "\n"
