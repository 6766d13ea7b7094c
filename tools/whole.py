"""Runs a command and waits for all that it leaves behind: `python tools/whole.py WORD…`.

A test of ours starts programs that start others. When one ends before what it started, nobody would ask what that cost
(a Java virtual machine ends after the Python that opened it), nor end it. Here all of them become our children, so that
our own usage counts them. The exit code is the command's.
"""
from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
PATIENCE_S = 15.0
POLL_S = 0.05


def children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def reap(first: int) -> int:
    """Wait for every child until the first has ended; its exit code."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == first:
            return os.waitstatus_to_exitcode(status)


def reap_rest() -> None:
    """Wait for what is left, for a while; then end it, and say what it was."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0 and time.monotonic() > end:
            for left in children():
                words = Path(f"/proc/{left}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                print(f"left behind, and ended here: process {left}, {words}")
                os.kill(left, signal.SIGKILL)
        if pid == 0:
            time.sleep(POLL_S)


def main(words: Sequence[str]) -> int:
    signal.signal(signal.SIGINT, lambda number, frame: None)  # Ctrl-C is for the command, which gets it, too
    is_linux = sys.platform == "linux"
    if is_linux:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    command = subprocess.Popen(words)  # kept: one that is thrown away asks for its process itself
    code = reap(command.pid)
    if is_linux:
        reap_rest()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
