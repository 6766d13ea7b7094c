"""The words events and outcomes are known by. Events are those of docs/reference/history.md. No Spark here."""
from __future__ import annotations

from typing import Final

ADDED: Final = "added"
QUEUED: Final = "queued"
HANDED: Final = "handed-out"
NACKED: Final = "nacked"
LOST: Final = "lease-lost"
ACKED: Final = "acked"
EXPIRED: Final = "expired"
DEAD: Final = "dead"
DELETED: Final = "deleted"
REFUSED: Final = "refused"
CANCELLED: Final = "cancelled"
REVIVED: Final = "revived"
EVICTED: Final = "evicted"
GAP: Final = "gap"

OUTCOMES: Final = {
    ACKED: "done", DEAD: "dead", DELETED: "deleted", CANCELLED: "cancelled", EXPIRED: "expired", EVICTED: "evicted",
}
"""How a job ended, by the event that ended it. If several did (an ack after its time was over) the first here wins."""
