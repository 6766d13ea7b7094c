"""Domains limit jobs across queues: `ADDJOB … DOMAIN a.example.com`, `DOMAIN SET a.example.com RATE 10/s`.

A domain comes into being with its first job and is forgotten when nothing waits, nothing is out and its bucket is full.
What is set for it are registers (registers.py) under its name, or under a pattern: `*.example.com` is the default
for every domain that ends so, each with a bucket of its own; the longest pattern that fits counts, `*` fits all.
A domain for which nothing is set has no limit: its jobs are only counted.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import home, inquire, registers, rules
from holdfast.core.inquire import Question
from holdfast.core.limits import DOMAINS_SWEEP, NEVER
from holdfast.core.peers import ME, Peer
from holdfast.core.reply import write_array, write_bulk, write_int, write_null
from holdfast.core.session import Session
from holdfast.core.throttle import FULL, NS, Throttle, default_burst, now_ns, read_rate
from holdfast.wire import bus
from holdfast.wire.bus import Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

KIND: Final = b"domain"
FIELDS: Final = [b"rate", b"burst", b"concurrency", b"adapt"]


def find(node: Node, name: bytes) -> Throttle:
    """The domain of that name, made if it is new."""
    known = node.domains.table.get(name)
    if known is not None:
        return known
    if len(node.domains.table) >= node.domains.sweep_above:
        sweep(node)
    throttle = Throttle(name, None)
    node.domains.table[name] = throttle
    apply_to(node, throttle)
    if node.starts_empty:
        throttle.empty(0)  # what was handed out just before this node started nobody knows
    return throttle


def sweep(node: Node) -> None:
    """Forget domains about which there is nothing to remember."""
    table = node.domains.table
    now = now_ns(node)
    for name in list(table):
        throttle = table[name]
        if throttle.waiting == 0 and throttle.out == 0 and not throttle.bins and throttle.full_at <= now:
            node.alarms.set(throttle, NEVER)
            if throttle.is_told:
                node.domains.no_more(throttle)
                node.domains.least = 0  # there is room for another
            del table[name]
    node.domains.sweep_above = max(DOMAINS_SWEEP, 2 * len(table))


def pattern_for(node: Node, name: bytes) -> bytes:
    """Under which name its settings are: its own, or the longest pattern that fits; empty if nothing is set."""
    if is_set(node, name):
        return name
    at = name.find(b".")
    while at >= 0:
        pattern = b"*" + name[at:]
        if is_set(node, pattern):
            return pattern
        at = name.find(b".", at + 1)
    return b"*" if is_set(node, b"*") else b""


def is_set(node: Node, name: bytes) -> bool:
    fields = node.registers.things.get((KIND, name))
    return fields is not None and any([each.value is not None for each in fields.values()])


def apply_to(node: Node, throttle: Throttle) -> None:
    """Take over what is set for a domain."""
    pattern = pattern_for(node, throttle.name)
    set_throttle(node, throttle, KIND, pattern)


def set_throttle(node: Node, throttle: Throttle, kind: bytes, name: bytes) -> None:
    """The rate, burst and concurrency under a name become those of a throttle."""
    interval = read_rate(registers.value(node, kind, name, b"rate") or b"")
    burst: i64 = int(registers.value(node, kind, name, b"burst") or b"0")
    if burst == 0:
        burst = 1 if interval == 0 else default_burst(interval)
    most = int(registers.value(node, kind, name, b"concurrency") or b"0")
    if interval != throttle.interval or burst != throttle.burst:
        throttle.set_rate(interval, burst, now_ns(node))
    throttle.most = most
    if most > 0 and not node.domains.has_places:
        node.domains.has_places = True
        rules.consumers_gone(node)  # as long as there were none, nobody looked
    throttle.adapts = registers.value(node, kind, name, b"adapt") == b"yes"
    throttle.is_limited = interval != 0 or most != 0
    rules.line_up(throttle)
    if throttle.queue is not None or throttle.waiting > 0:
        node.alarms.set(throttle, node.now)  # there may be more, or less, to wait for


def apply(node: Node, name: bytes) -> None:
    """A setting of a domain, or of a pattern, has changed."""
    if name.startswith(b"*"):
        suffix = name[1:]
        for throttle in list(node.domains.table.values()):
            if throttle.name.endswith(suffix):
                apply_to(node, throttle)
    elif name in node.domains.table:
        apply_to(node, node.domains.table[name])


def next_ms(node: Node, throttle: Throttle) -> i64:
    """Milliseconds until a job may pass, as far as the rate goes."""
    now = now_ns(node)
    return 0 if throttle.has_token(now) else max(0, (throttle.next_at(now) - now + NS - 1) // NS)


# -- what is told of one -------------------------------------------------------------------------------------------


class Telling(Question):
    """DOMAIN GET of a domain whose bucket is at another node."""

    def __init__(self, session: Session, name: bytes) -> None:
        super().__init__(session)
        self.name: bytes = name
        self.found: tuple[int, int] | None = None

    def hear(self, node: Node, peer: Peer, reader: Reader) -> None:
        self.found = (int(reader.long()), int(reader.long()))

    def reply(self, node: Node, out: BytesWriter) -> None:
        write(node, out, self.name, self.found, self.session)


def tell_of(node: Node, session: Session, name: bytes) -> None:
    slot = home.slot_of(home.DOMAIN, b"", name)
    keeper = node.peers[home.owner(node, slot)]
    if keeper.index == ME or read_rate(registers.value(node, KIND, pattern_for(node, name), b"rate") or b"") == 0:
        write(node, node.out, name, bucket(node, name), session)
    else:
        inquire.ask(node, Telling(session, name), inquire.BUCKET, name, keeper.bit)


def bucket(node: Node, name: bytes) -> tuple[int, int]:
    """What there is of its rate, in thousandths, and milliseconds until the next may go out: as this node sees it."""
    throttle = node.domains.table.get(name)
    if throttle is None:
        return int(FULL), 0
    throttle.step(now_ns(node))
    return int(throttle.share), int(next_ms(node, throttle))


def tell(node: Node, peer: Peer, reader: Reader, out: BytesWriter) -> None:
    share, ms = bucket(node, reader.text(reader.end))
    bus.write_i64(out, share)
    bus.write_i64(out, ms)


def write(node: Node, out: BytesWriter, name: bytes, found: tuple[int, int] | None, session: Session) -> None:
    """Names and values, always the same names."""
    throttle = node.domains.table.get(name)
    pattern = pattern_for(node, name)
    rate = registers.value(node, KIND, pattern, b"rate")
    burst: i64 = int(registers.value(node, KIND, pattern, b"burst") or b"0")
    if burst == 0 and rate is not None:
        burst = default_burst(read_rate(rate))
    write_array(out, 20)
    write_bulk(out, b"name")
    write_bulk(out, name)
    write_bulk(out, b"set-by")
    write_bulk(out, pattern)
    write_bulk(out, b"rate")
    write_bulk(out, b"none" if rate is None else rate)
    write_bulk(out, b"burst")
    write_int(out, burst)
    write_bulk(out, b"concurrency")
    write_int(out, int(registers.value(node, KIND, pattern, b"concurrency") or b"0"))
    write_bulk(out, b"adapt")
    write_bulk(out, registers.value(node, KIND, pattern, b"adapt") or b"no")
    write_bulk(out, b"share")
    if found is None:
        write_null(out, session)
    else:
        write_int(out, found[0])
    write_bulk(out, b"waiting")
    write_int(out, 0 if throttle is None else throttle.waiting)
    write_bulk(out, b"out")
    write_int(out, 0 if throttle is None else throttle.out)
    write_bulk(out, b"next-in")
    if found is None:
        write_null(out, session)
    else:
        write_int(out, found[1])
