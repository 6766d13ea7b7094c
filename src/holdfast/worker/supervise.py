"""Several workers, each in a process of its own, and one that is started again when its code changes.

The parent runs no handler and holds no connection: it starts children (the same command line with `--child`), passes
signals on, and starts one again that died. A child that dies at once, again and again, is started with growing pauses;
if none of them could start at all, the parent says so and ends, as a single worker would. Each child refreshes a health
file in a folder of the parent's; the parent is healthy while all of them are.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from holdfast.client.errors import BadRequest

from .figures import Figures, exposition, from_json, total
from .health import OK, HealthFile, HealthPort

LOOK_S: Final = 0.2
PAUSE_S: Final = 0.5
PAUSE_S_MAX: Final = 30.0
GOOD_S: Final = 10.0
"""A child that lived so long did not die of its start."""
STALE_S: Final = 5.0
"""A health file that old is nobody's."""
GRACE_S: Final = 10.0
"""Beyond their own deadline, children have so long to end."""

log = logging.getLogger("holdfast.worker")


class Child:
    """A worker process, started as often as needed."""

    def __init__(self, argv: Sequence[str], health: Path) -> None:
        self.health = health
        self._argv = [*argv, "--child", "--health-file", str(health)]
        self._pause = PAUSE_S
        self._started = 0.0
        self._next = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._was_well = False
        self._past = Figures()
        """Of its processes that have ended."""
        self._figures = Figures()
        """Of the one that runs, when they were last read."""
        self.is_hopeless = False
        """It ended with a sentence before it ever worked: a wrong name, a wrong password. The next one would, too."""

    def start(self) -> None:
        self._started = time.monotonic()
        self._process = subprocess.Popen(self._argv)

    def check(self) -> None:
        """Start it again if it has died."""
        now = time.monotonic()
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                self._was_well = self._was_well or self.health.exists()
                return
            self.is_hopeless = code in (1, 2) and not self._was_well
            self._pause = PAUSE_S if now - self._started > GOOD_S else min(PAUSE_S_MAX, self._pause * 2)
            log.error("a worker process ended with %d; the next one starts in %g s", code, self._pause)
            self._process = None
            self._next = now + self._pause
            self.figures()
            self._past, self._figures = total([self._past, Figures(self._figures.tasks)]), Figures()
        elif now >= self._next:
            self.start()

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def join(self, seconds: float) -> None:
        """Wait for its end; then make it."""
        if self._process is None:
            return
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def figures(self) -> Figures:
        """What its processes have done, as far as the last wrote it beside its health."""
        with contextlib.suppress(OSError, ValueError):  # not there, or half written: what was read before holds
            self._figures = from_json(self.health.read_bytes().removeprefix(OK))
        return total([self._past, self._figures])

    def is_healthy(self) -> bool:
        try:
            return time.time() - self.health.stat().st_mtime < STALE_S
        except FileNotFoundError:
            return False


class Supervisor:
    """Runs `count` workers until a signal says stop."""

    def __init__(
        self, argv: Sequence[str], count: int, *, shutdown_s: float, health_host: str = "127.0.0.1",
        health_port: int = 0, health_file: str = "", reloads: Path | None = None,
    ) -> None:
        self._argv = list(argv)
        self._count = count
        self._shutdown_s = shutdown_s
        self._health = (health_host, health_port, health_file)
        self._reloads = reloads
        self._signals: list[int] = []
        self._children: list[Child] = []

    def run(self) -> None:
        """Work until a signal says stop."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: self._signals.append(number))
        with tempfile.TemporaryDirectory(prefix="holdfast-worker-") as folder, contextlib.ExitStack() as stack:
            self._children = [Child(self._argv, Path(folder) / f"{i}.ok") for i in range(self._count)]
            host, port, file = self._health
            if port:
                stack.callback(HealthPort(host, port, self.fault, self._metrics).close)
            health = HealthFile(Path(file), self.fault) if file else None
            if health is not None:
                stack.callback(health.close)
            for child in self._children:
                child.start()
            seen = times(self._reloads)
            while not self._signals:
                time.sleep(LOOK_S)
                if health is not None:
                    health.tick(time.monotonic())
                if self._reloads is not None and (now := times(self._reloads)) != seen:
                    seen = now
                    self._reload()
                for child in self._children:
                    child.check()
                if self._reloads is None and all(child.is_hopeless for child in self._children):
                    raise BadRequest("none of the worker processes could start")
            self._end()

    def _metrics(self) -> bytes:
        return exposition(total(child.figures() for child in self._children))

    def _reload(self) -> None:
        log.info("a file changed: the workers start again")
        self._end()
        for child in self._children:
            child.start()

    def _end(self) -> None:
        for child in self._children:
            child.signal(signal.SIGTERM)
        for child in self._children:
            child.join(self._shutdown_s + GRACE_S)

    def fault(self) -> str:
        """Why not all is well; empty if it is."""
        sick = sum(not child.is_healthy() for child in self._children)
        return f"{sick} of {len(self._children)} worker processes are not healthy" if sick else ""


def times(folder: Path | None) -> dict[Path, int]:
    """When each source of a folder was changed."""
    return {} if folder is None else {path: path.stat().st_mtime_ns for path in sources(folder)}


def sources(folder: Path) -> Iterator[Path]:
    """Python files, but not those of environments and other hidden things."""
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).parts
        if not any(part.startswith(".") or part in ("node_modules", "__pycache__") for part in parts):
            with contextlib.suppress(FileNotFoundError):
                path.stat()
                yield path


def own_command(arguments: Sequence[str]) -> list[str]:
    """The command line that starts a worker like this one."""
    return [sys.executable, "-m", "holdfast", "worker", *arguments]
