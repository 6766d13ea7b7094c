"""Celery with Redis as its broker (kombu): JSON messages in lists, and a hash of what workers have taken.

    _kombu.binding.<exchange>     set of routing key, pattern, queue: how the queues are found
    <queue>, <queue>\\x06\\x16<p>   lists, LPUSH and BRPOP; one more for each priority
    unacked, unacked_index        messages that a worker holds, among them those with an eta or a countdown

A message is {"body": base64, "headers": {"task", "id", "eta", "retries", …}, "properties": {"priority",
"delivery_info": {"routing_key"}, "body_encoding"}}. The body is [args, kwargs, embed] as JSON, and becomes that of a
task here: a worker runs it whose app has a task of that name. What no worker here could do as it was meant is left
where it is, with words: arguments that are a pickle, and jobs with callbacks, of which nothing here would run the
rest.
"""
from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from .found import RETRYING, RUNNING, SCHEDULED, WAITING, Found, Unreadable
from .sidekiq import named, oldest_first, parsed, text

if TYPE_CHECKING:
    from redis import Redis

SEPARATOR: Final = "\x06\x16"
CALLBACKS: Final = ("callbacks", "errbacks", "chain", "chord")


def celery(redis: Redis, namespace: str = "") -> Iterator[Found | Unreadable]:
    """All of Celery's messages: those that wait, and those a worker has taken and not acknowledged."""
    queues: set[str] = set()
    for key in redis.scan_iter(f"{namespace}_kombu.binding.*"):
        for member in redis.smembers(key):
            queue = text(member).rpartition(SEPARATOR)[2]
            if not queue.endswith(".pidbox") and not queue.startswith("celeryev."):
                queues.add(queue)
    for queue in sorted(queues):
        keys = {text(key) for key in redis.scan_iter(f"{namespace}{queue}{SEPARATOR}*")} | {f"{namespace}{queue}"}
        for key in sorted(keys):
            for raw in oldest_first(redis, key):
                yield parsed(raw, key, lambda raw=raw, key=key, queue=queue: message_of(raw, key, raw, queue, WAITING))
    held = f"{namespace}unacked"
    for tag, raw in redis.hscan_iter(held):
        yield parsed(raw, held, lambda tag=tag, raw=raw: unacked_of(tag, raw, held))


def call_of(headers: dict[str, Any], kind: str, data: bytes) -> bytes:
    """The call in a message as the body of a task. `ValueError` with words if it cannot be one."""
    name = f"{headers['task']} ({headers['id']})"
    if kind != "application/json":
        raise ValueError(f"the arguments of {name} are {kind}, not JSON: let a worker of Celery do it")
    args, kwargs, embed = json.loads(data)
    further = [each for part in CALLBACKS for each in names_of((embed or {}).get(part))]
    if further:
        raise ValueError(
            f"{name} has callbacks, which nothing here would run: {', '.join(further)}. Let a worker of Celery do it; "
            "docs/how-to/do-something-when-all-are-done.md is for the next ones"
        )
    return json.dumps({"task": headers["task"], "args": args, "kwargs": kwargs}, ensure_ascii=False).encode()


def names_of(signature: Any) -> list[str]:
    """The tasks in what is to be called afterwards: one signature, or a list of them."""
    if isinstance(signature, list):
        return [name for each in signature for name in names_of(each)]
    return [str(signature.get("task"))] if isinstance(signature, dict) else []


def unacked_of(tag: bytes, raw: bytes, key: str) -> Found:
    """What a worker has: with an eta it only keeps it until then."""
    message, _, queue = json.loads(raw)
    found = message_of(json.dumps(message).encode(), key, tag, queue, RUNNING)
    return found


def message_of(raw: bytes, key: str, value: bytes, queue: str, state: str) -> Found:
    message: dict[str, Any] = json.loads(raw)
    headers, properties = message["headers"], message["properties"]
    body = message["body"]
    encoded = properties.get("body_encoding") == "base64"
    data = base64.b64decode(body) if encoded else (body if isinstance(body, str) else json.dumps(body)).encode()
    eta = headers.get("eta")
    at = dt.datetime.fromisoformat(eta).timestamp() if eta else 0.0
    retries = int(headers.get("retries") or 0)
    if at:
        state = RETRYING if retries else SCHEDULED
    priority = properties.get("priority")
    return Found(
        "celery", str(headers["id"]), queue or str(properties["delivery_info"]["routing_key"]),
        call_of(headers, str(message.get("content-type")), data), state, at,
        None if not priority else min(9, max(0, 9 - int(priority))), retries, "",
        named({"task": headers["task"], "root-id": headers.get("root_id"), "parent-id": headers.get("parent_id"),
               "content-type": message.get("content-type"), "retries": retries or None}),
        (key, value),
    )
