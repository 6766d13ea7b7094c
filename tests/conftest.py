"""What holds for all tests: Ctrl-C reaches the programs they start.

A shell starts what runs in the background with SIGINT ignored, and that is handed down to every child. Tests that press
Ctrl-C would wait for nothing then, so it is undone here.
"""
from __future__ import annotations

import signal


def pytest_configure() -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
