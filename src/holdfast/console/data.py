"""What the pages ask the nodes, bounded each time: a page never makes a node do more than a few milliseconds' work.

Lists come in pages by cursor. Where jobs of all nodes are wanted, the nodes are walked one after the other; the cursor
says at which node we are.
"""
from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any

from holdfast.client.errors import Error
from holdfast.client.queue import AsyncQueue
from holdfast.gateway import models
from holdfast.gateway.queues import totals

PAGE = 50
FILTERS = ("queue", "state", "tenant", "domain", "group")
STATES = ("queued", "leased", "delayed", "in-line", "dead")
"""Each as the node sees it that sees to the job, so that a job is listed once; copies elsewhere are not listed."""
COUNTED = {"leased": "out", "delayed": "delayed", "dead": "dead-kept"}
"""States of which a queue knows how many there are."""
LOOK_S = 0.5
"""A page whose filter fits few of a million jobs is shown after this long, with a link to look on."""
TENANT_QUEUES = 50
"""Queues whose tenants are asked for on one page."""
COUNT_MOST = 2000
"""Asked for at a time where few jobs fit: the node looks at ten times as many, a few milliseconds' work."""
DEAD_LOOKED_AT = 1000
"""Dead jobs a page of signatures is made from; more are counted by their queues only."""
SETTING_HINTS = {
    "maxlen": "jobs at one node; 0: no bound", "totalmaxlen": "jobs at all nodes; 0: no bound",
    "paused": "none, in, out, all", "rate": "hand-outs, as in 10/s; none", "burst": "at once after a pause",
    "concurrency": "with workers at a time; 0: no bound", "attempts": "then a job is dead; 0: as it says itself",
    "backoff": "seconds, or first:most", "retention": "seconds dead jobs are kept; 0: as the node says",
    "journal": "shared, own", "fsync": "default, always, adds, everysec, no",
}


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

    @property
    def where(self) -> str:
        return f"{self.host}:{self.port}" if self.host else f"port {self.port}"

    @property
    def state(self) -> str:
        """One word for people."""
        if not self.is_linked or "fail" in self.flags.split(","):
            return "down"
        return "leaving" if "leaving" in self.flags else "up"


async def nodes(asking: AsyncQueue) -> list[NodeView]:
    """The members, as the node that was asked sees them."""
    return read_nodes(models.plain(await asking.call("CLUSTER", "NODES")))


async def links(asking: AsyncQueue, near: str) -> dict[str, bool]:
    """Whom a node is linked with, by id."""
    return {node.id: node.is_linked for node in read_nodes(models.plain(await at(asking, near, "CLUSTER", "NODES")))}


def read_nodes(text: str) -> list[NodeView]:
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


def scan_words(cursor: str, filters: dict[str, str], count: int) -> list[str | int]:
    words: list[str | int] = ["JSCAN", cursor, "COUNT", count, "REPLY", "all"]
    for name in FILTERS:
        if filters.get(name):
            words += [name.upper(), filters[name]]
    if not filters.get("state"):
        for state in STATES:
            words += ["STATE", state]
    return words


async def expected(asking: AsyncQueue, filters: dict[str, str]) -> int | None:
    """How many jobs fit, where queues count them: who has found so many need not look at a million others."""
    counted = COUNTED.get(filters.get("state", ""))
    if counted is None or any(filters.get(name) for name in FILTERS if name not in ("queue", "state")):
        return None
    return sum(int(row.get(counted) or 0) for row in await totals(asking, filters.get("queue") or "*"))


async def jobs(
    asking: AsyncQueue, filters: dict[str, str], cursor: str, count: int = PAGE
) -> tuple[str, list[dict[str, Any]]]:
    """A page of jobs over all nodes, and where to go on; 0 is the end. cursor: node number, colon, its cursor.

    Where few jobs fit, the page may have fewer than asked for, or none, and not be the end: counts are a second old.
    """
    enough = await expected(asking, filters)
    members = [node for node in await nodes(asking) if node.is_linked]
    text, _, inner = cursor.partition(":")
    index = int(text) if text.isdigit() else 0
    inner = inner or "0"
    found: dict[str, dict[str, Any]] = {}
    deadline = time.monotonic() + LOOK_S
    at_once = count
    while index < len(members) and len(found) < count and time.monotonic() < deadline:
        following, page = await at(asking, members[index].near, *scan_words(inner, filters, at_once))
        at_once = count if page else min(COUNT_MOST, at_once * 2)
        inner = models.plain(following)
        rows = [models.named(each) for each in page]
        room = count - len(found)
        if len(rows) > room:  # jobs are listed in the order of their ids, and a cursor is the last id
            rows, inner = rows[:room], f"={rows[room - 1]['id']}"
        for row in rows:
            row["node"] = members[index].near
            row["is"] = state_of(row)
            found.setdefault(row["id"], row)
        if inner == "0":
            index += 1
        if enough is not None and len(found) >= enough:
            break
    return (f"{index}:{inner}" if index < len(members) else "0"), list(found.values())


def state_of(row: dict[str, Any]) -> str:
    """A job's state in the words of the filter."""
    state = str(row.get("state"))
    if state != "active":
        return state
    if "leased-ms" in row:
        return "leased"
    return "in-line" if row.get("next-requeue-within") is None and row.get("group") else "delayed"


async def tenants(asking: AsyncQueue, queue: str) -> list[Any]:
    """Name, weight and queued jobs of each tenant, at the node that is asked."""
    try:
        found: list[Any] = models.plain(await asking.call("TENANT", "LIST", queue))
    except Error:
        return []
    return found


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
        row["is"] = state_of(row)
        if best is None or rank(row) > rank(best):
            best = row
    return best


def rank(row: dict[str, Any]) -> int:
    if "leased-ms" in row:
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
