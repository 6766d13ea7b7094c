"""A node started as a person would: on a terminal, spoken to on the port it printed, stopped with Ctrl-C."""
from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Sequence

from bench import common
from bench.show.lines import LOGS, STOP_SECONDS_MAX, Answer, end_group

READY_SECONDS_MAX = 600.0  # `make run` may have to compile first
READY = re.compile(r"\bready\b.*\n", re.IGNORECASE)  # a whole word: pip likes to say "already"
TERMINAL_COLORS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def read_until_ready(terminal: int) -> str:
    """What the screen shows up to the line that contains "ready"; less if that never comes."""
    screen = ""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < deadline:
        readable, _, _ = select.select([terminal], [], [], 0.2)
        if not readable:
            continue
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other side of a terminal closed
            break
        screen += TERMINAL_COLORS.sub("", piece.decode(errors="replace"))
        if not piece or READY.search(screen):
            break
    return screen


def drain_until_end(terminal: int, process: subprocess.Popen[bytes]) -> None:
    """A process that still writes would wait for ever for a terminal that nobody reads."""
    deadline = time.monotonic() + STOP_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        readable, _, _ = select.select([terminal], [], [], 0.1)
        if readable:
            with contextlib.suppress(OSError):
                os.read(terminal, 65536)


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C for the node alone: make itself would end with an error, however well the node ended."""
    below = common.descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(below[-1] if below else process.pid, signal.SIGINT)


def talk_to_it(screen: str) -> str | None:
    """The port on the screen, if PING is answered there."""
    for port in re.findall(r"(?:port\s+|:)(\d{4,5})\b", screen):
        with contextlib.suppress(OSError, ValueError):
            if common.ask(int(port), "PING") == "PONG":
                return str(port)
    return None


def started_by_hand(command: Sequence[str]) -> Answer:
    """Start it on a terminal as a person would, talk to it, and stop it with Ctrl-C."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, cwd=common.ROOT, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        screen = read_until_ready(ours)
        LOGS.mkdir(parents=True, exist_ok=True)
        (LOGS / "run.log").write_text(screen)
        if not READY.search(screen):
            return "no line with 'ready' appeared", False
        port = talk_to_it(screen)
        interrupt(process)
        drain_until_end(ours, process)
        code = process.poll()
    finally:
        end_group(process)
        os.close(ours)
    if port is None:
        return "ready, but no PING answered on a port it printed", False
    ended = "did not end" if code is None else f"exit code {code}"
    return f"ready and answering on port {port}; after Ctrl-C: {ended}", code == 0
