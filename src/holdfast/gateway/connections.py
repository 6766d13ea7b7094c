"""A connection to the gateway's HTTP port, before any request of it is looked at: bounded in time, bytes and number.

uvicorn's own protocol reads a head of any length, waits for it for ever, and takes any number of connections. Here a
connection counts as a stranger's (shell/strangers.py) until a request on it has shown who asks (doorkeeper.py); its
head must be complete after HEAD_S and have HEAD_BYTES_MAX at most; what follows a stranger's head stays unread until
somebody wants to read it.
"""
from __future__ import annotations

import asyncio
import contextlib
import resource
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.shell.strangers import DRAIN_BYTES_MAX, HEAD_BYTES_MAX, HEAD_S, Strangers

CLIENTS_MAX = 10_000
"""Connections at one time, if the system allows so many open files."""
DESCRIPTORS_SPARE = 64
"""File descriptors for everything but clients: the nodes, logs, a scrape."""
CLOSING_S = 1.0
"""How long a refused client has to read why."""
KEY = "holdfast.connection"
"""Where a request has its connection."""


class Places:
    """All connections of one gateway."""

    def __init__(self) -> None:
        self.strangers = Strangers()
        self.most = min(CLIENTS_MAX, descriptors(CLIENTS_MAX + DESCRIPTORS_SPARE) - DESCRIPTORS_SPARE)

    def protocol(self) -> type[asyncio.Protocol]:
        """What uvicorn makes for each connection."""
        return type("GuardedHere", (Guarded,), {"places": self})


def descriptors(wanted: int) -> int:
    """Ask the system for so many open files; how many it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if soft == resource.RLIM_INFINITY else soft


class Guarded(HttpToolsProtocol):
    places: Places

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.is_in_head = True
        self.head_bytes = 0
        self.drained = 0
        self.head_timer: asyncio.TimerHandle | None = self.loop.call_later(HEAD_S, self.give_up)
        if len(self.connections) > self.places.most and not self.places.strangers.make_room():
            self.refuse(503, "Service Unavailable", "this gateway has as many clients as it can have")
            return
        host, port = self.client or ("unknown", 0)
        self.places.strangers.arrive(self, f"[{host}]:{port}", self.drop)

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_timer()
        self.places.strangers.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        while data and not self.transport.is_closing():
            piece, data = data, b""
            if self.is_in_head:
                room = HEAD_BYTES_MAX - self.head_bytes
                piece, data = piece[:room], piece[room:]
            elif self.cycle is not None and self.cycle.response_complete:
                self.drained += len(piece)
                if self.drained > DRAIN_BYTES_MAX:
                    self.transport.abort()
                    return
            super().data_received(piece)
            if self.is_in_head:
                self.head_bytes += len(piece)
                if self.head_bytes >= HEAD_BYTES_MAX:
                    self.refuse(431, "Request Header Fields Too Large", f"a head has at most {HEAD_BYTES_MAX} bytes")
        waiting = 0 if self.cycle is None else len(self.cycle.body)
        self.places.strangers.holds(self, self.head_bytes + waiting)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.is_in_head = True
        self.head_bytes = self.drained = 0
        if self.head_timer is None:
            self.head_timer = self.loop.call_later(HEAD_S, self.give_up)
        cast(dict[str, Any], self.scope)[KEY] = self

    def on_headers_complete(self) -> None:
        self.is_in_head = False
        self.stop_timer()
        super().on_headers_complete()
        if self in self.places.strangers:
            self.flow.pause_reading()  # until somebody wants the body

    def on_response_complete(self) -> None:
        self.forget_body()
        super().on_response_complete()

    def forget_body(self) -> None:
        """What is left of it nobody will read."""
        if self.cycle is not None:
            self.cycle.body = type(self.cycle.body)()
        self.places.strangers.holds(self, self.head_bytes)

    def is_known(self) -> None:
        """A request has shown who asks."""
        self.places.strangers.leave(self)

    # -- the end -------------------------------------------------------------------------------------------

    def stop_timer(self) -> None:
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None

    def give_up(self) -> None:
        """It has said nothing, or not enough."""
        self.head_timer = None
        self.refuse(408, "Request Timeout", f"a head must be complete after {HEAD_S} s")

    def drop(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.refuse(429, "Too Many Requests", "too many clients are here that have not said who they are")
        else:
            self.forget_body()  # now: the loop may have hundreds of others to hear before it ends this one
            self.transport.abort()

    def refuse(self, status: int, title: str, words: str) -> None:
        self.stop_timer()
        self.places.strangers.leave(self)
        if self.transport.is_closing():
            return
        self.transport.write(
            f"HTTP/1.1 {status} {title}\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
            f"retry-after: 1\r\ncontent-length: {len(words) + 1}\r\n\r\n{words}\n".encode()
        )
        self.transport.close()
        self.loop.call_later(CLOSING_S, self.transport.abort)
