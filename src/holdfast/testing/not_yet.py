"""What the simulator can already see, and what is not mended yet: each entry says what waits for which part.

An entry of DRAWN keeps a kind of fault from being drawn where it would only find what is known, one of JUDGED keeps a
time checker from being heard. The work that mends it deletes the entry; both should be empty.
"""
from __future__ import annotations

from typing import Final

DRAWN: Final[dict[str, str]] = {
    "gone": "reach: a restarted node waits 90 s for other holders that are all gone",
    "stranger": "reach: the same",
    "strangers": "reach: the same",
}

JUDGED: Final[dict[str, str]] = {
    "out-of-reach": "reach: a crash hides jobs, and a node that dies takes its waiting jobs along, for a retry time",
    "not-handed-out": "reach",
    "put-off": "reach: a restart adds a retry time to the time of a copy",
}
