"""What the simulator can already see, and what is not mended yet: each entry says what waits for which part.

An entry of DRAWN keeps a kind of fault from being drawn where it would only find what is known, one of JUDGED keeps a
time checker from being heard. The work that mends it deletes the entry; both should be empty.
"""
from __future__ import annotations

from typing import Final

DRAWN: Final[dict[str, str]] = {
    "gone": "salvage: jobs of a damaged journal wait 90 s for a member that is gone or was replaced (seed 126)",
    "stranger": "salvage: the same",
    "strangers": "salvage: the same",
}

JUDGED: Final[dict[str, str]] = {}
