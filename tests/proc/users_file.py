"""A file of users, made by the command line as a person would make it."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SECRETS = {"boss": "the-boss-is-in-today", "shop": "orders-orders-orders", "mailer": "letters-and-stamps"}


def users(path: Path, *words: str, secret: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "users", *words, "--file", str(path)], input=secret + "\n",
        capture_output=True, text=True, env=dict(os.environ), timeout=60,
    )
