"""Watching for slowness: SLOWLOG and LATENCY.

The machine has no clock fine enough to time a command, so the shell times it and says so (Node.took);
this file keeps what was slow. Direct handlers do a constant, small amount of work and are not timed one by
one; a turn of the loop that takes long shows up as the event `loop`.
"""
from __future__ import annotations

from collections import deque

from mypy_extensions import i64

from holdfast.core.config import Config
from holdfast.core.limits import LATENCY_SAMPLES_MAX, SLOWLOG_ARG_BYTES_MAX, SLOWLOG_ARGS_MAX


class Slow:
    """One entry of SLOWLOG."""

    def __init__(self, number: int, when_s: int, usec: int, words: list[bytes]) -> None:
        self.number: int = number
        self.when_s: int = when_s
        self.usec: int = usec
        self.words: list[bytes] = words


class Series:
    """What LATENCY knows of one event: (unix second, milliseconds), the worst of each second."""

    def __init__(self) -> None:
        self.samples: deque[tuple[int, int]] = deque(maxlen=LATENCY_SAMPLES_MAX)
        self.worst: int = 0

    def note(self, when_s: int, ms: int) -> None:
        self.worst = max(self.worst, ms)
        if self.samples and self.samples[-1][0] == when_s:
            ms = max(ms, self.samples.pop()[1])
        self.samples.append((when_s, ms))


class Watch:
    def __init__(self, config: Config) -> None:
        self.slow: deque[Slow] = deque()
        self.count: int = 0
        self.events: dict[bytes, Series] = {}
        self.slow_usec: i64 = -1
        self.slow_most: int = 0
        self.latency_ms: i64 = 0
        self.apply_settings(config)

    def apply_settings(self, config: Config) -> None:
        self.slow_usec = config.number("slowlog-log-slower-than")
        self.slow_most = config.number("slowlog-max-len")
        self.latency_ms = config.number("latency-monitor-threshold")
        while len(self.slow) > self.slow_most:
            self.slow.pop()

    def took(self, usec: i64, argv: list[bytes], wall_ms: i64) -> None:
        if 0 <= self.slow_usec <= usec:
            self.slow.appendleft(Slow(self.count, wall_ms // 1000, usec, shorten(without_secrets(argv))))
            self.count += 1
            if len(self.slow) > self.slow_most:
                self.slow.pop()
        self.event(b"command", usec, wall_ms)

    def event(self, name: bytes, usec: i64, wall_ms: i64) -> None:
        if 0 < self.latency_ms <= usec // 1000:
            series = self.events.get(name)
            if series is None:
                series = self.events[name] = Series()
            series.note(wall_ms // 1000, usec // 1000)


def shorten(argv: list[bytes]) -> list[bytes]:
    """A command's words as SLOWLOG keeps them."""
    words: list[bytes] = []
    for i in range(len(argv)):
        word = argv[i]
        if i == SLOWLOG_ARGS_MAX - 1 and len(argv) > SLOWLOG_ARGS_MAX:
            words.append(b"... (%d more arguments)" % (len(argv) - i))
            break
        if len(word) > SLOWLOG_ARG_BYTES_MAX:
            word = word[:SLOWLOG_ARG_BYTES_MAX] + b"... (%d more bytes)" % (len(word) - SLOWLOG_ARG_BYTES_MAX)
        words.append(word)
    return words

def without_secrets(argv: list[bytes]) -> list[bytes]:
    """The words of a command, fit for other people's eyes."""
    name = argv[0].upper()
    if name == b"AUTH":
        return [argv[0]] + [b"(hidden)"] * (len(argv) - 1)
    if name == b"HELLO" and len(argv) > 4:
        return [*argv[:2], b"(hidden)"]
    if name == b"CONFIG" and len(argv) == 4 and argv[2].lower() == b"requirepass":
        return [*argv[:3], b"(hidden)"]
    return argv
