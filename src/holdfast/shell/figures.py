"""What a process finds out about itself: memory, rates, and how long Python's collector has kept everybody waiting."""
from __future__ import annotations

import gc
import os
import time
from pathlib import Path

RATE_SAMPLES = 16
YOUNG_OBJECTS = 700
YOUNG_ROUNDS = 4
"""Python's collector looks at new objects this often, and at young ones every few times of that. A new object
may be a block of a lane or a page of jobs, hundreds of pointers each, so both numbers are kept small: a look
then takes a few milliseconds at most. At all objects it never looks by itself (see calm_collector)."""


def resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def disk_facts(folder: Path | None) -> dict[str, str]:
    """What is left on the disk of a node's folder, for a node that may use it (not only for root)."""
    if folder is None:
        return {}
    try:
        found = os.statvfs(folder)
    except OSError:
        return {}
    return {"aof_disk_free": str(found.f_bavail * found.f_frsize)}


def calm_collector() -> None:
    """Python's cyclic collector must never walk over all jobs while clients wait.

    Jobs are outside it, but the lists that hold them are not. What exists now is taken out of its sight;
    young objects are looked at as usual; all objects only when the server says so (Server.sweep).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_ROUNDS, 1_000_000)


class CollectorPauses:
    """How long Python's collector has kept everybody waiting."""

    def __init__(self) -> None:
        self.began = 0
        self.longest_ns = 0
        gc.callbacks.append(self.note)

    def note(self, phase: str, facts: dict[str, int]) -> None:
        if phase == "start":
            self.began = time.perf_counter_ns()
        else:
            self.longest_ns = max(self.longest_ns, time.perf_counter_ns() - self.began)

    def stop(self) -> None:
        gc.callbacks.remove(self.note)


class Rates:
    """Commands and bytes per second over the last moments."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, int, int, int]] = []

    def sample(self, figures: dict[str, int], commands: int) -> None:
        self.samples.append((
            time.monotonic(), commands, figures["total_net_input_bytes"], figures["total_net_output_bytes"],
        ))
        del self.samples[:-RATE_SAMPLES]

    def now(self) -> dict[str, str]:
        if len(self.samples) < 2:
            return {}
        first, last = self.samples[0], self.samples[-1]
        seconds = max(1e-3, last[0] - first[0])
        return {
            "instantaneous_ops_per_sec": str(max(0, int((last[1] - first[1]) / seconds))),
            "instantaneous_input_kbps": f"{max(0, last[2] - first[2]) / 1024 / seconds:.2f}",
            "instantaneous_output_kbps": f"{max(0, last[3] - first[3]) / 1024 / seconds:.2f}",
        }
