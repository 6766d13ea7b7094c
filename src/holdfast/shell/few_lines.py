"""Lines of a log about what strangers do: few enough that nobody can fill a disk with them."""
from __future__ import annotations

import logging
import time

from holdfast.shell.bounds import LINES_S

log = logging.getLogger("holdfast")


class FewLines:
    """Lines of the log, few enough that they cannot fill the disk: strangers can make as many as they like, and a
    broken node can come and go all day."""

    def __init__(self, topic: str, level: int, most: int) -> None:
        self.topic = topic
        self.level = level
        self.most = most
        self.since = 0.0
        self.said = 0
        self.unsaid = 0

    def say(self, where: str, what: str) -> None:
        now = time.monotonic()
        if now - self.since >= LINES_S:
            if self.unsaid:
                log.log(self.level, "%s: %d more lines like these were not logged", self.topic, self.unsaid)
            self.since, self.said, self.unsaid = now, 0, 0
        if self.said >= self.most:
            self.unsaid += 1
            return
        self.said += 1
        log.log(self.level, "%s: %s: %s", self.topic, where.encode("ascii", "backslashreplace").decode(), what)
