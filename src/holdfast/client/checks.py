"""What callers hand in, checked before anything is sent.

Not every caller has a type checker. What would be sent as something else than it is (a list as its repr, an
option nobody reads) is a TypeError that says what to write instead.

Time: seconds as float in Python, whole milliseconds on the wire for timeouts. DELAY, RETRY and TTL are whole
seconds on the wire and are rounded up, so that 0.5 never becomes 0: RETRY 0 would turn "at least once" into
"at most once".
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import SupportsFloat, TypeAlias

from .errors import BadRequest
from .resp import Arg, to_text

Body: TypeAlias = "bytes | bytearray | memoryview | str"
"""What a job carries: bytes of any kind, or text, which is sent as UTF-8."""

Seconds: TypeAlias = "float | timedelta"
"""A length of time: a number of seconds, or a timedelta."""


def name(queue: str) -> str:
    """The name of a queue."""
    given: object = queue
    if isinstance(given, str):
        return given
    if isinstance(given, bytes):
        return to_text(given)
    hint = "; name several one after the other: next('a', 'b')" if isinstance(given, list | tuple | set) else ""
    raise TypeError(f"the name of a queue is a str, not {kind(given)}{hint}")


def key(what: str, value: str) -> str:
    """The name of a group, a domain, a tenant …"""
    given: object = value
    if isinstance(given, str):
        return given
    raise TypeError(f"{what} is a str, not {kind(given)}")


def body_of(body: Body, what: str = "the body of a job") -> bytes | str:
    """The body of a job, or its result."""
    if isinstance(body, bytes | str):
        return body
    try:
        return memoryview(body).tobytes()
    except TypeError:
        pass
    raise TypeError(f"{what} is bytes or str, not {kind(body)}; pass for example json.dumps(…)")


def many(bodies: Iterable[Body]) -> Iterable[Body]:
    """Bodies of several jobs."""
    given: object = bodies
    if isinstance(given, bytes | bytearray | memoryview | str | Mapping) or not isinstance(given, Iterable):
        raise TypeError(f"add_many takes a list of bodies, not {kind(given)}; for one job use add()")
    return bodies


def word(given: object) -> Arg:
    """A word of a raw command."""
    if isinstance(given, bytes | str) or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"a word of a command is bytes, str or int, not {kind(given)}")


def known(method: str, options: Iterable[str], possible: Collection[str]) -> None:
    """No option that nobody reads."""
    for wrong in options:
        if wrong not in possible:
            import difflib

            close = difflib.get_close_matches(wrong, possible, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(possible))}"
            raise TypeError(f"{method}() has no option {wrong!r}; {hint}")


def count(what: str, value: int) -> int:
    """A whole number."""
    given: object = value
    if not isinstance(given, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{what} is a whole number, not {kind(given)}")


def kind(value: object) -> str:
    return "None" if value is None else type(value).__name__


def timeout_ms(seconds: float | None) -> int:
    """Milliseconds for the wire. There 0 means for ever, so the shortest wait is 1."""
    if seconds is None:
        return 0
    milliseconds = rounded_up("timeout", seconds, 1000)
    if milliseconds < 0:
        raise BadRequest("timeout is negative")
    return max(1, milliseconds)


def seconds(what: str, value: Seconds) -> float:
    """A length of time as a number of seconds."""
    given: object = value
    if isinstance(given, timedelta):
        return given.total_seconds()
    if isinstance(given, bool) or not isinstance(given, int | float | SupportsFloat):
        raise TypeError(f"{what} is a number of seconds or a timedelta, not {kind(given)}")
    number = float(given)
    if not math.isfinite(number):
        raise BadRequest(f"{what} is not a number of seconds")
    return number


def rounded_up(what: str, value: Seconds, times: int = 1) -> int:
    """A length of time in whole parts of `times` to the second."""
    return math.ceil(seconds(what, value) * times)


def unix_seconds(what: str, value: float | datetime) -> int:
    """A point in time. A datetime must say in which zone it is meant: a worker may run in another one."""
    given: object = value
    if isinstance(given, timedelta):
        raise TypeError(f"{what} is a point in time, not a timedelta: use delay")
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise TypeError(f"{what} is a datetime without a zone: give it one, as in datetime.now(timezone.utc)")
        return math.ceil(given.timestamp())
    try:
        return rounded_up(what, value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what} is unix seconds or a datetime, not {kind(given)}") from None
