"""Tenants: those who share a queue, each with a weight. `ADDJOB … TENANT acme`, `TENANT SET mails acme 3`.

Who is next is decided in rules.py, per node. A tenant without a weight of its own has one; twice the weight is twice
the share of hand-outs while both have jobs. Weights are registers: kind `tenant`, the queue's name, the tenant.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import registers

if TYPE_CHECKING:
    from holdfast.core.node import Node

KIND: Final = b"tenant"


def weight(node: Node, queue: bytes, tenant: bytes) -> i64:
    return int(registers.value(node, KIND, queue, tenant) or b"1")


def apply(node: Node, name: bytes) -> None:
    """Weights of a queue's tenants have changed."""
    queue = node.queues.get(name)
    if queue is not None and queue.rules is not None:
        for line in queue.rules.lines.values():
            line.weight = weight(node, name, line.tenant)
