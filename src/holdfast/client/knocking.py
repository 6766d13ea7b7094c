"""Is a node awake? For the pool of threads, which has nobody who could wait for the answer all the time.

A node that is stopped, or cut off without a word, takes connections and commands and answers none. A *knock* is a
connection of its own with a PING on it, and whoever knocked may look at it now or later without waiting:

    an answer is late     by DOUBT_S (`manners`). The thread that waits for it knocks, and waits ANSWERS_S for that.
                          Nothing: the call is given up on (`NoAnswer`), and the node is tried last from then on
    a new connection      is used only after its node has said something within ANSWERS_S, as long as there is another
                          node to try: nothing was asked yet, so going on to that one is safe
    each later call       looks, which takes no time, whether the knock has been heard. It is as soon as the node wakes

Anything counts that shows that somebody is there, also that the connection is closed: a node that has ended can't be
connected to, and that is noticed anyway. Where there is only one node, it is waited for as ever. `attending` is the
same for asyncio.
"""

from __future__ import annotations

import contextlib
import selectors
import threading
from dataclasses import replace
from typing import Final

from .connection import connect
from .nodes import Nodes
from .resp import encode
from .target import Target

ANSWERS_S: Final = 2.0
"""A node that is awake says something within this time."""


class Knock:
    """One that has not been heard yet, or has."""

    def __init__(self, target: Target) -> None:
        """OSError: nobody can be reached."""
        self._socket = connect(replace(target, tls=None, connect_timeout=min(target.connect_timeout, ANSWERS_S)))
        self._socket.setblocking(False)
        self._socket.send(encode(["PING"]))  # To a TLS port this is an insult, which only one who is awake can resent.

    def was_heard(self, within: float = 0.0) -> bool:
        with selectors.DefaultSelector() as selector:
            try:
                selector.register(self._socket, selectors.EVENT_READ)
            except ValueError:  # Another thread closed it, since it was heard.
                return True
            return bool(selector.select(within))

    def close(self) -> None:
        self._socket.close()


class Knocking:
    """The knocks of one pool, and what it learns from them."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._lock = threading.Lock()
        self._unheard: dict[Target, Knock] = {}

    def is_there(self, target: Target) -> bool:
        """Does it say anything? Where there is nobody else to go to, it is waited for."""
        if len(self._nodes.targets()) == 1:
            return True
        try:
            knock = self._unheard.get(target) or Knock(target)
        except OSError:
            self._nodes.failed(target)
            return False
        was_heard = knock.was_heard(ANSWERS_S)
        with self._lock:
            kept = None if was_heard else self._unheard.setdefault(target, knock)
            if was_heard:
                self._unheard.pop(target, None)
        if kept is not knock:  # It has done its work; or another thread knocked meanwhile, and one knock is enough.
            knock.close()
        self._tell(target)
        return was_heard

    def missed(self, target: Target) -> None:
        """It did not even answer our greeting: it need not be waited for."""
        with self._lock, contextlib.suppress(OSError):
            if target not in self._unheard:
                self._unheard[target] = Knock(target)
                self._nodes.silent(target)

    def is_silent(self, target: Target) -> bool:
        """It was knocked at, and has not answered yet."""
        return target in self._unheard

    def listen(self) -> None:
        """Has one of them woken up?"""
        for target, knock in list(self._unheard.items()):
            with self._lock:
                if self._unheard.get(target) is not knock or not knock.was_heard():
                    continue
                del self._unheard[target]
                knock.close()
            self._tell(target)

    def close(self) -> None:
        with self._lock:
            for knock in self._unheard.values():
                knock.close()
            self._unheard.clear()

    def _tell(self, target: Target) -> None:
        if target in self._unheard:
            self._nodes.silent(target)
        else:
            self._nodes.answered(target)
