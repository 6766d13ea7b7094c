"""What the pages ask the nodes, bounded each time: a page never makes a node do more than a few milliseconds' work.

Lists come in pages by cursor. Where jobs of all nodes are wanted, the nodes are walked one after the other; the cursor
says at which node we are.
"""
from __future__ import annotations

import re
import time
from typing import Any

from holdfast.client.errors import Error, Unknown, Unreachable
from holdfast.client.queue import AsyncQueue
from holdfast.client.resp import to_text
from holdfast.console import names
from holdfast.core import states
from holdfast.gateway import models
from holdfast.gateway.members import NEAR, NodeView, at, at_each, nodes, read_nodes
from holdfast.gateway.queues import figures

PAGE = 50
FILTERS = ("queue", "state", "tenant", "domain", "group")
"""Their values are names as a page writes them (names.py); nothing is any."""
COLUMNS = [
    ("name", "queue"), ("len", "queued"), ("out", "with workers"), ("delayed", "delayed"), ("node-away", "node away"),
    ("dead-kept", "dead"), ("in-per-second", "in /s"), ("out-per-second", "out /s"), ("oldest-age", "longest wait"),
    ("acked", "done since start"), ("blocked", "idle workers"),
]
"""Of a list of queues, which can be sorted by each."""
BUSY = "busy"
COUNTED = {word.decode(): figure.decode() for word, figure in states.COUNTED.items() if word != states.QUEUED}
"""States of which a queue knows how many there are."""
LOOK_S = 0.5
"""A page whose filter fits few of a million jobs is shown after this long, with a link to look on."""
LOOK_MOST_S = 3.0
"""One on which there would be nothing yet is looked on for: a node that is busy is slow, not empty."""
TENANT_QUEUES = 50
"""Queues whose tenants are asked for on one page."""
COUNT_MOST = 2000
"""Asked for at a time where few jobs fit: the node looks at ten times as many, a few milliseconds' work."""
DEAD_LOOKED_AT = 1000
"""Dead jobs a page of signatures is made from; it says so if there may be more."""
CODE = re.compile(
    r"((?:^|[:(\[] ?)(?=[1-5]\d\d\b)|\b(?:code|status|errno|exit|http|smtp)[ =:]*)(\d{1,5})\b", re.IGNORECASE)
"""A number that says what kind of error it is: 550 of a mail server, 404, errno 28."""
def ranked(rows: list[dict[str, Any]], by: str) -> list[dict[str, Any]]:
    """Queues, which come by name, with the largest figure first, or with a minus before it the smallest. BUSY is what
    goes on now: jobs that come and go, then those that wait, then how long. console.js ranks in the same way."""
    key = by.removeprefix("-")
    if key == "name":
        return rows if by == key else rows[::-1]

    def figures_of(row: dict[str, Any]) -> tuple[int, ...]:
        in_s, out_s, length, age, figure = (
            int(row.get(name) or 0) for name in ("in-per-second", "out-per-second", "len", "oldest-age", key))
        return (in_s + out_s, length, age) if key == BUSY else (figure,)

    turn = -1 if by == key else 1
    return sorted(rows, key=lambda row: [turn * each for each in figures_of(row)])


def text(reply: Any) -> Any:
    """A reply as text. Bytes that are none are kept (see names.py)."""
    if isinstance(reply, bytes):
        return to_text(reply)
    return [text(each) for each in reply] if isinstance(reply, list) else reply


def told(reply: Any) -> dict[str, Any]:
    """Names and values in a flat list, as an object."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {text(name): told(value) if isinstance(value, dict) else text(value) for name, value in pairs}


def scan_words(cursor: str, filters: dict[str, str], count: int) -> list[str | int]:
    words: list[str | int] = ["JSCAN", cursor, "COUNT", count, "REPLY", "all"]
    for name in FILTERS:
        if filters.get(name):
            words += [name.upper(), names.decoded(filters[name])]
    if not filters.get("state"):
        for state in states.LISTED:
            words += ["STATE", state.decode()]
    return words


async def expected(asking: AsyncQueue, filters: dict[str, str]) -> int | None:
    """How many jobs fit, where queues of all nodes count them: who has found so many need not look at a million others.
    A count without a node that was late would end the look before that node is asked."""
    counted = COUNTED.get(filters.get("state", ""))
    if counted is None or any(filters.get(name) for name in FILTERS if name not in ("queue", "state")):
        return None
    rows, silent = await figures(asking, names.decoded(filters.get("queue") or "*"))
    return None if silent else sum(int(row.get(counted) or 0) for row in rows)


async def jobs(
    asking: AsyncQueue, filters: dict[str, str], cursor: str, count: int = PAGE, without: set[str] | None = None
) -> tuple[str, list[dict[str, Any]]]:
    """A page of jobs over all nodes, and where to go on; 0 is the end. cursor: node number, colon, its cursor.

    Where few jobs fit, the page may have fewer than asked for, or none, and not be the end: counts are a second old.
    Nodes whose jobs are not among them, as they are away or do not answer, are added to `without`.
    """
    enough = await expected(asking, filters)
    known = await nodes(asking)
    members = [node for node in known if node.is_linked]
    missed = {node.near for node in known if not node.is_linked}
    text, _, inner = cursor.partition(":")
    index = int(text) if text.isdigit() else 0
    inner = inner or "0"
    found: dict[str, dict[str, Any]] = {}
    began = time.monotonic()
    at_once = count
    while index < len(members) and len(found) < count:
        try:
            following, page = await at(asking, members[index].near, *scan_words(inner, filters, at_once))
        except (Unreachable, Unknown):
            missed.add(members[index].near)
            index, inner = index + 1, "0"
            continue
        at_once = count if page else min(COUNT_MOST, at_once * 2)
        inner = models.plain(following)
        rows = [told(each) for each in page]
        room = count - len(found)
        if len(rows) > room:  # jobs are listed in the order of their ids, and a cursor is the last id
            rows, inner = rows[:room], f"={rows[room - 1]['id']}"
        for row in rows:
            row["node"] = members[index].near
            row["is"] = row.get("status", row.get("state"))
            found.setdefault(row["id"], row)
        if inner == "0":
            index += 1
        is_late = time.monotonic() - began > (LOOK_S if found else LOOK_MOST_S)
        if is_late or (enough is not None and len(found) >= enough):
            break
    if without is not None:
        without |= missed
    return (f"{index}:{inner}" if index < len(members) else "0"), list(found.values())


async def tenants(asking: AsyncQueue, queue: str) -> list[list[Any]]:
    """Name, weight and queued jobs of each tenant, over all nodes."""
    found: dict[str, list[Any]] = {}
    try:
        replies = await at_each(asking, await nodes(asking), "TENANT", "LIST", queue)
    except Error:
        return []
    for rows in replies.values():
        for name, weight, size in text(rows):
            found.setdefault(name, [name, weight, 0])[2] += size
    return [found[name] for name in sorted(found)]


async def job(asking: AsyncQueue, job_id: str) -> dict[str, Any] | None:
    """A job as the node tells it that knows most: where it is queued or leased, or where it was made."""
    best: dict[str, Any] | None = None
    for node_id, view in (await at_each(asking, await nodes(asking), "SHOW", job_id)).items():
        if view is None:
            continue
        row = told(view)
        raw = dict(zip(view[::2], view[1::2], strict=True)) if isinstance(view, list) else view
        row["data"] = raw.get(b"body")
        row["node"] = node_id[:NEAR]
        row["is"] = row.get("status", row.get("state"))
        if best is None or rank(row) > rank(best):
            best = row
    return best


def rank(row: dict[str, Any]) -> int:
    """How much the node knows that says so: where a worker got it, where it waits, where it is a copy."""
    return {"leased": 3, "copy": 1, "moving": 1, "ended": 0}.get(str(row["is"]), 2)


def signature(error: str) -> str:
    """What is the same in errors that differ by a number, an id or an address. A code is no such number."""
    line = error.strip().splitlines()[-1] if error.strip() else "(no error was given)"
    line = re.sub(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b", "#", line)
    line = re.sub(r"'[^']*'|\"[^\"]*\"", "'…'", line)
    kept = CODE.sub(lambda found: found[1] + found[2].translate(AS_LETTERS), line)
    return re.sub(r"\d+", "#", kept).translate(AS_DIGITS)[:200]


AS_LETTERS = {ord("0") + digit: 0xE000 + digit for digit in range(10)}
"""Digits that are to be kept, for a moment: letters that no text has."""
AS_DIGITS = {letter: digit for digit, letter in AS_LETTERS.items()}


async def dead_by_signature(asking: AsyncQueue, queue: str) -> tuple[list[dict[str, Any]], bool]:
    """Dead jobs in heaps: same queue, same cause, same kind of error; and whether these are all."""
    heaps: dict[tuple[str, str, str], dict[str, Any]] = {}
    found = await (asking.dead(count=DEAD_LOOKED_AT, queue=names.decoded(queue)) if queue else
                   asking.dead(count=DEAD_LOOKED_AT))
    for each in found:
        key = (each.queue, each.cause, signature(each.error))
        heap = heaps.setdefault(key, {
            "queue": each.queue, "cause": each.cause, "signature": key[2], "count": 0, "latest": 0, "jobs": [],
            "example": each.error,
        })
        heap["count"] += 1
        heap["latest"] = max(heap["latest"], each.died_ms)
        heap["jobs"].append(each)
    return sorted(heaps.values(), key=lambda heap: -heap["count"]), len(found) < DEAD_LOOKED_AT


async def facts(asking: AsyncQueue, members: list[NodeView]) -> dict[str, dict[str, str]]:
    """What each node says of itself, by id."""
    return {node: fields(text) for node, text in (await at_each(asking, members, "INFO", "all")).items()}


async def links(asking: AsyncQueue, members: list[NodeView]) -> dict[str, dict[str, bool]]:
    """Whom each node is linked with, by id."""
    texts = await at_each(asking, members, "CLUSTER", "NODES")
    return {node: {to.id: to.is_linked for to in read_nodes(models.plain(text))} for node, text in texts.items()}


def fields(text: Any) -> dict[str, str]:
    lines = models.plain(text).splitlines()
    return {name: value for name, _, value in (line.partition(":") for line in lines) if value}


TOLD = {
    "jobs_short_of_copies": "jobs short of copies", "endings_uncollected": "ended jobs that not all have heard of",
    "tombstones": "ended jobs kept in mind, so that no late copy runs", "slots_at_home": "slots of keys it sees to",
    "other_node_timeouts": "nodes with another node-timeout", "stats_messages_sent": "messages to other nodes",
    "stats_messages_received": "messages from other nodes", "stats_bytes_sent": "bytes to other nodes",
}


def of_cluster(info: dict[str, str]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """CLUSTER INFO in words for people, and the counters for those who know the source."""
    facts = {name.removeprefix("cluster_"): value for name, value in info.items()}
    others = int(facts.get("reachable_nodes", 0))  # without the one that says so
    told = [("nodes that can be reached", f"{others + 1} of {facts.get('known_nodes', others + 1)}")]
    told += [(words, facts[name]) for name, words in TOLD.items() if name in facts]
    return told, [(name.removeprefix("count_"), value) for name, value in facts.items() if name.startswith("count_")]

OF_A_JOB = {
    "queue": "queue", "node": "told by node", "ctime": "added", "ttl": "expires in", "delay": "delay it was added with",
    "retry": "comes back if not done within", "repl": "copies asked for", "nacks": "given back by workers, times",
    "additional-deliveries": "queued again for other reasons, times", "next-requeue-within": "queued again in",
    "next-awake-within": "its node looks at it again in", "priority": "priority, 0 to 9", "unique": "unique key",
    "until": "its unique key is taken until it is", "index": "number in its batch", "parent": "added by job",
    "onfail": "if it fails for good, its group will", "attempts": "attempts at most",
    "backoff-ms": "wait after the first failure", "backoff-most-ms": "wait after a failure at most",
    "failures": "failed attempts", "round": "sent back from the dead, times", "cause": "cause of death", "died": "died",
    "token": "token of its lease", "worker": "worker", "address": "address of the worker",
    "waits-for": "waits for node", "away-ms": "which is away for",
    "leased-ms": "with the worker for", "progress": "progress, of 1", "progress-text": "what the worker says of it",
    "cancelled": "the worker was told to give up", "onexpire": "if its time is over",
}
"""Fields of SHOW in words for people; others go by their name."""
