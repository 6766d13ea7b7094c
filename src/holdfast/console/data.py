"""What the pages ask the nodes, bounded each time: a page never makes a node do more than a few milliseconds' work.

Lists come in pages by cursor. Where jobs of all nodes are wanted, the nodes are walked one after the other; the cursor
says at which node we are.
"""
from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from holdfast.client.errors import Error
from holdfast.client.queue import AsyncQueue
from holdfast.gateway import models
from holdfast.gateway.queues import totals

PAGE = 50
FILTERS = ("queue", "state", "tenant", "domain", "group")
STATES = ("queued", "leased", "delayed", "dead")
DEAD_LOOKED_AT = 1000
"""Dead jobs a page of signatures is made from; more are counted by their queues only."""


@dataclass(frozen=True)
class NodeView:
    id: str
    host: str
    port: int
    flags: str
    is_linked: bool

    @property
    def near(self) -> str:
        return self.id[:8]


async def nodes(asking: AsyncQueue) -> list[NodeView]:
    """The members, as the node that was asked sees them."""
    text = models.plain(await asking.call("CLUSTER", "NODES"))
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        host, _, port = words[1].rpartition(":")
        flags = words[2]
        found.append(NodeView(words[0], host, int(port.partition("@")[0] or 0), flags,
                              "myself" in flags or "connected" in words or "linked" in words))
    return found


async def at(asking: AsyncQueue, near: str, *words: str | int) -> Any:
    """A command at one node. Error replies are raised."""
    reply = await asking.channel.call([str(words[0]).encode(), *words[1:]], near=near)
    if isinstance(reply, Error):
        raise reply
    return reply


async def figures(asking: AsyncQueue) -> list[dict[str, Any]]:
    return sorted(await totals(asking, "*"), key=lambda row: str(row.get("name")))


def scan_words(cursor: str, filters: dict[str, str]) -> list[str | int]:
    words: list[str | int] = ["JSCAN", cursor, "COUNT", PAGE, "REPLY", "all"]
    for name in FILTERS:
        if filters.get(name):
            words += [name.upper(), filters[name]]
    return words


async def jobs(asking: AsyncQueue, filters: dict[str, str], cursor: str) -> tuple[str, list[dict[str, Any]]]:
    """A page of jobs over all nodes, and where to go on; 0 is the end. cursor: node number, colon, its cursor."""
    members = [node for node in await nodes(asking) if node.is_linked]
    text, _, inner = cursor.partition(":")
    index = int(text) if text.isdigit() else 0
    inner = inner or "0"
    found: dict[str, dict[str, Any]] = {}
    while index < len(members) and len(found) < PAGE:
        following, page = await at(asking, members[index].near, *scan_words(inner, filters))
        for each in page:
            row = models.named(each)
            row["node"] = members[index].near
            found.setdefault(row["id"], row)
        inner = models.plain(following)
        if inner == "0":
            index += 1
    return (f"{index}:{inner}" if index < len(members) else "0"), list(found.values())


async def job(asking: AsyncQueue, job_id: str) -> dict[str, Any] | None:
    """A job as the node tells it that knows most: where it is queued or leased, or where it was made."""
    best: dict[str, Any] | None = None
    for node in await nodes(asking):
        if not node.is_linked:
            continue
        view = await at(asking, node.near, "SHOW", job_id)
        if view is None:
            continue
        row = models.named(view)
        raw = dict(zip(view[::2], view[1::2], strict=True)) if isinstance(view, list) else view
        row["data"] = raw.get(b"body")
        row["node"] = node.near
        if best is None or rank(row) > rank(best):
            best = row
    return best


def rank(row: dict[str, Any]) -> int:
    if row.get("lease") or row.get("token"):
        return 3
    return {"queued": 2, "dead": 2, "active": 1}.get(str(row.get("state")), 0)


def signature(error: str) -> str:
    """What is the same in errors that differ by a number, an id or an address."""
    line = error.strip().splitlines()[-1] if error.strip() else "(no error was given)"
    line = re.sub(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b", "#", line)
    line = re.sub(r"'[^']*'|\"[^\"]*\"", "'…'", line)
    return re.sub(r"\d+", "#", line)[:200]


async def dead_by_signature(asking: AsyncQueue, queue: str) -> list[dict[str, Any]]:
    """Dead jobs in heaps: same queue, same cause, same kind of error."""
    heaps: dict[tuple[str, str, str], dict[str, Any]] = {}
    found = await (asking.dead(count=DEAD_LOOKED_AT, queue=queue) if queue else asking.dead(count=DEAD_LOOKED_AT))
    for each in found:
        key = (each.queue, each.cause, signature(each.error))
        heap = heaps.setdefault(key, {
            "queue": each.queue, "cause": each.cause, "signature": key[2], "count": 0, "latest": 0, "jobs": [],
            "example": each.error,
        })
        heap["count"] += 1
        heap["latest"] = max(heap["latest"], each.died_ms)
        heap["jobs"].append(each)
    return sorted(heaps.values(), key=lambda heap: -heap["count"])


async def info(asking: AsyncQueue, near: str) -> dict[str, str]:
    text = models.plain(await at(asking, near, "INFO", "all"))
    return {name: value for name, _, value in (line.partition(":") for line in text.splitlines()) if value}
