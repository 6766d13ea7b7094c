"""Time as a node wants it: milliseconds that never go back, and the clock on the wall.

The first is the monotonic clock, moved once, at the start, so that it begins at unix time: creation times
then mean something to people, and a wall clock that jumps later moves no lease and no lifetime.
"""
from __future__ import annotations

import time


def offset_ms() -> int:
    """What to add to the monotonic clock to get the node's."""
    return time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    return time.time_ns() // 1_000_000
