"""Settings of queues: what there is to set, what values are legal, and what follows from them.

They are registers (registers.py), the same at all nodes. A queue that is forgotten because nobody uses it loses
nothing: when it is named again it is set as the registers say. `paused` alone may differ from node to node: PAUSE
without `bcast` is a word to one node, as in Disque, and the last word counts, whichever of the two it was.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import bounds, cron, domains, errors, federate, queues, registers, rules, stages, tenants
from holdfast.core.doubt import own_wall
from holdfast.core.errors import BadRequest
from holdfast.core.limits import (
    BACKOFF_MOST_S,
    BURST_MAX,
    CONCURRENCY_MAX,
    DURATION_S_MAX,
    KEY_BYTES_MAX,
    RATE_MAX,
    WEIGHT_MAX,
)
from holdfast.core.parse import at_least, seconds
from holdfast.core.peers import Peer
from holdfast.core.queue import PAUSE_NAMES, Queue
from holdfast.core.throttle import default_burst, fits, read_rate

if TYPE_CHECKING:
    from holdfast.core.node import Node

KIND: Final = b"queue"

NAMES: Final = [
    b"maxlen", b"totalmaxlen", b"paused", b"rate", b"burst", b"concurrency", b"attempts", b"backoff", b"retention",
    b"ttl", b"onexpire", b"journal", b"fsync",
]
NUMBERS: Final = {b"maxlen", b"totalmaxlen", b"burst", b"concurrency", b"attempts", b"retention", b"ttl"}
"""Those that are answered as a number; 0 is none."""
USUAL: Final = {b"journal": b"shared", b"fsync": b"default", b"onexpire": b"drop"}
"""What others are as long as nothing is set."""
CHOICES: Final = {
    b"journal": [b"own", b"shared"],
    b"fsync": [b"always", b"adds", b"everysec", b"no", b"default"],
    b"onexpire": [b"dead", b"drop"],
}
"""Those that are one of some words."""
SECONDS: Final = {b"retention", b"ttl"}
MOST: Final = {b"burst": BURST_MAX, b"concurrency": CONCURRENCY_MAX}
"""The highest number of those that have a bound of their own."""


def check(name: bytes, value: bytes) -> bytes | None:
    """A value as it is kept; None for one that is as if nothing was set. Raises BadRequest."""
    if name == b"paused":
        if value.lower() not in PAUSE_NAMES:
            raise BadRequest(b"ERR paused must be none, in, out or all")
        return value.lower()
    if name in CHOICES:
        return choice(name, value, CHOICES[name], USUAL[name])
    if name == b"rate":
        return None if value.lower() in (b"0", b"none") else check_rate(value)
    if name == b"backoff":
        return check_backoff(value)
    if name in SECONDS:
        most = seconds(value, 0, b"ERR %b must be a number of seconds, 0 for none of its own" % name)
        return None if most == 0 else b"%d" % most
    return number(name, value, MOST.get(name, DURATION_S_MAX))


def choice(name: bytes, value: bytes, words: list[bytes], usual: bytes) -> bytes | None:
    word = value.lower()
    if word not in words:
        raise BadRequest(b"ERR %b must be %b or %b" % (name, b", ".join(words[:-1]), words[-1]))
    return None if word == usual else word


def number(name: bytes, value: bytes, most: i64) -> bytes | None:
    error = b"ERR %b must be a non negative number" % name
    found = at_least(value, 0, error)
    if found > most:
        raise BadRequest(b"ERR %b must not exceed %d" % (name, most))
    return None if found == 0 else b"%d" % found


def check_rate(value: bytes) -> bytes:
    if read_rate(value) == 0:
        raise BadRequest(
            b"ERR a rate is a number from 1 to %d per second, minute, hour or day, as 10/s, 30/m, 5/h, 1/d" % RATE_MAX
        )
    return value.lower()


def check_burst(rate: bytes, burst: bytes) -> None:
    """Whether the two go together."""
    interval = read_rate(rate)
    if interval != 0 and not fits(interval, int(burst)):
        raise BadRequest(b"ERR a burst of %b takes decades to fill at %b" % (burst, rate))


def check_backoff(value: bytes) -> bytes | None:
    """Seconds before the second attempt, perhaps a colon and the longest wait."""
    first, colon, most = value.partition(b":")
    least = seconds(first, 0, errors.BACKOFF_RANGE)
    longest = seconds(most, 0, errors.BACKOFF_RANGE) if colon else least
    if longest < least or longest * 1000 > DURATION_S_MAX:
        raise BadRequest(errors.BACKOFF_RANGE)
    return None if least == 0 else value


def queue_setting(node: Node, name: bytes, field: bytes) -> bytes | None:
    """What is set for a queue; None if nothing is. `field` is one of NAMES."""
    return registers.value(node, KIND, name, field)


def default_ttl(node: Node, name: bytes) -> i64:
    """Seconds that a job of this queue lives which does not say it; 0: as usual."""
    queue = node.queues.get(name)
    return int(queue_setting(node, name, b"ttl") or b"0") if queue is None else queue.ttl


def shown(node: Node, name: bytes, field: bytes) -> bytes:
    """A setting of a queue as text, `none` or 0 where there is none."""
    value = queue_setting(node, name, field)
    if field == b"burst" and value is None:
        interval = read_rate(queue_setting(node, name, b"rate") or b"")
        return b"%d" % (default_burst(interval) if interval else 0)
    if value is None:
        return USUAL.get(field, b"0" if field in NUMBERS else b"none")
    return value


def is_legal(kind: bytes, name: bytes, field: bytes, value: bytes) -> bool:
    """Whether a register that a peer tells of is one that a command could have written."""
    try:
        if kind == KIND and field == b"paused":
            word, space, until = value.partition(b" ")
            return word in PAUSE_NAMES and (not space or (until.isdigit() and len(until) < 16))
        if kind == KIND:
            return field in NAMES and check(field, value) == value
        if kind == domains.KIND:
            return (
                len(name) <= KEY_BYTES_MAX and field in domains.FIELDS
                and (value in (b"yes", b"no") if field == b"adapt" else check(field, value) == value)
            )
        if kind == tenants.KIND:
            return len(field) <= KEY_BYTES_MAX and number(b"weight", value, WEIGHT_MAX) == value
        if kind == cron.KIND:
            return cron.is_legal(name, field, value)
        if kind == stages.KIND:
            return stages.is_legal(field, value)
    except BadRequest:
        return False
    return False


def apply(node: Node, kind: bytes, name: bytes) -> None:
    """Registers of something have changed, by a word from here or from a peer."""
    bounds.changed(node, kind, name)
    if kind == KIND:
        queue = node.queues.get(name)
        if queue is None and registers.value(node, KIND, name, b"paused") not in (None, b"none"):
            queue = queues.queue_or_none(node, name)
        if queue is not None:
            apply_to_queue(node, queue)
    elif kind == domains.KIND:
        domains.apply(node, name)
    elif kind == tenants.KIND:
        tenants.apply(node, name)
    elif kind == cron.KIND:
        cron.apply(node, name)


def told(node: Node, peer: Peer, kind: bytes, name: bytes) -> None:
    """A peer was told a register that it may not have known: what belongs to it follows."""
    if kind == cron.KIND and name in node.cron and not node.broken("cron-ran-untold"):
        cron.write_ran(peer, node.cron[name])


def apply_to_queue(node: Node, queue: Queue) -> None:
    """Take over what is set for a queue: one that is new, or whose settings have changed."""
    queue.maxlen = int(queue_setting(node, queue.name, b"maxlen") or b"0")
    queue.attempts = int(queue_setting(node, queue.name, b"attempts") or b"0")
    first, _, most = (queue_setting(node, queue.name, b"backoff") or b"0").partition(b":")
    queue.backoff = int(first) * 1000
    queue.backoff_most = int(most) * 1000 if most else max(queue.backoff, BACKOFF_MOST_S * 1000)
    queue.retention = int(queue_setting(node, queue.name, b"retention") or b"0")
    queue.ttl = int(queue_setting(node, queue.name, b"ttl") or b"0")
    queue.keeps_expired = queue_setting(node, queue.name, b"onexpire") is not None
    bounds.set_total(node, queue, int(queue_setting(node, queue.name, b"totalmaxlen") or b"0"))
    has_throttle = queue.rules is not None and queue.rules.throttle is not None
    is_limited = (
        queue_setting(node, queue.name, b"rate") is not None
        or queue_setting(node, queue.name, b"concurrency") is not None
    )
    if has_throttle or is_limited:
        domains.set_throttle(node, rules.make_throttle(node, queue), KIND, queue.name)
    paused = node.registers.find(KIND, queue.name, b"paused")
    if paused is not None and paused.time >= queue.pause_stamp:  # in the same moment: what was said to all counts
        queue.pause_stamp = paused.time
        word, _, until = (paused.value or b"none").partition(b" ")
        left = int(until) - own_wall(node) if until else 0
        is_over = until != b"" and left <= 0
        queue.pause_word = 0 if is_over else PAUSE_NAMES.index(word)
        queues.set_paused(node, queue, queue.pause_word, 0 if is_over else left)
        federate.give(node, queue)


def pause_loaded(node: Node, queue: Queue, paused: i64, stamp: i64) -> None:
    """How a queue was paused, and by a word of when. Until when one to all holds its register says: its end may have
    come while we were down. Journals of before tell no stamp (-1): then it is after the last word to all, unless
    that is the same word and has an end."""
    said = node.registers.find(KIND, queue.name, b"paused")
    if said is not None and stamp < 0:
        is_same = (said.value or b"").startswith(PAUSE_NAMES[paused] + b" ")
        stamp = said.time if is_same else said.time + 1
    if paused and said is not None and said.time >= stamp and not node.broken("pause-end-lost"):
        return
    queue.paused = paused
    queue.pause_until = 0
    if stamp > 0 and not node.broken("pause-stamp-lost"):
        queue.pause_stamp = stamp
        node.registers.latest = max(node.registers.latest, stamp)


def clocks_known(node: Node) -> None:
    """After a start peers have said what time it is: pauses end by that, not by the clock we had then."""
    for name in registers.names(node, KIND):
        if b" " in (registers.value(node, KIND, name, b"paused") or b"") and not node.broken("pause-by-own-clock"):
            apply(node, KIND, name)


def forget_pause_stamps(node: Node, until: i64) -> list[Queue]:
    """Stamps of pauses that are later than this: a word to all gets a new one with its register. The queues whose last
    word was to this node alone, which comes after it."""
    found: list[Queue] = []
    for queue in node.queues.values():
        if queue.pause_stamp <= until or node.broken("pause-stamp-kept"):
            continue
        paused = node.registers.find(KIND, queue.name, b"paused")
        if paused is not None and paused.time >= queue.pause_stamp:
            queue.pause_stamp = 0
        else:
            found.append(queue)
    return found


def moved_in_time(field: bytes, value: bytes | None, ms: i64) -> bytes | None:
    """A value that gets another stamp: a pause that has an end lasts as long as was said."""
    if field != b"paused" or value is None:
        return value
    word, space, until = value.partition(b" ")
    return b"%b %d" % (word, max(0, int(until) + ms)) if space else value
