"""Adds windows of jobs to a cluster: what is refused is tried again, elsewhere and later; what is wrong is an error.

A window is ADDJOB commands sent in one go. If the connection breaks nobody knows which of them happened: with unique
keys they are sent again, and those that had happened are found; without keys that is an error, for somebody to decide.
"""
from __future__ import annotations

import time
from collections import Counter
from typing import Final

from holdfast.client.errors import BadRequest, Error, Refused, Unknown
from holdfast.client.resp import Arg, Reply
from holdfast.client.target import Target
from holdfast.pipeline.nodes import Nodes

RETRIES: Final = 8
PAUSE_S: Final = 0.2
"""Before a refused command is sent again, doubled each time: about a minute in all, in which a node can come back."""


class Adder:
    def __init__(self, nodes: Nodes, timeout_s: float, has_keys: bool, retries: int = RETRIES) -> None:
        self.nodes = nodes
        self.timeout_s = timeout_s
        self.has_keys = has_keys
        self.retries = retries

    def add(self, window: list[list[Arg]]) -> list[bool]:
        """Add all of a window; for each whether it was there already (where it asks that by SAYDUP). `Refused` if some
        were refused to the end."""
        left = list(range(len(window)))
        was_there = [False] * len(window)
        in_doubt: set[int] = set()
        last: Error | None = None
        for attempt in range(self.retries + 1):
            replies = self.once([window[i] for i in left], attempt)
            again: list[int] = []
            for i, reply in zip(left, replies, strict=True):
                if isinstance(reply, Error):
                    last = reply
                    again.append(i)
                    if isinstance(reply, Unknown):
                        in_doubt.add(i)
                else:  # what is found by a second try may be of the first
                    was_there[i] = is_existing(reply) and i not in in_doubt
            left = again
            if not left:
                return was_there
            if attempt < self.retries:
                time.sleep(PAUSE_S * 2**attempt)
        assert last is not None
        kinds = Counter(str(window[i][1]) for i in left).most_common(3)
        raise Refused(f"{len(left)} jobs were refused {self.retries + 1} times, the last time because: {last.text} "
                      f"(queues: {', '.join(f'{name} {count}' for name, count in kinds)})", last.code)

    def once(self, window: list[list[Arg]], attempt: int) -> list[Reply]:
        """The answers; those that are errors have to be sent again."""
        try:
            replies = self.nodes.ask_many(self.target(attempt), window, self.timeout_s)
        except Refused as error:
            return [error] * len(window)
        except Unknown as error:
            if self.has_keys:
                return [error] * len(window)
            said = f"{error.text}. Jobs may have been added: without unique keys they cannot be sent again safely"
            raise Unknown(said, error.code) from error
        for words, reply in zip(window, replies, strict=True):
            if isinstance(reply, Refused) or (isinstance(reply, Unknown) and self.has_keys):
                continue
            if isinstance(reply, Unknown):
                said = "The job may yet be handed out: without unique keys it cannot be sent again safely"
                raise Unknown(f"{reply.text}. {said} (in queue {words[1]!r})", reply.code)
            if isinstance(reply, Error):
                size = len(words[2]) if isinstance(words[2], bytes | str) else 0
                raise BadRequest(f"{reply.text} (in queue {words[1]!r}, a body of {size} bytes)", reply.code)
        return replies

    def target(self, attempt: int) -> Target:
        """The first node that was named, then any."""
        if attempt == 0:
            return self.nodes.named[0]
        try:
            targets = list(self.nodes.members().values())
        except (Refused, Unknown):
            targets = list(self.nodes.named)
        return targets[attempt % len(targets)]


def is_existing(reply: Reply) -> bool:
    """Whether the answer to an ADDJOB with SAYDUP says that the key was taken."""
    return isinstance(reply, list) and len(reply) > 1 and reply[1] == b"existing"
