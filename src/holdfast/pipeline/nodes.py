"""The nodes of a cluster as the pipeline needs them: each by itself, since each has a history of its own.

A url names some nodes; the first that answers names all (HELLO). Connections are made when they are needed, kept, and
never pickled: a reader travels to executors without them.
"""
from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.client.connection import Connection
from holdfast.client.errors import BadRequest, Error, Refused, Unknown
from holdfast.client.resp import Arg, Reply
from holdfast.client.target import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, Target, none_reachable
from holdfast.client.values import items, text, whole
from holdfast.doors import split, targets

NOT_HOSTS: Final = ("", "0.0.0.0", "::", "?")
"""What a node says of itself while it does not know under which address others reach it."""


class Nodes:
    """All nodes of the cluster behind a url."""

    def __init__(self, url: str) -> None:
        scheme, rest = split(url)
        if scheme not in ("holdfast", "unix"):
            raise BadRequest(f"the pipeline reads nodes: give a url such as holdfast://host:port, not {scheme}:")
        self.url = url
        self.named = targets(scheme, rest, CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S)
        self._open: dict[Target, Connection] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "named": self.named, "_open": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def members(self) -> dict[str, Target]:
        """Id and place of every node, as the first one that answers has it."""
        failures: list[Error] = []
        for target in [*self._open, *self.named]:
            try:
                return self._members(target)
            except (Refused, Unknown) as error:
                failures.append(error)
        raise none_reachable(failures)

    def _members(self, target: Target) -> dict[str, Target]:
        _, me, *nodes = items(self.ask(target, "HELLO"))
        found: dict[str, Target] = {}
        for each in nodes:
            node, host, port = items(each)[:3]
            place = replace(target, host=text(host), port=whole(whole_number(port)), path="")
            found[text(node)] = target if node == me or place.host in NOT_HOSTS else place
        return found or {text(me): target}

    def ask(self, target: Target, *words: Arg, patience: float = 0.0) -> Reply:
        """One command at one node; an error reply is raised. A connection that broke while idle is made anew once."""
        connection = self._open.get(target)
        if connection is not None and connection.is_stale():
            connection.close()
            connection = None
        if connection is None:
            connection = self._open[target] = Connection(target)
        try:
            reply = connection.call(list(words), patience)
        except Unknown:
            self._open.pop(target, None)
            raise
        if isinstance(reply, Error):
            raise reply
        return reply

    def ask_many(self, target: Target, commands: Sequence[list[Arg]], patience: float = 0.0) -> list[Reply]:
        """Many commands in one go; error replies are among the answers."""
        self.ask(target, "PING")
        try:
            return self._open[target].call_many(commands, patience)
        except Unknown:
            self._open.pop(target, None)
            raise

    def close(self) -> None:
        for connection in self._open.values():
            with contextlib.suppress(Error):
                connection.close()
        self._open.clear()


def whole_number(reply: Reply) -> Reply:
    """Some numbers come as text."""
    return int(reply) if isinstance(reply, bytes) and reply.isdigit() else reply
