"""A node that slept: it was stopped for longer than its beats are apart, and learns only now what it has missed."""
from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core import requeue
from holdfast.core.job import ACTIVE, QUEUED
from holdfast.core.peers import MY_BIT

if TYPE_CHECKING:
    from holdfast.core.node import Node


def is_just_awake(node: Node) -> bool:
    return node.now - node.awake < node.node_timeout


def woke_up(node: Node) -> None:
    """This node slept: others may have queued what it has queued. Ask before handing anything out.

    They may have given up their links with it, which it learns only now. So for a while the end of a link is no
    answer: whoever was asked is asked again over the next one.
    """
    if node.broken("sleeper-hands-out") or is_just_awake(node):
        return  # asking after very many jobs may itself take long, and must not look like sleep
    node.count("woke-up")
    node.awake = node.now
    for job in node.all_jobs():
        if job.state == QUEUED and job.holders & ~MY_BIT:
            job.queue.remove(job)
            job.state = ACTIVE
            requeue.stop_asking(node, job)
            requeue.due(node, job)
