"""Which nodes there are, which of them to try first, and which to leave alone for a while.

Those of the url are known from the start; the others are learned from the first one that is reached (HELLO), and once
a minute from then on. They are tried in this order:

    the node a call is about   it handed the job out, and knows without asking others
    the favourite              the one that makes most of the jobs we take: the eight digits in their ids tell
    the order of the url, then those that were learned

A node that could not be reached rests: a tenth of a second, twice as long after each further failure, up to five
seconds, and a random part less, so that a thousand clients don't come back as one. One that rests is tried only when
all others have failed, since an answer that nobody can be reached should not rest on a memory. One that takes
connections and answers nothing (`attending`, `knocking`) is tried last until it answers: that it can be connected to
says nothing.

Moving to the favourite saves messages between the nodes, but moving to and fro costs more than it saves. So it takes
FAVOUR_OF of FAVOUR_JOBS jobs, and FAVOUR_S since the last move.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from .resp import Reply, to_text
from .target import Target

REST_S: Final = 0.1
REST_S_MAX: Final = 5.0
FRESH_S: Final = 60.0
"""Then a node is asked again who there is: others may have joined."""
KNOWN_MAX: Final = 256
"""Nodes of which we keep the address. More than a cluster has."""
FAVOUR_JOBS: Final = 100
FAVOUR_OF: Final = 0.6
FAVOUR_S: Final = 10.0
LIKES_NOBODY: Final = 100
"""From this priority in HELLO on a node is failed or leaving."""


@dataclass(slots=True)
class Known:
    """A node, and how it went lately."""

    target: Target
    near: str = ""
    """Eight digits of its id, once we know them."""
    failures: int = 0
    rests_until: float = 0.0
    is_silent: bool = False
    """It did not answer, and is waited for by somebody else."""


class Nodes:
    """Shared by the connections of one queue, and by its threads."""

    def __init__(self, targets: tuple[Target, ...]) -> None:
        self._lock = threading.Lock()
        self._known = [Known(target) for target in targets]
        self._fresh: dict[Target, float] = {}
        """Whom we have asked for the others, and until when that will do."""
        self._favourite = ""
        self._counts: Counter[str] = Counter()
        self._moved = time.monotonic()

    def is_known(self, target: Target) -> bool:
        """Have we asked this one who it is, and who the others are, and not too long ago?"""
        return time.monotonic() < self._fresh.get(target, 0.0)

    def targets(self) -> tuple[Target, ...]:
        """All that are known."""
        return tuple(each.target for each in self._known)

    def order(self, near: str = "") -> list[Target]:
        """Whom to try, one after the other."""
        known = self._known
        if len(known) == 1:
            return [known[0].target]
        now = time.monotonic()
        favourite = self._favourite

        def rank(each: Known) -> tuple[bool, bool, bool, bool]:
            is_near = near != "" and each.near == near
            rests = each.rests_until > now
            return each.is_silent, rests, not is_near, favourite == "" or each.near != favourite

        return [each.target for each in sorted(known, key=rank)]

    def failed(self, target: Target) -> None:
        """It could not be reached, or would not have us."""
        with self._lock:
            for each in self._known:
                if each.target == target:
                    rest = min(REST_S_MAX, REST_S * 2.0**each.failures)
                    each.failures = min(each.failures + 1, 16)
                    each.rests_until = time.monotonic() + rest * random.uniform(0.5, 1.0)

    def silent(self, target: Target) -> None:
        """It does not answer. Whoever says so has to say when it does."""
        self._hush(target, True)

    def answered(self, target: Target) -> None:
        """It was silent, and is no longer."""
        self._hush(target, False)
        self.worked(target)

    def _hush(self, target: Target, is_silent: bool) -> None:
        for each in self._known:
            if each.target == target:
                each.is_silent = is_silent

    def worked(self, target: Target) -> None:
        """It could be reached."""
        for each in self._known:
            if each.target == target:
                each.failures = 0
                each.rests_until = 0.0

    def learned(self, through: Target, hello: Reply) -> None:
        """What a node says of the others: version, its id, then id, host, port and priority of each."""
        self._fresh[through] = time.monotonic() + FRESH_S
        if not isinstance(hello, list) or len(hello) < 3 or not isinstance(hello[1], bytes):
            return
        me = to_text(hello[1])[:8]
        with self._lock:
            for each in self._known:
                if each.target == through:
                    each.near = me
            for entry in hello[2:]:
                if isinstance(entry, list) and len(entry) >= 4:
                    self._learn(through, me, entry)

    def _learn(self, through: Target, me: str, entry: list[Reply]) -> None:
        node_id, host, port, priority = entry[:4]
        if not (isinstance(node_id, bytes) and isinstance(host, bytes) and isinstance(port, bytes)):
            return
        near, place = to_text(node_id)[:8], to_text(host)
        is_willing = isinstance(priority, bytes) and priority.isdigit() and int(priority) < LIKES_NOBODY
        if near == me or through.path or not place or not port.isdigit() or not is_willing:
            return  # Behind a Unix socket the others' addresses are another machine's business.
        target = replace(through, host=place, port=int(port))
        for each in self._known:
            if each.target == target or each.near == near:
                each.near = near
                return
        if len(self._known) < KNOWN_MAX:
            self._known.append(Known(target, near))

    def saw(self, reply: Reply) -> bool:
        """Jobs came. True: there is a new favourite, and the next call should go there."""
        if len(self._known) == 1 or not isinstance(reply, list):
            return False
        for entry in reply:
            if isinstance(entry, list) and len(entry) > 1 and isinstance(entry[1], bytes):
                self._counts[entry[1][2:10].decode("latin-1")] += 1
        with self._lock:
            total = self._counts.total()
            if total < FAVOUR_JOBS:
                return False
            maker, made = self._counts.most_common(1)[0]
            self._counts.clear()
            is_far = maker != self._favourite and made >= FAVOUR_OF * total
            if not is_far or time.monotonic() - self._moved < FAVOUR_S:
                return False
            if all(each.near != maker for each in self._known):
                return False
            self._favourite = maker
            self._moved = time.monotonic()
            return True
