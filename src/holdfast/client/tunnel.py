"""Channels through a gateway: the commands of a node as they are, inside HTTP or gRPC.

    holdfast.open("http://gateway:7780")      holdfast.open("https://alice:secret@gateway:7780")
    holdfast.open("grpc://gateway:7790")      holdfast.open("grpcs://gateway:7790?ca=ca.pem")

A channel runs commands, and a gateway has a call for just that; so everything a queue can do it can do here, with the
same answers. What is lost on the way is told as ever: a request that was sent and not answered is `Unknown`, one that
could not be sent is `Unreachable`.

Here is what both have in common; `by_http` and `by_grpc` are the two.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from .asks import Undo
from .errors import (
    BadReply,
    BadRequest,
    Error,
    NoAnswer,
    NotAllowed,
    Refused,
    from_reply,
)
from .resp import NOT_READY, Argv, ProtocolError, Reply, new_reader

SLACK_S: Final = 10.0
"""How much longer than the node may hold an answer back we wait for it."""


class Place:
    """A gateway: where it is, who we are to it, and how patient we are."""

    def __init__(self, url: str, connect_timeout: float, answer_timeout: float | None) -> None:
        parts = urlsplit(url)
        self.scheme = parts.scheme
        self.is_safe = parts.scheme.endswith("s")
        if not parts.hostname or parts.path not in ("", "/"):
            raise BadRequest(f"a {parts.scheme} url is {parts.scheme}://host:port")
        try:
            port = parts.port
        except ValueError:
            raise BadRequest("the port of the url is no port") from None
        self.port = port or (7780 if parts.scheme.startswith("http") else 7790)
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.address = f"{host}:{self.port}"
        self.authorization = ""
        if parts.username is not None:
            from urllib.parse import unquote

            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self.authorization = "Basic " + base64.b64encode(login.encode()).decode()
        self.files = dict(pair.partition("=")[::2] for pair in parts.query.split("&") if pair)
        for name in self.files:
            if name not in ("ca", "cert", "key"):
                raise BadRequest(f"a {self.scheme} url takes ca, cert and key after the question mark, not {name!r}")
        self.connect_timeout = connect_timeout
        self.answer_timeout = answer_timeout

    def wait_s(self, patience: float | None) -> float | None:
        if patience is None or self.answer_timeout is None:
            return None
        return self.answer_timeout + patience + (SLACK_S if patience else 0.0)

    def read(self, name: str) -> bytes | None:
        path = self.files.get(name)
        if path is None:
            return None
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise BadRequest(f"cannot read {name}={path}: {error.strerror}") from None


def read_replies(data: bytes, count: int) -> list[Reply]:
    reader = new_reader()
    reader.feed(data)
    found: list[Reply] = []
    try:
        while len(found) < count and (reply := reader.gets()) is not NOT_READY:
            found.append(reply)
    except ProtocolError as error:
        raise BadReply(f"the gateway answers with what is not RESP: {error}") from None
    if len(found) != count:
        raise BadReply(f"the gateway answered {len(found)} of {count} commands")
    return found


def refusal(status: int, detail: str, code: str) -> Error:
    """What a gateway says that did not run our commands."""
    made = from_reply(f"{code or 'ERR'} {detail}")
    if type(made) is not BadRequest:
        return made
    if status in (401, 403):
        return NotAllowed(detail, code or "NOAUTH")
    if status == 504:
        return NoAnswer(detail)
    if status >= 500 or status == 429:
        return Refused(detail, code or "REFUSED")
    return made


class Through:
    """A channel through a gateway. What a caller that was interrupted has taken, the gateway gives back by itself."""

    def call(self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None, near: str = "") -> Reply:
        return self._send([argv], patience, near)[0]

    def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]:
        return self._send(commands, 0.0, near) if commands else []

    def _send(self, commands: Sequence[Argv], patience: float | None, near: str) -> list[Reply]:
        raise NotImplementedError


class AsyncThrough:
    """The same for asyncio."""

    async def call(
        self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None, near: str = ""
    ) -> Reply:
        return (await self._send([argv], patience, near))[0]

    async def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]:
        return await self._send(commands, 0.0, near) if commands else []

    async def _send(self, commands: Sequence[Argv], patience: float | None, near: str) -> list[Reply]:
        raise NotImplementedError
