"""Bounds of a queue: how many jobs it may hold. A full queue refuses; nothing is ever dropped.

`maxlen` bounds what one node holds of a queue, in whatever state, jobs that still wait for their copies among them:
of a hundred ADDJOBs that are sent at once against a bound of ten, ten are accepted.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import errors
from holdfast.core.errors import Refused
from holdfast.core.queue import Queue

if TYPE_CHECKING:
    from holdfast.core.node import Node


def set_total(node: Node, queue: Queue, most: i64) -> None:
    queue.total_most = most


def admit(node: Node, queue: Queue, count: i64) -> None:
    """Raises Refused if the queue would hold more than it may."""
    if queue.maxlen > 0 and queue.held + count > queue.maxlen:
        raise Refused(errors.MAXLEN)
    if queue.total_most > 0 and queue.held + count > queue.total_most:
        raise Refused(errors.MAXLEN)
