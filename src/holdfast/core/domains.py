"""Domains limit jobs across queues: `ADDJOB … DOMAIN a.example.com`, `DOMAIN SET a.example.com RATE 10/s`.

A domain comes into being with its first job and is forgotten when nothing waits, nothing is out and its bucket is full.
What is set for it are registers (registers.py) under its name, or under a pattern: `*.example.com` is the default
for every domain that ends so, each with a bucket of its own; the longest pattern that fits counts, `*` fits all.
A domain for which nothing is set has no limit: its jobs are only counted.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import registers, rules
from holdfast.core.gate import NS, Gate, default_burst, now_ns, read_rate
from holdfast.core.limits import DOMAINS_SWEEP, NEVER

if TYPE_CHECKING:
    from holdfast.core.node import Node

KIND: Final = b"domain"
FIELDS: Final = [b"rate", b"burst", b"concurrency", b"adapt"]


def find(node: Node, name: bytes) -> Gate:
    """The domain of that name, made if it is new."""
    known = node.domains.table.get(name)
    if known is not None:
        return known
    if len(node.domains.table) >= node.domains.sweep_above:
        sweep(node)
    gate = Gate(name, None)
    node.domains.table[name] = gate
    apply_to(node, gate)
    if node.starts_empty:
        gate.empty(0)  # what was handed out just before this node started nobody knows
    return gate


def sweep(node: Node) -> None:
    """Forget domains about which there is nothing to remember."""
    table = node.domains.table
    now = now_ns(node)
    for name in list(table):
        gate = table[name]
        if gate.waiting == 0 and gate.out == 0 and not gate.bins and gate.full_at <= now:
            node.alarms.set(gate, NEVER)
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


def apply_to(node: Node, gate: Gate) -> None:
    """Take over what is set for a domain."""
    pattern = pattern_for(node, gate.name)
    set_gate(node, gate, KIND, pattern)


def set_gate(node: Node, gate: Gate, kind: bytes, name: bytes) -> None:
    """The rate, burst and concurrency under a name become those of a gate."""
    interval = read_rate(registers.value(node, kind, name, b"rate") or b"")
    burst: i64 = int(registers.value(node, kind, name, b"burst") or b"0")
    if burst == 0:
        burst = 1 if interval == 0 else default_burst(interval)
    most = int(registers.value(node, kind, name, b"concurrency") or b"0")
    if interval != gate.interval or burst != gate.burst:
        gate.set_rate(interval, burst, now_ns(node))
    gate.most = most
    gate.adapts = registers.value(node, kind, name, b"adapt") == b"yes"
    gate.is_limited = interval != 0 or most != 0
    rules.line_up(gate)
    if gate.queue is not None or gate.waiting > 0:
        node.alarms.set(gate, node.now)  # there may be more, or less, to wait for


def apply(node: Node, name: bytes) -> None:
    """A setting of a domain, or of a pattern, has changed."""
    if name.startswith(b"*"):
        suffix = name[1:]
        for gate in list(node.domains.table.values()):
            if gate.name.endswith(suffix):
                apply_to(node, gate)
    elif name in node.domains.table:
        apply_to(node, node.domains.table[name])


def next_ms(node: Node, gate: Gate) -> i64:
    """Milliseconds until a job may pass, as far as the rate goes."""
    now = now_ns(node)
    return 0 if gate.has_token(now) else max(0, (gate.next_at(now) - now + NS - 1) // NS)
