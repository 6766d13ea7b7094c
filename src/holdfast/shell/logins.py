"""Who the users are, and whether a secret is right: a file, a slow hash in a thread, and patience with guessers.

The file is TOML, one table per user, made by `holdfast users`:

    [users.alice]
    secret = "scrypt$14$8$1$<salt>$<hash>"
    roles = ["produce", "consume"]
    queues = ["mail.*"]

A secret is kept as an scrypt hash, which takes tens of milliseconds and 16 MB to try: in a thread, one at a time,
so that a crowd of guessers costs the loop nothing. A secret that was right once is known again by a keyed hash
in memory, so that a client which connects often does not wait. Each wrong try makes the next answer to
that address slower, up to a few seconds, and an unknown name takes as long as a known one.
"""
from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import re
import secrets
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast.core.rights import ROLE_NAMES, User
from holdfast.shell.bounds import GUESSERS_MAX, LOGINS_WAITING_MAX, WRONG_S_FIRST, WRONG_S_MOST
from holdfast.shell.settings import SettingsError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
COST, BLOCK, LANES = 14, 8, 1
"""scrypt: 2**14 rounds over 16 MB, the numbers its author gives for logins."""
SALT_BYTES = 16
HASH_BYTES = 32
MEMORY_BYTES = 64 * 1024 * 1024
SECRET_CHARS_MIN = 12
"""A secret that people choose is at least this long; those we make have 32 characters."""


def hash_secret(secret: str, salt: bytes | None = None) -> str:
    """As it is kept."""
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    digest = scrypt(secret.encode(), salt, COST, BLOCK, LANES)
    return "$".join(["scrypt", str(COST), str(BLOCK), str(LANES), text_of(salt), text_of(digest)])


def scrypt(secret: bytes, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    return hashlib.scrypt(secret, salt=salt, n=1 << cost, r=block, p=lanes, maxmem=MEMORY_BYTES, dklen=HASH_BYTES)


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")


class Kept:
    """A hash that is kept, taken apart."""

    def __init__(self, text: str) -> None:
        parts = text.split("$")
        if len(parts) != 6 or parts[0] != "scrypt" or not all(part.isdigit() for part in parts[1:4]):
            raise ValueError("its secret is no scrypt hash: make one with `holdfast users`")
        self.cost, self.block, self.lanes = (int(part) for part in parts[1:4])
        if not (10 <= self.cost <= 16 and 1 <= self.block <= 16 and 1 <= self.lanes <= 4):
            raise ValueError("its secret is hashed with numbers that no node would try")
        try:
            self.salt, self.digest = (base64.b64decode(part + "=" * (-len(part) % 4)) for part in parts[4:])
        except binascii.Error:
            raise ValueError("its secret is not written in base64") from None

    def is_right(self, secret: bytes) -> bool:
        found = scrypt(secret, self.salt, self.cost, self.block, self.lanes)
        return hmac.compare_digest(found, self.digest)


def read_users(path: Path) -> tuple[dict[bytes, User], dict[bytes, Kept]]:
    """The users in a file, and their hashes. Raises SettingsError."""
    try:
        table = tomllib.loads(path.read_text("utf-8")).get("users", {})
    except OSError as error:
        raise SettingsError(f"cannot read the users-file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the users-file {path} is not TOML: {error}") from None
    users: dict[bytes, User] = {}
    kept: dict[bytes, Kept] = {}
    for name, entry in table.items():
        try:
            users[name.encode()] = read_user(name, entry)
            kept[name.encode()] = Kept(str(entry["secret"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            words = str(error) if isinstance(error, ValueError) else "it takes a secret, roles and perhaps queues"
            raise SettingsError(f"the users-file {path}, user '{name}': {words}") from None
    if not users:
        raise SettingsError(f"the users-file {path} has no users: nobody could connect")
    return users, kept


def read_user(name: str, entry: dict[str, object]) -> User:
    if NAME.fullmatch(name) is None:
        raise ValueError("a name is made of letters, digits and . _ @ -, at most 64 of them")
    unknown = set(entry) - {"secret", "roles", "queues"}
    if unknown:
        raise ValueError(f"there is no '{sorted(unknown)[0]}' of a user")
    return User(name.encode(), read_roles(entry["roles"]), read_patterns(entry.get("queues", [])))


def read_roles(words: object) -> int:
    if not isinstance(words, list) or not words:
        raise ValueError("roles is a list of read, produce, consume, admin")
    roles = 0
    for word in words:
        if str(word).encode() not in ROLE_NAMES:
            raise ValueError(f"there is no role '{word}': read, produce, consume, admin")
        roles |= ROLE_NAMES[str(word).encode()]
    return roles


def read_patterns(words: object) -> list[bytes]:
    if not isinstance(words, list):
        raise ValueError("queues is a list of names or patterns such as mail.*")
    patterns = [str(word).encode() for word in words]
    return [] if b"*" in patterns else patterns


def entries_of(users: dict[bytes, User], kept: dict[bytes, Kept]) -> dict[str, tuple[int, list[bytes], bytes]]:
    """What is said of each, to be compared."""
    return {name.decode(): (user.roles, user.patterns, kept[name].digest) for name, user in users.items()}


class Logins:
    """Finds out whether secrets are right, and says so to `answer` when it has."""

    def __init__(self, path: Path, answer: Callable[[object, bytes, bool], None]) -> None:
        self.path = path
        self.answer = answer
        self.users, self.kept = read_users(path)
        self.key = secrets.token_bytes(32)
        self.known: dict[bytes, bytes] = {}  # user -> keyed hash of the secret that was right
        self.nobody = Kept(hash_secret(secrets.token_hex()))
        self.thread = ThreadPoolExecutor(1, "holdfast-login")
        self.waiting = 0
        self.wrong: dict[str, int] = {}  # tries that were wrong, by address; the oldest are forgotten
        self.tasks: set[asyncio.Task[None]] = set()

    def reload(self) -> str:
        """Read the file again; who has changed. Raises SettingsError, and then all stays as it was."""
        before = entries_of(self.users, self.kept)
        self.users, self.kept = read_users(self.path)
        self.known.clear()
        after = entries_of(self.users, self.kept)
        groups = {
            "added": after.keys() - before.keys(), "removed": before.keys() - after.keys(),
            "changed": {name for name in after.keys() & before.keys() if after[name] != before[name]},
        }
        said = [f"{word} {', '.join(sorted(names))}" for word, names in groups.items() if names]
        return "; ".join(said) or "the same as before"

    def check(self, session: object, address: str, name: bytes, secret: bytes) -> None:
        task = asyncio.get_running_loop().create_task(self.find_out(session, address, name, secret))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def find_out(self, session: object, address: str, name: bytes, secret: bytes) -> None:
        host = address.rpartition(":")[0]
        mark = hmac.digest(self.key, name + b"\0" + secret, "sha256")
        known = self.known.get(name)
        if known is not None and hmac.compare_digest(known, mark):
            self.answer(session, name, True)
            return
        is_right = False
        if self.waiting < LOGINS_WAITING_MAX:
            kept = self.kept.get(name)
            self.waiting += 1
            try:
                loop = asyncio.get_running_loop()
                is_right = await loop.run_in_executor(self.thread, (kept or self.nobody).is_right, secret)
            finally:
                self.waiting -= 1
            is_right = is_right and kept is not None and self.kept.get(name) is kept
        if is_right:
            self.known[name] = mark
            self.wrong.pop(host, None)
        else:
            await asyncio.sleep(self.patience(host))
        self.answer(session, name, is_right)

    def patience(self, host: str) -> float:
        """How long somebody waits who was wrong: twice as long each time."""
        tries = self.wrong.pop(host, 0) + 1
        self.wrong[host] = tries
        if len(self.wrong) > GUESSERS_MAX:
            del self.wrong[next(iter(self.wrong))]
        return min(WRONG_S_MOST, float(WRONG_S_FIRST * 2 ** min(tries - 1, 16)))

    def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        self.thread.shutdown(wait=False, cancel_futures=True)
