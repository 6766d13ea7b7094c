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
EXTENDED: Final = "extended"
RELEASED: Final = "released"
MOVED: Final = "moved"
IMPORTED: Final = "imported"
DEQUEUED: Final = "dequeued"
REFUSED: Final = "refused"
CANCELLED: Final = "cancelled"
REVIVED: Final = "revived"
EVICTED: Final = "evicted"
GAP: Final = "gap"

OUTCOMES: Final = {
    ACKED: "done", DEAD: "dead", DELETED: "deleted", CANCELLED: "cancelled", EXPIRED: "expired", EVICTED: "evicted",
}
"""How a job ended, by the event that ended it. If several did (an ack after its time was over) the first here wins."""

HELD, WAITING, ASIDE = "held", "waiting", "aside"
STATES: Final = {
    ADDED: WAITING, MOVED: WAITING, IMPORTED: WAITING, HANDED: HELD, EXTENDED: HELD, NACKED: WAITING, RELEASED: WAITING,
    LOST: WAITING, QUEUED: WAITING, DEQUEUED: ASIDE, REVIVED: WAITING,
}
"""What a job that has not ended does after each event; of events with the same time and attempt the later one here
counts. Aside: a client took it out of its queue."""
SILENT: Final = "node-silent"
"""The cause of a lost lease that another node tells of: it does not know whether a worker had the job."""
