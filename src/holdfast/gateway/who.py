"""Who is calling, and what they may do: the users of `holdfast users`, by bearer token or by name and secret.

    Authorization: Bearer alice.<secret>
    Authorization: Basic  base64(alice:<secret>)

The gateway itself is one client of the nodes. What a caller may do is therefore decided here, with the same table
of roles and queues that nodes use (core/users.py): every call becomes a command of the node, and each command passes
through the one place that checks it, `Allowed`. Which queue a job is in only the nodes know; they are asked for
callers who are bound to queues. Without a users file everybody may do everything, and then the
gateway listens on this machine only unless it is told --insecure.

A token may be bound to less than its user: `alice.<secret>;scope=read;queues=mail.*` has no more rights than both
say. It is cut down by its bearer, so that a program can be given less without a new user.
"""
from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.client.asks import Undo
from holdfast.client.errors import Error, NotAllowed
from holdfast.client.queue import AsyncChannel
from holdfast.client.resp import Argv, Reply, to_bytes
from holdfast.core import users
from holdfast.core.rights import ADMIN, ALL_ROLES, User
from holdfast.gateway.problems import TooMany, Unauthorized
from holdfast.shell.logins import Logins, read_roles
from holdfast.shell.settings import SettingsError

ANYBODY = User(b"anybody", ALL_ROLES, [])


class Door:
    """Knows the users, and finds out who somebody is."""

    def __init__(self, path: Path | None) -> None:
        self.logins = Logins(path, answer) if path is not None else None

    @property
    def is_open(self) -> bool:
        """Whether anybody may come in."""
        return self.logins is None

    async def who(self, authorization: str, address: str) -> User:
        """The user that an Authorization header proves. Raises Unauthorized."""
        if self.logins is None:
            return ANYBODY
        name, secret, narrower = read_authorization(authorization)
        return narrow(await self.login(name, secret, address), narrower)

    async def login(self, name: str, secret: str, address: str) -> User:
        """The user with that secret. Raises Unauthorized."""
        if self.logins is None:
            return ANYBODY
        await prove(self.logins, address, name.encode(), secret.encode(), "this user and secret do not belong together")
        return self.logins.users[name.encode()]

    def reload(self) -> None:
        if self.logins is not None:
            self.logins.reload()

    def close(self) -> None:
        if self.logins is not None:
            self.logins.close()


class OneSecret(Door):
    """One secret for everybody, whatever name they give: an embedded queue that its program serves has no users."""

    def __init__(self, secret: str) -> None:
        super().__init__(None)
        self._secret = Logins(None, answer)
        self._secret.set_password(secret.encode())

    @property
    def is_open(self) -> bool:
        return False

    async def who(self, authorization: str, address: str) -> User:
        _, secret, narrower = read_authorization(authorization)
        await prove(self._secret, address, users.DEFAULT, secret.encode(), "this is not the secret")
        return narrow(ANYBODY, narrower)

    def close(self) -> None:
        self._secret.close()


def answer(waiting: object, name: bytes, verdict: int) -> None:
    assert isinstance(waiting, asyncio.Future)
    if not waiting.done():
        waiting.set_result(verdict)


async def prove(logins: Logins, address: str, name: bytes, secret: bytes, words: str) -> None:
    """Raises Unauthorized, with these words, or TooMany if nobody has looked at the secret."""
    found: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    logins.check(found, address, name, secret)
    verdict = await found
    if verdict == users.LATER:
        raise TooMany("too many logins were wrong or wait; this secret was not looked at. Try again later")
    if verdict != users.RIGHT:
        raise Unauthorized(words)


def read_authorization(text: str) -> tuple[str, str, str]:
    """Name, secret, and what a token is bound to. Raises Unauthorized."""
    scheme, _, rest = text.strip().partition(" ")
    if scheme.lower() == "bearer":
        token, _, narrower = rest.strip().partition(";")
        name, dot, secret = token.partition(".")
        if dot:
            return name, secret, narrower
        raise Unauthorized("a bearer token is <user>.<secret>")
    if scheme.lower() == "basic":
        try:
            name, colon, secret = base64.b64decode(rest, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise Unauthorized("this is not name and secret in base64") from None
        if colon:
            return name, secret, ""
    raise Unauthorized("say who you are: Authorization: Bearer <user>.<secret>")


def narrow(user: User, words: str) -> User:
    """The same user with fewer rights. A pattern is no name: that mail.* fits mail.? does not make it less, so what the
    token says holds beside what the user has, and not in its place."""
    roles, patterns, within = user.roles, user.patterns, user.within
    for word in filter(None, words.split(";")):
        key, _, value = word.strip().partition("=")
        try:
            if key == "scope":
                scope = read_roles(value.split(","))
                roles = scope if roles & ADMIN else roles & scope
                continue
            if key == "queues":
                asked = value.split(",")
                if "*" in asked:
                    continue  # all that the user has
                patterns = [p.encode() for p in asked if not user.patterns or users.may_touch(user, p.encode())]
                if not patterns:
                    raise Unauthorized("this token is bound to queues that its user may not touch")
                within = user.patterns
                continue
        except (ValueError, SettingsError) as error:
            raise Unauthorized(f"this token is bound to nothing there is: {error}") from None
        raise Unauthorized(f"a token is bound by scope= and queues=, not by {key!r}")
    return User(user.name, roles, patterns, within)


def check(user: User, argv: Argv) -> None:
    """Raises NotAllowed if that user may not run this command."""
    if user.may_all() or user is ANYBODY:
        return
    words = [to_bytes(word) for word in argv]
    name = words[0].upper()
    roles, where = users.needs(name, words)
    if not user.roles & (roles | ADMIN):
        wanted = " or ".join(role.decode() for role in users.names_of(roles))
        raise NotAllowed(f"the user '{user.name.decode()}' may not do this: it takes the role {wanted}", "NOPERM")
    if user.patterns:
        for queue in users.named(words, where):
            check_queue(user, queue)


def check_queue(user: User, queue: bytes) -> None:
    if not users.may_touch(user, queue):
        name = queue.decode("utf-8", "backslashreplace")
        what = "all queues" if queue == users.ALL_QUEUES else f"the queue '{name}'"
        raise NotAllowed(f"the user '{user.name.decode()}' may not touch {what}", "NOPERM")


def things_of(argv: Argv) -> tuple[list[bytes], bytes]:
    """The jobs, and the schedule, that a command names; in others than these an id may be anything, such as a body."""
    words = [to_bytes(word) for word in argv]
    _, where = users.needs(words[0].upper(), words)
    return users.jobs_in(words, where), users.schedule_in(words, where)


async def queues_of(channel: AsyncChannel, jobs: list[bytes]) -> set[bytes]:
    """The queues these jobs are in. The node that made a job is asked first, then the others; a job that none of them
    knows says nothing (see core/users.py)."""
    found: set[bytes] = set()
    made_by: dict[str, list[bytes]] = {}
    for job in jobs:
        made_by.setdefault(job[2:10].decode(), []).append(job)
    left: list[bytes] = []
    for near, group in made_by.items():
        left += await look(channel, group, near, found)
    if left:
        members = await channel.call([b"CLUSTER", b"NODES"])
        for line in members.splitlines() if isinstance(members, bytes) else ():
            left = left and await look(channel, left, line[:8].decode(), found)
    return found


async def look(channel: AsyncChannel, jobs: list[bytes], near: str, found: set[bytes]) -> list[bytes]:
    """Add the queues of those that this node knows; the others."""
    left: list[bytes] = []
    for job, reply in zip(jobs, await channel.call_many([[b"SHOW", job] for job in jobs], near), strict=True):
        queue = queue_in(reply)
        if queue is not None:
            found.add(queue)
        else:
            left.append(job)
    return left


def queue_in(reply: Reply) -> bytes | None:
    """The queue of a job or a schedule that a node has described."""
    view = dict(zip(reply[::2], reply[1::2], strict=True)) if isinstance(reply, list) else reply
    queue = view.get(b"queue") if isinstance(view, dict) else None
    return queue if isinstance(queue, bytes) else None


async def queue_of(channel: AsyncChannel, schedule: bytes) -> bytes | None:
    """The queue a schedule adds to. All nodes know all of them. Raises what a node says that cannot tell."""
    reply = await channel.call([b"CRON", b"GET", schedule])
    if isinstance(reply, Error):
        raise reply
    return queue_in(reply)


class Allowed:
    """A channel for one user: the same as for all, behind a check."""

    def __init__(self, channel: AsyncChannel, user: User) -> None:
        self.channel = channel
        self.user = user

    async def call(
        self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None, near: str = ""
    ) -> Reply:
        await self.check([argv])
        return await self.channel.call(argv, patience, undo, near)

    async def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]:
        await self.check(commands)
        return await self.channel.call_many(commands, near)

    async def check(self, commands: Sequence[Argv]) -> None:
        """Raises NotAllowed if one of them is not for this user."""
        for argv in commands:
            check(self.user, argv)
        if not self.user.patterns:
            return
        things = [things_of(argv) for argv in commands]
        jobs = {job: None for named, _ in things for job in named}
        for queue in await queues_of(self.channel, list(jobs)):
            check_queue(self.user, queue)
        for schedule in {schedule: None for _, schedule in things if schedule}:
            found = await queue_of(self.channel, schedule)
            if found is not None:
                check_queue(self.user, found)

    async def close(self) -> None:
        """The channel is everybody's."""


def address_of(client: Any) -> str:
    """host:port as Logins wants it."""
    return f"{client.host}:{client.port}" if client is not None else "unknown:0"
