"""The words events and outcomes are known by, and the columns that both have. No Spark here."""
from __future__ import annotations

from typing import Final

ADDED: Final = "added"
QUEUED: Final = "queued"
HANDED: Final = "handed"
EXTENDED: Final = "extended"
NACKED: Final = "nacked"
LOST: Final = "lost"
ACKED: Final = "acked"
EXPIRED: Final = "expired"
DEAD: Final = "dead"
DELETED: Final = "deleted"
REFUSED: Final = "refused"

TYPES: Final = (ADDED, QUEUED, HANDED, EXTENDED, NACKED, LOST, ACKED, EXPIRED, DEAD, DELETED, REFUSED)

OUTCOMES: Final = {ACKED: "done", DEAD: "dead", EXPIRED: "expired", DELETED: "deleted"}
"""How a job ended, by the event that ended it. If several did (an ack after its time was over) the first here wins."""
