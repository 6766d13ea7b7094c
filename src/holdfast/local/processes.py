"""The processes of a local Holdfast: how each is started, told to stop, and started again when it dies.

A process gets a session of its own, so that Ctrl-C reaches only us and we stop them in the order that is right: first
who makes jobs, last the nodes. Should we be killed ourselves, the kernel tells each of them to stop (Linux). What is
left of a process's group after its end is killed: Spark's Java is a child of a child.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

AGAIN_S = 2.0
"""A process that has died is started again after so long: time to see on the screen that it was away."""
STARTS_MAX = 5
"""One that dies this often within a minute is left dead: something is wrong that starting again does not mend."""
SETTLED_S = 60.0
TAIL_LINES = 8
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with_parent() -> None:
    """In the child, before its program: SIGTERM when its parent is gone."""
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass
class Process:
    """One of them. SIGTERM is what each understands as "finish and go"."""

    name: str
    words: list[str]
    log: Path
    where: str = ""
    stop_s: float = 15.0
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    starts: list[float] = field(default_factory=list)
    died_at: float = 0.0
    code: int | None = None

    def start(self) -> None:
        self.starts.append(time.monotonic())
        self.died_at, self.code = 0.0, None
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.words], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **self.env}, start_new_session=True, preexec_fn=end_with_parent,
            )

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None else 0

    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def look(self, now: float) -> str:
        """What to say of it, after starting it again if it is time to."""
        if self.is_up():
            return "running"
        if self.process is not None and not self.died_at:
            self.died_at, self.code = now, self.process.returncode
            self.sweep()
        if sum(1 for when in self.starts if now - when < SETTLED_S) >= STARTS_MAX:
            return f"ended with {self.code}; given up, see {self.log}"
        if now - self.died_at >= AGAIN_S:
            self.start()
            return "running"
        return f"ended with {self.code}; starts again"

    def tell(self) -> None:
        if self.process is not None and self.is_up():
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()

    def wait(self) -> bool:
        """Until it is gone, and its children with it. False: it had to be killed."""
        if self.process is None:
            return True
        try:
            self.process.wait(self.stop_s)
            went = True
        except subprocess.TimeoutExpired:
            went = False
        self.sweep()
        self.code = self.process.wait()
        return went

    def sweep(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def tail(self) -> str:
        """The end of its log, for when it did not start."""
        lines = self.log.read_text("utf-8", "replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-TAIL_LINES:])
