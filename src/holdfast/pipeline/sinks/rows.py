"""A row as a job: which columns there may be, of which types, and the ADDJOB it becomes.

    queue, body                                            must be there (queue may be an option instead)
    delay, ttl, retry, priority, attempts                  numbers, in seconds where it is a time
    at                                                     a time before which it is not handed out
    domain, group, tenant, unique, parent                  names
    headers                                                a map of texts

Everything is checked before the first job is added: a column nobody knows is most likely a misspelt one.
"""
from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.client.resp import Arg

if TYPE_CHECKING:
    import pyarrow as pa

NUMBERS: Final = {"delay": "DELAY", "ttl": "TTL", "retry": "RETRY", "priority": "PRIORITY", "attempts": "ATTEMPTS"}
NAMES: Final = {"domain": "DOMAIN", "group": "GROUP", "tenant": "TENANT", "unique": "UNIQUE", "parent": "PARENT"}
COLUMNS: Final = ("queue", "body", *NUMBERS, "at", *NAMES, "headers")
NUMERIC: Final = ("tinyint", "smallint", "int", "bigint", "float", "double")
TYPES: Final = {
    "queue": ("string",), "body": ("binary", "string"), "at": ("timestamp", "timestamp_ntz"),
    "headers": ("map<string,string>",), **dict.fromkeys(NUMBERS, NUMERIC), **dict.fromkeys(NAMES, ("string",)),
}
IN_BYTES_MAX: Final = 64 * 1024 * 1024
"""A body above this is refused here, before it is sent: no node takes it, whatever its settings."""


class BadRows(ValueError):
    """A table cannot be made into jobs; the text says which column or row, and what to do."""


@dataclass(frozen=True)
class Wanted:
    """What is the same for all rows."""

    queue: str = ""
    timeout_ms: int = 10_000
    window_s: int = 0
    key_prefix: str = ""
    """Goes before each value of `unique`, so that two runs that are meant to be two do not meet."""


def check(columns: Mapping[str, str], queue: str) -> None:
    """Names and types (as Spark's simpleString) of a table, or `BadRows`."""
    for name, kind in columns.items():
        if name not in COLUMNS:
            near = difflib.get_close_matches(name, COLUMNS, 1)
            meant = f"did you mean {near[0]}?" if near else f"known are {', '.join(COLUMNS)}"
            raise BadRows(f"jobs have no column {name!r}: {meant} Drop or rename it before writing")
        plain = "decimal" if kind.startswith("decimal") else kind
        if plain not in TYPES[name]:
            raise BadRows(f"column {name} is of type {kind}; it must be {' or '.join(TYPES[name])}: cast it")
    if "body" not in columns:
        raise BadRows("jobs need a column `body`, binary or string; to_json(struct(*)) makes one of a whole row")
    if "queue" not in columns and not queue:
        raise BadRows("say which queue: a column `queue`, or .option('queue', 'name')")


def commands(batch: pa.RecordBatch, wanted: Wanted, most: int) -> Iterator[tuple[list[Arg], int]]:
    """What to send for the rows, and how many rows each command is: ADDJOBS where rows say nothing but queue and body,
    up to `most` in one, otherwise an ADDJOB per row."""
    if set(batch.schema.names) <= {"queue", "body"}:
        yield from together(batch, wanted, most)
    else:
        for words in one_by_one(batch, wanted):
            yield words, 1


def together(batch: pa.RecordBatch, wanted: Wanted, most: int) -> Iterator[tuple[list[Arg], int]]:
    """Runs of rows of one queue."""
    bodies = batch.column("body").to_pylist()
    queues = batch.column("queue").to_pylist() if "queue" in batch.schema.names else [None] * len(bodies)
    run: list[Arg] = []
    name = ""
    for i, body in enumerate(bodies):
        queue = queues[i] if queues[i] is not None else wanted.queue
        if body is None or not queue:
            raise no_value("body" if body is None else "queue", {"queue": queues}, i)
        if run and (queue != name or len(run) >= most):
            yield ["ADDJOBS", name, wanted.timeout_ms, len(run), *run], len(run)
            run = []
        name = queue
        run.append(sized(body))
    if run:
        yield ["ADDJOBS", name, wanted.timeout_ms, len(run), *run], len(run)


def one_by_one(batch: pa.RecordBatch, wanted: Wanted) -> Iterator[list[Arg]]:
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    queues = columns.get("queue")
    numbers = [(word, columns[name], name) for name, word in NUMBERS.items() if name in columns]
    names = [(word, columns[name]) for name, word in NAMES.items() if name in columns]
    times, headers = columns.get("at"), columns.get("headers")
    for i, body in enumerate(columns["body"]):
        queue = queues[i] if queues is not None and queues[i] is not None else wanted.queue
        if body is None or not queue:
            raise no_value("body" if body is None else "queue", columns, i)
        words: list[Arg] = ["ADDJOB", queue, sized(body), wanted.timeout_ms]
        for word, values, name in numbers:
            if values[i] is not None:
                words += [word, number(name, values[i])]
        for word, values in names:
            if values[i] is not None:
                words += [word, wanted.key_prefix + values[i] if word == "UNIQUE" else values[i]]
                if word == "UNIQUE" and wanted.window_s:
                    words += ["WINDOW", wanted.window_s]
        if times is not None and times[i] is not None:
            words += ["AT", max(1, math.ceil(times[i].timestamp()))]
        if headers is not None and headers[i]:
            words += ["HEADERS", len(headers[i]), *pairs(headers[i])]
        yield words


def sized(body: bytes | str) -> bytes:
    raw = body.encode() if isinstance(body, str) else body
    if len(raw) > IN_BYTES_MAX:
        raise BadRows(f"a body has {len(raw)} bytes, more than any node takes; put it elsewhere and send where it is")
    return raw


def number(name: str, value: float) -> int:
    """Whole, rounded up: 0.5 must not become 0."""
    if not math.isfinite(value) or value < 0:
        raise BadRows(f"column {name} has {value}; it must be a number of at least 0")
    return math.ceil(value)


def pairs(headers: Iterable[tuple[str, str | None]]) -> Iterator[Arg]:
    for name, value in headers:
        yield name
        yield value if value is not None else ""


def no_value(what: str, columns: Mapping[str, list[Any]], i: int) -> BadRows:
    return BadRows(f"a row has no {what} (null): {shown(columns, i)}. Fill it, or leave such rows out")


def shown(columns: Mapping[str, list[Any]], i: int) -> str:
    return ", ".join(f"{name}={values[i]!r:.40}" for name, values in columns.items() if name != "body")
