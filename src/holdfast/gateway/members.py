"""The members of a cluster, as the node that is asked lists them (CLUSTER NODES); and how one or each of them is asked
something."""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from holdfast.client.errors import Error, NoAnswer, Unknown, Unreachable
from holdfast.client.members import NEAR, Member, read_text
from holdfast.client.queue import AsyncQueue
from holdfast.client.resp import Argv, Reply, to_text

NodeView = Member
read_nodes = read_text

__all__ = ["NEAR", "NodeView", "at", "at_each", "nodes", "read_nodes", "told"]

ANSWER_S = 2.0
"""A node takes milliseconds; one that takes so long is stopped, or cut off and not yet missed."""


async def nodes(asking: AsyncQueue) -> list[Member]:
    return await asking.nodes()


def told(members: list[Member], silent: list[str]) -> list[dict[str, str]]:
    """For those who follow the figures; a node that did not answer now is away, whatever it was before."""
    return [{"name": each.near, "where": each.where, "state": "away" if each.id in silent else each.state}
            for each in members]


async def at(asking: AsyncQueue, near: str, *words: str | int) -> Any:
    """A command at one node. Error replies are raised, and NoAnswer: a node that hangs must not make the page hang.

    The client asks another node where it cannot reach the one that is meant; so it says who it is, too.
    """
    who, reply = await in_time(near, asking.channel.call_many([argv("CLUSTER", "MYID"), argv(*words)], near))
    if text(who)[:NEAR] != near:
        raise Unreachable(f"node {near} cannot be reached")
    return reply


async def at_each(asking: AsyncQueue, members: list[NodeView], *words: str | int) -> dict[str, Any]:
    """A command at all nodes at once: answers by node id (see `at`). Who does not answer is not among them."""
    commands = [argv("CLUSTER", "MYID"), argv(*words)]
    asked = [in_time(node.near, asking.channel.call_many(commands, node.near)) for node in members if node.is_linked]
    replies = await asyncio.gather(*(or_none(each) for each in asked))
    return {text(reply[0]): reply[1] for reply in replies if reply is not None}


def argv(*words: str | int) -> Argv:
    return [str(words[0]).encode(), *words[1:]]


async def in_time(near: str, asked: Awaitable[list[Reply]]) -> list[Any]:
    try:
        async with asyncio.timeout(ANSWER_S):
            replies = await asked
    except TimeoutError:
        raise NoAnswer(f"node {near} has not answered for {ANSWER_S:g} s") from None
    for reply in replies:
        if isinstance(reply, Error):
            raise reply
    return list(replies)


async def or_none(asked: Awaitable[list[Any]]) -> list[Any] | None:
    """None where nobody answers; that somebody says no is another matter."""
    try:
        return await asked
    except (Unreachable, Unknown):
        return None


def text(reply: Reply) -> str:
    return to_text(reply) if isinstance(reply, bytes) else str(reply)
