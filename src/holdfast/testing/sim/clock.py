"""The clocks of one simulated machine.

`t` is the simulation's own time, which no node ever sees. A machine's wall clock is off by its skew and may
jump; its monotonic clock starts at the wall time of the boot, as the shell's does, runs a little fast or slow,
and never goes back.
"""
from __future__ import annotations

from typing import Final

EPOCH_MS: Final = 1_700_000_000_000
"""The wall time at which every simulation begins."""

MILLION: Final = 1_000_000


class Clock:
    def __init__(self, skew_ms: int = 0, rate_ppm: int = 0) -> None:
        self.skew = skew_ms
        self.rate = MILLION + rate_ppm  # how far it gets in a second, in microseconds
        self.boot_t = 0
        self.start = self.wall(0)

    def reboot(self, t: int) -> None:
        self.boot_t = t
        self.start = self.wall(t)

    def wall(self, t: int) -> int:
        return EPOCH_MS + t + self.skew

    def mono(self, t: int) -> int:
        return self.start + (t - self.boot_t) * self.rate // MILLION

    def when(self, mono: int) -> int:
        """The first `t` at which the monotonic clock shows at least `mono`."""
        return self.boot_t - (self.start - mono) * MILLION // self.rate
