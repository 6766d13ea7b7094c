"""The state of a job in the words that people use, and lists filter by."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

STATES: Final = ("queued", "leased", "delayed", "in-line", "dead")
"""Each as the node sees it that sees to the job, so that a job is listed once; copies elsewhere are not listed."""


def state_of(row: Mapping[str, Any]) -> str:
    """From what SHOW or JSCAN says of a job."""
    state = str(row.get("state"))
    if "in-line" in row:
        return "in-line"
    if state != "active":
        return state
    return "leased" if is_leased(row) else "delayed"


def is_leased(row: Mapping[str, Any]) -> bool:
    """A worker has it, as the node says that gave it out; `leased`: by a GETJOB without a token."""
    return "leased-ms" in row or "leased" in row
